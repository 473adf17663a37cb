// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/stats"

	"github.com/xdslb/xdslb/bench/kit"
)

// recorder is a program's metrics recorder. It receives counters and histograms, and gauges on
// request.
type recorder struct {
	estats.UnimplementedMetricsRecorder
	gauges bool

	meddle func() // called by each record; may be nil

	mu      sync.Mutex
	records []string
	report  estats.AsyncMetricReporter
}

func (r *recorder) note(name string, value any, labels []string) {
	if r.meddle != nil {
		r.meddle()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, fmt.Sprint(name, " ", value, " ", labels))
}

func (r *recorder) RecordInt64Count(h *estats.Int64CountHandle, n int64, labels ...string) {
	r.note(h.Name, n, labels)
}

func (r *recorder) RecordFloat64Histo(h *estats.Float64HistoHandle, v float64, labels ...string) {
	r.note(h.Name, v, labels)
}

func (r *recorder) RecordInt64AsyncGauge(h *estats.Int64AsyncGaugeHandle, n int64, labels ...string) {
	r.note(h.Name, n, labels)
}

// RegisterAsyncReporter reads the descriptors of the gauges, as OpenTelemetry's plugin does.
func (r *recorder) RegisterAsyncReporter(report estats.AsyncMetricReporter, gauges ...estats.AsyncMetric) func() {
	for _, g := range gauges {
		if g.Descriptor() == nil {
			panic("a gauge without a descriptor")
		}
	}
	if !r.gauges {
		return func() {}
	}
	r.report = report
	return func() { r.report = nil }
}

// take returns the values recorded since the last call, sorted.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	records := r.records
	r.records = nil
	slices.Sort(records)
	return records
}

// read is take after the gauges were read.
func (r *recorder) read(t *testing.T) []string {
	t.Helper()
	kit.Must(t, r.report.Report(r))
	return r.take()
}

// channel returns the MetricsRecorder of a channel with the given recorders.
func channel(t *testing.T, recorders ...*recorder) estats.MetricsRecorder {
	t.Helper()
	b := &builder{}
	opts := []grpc.DialOption{grpc.WithResolvers(b), grpc.WithTransportCredentials(insecure.NewCredentials())}
	for _, r := range recorders {
		opts = append(opts, grpc.WithStatsHandler(r))
	}
	cc, err := grpc.NewClient("metric:///x", opts...)
	kit.Must(t, err)
	t.Cleanup(func() { _ = cc.Close() })
	cc.Connect()
	synctest.Wait()
	return b.recorder
}

// The methods of stats.Handler, which is how a program installs a recorder.
func (*recorder) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*recorder) HandleRPC(context.Context, stats.RPCStats)                         {}
func (*recorder) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*recorder) HandleConn(context.Context, stats.ConnStats)                       {}

// builder is a resolver builder that keeps the recorder from gRPC.
type builder struct{ recorder estats.MetricsRecorder }

func (b *builder) Build(_ resolver.Target, _ resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error) {
	b.recorder = opts.MetricsRecorder
	return b, nil
}
func (*builder) Scheme() string                        { return "metric" }
func (*builder) ResolveNow(resolver.ResolveNowOptions) {}
func (*builder) Close()                                {}

// process is where the tests' metrics are read.
type process struct{ picks, updates uint64 }

func (p *process) source() Source {
	return Source{
		Fold: func(to *Channel) {
			Fold(to.Count, Picks, p, "", p.picks, "c", "l")
			Fold(to.CountShared, UpdatesValid, p, "", p.updates, "t1", "s", "type")
			Fold(to.CountShared, NACKs, p, "", p.updates, "s", "type")
		},
		SharedGauges: func(emit Emit) { emit(BreakerInFlight, 5, "c", "s") },
		TargetGauges: func(target string, emit Emit) {
			emit(Channels, 1, target)
			emit(Channels, 1, target)
			for _, v := range []int64{0, 2, 1} {
				emit(Priority, v, target, "c")
				emit(Connected, min(v, 1), target, "s")
			}
		},
	}
}

