// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package overlay

import "strings"

// glob is a pattern in which "*" matches any characters, also none.
type glob string

// match reports whether the whole of s matches. It is O(len(g) + len(s)) and does not allocate.
func (g glob) match(s string) bool {
	part, rest, wild := strings.Cut(string(g), "*")
	if !wild {
		return s == part
	}
	s, ok := strings.CutPrefix(s, part)
	for ok {
		if part, rest, wild = strings.Cut(rest, "*"); !wild {
			return strings.HasSuffix(s, part)
		}
		_, s, ok = strings.Cut(s, part)
	}
	return false
}

// mayMatchPrefix reports whether a string that begins with prefix may match. It may report true
// where none does.
func (g glob) mayMatchPrefix(prefix string) bool {
	literal, _, wild := strings.Cut(string(g), "*")
	if !wild {
		return strings.HasPrefix(literal, prefix)
	}
	n := min(len(literal), len(prefix))
	return literal[:n] == prefix[:n]
}
