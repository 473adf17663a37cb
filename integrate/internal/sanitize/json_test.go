// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package sanitize

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

// TestJSON checks, for every character, that JSON of an encoder's output is valid, means the same, and
// contains printable characters only; and that it leaves printable text as it is.
func TestJSON(t *testing.T) {
	const block = 1 << 10
	for first := rune(0); first <= unicode.MaxRune; first += block {
		var b strings.Builder
		printable := true
		for r := first; r < first+block; r++ {
			b.WriteString("a" + string(r) + "b")
			printable = printable && unicode.IsPrint(r)
		}
		in := b.String()
		text, err := json.Marshal(map[string]string{in: in})
		if err != nil {
			t.Fatal(err)
		}
		out := JSON(text)
		var back map[string]string
		if err := json.Unmarshal(out, &back); err != nil || back[in] != in {
			t.Fatalf("%U: %s becomes %s (%v)", first, text, out, err)
		}
		if bad := strings.IndexFunc(string(out), func(r rune) bool { return !unicode.IsPrint(r) }); bad >= 0 {
			t.Fatalf("%U: the output %q has characters that are not printable", first, out)
		}
		if printable && string(out) != string(text) {
			t.Fatalf("%U: %s becomes %s", first, text, out)
		}
	}
	if got := string(JSON([]byte("[\n \"\u009b\u202ex\U000e0001\"\n]"))); got != "[\n \"\\u009b\\u202ex\\udb40\\udc01\"\n]" {
		t.Errorf("got %s", got)
	}
}