func check(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: recorded\n\t%s\nwant\n\t%s", what, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// TestTimer: counts and histograms reach a recorder that reads no gauge, all of them, and
// once; nothing runs once its channel is closed.
func TestTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := &process{picks: 3}, &recorder{}
		x := Start("t1", channel(t, r), p.source())
		x.Count(NoRoute, 2, "t1")
		x.Count(NoRoute, 1, "t1")
		x.Observe(PublicationDuration, []float64{0.25, 0.5}, "t1")
		check(t, "before the first period", r.take())
		time.Sleep(flushPeriod)
		synctest.Wait()
		check(t, "after the first period", r.take(), "xdslb.lb.no_route 3 [t1]", "xdslb.lb.picks 3 [c l]",
			"xdslb.xds_client.nacks 0 [s type]", "xdslb.xds_client.resource_updates_valid 0 [t1 s type]",
			"xdslb.lb.publication_duration 0.25 [t1]", "xdslb.lb.publication_duration 0.5 [t1]")
		time.Sleep(flushPeriod)
		synctest.Wait()
		check(t, "without anything new", r.take())
		p.picks = 4
		x.Stop()
		check(t, "at the end", r.take(), "xdslb.lb.picks 1 [c l]")
		x.Count(NoRoute, 1, "t1")
		time.Sleep(10 * flushPeriod)
		check(t, "after the end", r.take())
	})
}

// TestNoRecorder checks that a channel without a recorder has no timer, and records no metrics.
// Programs that build the resolver without a gRPC channel may leave the recorder nil.
func TestNoRecorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if x := Start("t1", nil, (&process{}).source()); x != nil {
			t.Errorf("Start without a recorder = %v, want nil", x)
		}
		x := Start("t1", channel(t), (&process{}).source())
		if x != nil || len(channels.to) > 0 {
			t.Errorf("Start = %v, channels: %v; want none", x, channels.to)
		}
		x.Count(NoRoute, 1, "t1")
		x.Observe(PublicationDuration, []float64{1}, "t1")
		x.Stop()
	})
}

// TestProbesFindRecorders checks the version of gRPC of this module, and that another one is noticed.
func TestProbesFindRecorders(t *testing.T) {
	if without, with := probe(), probe(grpc.WithStatsHandler(probedRecorder{})); without != 1 || with != 2 {
		t.Errorf("Descriptor is called %d times without a recorder and %d times with one, want 1 and 2", without, with)
	}
	if two := probe(grpc.WithStatsHandler(probedRecorder{}), grpc.WithStatsHandler(&recorder{})); !finds(2, two) {
		t.Errorf("Descriptor is called %d times with two recorders, want 3", two)
	}
	for _, calls := range [][2]int{{0, 0}, {0, 1}, {1, 1}, {2, 2}, {1, 3}} {
		if finds(calls[0], calls[1]) {
			t.Errorf("%v calls of Descriptor without and with a recorder seem to find it", calls)
		}
	}
}

// TestOldestReports checks that one channel of each target reports its gauges, and that the
// oldest channel reports the process's gauges and shared metrics; when it closes, the next one
// does. Values with the same labels are merged: as sum, maximum or minimum.
func TestOldestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &process{}
		var r [3]*recorder
		var x [3]*Channel
		for i, target := range []string{"t1", "t1", "t2"} {
			r[i] = &recorder{gauges: true}
			x[i] = Start(target, channel(t, r[i]), p.source())
		}
		of := func(target string) []string {
			return []string{"xdslb.client.channels 2 [" + target + "]", "xdslb.lb.priority 2 [" + target + " c]", "xdslb.xds_client.connected 0 [" + target + " s]"}
		}
		shared := "xdslb.lb.breaker_in_flight 5 [c s]"
		zero := []string{"xdslb.lb.picks 0 [c l]", "xdslb.xds_client.nacks 0 [s type]", "xdslb.xds_client.resource_updates_valid 0 [t1 s type]"}
		check(t, "the oldest", r[0].read(t), append(append(of("t1"), shared), zero...)...)
		check(t, "another of its target", r[1].read(t))
		check(t, "another target", r[2].read(t), of("t2")...)

		p.picks, p.updates = 1, 2
		check(t, "the one that is read first", r[1].read(t), "xdslb.lb.picks 1 [c l]")
		check(t, "the oldest, for what is shared", r[0].take(), "xdslb.xds_client.nacks 2 [s type]", "xdslb.xds_client.resource_updates_valid 2 [t1 s type]")

		p.updates = 3
		x[0].Stop()
		check(t, "the end of the oldest", r[0].take(), "xdslb.xds_client.nacks 1 [s type]", "xdslb.xds_client.resource_updates_valid 1 [t1 s type]")
		p.updates = 4
		check(t, "the next of the target", r[1].read(t), append(of("t1"), shared,
			"xdslb.xds_client.nacks 1 [s type]", "xdslb.xds_client.resource_updates_valid 1 [t1 s type]")...)
		x[2].Stop()
		x[1].Stop()
		if len(channels.to) > 0 {
			t.Errorf("channels are left: %v", channels.to)
		}
	})
}

