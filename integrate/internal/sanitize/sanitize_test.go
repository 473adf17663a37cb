// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package sanitize

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/xdslb/xdslb/bench/kit"
)

func TestText(t *testing.T) {
	for _, row := range []struct {
		in   string
		max  int
		want string
	}{
		{"", 1, ""},
		{"orders", 0, "orders"},
		{"orders", 6, "orders"},
		{"orders", 5, "orde…"},
		{"größe 東京", 0, "größe 東京"},
		{"東京都", 2, "東…"},
		{"\x1b[2J", 0, `\x1b[2J`},
		{"a\nb\tc", 0, `a\x0ab\x09c`},
		{"a\u202egnp.exe", 0, `a\u202egnp.exe`},
		{"zero\u200bwidth", 0, `zero\u200bwidth`},
		{"\u00a0", 0, `\u00a0`},
		{"\U000e0041", 0, `\U000e0041`},
		{"\xff\uFFFD", 0, "\\xff\uFFFD"},
		{"abc\u202ed", 7, "abc…"},
		{"abc\u202ed", 10, `abc\u202ed`},
		{"abc\u202ed", 9, "abc…"},
	} {
		if got := Text(row.in, row.max); got != row.want {
			t.Errorf("Text(%q, %d) = %q, want %q", row.in, row.max, got, row.want)
		}
	}
}

// TestTextProperties: for random text, the result is printable and no longer than the limit.
func TestTextProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		raw := make([]byte, rng.IntN(40))
		for i := range raw {
			raw[i] = "ab \x1b\n\xe2\x80\xae\xff\xf0\x9f"[rng.IntN(11)]
		}
		max := rng.IntN(30)
		got := Text(string(raw), max)
		if max > 0 && utf8.RuneCountInString(got) > max || !utf8.ValidString(got) ||
			strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("Text(%q, %d) = %q", raw, max, got)
		}
	}
}

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
		kit.Must(t, err)
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
