// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// failing records the failures of a test instead of failing.
type failing struct {
	testing.TB
	failures []string
}

func (f *failing) Helper() {}
func (f *failing) Errorf(format string, args ...any) {
	f.failures = append(f.failures, fmt.Sprintf(format, args...))
}
func (f *failing) Fatalf(format string, args ...any) { f.Errorf(format, args...); runtime.Goexit() }

// of returns the failures of a test that is run on a goroutine of its own.
func (f *failing) of(test func()) []string {
	done := make(chan struct{})
	go func() {
		defer close(done)
		test()
	}()
	<-done
	return f.failures
}

// TestWaitFor checks that WaitFor returns as soon as the condition holds, or fails after a
// minute with its description.
func TestWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if d := WaitFor(t, "a second", func() bool { return time.Since(begin) >= time.Second }); d != time.Second {
			t.Errorf("WaitFor = %v, want 1 s", d)
		}
		f := &failing{TB: t}
		got := f.of(func() { WaitFor(f, "rain", func() bool { return false }) })
		if want := []string{"waited a minute for rain"}; !slices.Equal(got, want) {
			t.Errorf("failures are %q, want %q", got, want)
		}
	})
}

// TestLogs: lines of slog, with the logger's attributes, and of writers are found by their texts.
func TestLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		texts := 0
		l := &Logs{Level: slog.LevelWarn, OnLog: func(string) { texts++ }}
		log := slog.New(l).With("a", 1).With("b", "x y")
		log.Warn("first\nline", "c", 2)
		log.WithGroup("g").Error("second", "c", 3)
		log.Info("third")
		_, _ = fmt.Fprint(l, "fourth\nfif", "th\n")
		if want := "WARN first line a=1 b=x y c=2\nERROR second a=1 b=x y c=3\nfourth\nfifth\n"; l.String() != want || texts != 3 {
			t.Errorf("the log is %q, want %q; OnLog was called %d times, want 3", l, want, texts)
		}
		if got := l.With("a=1", "c=3"); !slices.Equal(got, []string{"ERROR second a=1 b=x y c=3"}) {
			t.Errorf("With = %q", got)
		}
		l.WantOne(t, "second")
		f := &failing{TB: t}
		if got := f.of(func() { l.WantOne(f, "a=1") }); len(got) != 1 {
			t.Errorf("WantOne of two lines: failures are %q, want one", got)
		}
		f = &failing{TB: t}
		if got := f.of(func() { l.WantOne(f, "third") }); len(got) != 1 {
			t.Errorf("WantOne of no line: failures are %q, want one", got)
		}
	})
}

// TestModel: a history that fails is shrunk to the steps that matter, fails in the same way again
// with its log, and neither a panic nor Fatalf ends the test.
func TestModel(t *testing.T) {
	for _, way := range []string{"Errorf", "Fatalf", "panic", "cleanup"} {
		cleaned := 0
		m := Model{Steps: 100, Run: func(k *Trial) {
			k.Cleanup(func() {
				if cleaned++; way == "cleanup" {
					k.Error("3 tens")
				}
			})
			tens := 0
			for i := range k.Steps() {
				time.Sleep(time.Hour) // in a bubble
				n := k.Rand.IntN(10)
				if k.Logf("%d", n); n != 0 {
					continue
				}
				if tens++; tens < 3 {
					continue
				}
				switch way {
				case "Errorf":
					k.Errorf("%d tens at step %d", tens, i)
				case "Fatalf":
					k.Fatalf("%d tens at step %d", tens, i)
					t.Error("Fatalf returned")
				case "panic":
					panic(fmt.Sprintf("%d tens at step %d", tens, i))
				}
			}
		}}
		h := history{seed: 1}
		for i := range uint64(m.Steps) {
			h.steps = append(h.steps, i)
		}
		failure, log := m.run(t, h, false)
		if !strings.Contains(failure, "3 tens") || log != nil || cleaned != 1 {
			t.Errorf("%s: failure %q, log %q, cleaned up %d times", way, failure, log, cleaned)
		}
		less := m.shrink(t, h, failure)
		want := []string{"0", "0", "0"}
		if way == "cleanup" {
			want = nil
		}
		if failure, log = m.repeat(t, less, failure, true); !strings.Contains(failure, "3 tens") || !slices.Equal(log, want) {
			t.Errorf("%s: shrunk to failure %q, log %q", way, failure, log)
		}
	}
}
