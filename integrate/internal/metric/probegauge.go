// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"context"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/stats"
)

// probeGauge is a gauge that counts calls of Descriptor. gRPC's list of recorders calls it once,
// and each recorder in the list calls it again: more than one call shows that the list is not
// empty.
type probeGauge struct {
	*estats.Int64AsyncGaugeHandle
	asked *atomic.Int32
}

// Descriptor implements estats.AsyncMetric.
func (a probeGauge) Descriptor() *estats.MetricDescriptor {
	a.asked.Add(1)
	return a.Int64AsyncGaugeHandle.Descriptor()
}

// probesFindRecorders reports whether a probeGauge shows that a list of recorders is empty. This depends
// on an implementation detail of gRPC, so it is checked once, with the first channel of the process
// whose list seems to be empty. If it does not hold, an error is logged, and the metrics of channels without
// a recorder are collected too.
var probesFindRecorders = sync.OnceValue(func() bool {
	without := probe()
	with := probe(grpc.WithStatsHandler(probedRecorder{}))
	if finds(without, with) {
		return true
	}
	grpclog.Component("xdslb").Error("metrics are collected for all channels, with a recorder or without: this version of grpc-go is not supported")
	return false
})

// finds reports whether probes distinguish a list without recorders, or with those of the process only,
// from the same list with one more recorder.
func finds(without, with int) bool { return without >= 1 && with == without+1 }

// probe returns how often a channel with these options calls Descriptor of a probeGauge, or 0 if that is
// unknown.
func probe(opts ...grpc.DialOption) int {
	b := &probedChannel{asked: make(chan int, 1)}
	cc, err := grpc.NewClient("xdslb-probe:///x", append(opts, grpc.WithResolvers(b), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())...)
	if err != nil {
		return 0
	}
	defer func() { _ = cc.Close() }()
	cc.Connect()
	select {
	case n := <-b.asked:
		return n
	default:
		return 0
	}
}

// A probedChannel is the resolver of a channel that is probed. It resolves nothing.
type probedChannel struct{ asked chan int }

// Scheme implements resolver.Builder.
func (*probedChannel) Scheme() string { return "xdslb-probe" }

// Build implements resolver.Builder.
func (b *probedChannel) Build(_ resolver.Target, _ resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error) {
	if opts.MetricsRecorder == nil {
		return b, nil
	}
	var asked atomic.Int32
	reporter := estats.AsyncMetricReporterFunc(func(estats.AsyncMetricsRecorder) error { return nil })
	opts.MetricsRecorder.RegisterAsyncReporter(reporter, probeGauge{(*estats.Int64AsyncGaugeHandle)(Channels.names[0]), &asked})()
	select {
	case b.asked <- int(asked.Load()):
	default:
	}
	return b, nil
}

// ResolveNow implements resolver.Resolver.
func (*probedChannel) ResolveNow(resolver.ResolveNowOptions) {}

// Close implements resolver.Resolver.
func (*probedChannel) Close() {}

// A probedRecorder is a recorder that reads each gauge's descriptor once, as recorders have to.
type probedRecorder struct {
	estats.UnimplementedMetricsRecorder
}

// RegisterAsyncReporter implements estats.MetricsRecorder.
func (probedRecorder) RegisterAsyncReporter(_ estats.AsyncMetricReporter, metrics ...estats.AsyncMetric) func() {
	for _, m := range metrics {
		m.Descriptor()
	}
	return func() {}
}

// The methods of stats.Handler do nothing.
func (probedRecorder) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (probedRecorder) HandleRPC(context.Context, stats.RPCStats)                         {}
func (probedRecorder) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (probedRecorder) HandleConn(context.Context, stats.ConnStats)                       {}
