// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package sanitize

import (
	"bytes"
	"fmt"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

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
