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
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/stats"
)

// recorder is what a program asks for metrics with. It hears of counts and histograms,
// and of gauges if it is asked to.
type recorder struct {
	estats.UnimplementedMetricsRecorder
	gauges bool

	mu      sync.Mutex
	records []string
	report  estats.AsyncMetricReporter
}

func (r *recorder) note(name string, value any, labels []string) {
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

// RegisterAsyncReporter looks at what the gauges are, as OpenTelemetry's does.
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

// take returns what was recorded since the last take.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	records := r.records
	r.records = nil
	return records
}

// channel returns what a channel with some recorders has.
func channel(t *testing.T, recorders ...*recorder) estats.MetricsRecorder {
	t.Helper()
	b := &builder{}
	opts := []grpc.DialOption{grpc.WithResolvers(b), grpc.WithTransportCredentials(insecure.NewCredentials())}
	for _, r := range recorders {
		opts = append(opts, grpc.WithStatsHandler(r))
	}
	cc, err := grpc.NewClient("metric:///x", opts...)
	if err != nil {
		t.Fatal(err)
	}
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

// builder is a resolver that keeps what gRPC gives it.
type builder struct{ recorder estats.MetricsRecorder }

func (b *builder) Build(_ resolver.Target, _ resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error) {
	b.recorder = opts.MetricsRecorder
	return b, nil
}
func (*builder) Scheme() string                        { return "metric" }
func (*builder) ResolveNow(resolver.ResolveNowOptions) {}
func (*builder) Close()                                {}

// fakeProcess is what the metrics are of.
type fakeProcess struct{ picks atomic.Int64 }

func (p *fakeProcess) Fold()             { Picks.Fold(SourceOf(p, ""), p.picks.Load(), "c", "l") }
func (*fakeProcess) Targets() []string   { return []string{"t1", "t2"} }
func (*fakeProcess) SharedGauges(e Emit) { e(BreakerInFlight, 5, "c", "s") }
func (*fakeProcess) TargetGauges(target string, e Emit) {
	e(Channels, 1, target)
	e(Channels, 1, target)
	e(Priority, 0, target, "c")
	e(Priority, 2, target, "c")
	e(Priority, 1, target, "c")
	for _, connected := range []int64{1, 0, 1} {
		e(Connected, connected, target, "s")
	}
}

// reset forgets the series of other tests, and has metrics watched.
func reset() *fakeProcess {
	Watch()
	store.mu.Lock()
	defer store.mu.Unlock()
	store.series, store.cursors = map[seriesKey]*series{}, map[Source]map[seriesKey]int64{}
	p := &fakeProcess{}
	process = p
	return p
}

func check(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: recorded\n\t%s\nwant\n\t%s", what, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// TestNobodyWatches: while nobody may read metrics, events leave nothing in memory.
func TestNobodyWatches(t *testing.T) {
	reset()
	watched.Store(false)
	defer Watch()
	NoRoute.Add(1, "t1")
	PublicationDuration.Observe([]float64{1}, "t1")
	if n := len(store.series); n != 0 {
		t.Errorf("%d series are kept that nobody reads", n)
	}
}

// TestTimer: counts and histograms reach a recorder that reads no gauge, all of them, and
// once; nothing runs once its channel is closed.
func TestTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := reset(), &recorder{}
		x := Start("t1", channel(t, r))
		p.picks.Store(3)
		NoRoute.Add(2, "t1")
		NoRoute.Add(1, "t1")
		PublicationDuration.Observe([]float64{0.25, 0.5}, "t1")
		time.Sleep(flushPeriod)
		synctest.Wait()
		check(t, "after the first period", r.take(), "xdslb.lb.picks 3 [c l]", "xdslb.lb.no_route 3 [t1]",
			"xdslb.lb.publication_duration 0.25 [t1]", "xdslb.lb.publication_duration 0.5 [t1]")
		time.Sleep(flushPeriod)
		synctest.Wait()
		check(t, "without news", r.take())
		p.picks.Store(4)
		p.Fold() // as a channel does before it stops
		x.Stop()
		check(t, "at the end", r.take(), "xdslb.lb.picks 1 [c l]")
		NoRoute.Add(1, "t1")
		time.Sleep(10 * flushPeriod)
		check(t, "after the end", r.take())
	})
}

