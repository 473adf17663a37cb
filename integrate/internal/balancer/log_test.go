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

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	estats "google.golang.org/grpc/experimental/stats"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/internal/channelmetrics"
	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// TestChanges: the event of a configuration lists its changes.
func TestChanges(t *testing.T) {
	base := func() *picker.Config { return configOf(clusterOf("c", prio(eps(0, 1, 2)), prio(eps(3)))) }
	leaf := func(c *picker.Config) *picker.Leaf { return &c.Clusters[0].Leaves[0] }
	tests := []struct {
		want   string
		change func(c *picker.Config)
	}{
		{"nothing", func(*picker.Config) {}},
		{"routes", func(c *picker.Config) { c.Routes = slices.Clone(c.Routes) }},
		{"+1 clusters, +2 endpoints", func(c *picker.Config) { c.Clusters = append(c.Clusters, clusterOf("d", prio(eps(7, 8)))) }},
		{"+1 -1 clusters, +1 -4 endpoints", func(c *picker.Config) { c.Clusters[0] = clusterOf("d", prio(eps(7))) }},
		{"+2 -1 endpoints", func(c *picker.Config) { leaf(c).Priorities[0] = prio(eps(0, 9, 2, 10)) }},
		{"1 weights, 1 draining or not", func(c *picker.Config) {
			leaf(c).Priorities[0] = prio(eps(0, 1, 2))
			edit(&leaf(c).Priorities[0], 1, func(e *picker.Endpoint) { e.Weight = 5 })
			edit(&leaf(c).Priorities[0], 2, func(e *picker.Endpoint) { e.Health = picker.Draining })
		}},
		{"-1 endpoints, 1 priorities", func(c *picker.Config) { leaf(c).Priorities = leaf(c).Priorities[:1] }},
		{"1 policies", func(c *picker.Config) { leaf(c).Policy.Kind = picker.PolicyRoundRobin }},
		{"1 TLS", func(c *picker.Config) { leaf(c).TLS = &picker.TLS{} }},
		{"1 drops or limits", func(c *picker.Config) { leaf(c).MaxRequests = 3 }},
		{"1 localities", func(c *picker.Config) { leaf(c).Priorities[1].Localities[0].Weight = 9 }},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			b, _ := newTestLB(t, Config{})
			first := base()
			b.set(first)
			next := base()
			next.Routes = first.Routes
			tt.change(next)
			kit.Pass(2 * eventlog.Interval)
			b.set(next)
			b.lock()
			events := b.rec.journal.Events()
			b.unlock()
			i := len(events) - 1
			for events[i].Kind != eventlog.ConfigurationApplied {
				i--
			}
			if got := events[i].Change; got != tt.want {
				t.Errorf("the event's text is %q, want %q", got, tt.want)
			}
			b.Close()
		})
	}
}

// TestJournalIsSmall (LB-SEC-1): texts that a control plane or a backend chooses are cut
// in the journal, which would keep the last 128 of them otherwise.
func TestJournalIsSmall(t *testing.T) {
	b, _ := newTestLB(t, Config{})
	for i := range 4 {
		b.Error(errors.New(fmt.Sprint(i) + strings.Repeat("é", 1<<20)))
	}
	size := 0
	for _, ev := range b.rec.journal.Events() {
		size += len(ev.Error)
	}
	if size > 8<<10 {
		t.Errorf("the texts of 4 events take %d bytes", size)
	}
	if last := b.rec.journal.Events()[3].Error; !strings.HasPrefix(last, "3é") || !strings.HasSuffix(last, "é…") {
		t.Errorf("the text is %q", last)
	}
}

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
		book := &kit.Logs{}
		b, cc := newTestLB(t, Config{Logger: slog.New(book)})
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
		all(nil)
		all(errors.New("invalid"))
		if got := book.With(msgUnavailable); len(got) != maxSimilar || !strings.Contains(got[maxSimilar-1], "similar_suppressed_for=1m") {
			t.Fatalf("%d lines, want %d: %q", len(got), maxSimilar, got)
		}
		all(nil)
		for range 4 { // 32 a minute, and clusters without a logged failure count as well
			kit.Pass(eventlog.Interval)
			b.flush()
		}
		for _, l := range book.With(msgUnavailable) {
			_, cluster, _ := strings.Cut(l, "cluster=")
			if cluster, _, _ = strings.Cut(cluster, " "); len(book.With(msgRecovered, "cluster="+cluster)) == 0 {
				t.Errorf("the last line about cluster %s reports a failure", cluster)
			}
		}
		if got := book.With("cluster="); len(got) > 4*maxSimilar {
			t.Errorf("%d lines", len(got))
		}
	})
}

