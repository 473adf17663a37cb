// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// handler keeps records as lines. It blocks while gate is not closed.
type handler struct {
	gate chan struct{}

	mu    sync.Mutex
	lines []string
}

func (*handler) Enabled(context.Context, slog.Level) bool { return true }
func (h *handler) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h *handler) WithGroup(string) slog.Handler          { return h }
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	if h.gate != nil {
		<-h.gate
	}
	line := r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += " " + a.String()
		return true
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, line)
	return nil
}

// take returns the lines since the last call, once all are written.
func (h *handler) take() []string {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	lines := h.lines
	h.lines = nil
	return lines
}

// testLog calls f with a Log in virtual time.
func testLog(t *testing.T, f func(t *testing.T, l *Log, h *handler)) {
	synctest.Test(t, func(t *testing.T) {
		h := &handler{}
		l := NewLog(func() *slog.Logger { return slog.New(h) })
		defer l.Close()
		f(t, l, h)
	})
}

func check(t *testing.T, h *handler, want ...string) {
	t.Helper()
	if got := h.take(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("lines = %q, want %q", got, want)
	}
}

func TestRepeats(t *testing.T) {
	testLog(t, func(t *testing.T, l *Log, h *handler) {
		write := func(message, about string) time.Duration {
			return l.Write(Line{Message: message, About: about, Attrs: []slog.Attr{slog.String("about", about)}})
		}
		write("failed", "a")
		write("failed", "b")
		write("lost", "a")
		check(t, h, "failed about=a", "failed about=b", "lost about=a")
		time.Sleep(20 * time.Second)
		for range 7 {
			if wait := write("failed", "a"); wait != 40*time.Second {
				t.Errorf("a repeat is suppressed for %v, want 40s", wait)
			}
		}
		check(t, h)
		time.Sleep(40 * time.Second)
		write("failed", "a")
		write("failed", "b")
		check(t, h, "failed about=a suppressed=7", "failed about=b")
	})
}

func TestSimilarLines(t *testing.T) {
	testLog(t, func(t *testing.T, l *Log, h *handler) {
		write := func(group string, n int) {
			for i := range n {
				l.Write(Line{Message: "failed", Group: group, About: i})
			}
		}
		write("a", 100)
		write("b", 1)
		got := h.take()
		if len(got) != maxSimilar+1 || got[maxSimilar-1] != "failed similar_suppressed_for=1m0s" || got[maxSimilar] != "failed" {
			t.Errorf("%d lines, want %d of group a and one of b: %q", len(got), maxSimilar, got)
		}
		time.Sleep(Interval)
		write("a", 1)
		check(t, h, fmt.Sprintf("failed suppressed_similar=%d", 100-maxSimilar))
	})
}

// TestState checks that the latest line is right whenever a state has been stable for an
// Interval, and that the lines are few.
func TestState(t *testing.T) {
	for flips := 1; flips <= 9; flips++ {
		testLog(t, func(t *testing.T, l *Log, h *handler) {
			var lines []string
			for range 3 {
				for i := range flips {
					time.Sleep(time.Second)
					state := []string{"down", "up"}[i%2]
					l.WriteState("server", state, Line{Message: state})
				}
				time.Sleep(2 * Interval)
				got := h.take()
				lines = append(lines, got...)
				last := []string{"up", "down"}[flips%2]
				if !strings.HasPrefix(lines[len(lines)-1], last) {
					t.Errorf("%d flips: the latest line is %q, want %q", flips, lines[len(lines)-1], last)
				}
			}
			if len(lines) > 9 {
				t.Errorf("%d flips: %d lines: %q", flips, len(lines), lines)
			}
			l.WriteState("server", "down", Line{Message: "down"})
			l.WriteState("server", "up", Line{Message: "up"})
			l.WriteState("server", "down", Line{Message: "down"})
			l.EndState("server")
			h.take()
			time.Sleep(2 * Interval)
			check(t, h)
		})
	}
}

// TestStateOfMany checks that topics whose first line was suppressed stay silent.
func TestStateOfMany(t *testing.T) {
	testLog(t, func(t *testing.T, l *Log, h *handler) {
		for i := range 1000 {
			l.WriteState(i, "down", Line{Message: "down", About: i})
		}
		if got := h.take(); len(got) != maxSimilar {
			t.Errorf("%d lines, want %d", len(got), maxSimilar)
		}
		time.Sleep(10 * Interval)
		check(t, h)
	})
}

// TestMemory checks that the lines remembered to suppress repeats are bounded, and that no
// other line is suppressed when there are more.
func TestMemory(t *testing.T) {
	testLog(t, func(t *testing.T, l *Log, h *handler) {
		for i := range 10 * maxLines {
			l.Write(Line{Message: fmt.Sprint(i), About: i})
			if i%100 == 0 {
				synctest.Wait()
			}
		}
		if n := len(l.written); n > maxLines {
			t.Errorf("%d lines are remembered, want at most %d", n, maxLines)
		}
		if n := len(h.take()); n != 10*maxLines {
			t.Errorf("%d lines, want %d", n, 10*maxLines)
		}
	})
}

// TestBlockedLogger checks that a Logger that blocks delays no caller, and that lines which
// find no room are counted.
func TestBlockedLogger(t *testing.T) {
	testLog(t, func(t *testing.T, l *Log, h *handler) {
		h.gate = make(chan struct{})
		l.Write(Line{Message: "first"})
		synctest.Wait() // the goroutine has taken it
		for i := range 2 * maxPending {
			l.Write(Line{Message: fmt.Sprint(i)})
		}
		if l.Idle() {
			t.Error("Idle while the Logger blocks")
		}
		close(h.gate)
		got := h.take()
		if want := fmt.Sprintf("xdslb: log lines lost: the Logger does not keep up lost=%d", maxPending); len(got) != maxPending+2 || got[1] != "0" || got[len(got)-1] != want {
			t.Errorf("%d lines, the last is %q", len(got), got[len(got)-1])
		}
		if !l.Idle() {
			t.Error("not Idle after all lines")
		}
	})
}
