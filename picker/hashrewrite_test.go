// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"math"
	"math/rand/v2"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// TestRewriteOracle checks that a rewritten value is that of regexp, cut at the limit.
func TestRewriteOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	text := func(parts ...string) string {
		var b strings.Builder
		for range rng.IntN(6) {
			b.WriteString(parts[rng.IntN(len(parts))])
		}
		return b.String()
	}
	for range 20_000 {
		re, err := regexp.Compile(text("a", "b", ".", "^", "$", `\b`, "(a)", "(b|c)?", "a*", "(?P<name>c)", "|"))
		if err != nil {
			continue
		}
		p := HashPolicy{Rewrite: re, Substitution: text("a", "$$", "$", "${0}", "${1}", "$1", "$1x", "$name", "${name}", "${2", "}", "{", "é", "\\")}
		value := text("a", "b", "c", "é", "ab", " ")
		if got, want := p.rewrite(value), re.ReplaceAllString(value, p.Substitution); got != want {
			t.Fatalf("%q of %q with %q is %q, want %q", re, value, p.Substitution, got, want)
		}
	}
	for _, tt := range []struct{ pattern, substitution, value string }{
		{".", strings.Repeat("x", 1000), strings.Repeat("a", 100)},
		{".", "${0}", strings.Repeat("a", 12_000)},
		{"b", "", strings.Repeat("a", 1<<20)},
		{"$", "b", strings.Repeat("a", 1<<20)},
		{".*", strings.Repeat("${0}", 100), strings.Repeat("a", 1000)},
	} {
		p := HashPolicy{Rewrite: regexp.MustCompile(tt.pattern), Substitution: tt.substitution}
		want := p.Rewrite.ReplaceAllString(tt.value, p.Substitution)
		if got := p.rewrite(tt.value); got != want[:min(len(want), 16<<10)] {
			t.Errorf("%q with %.10q is %.20q of %d bytes, want %.20q of %d", tt.pattern, tt.substitution, got, len(got), want, min(len(want), 16<<10))
		}
	}
}

// TestRewriteBounds checks that a pick allocates at most 1 MiB for a rewritten value, whatever the
// expression, the substitution and the header are (T-SEC-2).
func TestRewriteBounds(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes sync.Pool drop buffers of package regexp at random")
	}
	for name, p := range map[string]HashPolicy{
		"a long substitution": {Rewrite: regexp.MustCompile("."), Substitution: strings.Repeat("x", 1<<10)},
		"many references":     {Rewrite: regexp.MustCompile(".*"), Substitution: strings.Repeat("${0}", 512)},
		"many groups":         {Rewrite: regexp.MustCompile(strings.Repeat("()", 2000)), Substitution: "${1}"},
		"nothing":             {Rewrite: regexp.MustCompile("(.)")},
	} {
		value := strings.Repeat("a", 16<<10)
		// Package regexp keeps its buffers, unless the garbage collector takes them. Other
		// goroutines may allocate as well.
		size, n := uint64(math.MaxUint64), 0
		for range 10 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			n = len(p.rewrite(value))
			runtime.ReadMemStats(&after)
			size = min(size, after.TotalAlloc-before.TotalAlloc)
		}
		if size > 1<<20 || n > 16<<10 {
			t.Errorf("%s: a value allocates %d bytes, and %d are hashed", name, size, n)
		}
	}
}