// TestSlowLogger checks that a Logger that does not return delays neither a configuration nor
// a child policy.
func TestSlowLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := make(chan struct{})
		b, cc := newTestLB(t, Config{Logger: slog.New(&kit.Logs{OnLog: func(string) { <-h }})})
		b.Error(errors.New("gone"))
		synctest.Wait()
		b.Update(configOf(customOf(true, stubA, `{}`, prio(eps(1)))))
		synctest.Wait()
		if sc := cc.find(1); sc == nil {
			t.Error("a child policy waits for the Logger")
		} else {
			sc.To(ready)
		}
		close(h)
		synctest.Wait()
	})
}

// recorderList is a list of recorders with one in it, as gRPC has one for each channel.
type recorderList struct{ *kit.Recorder }

// RegisterAsyncReporter implements estats.MetricsRecorder.
func (l recorderList) RegisterAsyncReporter(r estats.AsyncMetricReporter, metrics ...estats.AsyncMetric) func() {
	for _, m := range metrics {
		_ = m.Descriptor()
	}
	return l.Recorder.RegisterAsyncReporter(r, metrics...)
}

// TestPicksOfWhatLeft: picks are counted though their locality or cluster has left the configuration
// before anybody reads them, and then nothing of it is kept.
func TestPicksOfWhatLeft(t *testing.T) {
	for name, next := range map[string]func(cluster string) *picker.Cluster{
		"locality": func(cluster string) *picker.Cluster { return clusterOf(cluster, zone("1", eps(1))) },
		"cluster":  func(string) *picker.Cluster { return clusterOf("other", prio(eps(1))) },
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := newTestLB(t, Config{})
			metrics := &kit.Recorder{}
			b.rec.metrics = channelmetrics.Start("xds:///"+t.Name(), recorderList{metrics}, func(to *metric.Channel) { foldClusters(b.Balancer, to) })
			t.Cleanup(b.rec.metrics.Stop)
			b.set(configOf(clusterOf(t.Name(), prio(eps(1)))))
			b.ready(t, 1)
			b.flush()
			b.begin(t).Done(endedOK)
			b.Update(configOf(next(t.Name())))
			b.flush()
			if n := metrics.Sum("xdslb.lb.picks", t.Name()); n != 1 {
				t.Errorf("%v picks are counted, want 1", n)
			}
			if n := len(b.rec.retired); n > 0 {
				t.Errorf("%d counters are kept that no RPC uses", n)
			}
		})
	}
}

// otherXDS are xDS credentials of another package.
type otherXDS struct {
	credentials.TransportCredentials
}

func (otherXDS) UsesXDS() bool { return true }

// TestRefusedIsNoSubset: the endpoints of a cluster that the channel refuses for its
// credentials are not said to be left out of a subset.
func TestRefusedIsNoSubset(t *testing.T) {
	b, _ := newTestLB(t, Config{})
	b.buildOpts.DialCreds = otherXDS{insecure.NewCredentials()}
	cfg := configOf(clusterOf(t.Name(), prio(eps(1, 2))))
	cfg.Clusters[0].Leaves[0].TLS = &picker.TLS{SystemRoots: true}
	b.set(cfg)
	b.lock()
	defer b.unlock()
	endpointGauges(b.clusters[t.Name()], "", func(m *metric.Metric, value int64, labels ...string) {
		if value != 0 {
			t.Errorf("%s with labels %q is %d, want 0", m.Name, labels, value)
		}
	})
}