// TestNobodyRecords: a channel without a recorder costs no timer.
func TestNobodyRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reset()
		x := Start("t1", channel(t))
		if x != nil || recording.Load() || exports.timer != nil {
			t.Errorf("Start = %v, recording: %v, timer: %v; want none", x, recording.Load(), exports.timer)
		}
		x.Stop()
	})
}

// TestGauges: when gauges are read, counts are told first, one channel of each target
// speaks for it, and the oldest one for the process; when it closes, the next does. Values
// with the same labels are one: a sum, the greatest, or the least.
func TestGauges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := reset()
		var r [3]*recorder
		var x [3]*Export
		for i, target := range []string{"t1", "t1", "t2"} {
			r[i] = &recorder{gauges: true}
			x[i] = Start(target, channel(t, r[i]))
		}
		read := func(r *recorder) []string {
			if err := r.report.Report(r); err != nil {
				t.Fatal(err)
			}
			got := r.take()
			slices.Sort(got)
			return got
		}
		t1 := []string{"xdslb.client.channels 2 [t1]", "xdslb.lb.priority 2 [t1 c]", "xdslb.xds_client.connected 0 [t1 s]"}
		p.picks.Store(1)
		check(t, "the oldest", read(r[0]), t1[0], "xdslb.lb.breaker_in_flight 5 [c s]", "xdslb.lb.picks 1 [c l]", t1[1], t1[2])
		check(t, "another of its target", read(r[1]))
		check(t, "another target", read(r[2]), "xdslb.client.channels 2 [t2]", "xdslb.lb.priority 2 [t2 c]", "xdslb.xds_client.connected 0 [t2 s]")
		x[0].Stop()
		check(t, "the next of the target", read(r[1]), t1[0], "xdslb.lb.breaker_in_flight 5 [c s]", t1[1], t1[2])
		NoRoute.Add(1, "t2")
		x[2].Stop()
		check(t, "the last flush of a target", r[2].take(), "xdslb.lb.no_route 1 [t2]")
		x[1].Stop()
	})
}

// TestGaugesOfMany: to read the gauges of a channel costs as much whatever other channels there
// are, since each is asked.
func TestGaugesOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reset()
		var all []*Export
		cost := func(channels int) float64 {
			var r *recorder
			for len(all) < channels {
				r = &recorder{gauges: true}
				all = append(all, Start(fmt.Sprint("t", len(all)), channel(t, r)))
			}
			return testing.AllocsPerRun(10, func() {
				if err := r.report.Report(r); err != nil {
					t.Error(err)
				}
				r.take()
			})
		}
		if few, many := cost(3), cost(300); many > few+100 { // with the race detector, pools lose some at random
			t.Errorf("a channel's gauges take %v allocations among 300 channels, and %v among 3", many, few)
		}
		for _, x := range all {
			x.Stop()
		}
		if len(exports.byTarget) > 0 || exports.all.Len() > 0 {
			t.Errorf("%d exports of %d targets are left", exports.all.Len(), len(exports.byTarget))
		}
	})
}

// TestUnheard: what was counted while nobody recorded is not told to whoever comes.
func TestUnheard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reset()
		other, r := Start("t2", channel(t, &recorder{})), &recorder{}
		NoRoute.Add(7, "t1")
		time.Sleep(flushPeriod)
		synctest.Wait()
		x := Start("t1", channel(t, r))
		NoRoute.Add(1, "t1")
		x.Stop()
		other.Stop()
		check(t, "the first flush", r.take(), "xdslb.lb.no_route 1 [t1]")
	})
}

// TestManyValues: values of histograms do not pile up until the next period.
func TestManyValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reset()
		r := &recorder{}
		x := Start("t1", channel(t, r))
		for range maxValues + 1 {
			PublicationDuration.Observe([]float64{1}, "t1")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if got := len(r.take()); got != maxValues+1 {
			t.Errorf("%d values were recorded, want %d", got, maxValues+1)
		}
		x.Stop()
	})
}

// counters is a process with counters of drops.
type counters map[*int]int64

func (c counters) Fold() {
	for source, n := range c {
		Drops.Fold(SourceOf(source, ""), n, "c", "d")
	}
}
func (counters) Targets() []string         { return nil }
func (counters) SharedGauges(Emit)         {}
func (counters) TargetGauges(string, Emit) {}

