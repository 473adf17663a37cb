// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package visible makes text of others, such as names that a control plane chooses, fit to be
// shown: in a page, in a terminal, in a line.
package visible

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns s with what does not show, or shows as something else, written as an escape:
// control characters, ESC among them, marks that turn the direction of text, characters
// without width, line breaks, and bytes that are not UTF-8. If that is more than max
// characters, it is cut, and ends in "…" as the last of them; max below 1 is no limit.
// O(max) if there is a limit.
func Text(s string, max int) string {
	if max < 1 {
		max = len(s) * len(`\U0001f600`)
	}
	var b strings.Builder
	width, cut := 0, 0 // cut is how long b is without its last character
	for i, r := range s {
		piece := escape(s[i:], r)
		width += utf8.RuneCountInString(piece)
		if width > max {
			return b.String()[:cut] + "…"
		}
		if width < max {
			cut = b.Len() + len(piece)
		}
		b.WriteString(piece)
	}
	return b.String()
}

// escape returns how the first character of s shows, which is r.
func escape(s string, r rune) string {
	switch {
	case r == utf8.RuneError && !strings.HasPrefix(s, "\uFFFD"):
		return fmt.Sprintf(`\x%02x`, s[0])
	case unicode.IsPrint(r):
		return string(r)
	case r < 0x80:
		return fmt.Sprintf(`\x%02x`, r)
	case r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}