// TestManyValues: values of histograms do not pile up until the next period.
func TestManyValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		x := Start("t1", channel(t, r), Source{})
		for range maxValues + 1 {
			x.Observe(PublicationDuration, []float64{1}, "t1")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if got := len(r.take()); got != maxValues+1 {
			t.Errorf("%d values were recorded, want %d", got, maxValues+1)
		}
		x.Stop()
	})
}

// TestNoLockHeld checks that a recorder may call functions that record events.
func TestNoLockHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		x := Start("t1", channel(t, r), Source{})
		r.meddle = func() {
			Start("t2", channel(t, &recorder{}), Source{}).Stop()
			x.Observe(PublicationDuration, nil, "t1")
		}
		x.Count(NoRoute, 1, "t1")
		x.Observe(PublicationDuration, []float64{1}, "t1")
		x.Stop()
		check(t, "the recorder", r.take(), "xdslb.lb.no_route 1 [t1]", "xdslb.lb.publication_duration 1 [t1]")
	})
}

// TestFold checks that each increment of a counter is emitted once, regardless of the reader
// and of delays; a counter may decrease a little. A counter that is 0 is emitted at first, so that its
// series exists before the first event.
func TestFold(t *testing.T) {
	a, b, sum, zeros := new(int), new(int), int64(0), 0
	emit := func(m *Metric, n int64, labels ...string) {
		if n == 0 {
			zeros++
		}
		if m != Drops || n < 0 || !slices.Equal(labels, []string{"c", "d"}) {
			t.Errorf("%s %d %q is emitted", m.Name, n, labels)
		}
		sum += n
	}
	for i, step := range []struct {
		owner *int
		part  string
		total uint64
		want  int64
	}{{a, "", 0, 0}, {a, "", 5, 5}, {b, "", 2, 7}, {a, "", 4, 7}, {a, "", 6, 8}, {a, "", 0, 8}, {b, "", 3, 9}, {b, "part", 3, 12}, {a, "", 6, 12}} {
		if Fold(emit, Drops, step.owner, step.part, step.total, "c", "d"); sum != step.want {
			t.Errorf("step %d: the sum is %d, want %d", i, sum, step.want)
		}
	}
	if zeros != 1 {
		t.Errorf("0 was emitted %d times, want once", zeros)
	}
}

// TestCountersGone checks that the state of a counter is removed together with it.
func TestCountersGone(t *testing.T) {
	remembered := func() int {
		folded.mu.Lock()
		defer folded.mu.Unlock()
		return len(folded.counters)
	}
	emit := func(*Metric, int64, ...string) {}
	kept := make([]*[64]byte, 3)
	for i := range 1000 {
		a := new([64]byte)
		kept[i%len(kept)] = a
		Fold(emit, Drops, a, "one", 1, "c", "d")
		Fold(emit, Drops, a, "other", 1, "c", "d")
	}
	for range 3000 {
		if runtime.GC(); remembered() == len(kept) {
			break
		}
		time.Sleep(10 * time.Millisecond) // cleanups run on a goroutine of the runtime, which cannot be awaited
	}
	if got := remembered(); got != len(kept) {
		t.Errorf("%d counters are remembered, want %d", got, len(kept))
	}
	runtime.KeepAlive(kept)
}