// TestFold: a series counts what its counters do, of which there may be several, one after
// the other or at a time; a counter may go back a little and may go away.
func TestFold(t *testing.T) {
	reset()
	a, b := new(int), new(int)
	for _, step := range []struct {
		counters counters
		want     int64 // 0 is no series
	}{
		{counters{a: 0}, 0},
		{counters{a: 5}, 5},
		{counters{a: 5, b: 2}, 7},
		{counters{a: 4, b: 2}, 7},
		{counters{a: 6, b: 2}, 8},
		{counters{b: 3}, 9},
		{counters{}, 9},
	} {
		process = step.counters
		got := int64(0)
		for _, f := range Gather() {
			got += f.Samples[0].Value
		}
		if got != step.want {
			t.Errorf("with counters %v: %d, want %d", step.counters, got, step.want)
		}
	}
}

// TestCountersGone: what is remembered of a counter goes with it, even if nobody reads
// metrics.
func TestCountersGone(t *testing.T) {
	reset()
	const n = 1000
	kept := make([]*[64]byte, 3)
	for i := range n {
		a := new([64]byte)
		kept[i%len(kept)] = a
		Drops.Fold(SourceOf(a, "one"), 1, "c", "d")
		Drops.Fold(SourceOf(a, "other"), 1, "c", "d")
	}
	remembered := func() int {
		store.mu.Lock()
		defer store.mu.Unlock()
		return len(store.cursors)
	}
	for range 3000 {
		if runtime.GC(); remembered() == 2*len(kept) {
			break
		}
		time.Sleep(10 * time.Millisecond) // the runtime makes cleanups on a goroutine of its own, and says nobody when
	}
	if got := remembered(); got != 2*len(kept) {
		t.Errorf("what was read of %d counters is remembered, there are %d", got, 2*len(kept))
	}
	runtime.KeepAlive(kept)
}

// TestOverflow: a control plane that makes up names does not fill the memory, and nothing
// goes uncounted.
func TestOverflow(t *testing.T) {
	reset()
	process = counters{}
	for i := range maxSeries + 100 {
		Drops.Add(1, "c", fmt.Sprint(i))
	}
	f := Gather()[0]
	sum := int64(0)
	for _, s := range f.Samples {
		sum += s.Value
	}
	i := slices.IndexFunc(f.Samples, func(s Sample) bool { return s.Labels == Labels{overflow, overflow} })
	if len(f.Samples) != maxSeries+1 || sum != maxSeries+100 || i < 0 || f.Samples[i].Value != 100 {
		t.Errorf("%d series with a sum of %d, those beyond: %d", len(f.Samples), sum, i)
	}
}

// TestSourceReturns: what a counter has counted is counted once, though nobody reads it for
// a while: that of a client whose targets are idle, or of a channel that is closing.
func TestSourceReturns(t *testing.T) {
	reset()
	a := new(int)
	for _, total := range []int64{5, 0, 6, 0, 6} {
		process = counters{}
		Gather()
		if total > 0 {
			Drops.Fold(SourceOf(a, ""), total, "c", "d")
		}
	}
	if got := Gather()[0].Samples[0].Value; got != 6 {
		t.Errorf("the series counts %d, want 6", got)
	}
}

// TestOverflowIsRecorded: what is beyond the limit reaches a recorder, too, though its
// target is one of the labels that are overflow.
func TestOverflowIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reset()
		process = counters{}
		r := &recorder{}
		x := Start("t1", channel(t, r))
		for i := range maxSeries {
			Drops.Add(1, "c", fmt.Sprint(i))
		}
		NoRoute.Add(3, "t1")
		x.Stop()
		if got := r.take(); !slices.Contains(got, "xdslb.lb.no_route 3 [other]") {
			t.Errorf("of %d records none is of what is beyond the limit", len(got))
		}
	})
}

// TestBuckets: a value that is a bound is in the bucket below.
func TestBuckets(t *testing.T) {
	reset()
	process = counters{}
	want := 0.
	for _, v := range []float64{0, 1e-5, 2e-5, 60, 61} {
		PublicationDuration.Observe([]float64{v}, "t")
		want += v
	}
	f := Gather()[0]
	got := f.Samples[0]
	if n := got.Buckets; n[0] != 2 || n[1] != 1 || n[len(n)-2] != 1 || n[len(n)-1] != 1 || len(n) != len(f.Bounds)+1 {
		t.Errorf("buckets are %v, bounds %v", n, f.Bounds)
	}
	if got.Sum != want {
		t.Errorf("the sum is %v, want %v", got.Sum, want)
	}
}
