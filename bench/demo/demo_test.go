// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/leak"
)

// TestDemo runs the scenario in this process; under -race it is the race and
// leak test of the whole path.
func TestDemo(t *testing.T) {
	leak.Check(t)
	w := &kit.Logs{OnLog: func(text string) { t.Logf("%s", text) }}
	kit.Must(t, Run(t.Context(), Options{Out: w, Measure: time.Second}))
	fits(t, w.String())
	if !strings.Contains(w.String(), "claims hold.") {
		t.Error("there is no verdict at the end")
	}
}

// An interrupted demo prints its progress.
func TestInterrupted(t *testing.T) {
	leak.Check(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := &kit.Logs{OnLog: func(text string) {
		if strings.Contains(text, "[2/5]") {
			cancel()
		}
	}}
	if err := Run(ctx, Options{Out: w, Measure: time.Second}); !errors.Is(err, context.Canceled) {
		t.Fatalf("Run = %v, want %v", err, context.Canceled)
	}
	if want := "in act 2 of 5: so far all 10 claims hold.\n"; !strings.HasSuffix(w.String(), want) {
		t.Errorf("the last words are not %q", want)
	}
}

// The longest lines that there can be fit into a terminal, on which one
// overwrites the other.
func TestShow(t *testing.T) {
	w := new(kit.Logs)
	s := &show{out: w, live: true, begin: time.Now().Add(-59 * time.Second), total: 1}
	s.open("An act")
	s.note("%s", strings.Repeat("a word or two ", 20))
	s.status("%s", strings.Repeat("… ", 60))
	s.share("its endpoint 0, weight 8 of 10", .5, .1234, .1234)
	s.count("failed RPCs, in flight when they were killed", 0, 0)
	if made, held := s.sum(); made != 2 || held != 1 {
		t.Errorf("%d of %d claims held, want 1 of 2", held, made)
	}
	fits(t, w.String())
	if got := strings.Count(w.String(), "FAIL"); got != 2 {
		t.Errorf("the claim that does not hold is printed %d times, want at once and at the end", got)
	}
}

// fits fails the test if a line is wider than a terminal.
func fits(t *testing.T, text string) {
	t.Helper()
	for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }) {
		line = strings.TrimPrefix(line, "\x1b[2K")
		if n := utf8.RuneCountInString(line); n >= columns {
			t.Errorf("%d columns: %q", n, line)
		}
	}
}
