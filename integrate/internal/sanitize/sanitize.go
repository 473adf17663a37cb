// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package sanitize makes untrusted text, such as names chosen by a control plane, safe to
// print on a page, on a terminal or in a log line.
package sanitize

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text returns s with invisible and misleading characters escaped: control characters
// including ESC, bidirectional marks, zero-width characters, line breaks, and bytes that are
// not UTF-8. A result longer than max characters is truncated to max, the last of which is
// "…"; max < 1 means no limit. O(max) if there is a limit.
func Text(s string, max int) string {
	if max < 1 {
		max = len(s) * len(`\U0001f600`)
	}
	var b strings.Builder
	width, cut := 0, 0 // cut is the length of b without its last character
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

// escape returns the printable form of r, the first character of s.
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

// JSON returns valid JSON with the characters that Text escapes as \uXXXX: encoders escape control
// characters of ASCII only. The result means the same. It is b itself if there is nothing to escape.
func JSON(b []byte) []byte {
	var out bytes.Buffer
	done := 0 // bytes of b that are in out
	for i := 0; i < len(b); {
		if b[i] < utf8.RuneSelf {
			if b[i] == 0x7f {
				out.Write(b[done:i])
				out.WriteString(`\u007f`)
				done = i + 1
			}
			i++
			continue
		}
		r, size := utf8.DecodeRune(b[i:])
		if !unicode.IsPrint(r) {
			out.Write(b[done:i])
			if hi, lo := utf16.EncodeRune(r); hi != unicode.ReplacementChar {
				fmt.Fprintf(&out, `\u%04x\u%04x`, hi, lo)
			} else {
				fmt.Fprintf(&out, `\u%04x`, r)
			}
			done = i + size
		}
		i += size
	}
	if done == 0 {
		return b
	}
	out.Write(b[done:])
	return out.Bytes()
}
