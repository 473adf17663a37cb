// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// maxSimilar is the number of lines of one message and group that the log writes in an
// eventlog.Interval.
const maxSimilar = 32

// TestLogEndsTrue: however often a condition begins and ends within a minute, the last line about
// it has its present state, at once or when the minute is over.
func TestLogEndsTrue(t *testing.T) {
	invalid := &picker.Cluster{Name: "c", Err: errors.New("invalid")}
	two := clusterOf("c", prio(eps(1)), prio(eps(2)))
	for _, tt := range []struct {
		name     string
		in, out  func(b *testLB, cc *fakeCC)
		bad, end string
	}{
		{"target", func(b *testLB, _ *fakeCC) { b.Error(errors.New("gone")) }, func(b *testLB, _ *fakeCC) { b.set(configOf(two)) }, msgTargetFailed, msgServedAgain},
		{"cluster", func(b *testLB, _ *fakeCC) { b.set(configOf(invalid)) }, func(b *testLB, _ *fakeCC) { b.set(configOf(two)) }, msgUnavailable, msgRecovered},
		{"priority", func(b *testLB, cc *fakeCC) { b.to(cc.find(1), failure) }, func(b *testLB, cc *fakeCC) { b.to(cc.find(1), ready) }, msgFailover, msgFailback},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				b, cc := newTestLB(t, Config{Logger: slog.New(slog.NewTextHandler(&out, nil))})
				b.set(configOf(two))
				b.to(cc.conn(t, 1), ready)
				flip := func(do func(*testLB, *fakeCC)) {
					kit.Pass(time.Second)
					do(b, cc)
					b.flush()
				}
				last := func() (line string) {
					for l := range strings.Lines(out.String()) {
						if strings.Contains(l, tt.bad) || strings.Contains(l, tt.end) {
							line = l
						}
					}
					return line
				}
				for _, times := range []int{2, 3, 4, 9} {
					for range times {
						flip(tt.in)
						flip(tt.out)
					}
					kit.Pass(2 * eventlog.Interval)
					b.flush()
					if !strings.Contains(last(), tt.end) {
						t.Errorf("after %d times in and out the last line is %q", times, last())
					}
					flip(tt.in)
					flip(tt.out)
					flip(tt.in)
					kit.Pass(2 * eventlog.Interval)
					b.flush()
					if !strings.Contains(last(), tt.bad) {
						t.Errorf("the last line is %q, want %q", last(), tt.bad)
					}
					flip(tt.out)
				}
				lines := slices.Collect(strings.Lines(out.String()))
				if len(lines) > 50 {
					t.Errorf("there are %d lines of %d changes", len(lines), 2*(2+3+4+9)+4*4)
				}
			})
		})
	}
}

// TestLogOfManyClusters: when a thousand clusters fail at once, some clusters are logged, with the
// number of the others. The end of each logged failure is logged too.
func TestLogOfManyClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		var out bytes.Buffer
		b, cc := newTestLB(t, Config{Logger: slog.New(slog.NewTextHandler(&out, nil))})
		all := func(err error) {
			var list []*picker.Cluster
			for i := range n {
				c := clusterOf(fmt.Sprint("c", i), prio(eps(1)))
				if err != nil {
					c = &picker.Cluster{Name: c.Name, Err: err}
				}
				list = append(list, c)
			}
			b.set(configOf(list...))
			if err == nil {
				b.to(cc.conn(t, 1), ready)
			}
			b.flush()
		}
		lines := func(texts ...string) (found []string) {
			for l := range strings.Lines(out.String()) {
				if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(l, text) }) {
					found = append(found, l)
				}
			}
			return found
		}
		all(nil)
		all(errors.New("invalid"))
		if got := lines(msgUnavailable); len(got) != maxSimilar || !strings.Contains(got[maxSimilar-1], "similar_suppressed_for=1m") {
			t.Fatalf("%d lines, want %d: %q", len(got), maxSimilar, got)
		}
		all(nil)
		for range 4 { // 32 a minute, and clusters without a logged failure count as well
			kit.Pass(eventlog.Interval)
			b.flush()
		}
		for _, l := range lines(msgUnavailable) {
			_, cluster, _ := strings.Cut(l, "cluster=")
			if cluster, _, _ = strings.Cut(cluster, " "); len(lines(msgRecovered, "cluster="+cluster)) == 0 {
				t.Errorf("the last line about cluster %s reports a failure", cluster)
			}
		}
		if got := lines("cluster="); len(got) > 4*maxSimilar {
			t.Errorf("%d lines", len(got))
		}
	})
}
