// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"strconv"
	"strings"
)

// check reports what makes the matcher unusable.
func (m *StringMatch) check() error {
	switch {
	case m.Kind > MatchRegex:
		return fmt.Errorf("unknown match kind %d", m.Kind)
	case m.Kind == MatchRegex && m.Regex == nil:
		return fmt.Errorf("regex match without a regex")
	}
	return nil
}

// matches reports whether s matches (A63). It does not allocate.
func (m *StringMatch) matches(s string) bool {
	v := m.Value
	switch m.Kind {
	case MatchPrefix, MatchExact, MatchSuffix:
		if len(s) < len(v) || m.Kind == MatchExact && len(s) != len(v) {
			return false
		}
		if m.Kind == MatchSuffix {
			s = s[len(s)-len(v):]
		} else {
			s = s[:len(v)]
		}
		return s == v || m.IgnoreCase && equalFold(s, v)
	case MatchContains:
		if !m.IgnoreCase {
			return strings.Contains(s, v)
		}
		for ; len(s) >= len(v); s = s[1:] {
			if equalFold(s[:len(v)], v) {
				return true
			}
		}
		return false
	default:
		return m.Regex.MatchString(s)
	}
}

// equalFold reports whether a and b, which are of the same length, are equal but
// for the case of ASCII letters. strings.EqualFold folds more: it takes the
// Kelvin sign for a k. Lower-casing first would allocate for each RPC (T-RC-7).
func equalFold(a, b string) bool {
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && equalFold(s[:len(prefix)], prefix)
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// lowerAll folds like lower, so unlike strings.ToLower it leaves everything else
// alone, invalid UTF-8 included.
func lowerAll(s string) string {
	b := []byte(s)
	for i, c := range b {
		b[i] = lower(c)
	}
	return string(b)
}

func (m *HeaderMatch) check() error {
	switch {
	case m.Kind > HeaderPresent:
		return fmt.Errorf("header %q: unknown match kind %d", m.Name, m.Kind)
	case m.Kind == HeaderString:
		if err := m.String.check(); err != nil {
			return fmt.Errorf("header %q: %w", m.Name, err)
		}
	}
	return nil
}

// matches reports whether the values of a header match (T-RC-3). It allocates
// only if there are several to be joined, or to refuse a number.
func (m *HeaderMatch) matches(values []string) bool {
	if len(values) == 0 {
		return m.Kind == HeaderPresent && m.Present == m.Invert
	}
	v := values[0]
	if len(values) > 1 && m.Kind != HeaderPresent {
		v = strings.Join(values, ",")
	}
	switch m.Kind {
	case HeaderPresent:
		return m.Present != m.Invert
	case HeaderString:
		return m.String.matches(v) != m.Invert
	default: // HeaderRange
		n, err := strconv.ParseInt(v, 10, 64)
		return (err == nil && m.Start <= n && n < m.End) != m.Invert
	}
}

// settled reports whether the match comes out the same for all RPCs, and how: a
// binary header is never visible and the content type is known (A28).
func (m *HeaderMatch) settled() (settled, match bool) {
	switch {
	case strings.HasSuffix(m.Name, "-bin"):
		return true, m.matches(nil)
	case m.Name == "content-type":
		return true, m.matches(contentType)
	}
	return false, false
}

// contentType is that of all RPCs, as far as routes and hash policies see; never
// written.
var contentType = []string{"application/grpc"}
