// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package overlay

import "strings"

// glob is a pattern in which "*" matches any characters, also none.
type glob string

// match reports whether the whole of s matches. It is O(len(g) × len(s)) and does not allocate.
func (g glob) match(s string) bool {
	pattern := string(g)
	star, from := -1, 0 // the latest "*", and where in s its match ends at the earliest
	i, j := 0, 0
	for j < len(s) {
		switch {
		case i < len(pattern) && pattern[i] == '*':
			star, from = i, j
			i++
		case i < len(pattern) && pattern[i] == s[j]:
			i++
			j++
		case star >= 0:
			from++
			i, j = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(pattern[i:], "*") == ""
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
