// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import "strings"

// Limits of the rewritten value of a header, which a pick makes (T-SEC-2). A substitution may repeat the
// value hundreds of times for each match.
const (
	maxRewritten     = 16 << 10 // bytes that are hashed
	maxRewriteGroups = 8 << 10  // groups of the expression in all matches that are replaced
)

// rewrite returns the value that is hashed: like ReplaceAllString of the expression, but at most
// maxRewritten bytes. Beyond maxRewriteGroups, matches are not replaced.
func (p *HashPolicy) rewrite(value string) string {
	matches := p.Rewrite.FindAllStringSubmatchIndex(value, max(maxRewriteGroups/(1+p.Rewrite.NumSubexp()), 1))
	if matches == nil {
		return value[:min(len(value), maxRewritten)]
	}
	var dst []byte
	end := 0 // of the previous match
	for _, match := range matches {
		dst = append(dst, value[end:match[0]]...)
		for rest := p.Substitution; rest != "" && len(dst) < maxRewritten; {
			n := templateToken(rest)
			dst = p.Rewrite.ExpandString(dst, rest[:n], value, match)
			rest = rest[n:]
		}
		if end = match[1]; len(dst) >= maxRewritten {
			return string(dst[:maxRewritten])
		}
	}
	dst = append(dst, value[end:]...)
	return string(dst[:min(len(dst), maxRewritten)])
}

// templateToken returns the length of the first part of a template of regexp.Expand that can be expanded by
// itself: $$, a variable with its $, or the text before.
func templateToken(s string) int {
	start := strings.IndexByte(s, '$')
	switch {
	case start < 0:
		return len(s)
	case start > 0:
		return start
	case strings.HasPrefix(s, "$$"):
		return 2
	}
	if next := strings.IndexByte(s[1:], '$'); next >= 0 {
		s = s[:1+next]
	}
	if end := strings.IndexByte(s, '}'); strings.HasPrefix(s, "${") && end >= 0 {
		return end + 1
	}
	return len(s) // Expand finds the end of the variable's name
}
