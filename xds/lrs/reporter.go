// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lrs

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/internal/timing"
)

// Options configures a Reporter. The zero value is ready to use.
type Options struct {
	// MinInterval is the minimum time between two reports, even if servers request a shorter
	// one (T-LRS-1). 0 means one second.
	MinInterval time.Duration
	// FinalTimeout is the maximum time for Close to send the last report. It is also how long a
	// stream is kept for the last report after the last source has stopped, or for the server's
	// first response. 0 means half a second.
	FinalTimeout time.Duration
	// BackoffBase is the minimum time between the starts of two streams, and the maximum wait
	// after a first failure, which then grows up to BackoffMax. 0 means one second and two
	// minutes.
	BackoffBase, BackoffMax time.Duration
	// Failed is called, by the reporting goroutine, when a stream has ended before the server's
	// first response, or could not be opened. It is called with nil at the first response after
	// that. If Failed is nil, lines are written to slog.Default().
	Failed func(error)
	// Ended is called, by the reporting goroutine, when a stream has ended after the server's first
	// response, with the reason: io.EOF if the server closed it without an error. The counts that were
	// sent last are lost if they did not reach the server or it refused them, which LRS does not tell.
	// If Ended is nil, lines are written to slog.Default().
	Ended func(error)
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		value   *time.Duration
		unspent time.Duration
	}{
		{&o.MinInterval, time.Second},
		{&o.FinalTimeout, 500 * time.Millisecond},
		{&o.BackoffBase, time.Second},
		{&o.BackoffMax, 2 * time.Minute},
	} {
		if *d.value <= 0 {
			*d.value = d.unspent
		}
	}
	if o.Failed == nil {
		o.Failed = func(err error) {
			if err == nil {
				slog.Info("xdslb: load is reported again")
				return
			}
			slog.Warn("xdslb: load reporting failed", "error", err)
		}
	}
	if o.Ended == nil {
		o.Ended = func(err error) {
			slog.Warn("xdslb: the stream of load reports ended, and the last report may be lost", "error", err)
		}
	}
	return o
}

// maxStopped is the maximum number of stopped sources that wait to be reported. There are more
// only if many stop at once, or while the server is unreachable.
const maxStopped = 256

// A Reporter reports load to one server.
//
// A Reporter must be made by NewReporter and must not be copied. It is safe for concurrent use.
type Reporter struct {
	conn grpc.ClientConnInterface
	node *corev3.Node
	opts Options

	ctx    context.Context // of all streams
	cancel context.CancelFunc
	wake   chan struct{} // has a token if the last source may have stopped
	tasks  sync.WaitGroup

	backoff timing.Backoff // used by run
	failing bool           // used by run: Failed was called with an error, and not with nil since

	mu       sync.Mutex
	clusters map[key]*cluster
	active   int // sources that are not stopped
	stopped  int // stopped sources that are not removed yet
	running  bool
	closed   bool
}

// NewReporter returns a Reporter that identifies itself as node, which must not be changed
// afterwards and should have the client feature that lets servers request all clusters
// (bootstrap's LRSNode). The caller owns the connection, which must be usable until Close has
// returned. A Reporter is idle until Report.
func NewReporter(conn grpc.ClientConnInterface, node *corev3.Node, opts Options) *Reporter {
	r := &Reporter{
		conn:     conn,
		node:     node,
		opts:     opts.withDefaults(),
		wake:     make(chan struct{}, 1),
		clusters: make(map[key]*cluster),
	}
	r.backoff = timing.Backoff{Base: r.opts.BackoffBase, Max: r.opts.BackoffMax}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Report returns counters to be reported as load of a cluster and its EDS service until stop is
// called, summed with the counters of other callers for the same key. Counts may be added after
// stop, and are then reported if still possible. Neither Report nor stop blocks; stop may be
// called repeatedly.
//
// After Close the counters are never read.
func (r *Reporter) Report(clusterName, service string) (load *picker.ClusterLoad, stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return &picker.ClusterLoad{Unreported: true}, func() {}
	}
	k := key{clusterName, service}
	c := r.clusters[k]
	if c == nil {
		c = &cluster{key: k, since: time.Now()}
		r.clusters[k] = c
	}
	s := newSource()
	c.sources = append(c.sources, s)
	r.active++
	if !r.running {
		r.running = true
		r.tasks.Go(r.run)
	}
	return s.load, func() { r.stop(c, s) }
}

// stop ends a source.
func (r *Reporter) stop(c *cluster, s *source) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.stopped {
		return
	}
	s.stopped = true
	r.stopped++
	r.active--
	if r.stopped > maxStopped {
		// Its counts are added to the cluster, if the cluster remains anyway.
		if len(c.sources) > 1 {
			c.fold(s)
		}
		r.forgetLocked(c, func(other *source) bool { return other == s })
	}
	if r.active == 0 {
		r.notify()
	}
}

// Close stops all sources, sends a last report if the server can be reached within
// Options.FinalTimeout, and returns when the reporter's goroutines have ended. It may be called
// repeatedly.
func (r *Reporter) Close() {
	r.mu.Lock()
	r.closed = true
	for _, c := range r.clusters {
		for _, s := range c.sources {
			if !s.stopped {
				s.stopped = true
				r.stopped++
			}
		}
	}
	r.active = 0
	r.notify()
	r.mu.Unlock()

	t := time.AfterFunc(r.opts.FinalTimeout, r.cancel)
	defer t.Stop()
	r.tasks.Wait()
	r.cancel()
}

// notify wakes run after a change.
func (r *Reporter) notify() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// idle reports whether there are no sources.
func (r *Reporter) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.active == 0
}

// owes reports whether there are unreported counts.
func (r *Reporter) owes() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.owesLocked()
}

// owesLocked is owes for callers that hold mu.
func (r *Reporter) owesLocked() bool {
	for _, c := range r.clusters {
		if sum := c.unsent(); !sum.empty() {
			return true
		}
	}
	return false
}

// finished reports whether run can end, because there is no source and the counts were reported
// or an attempt was made. If so, it removes the sources.
func (r *Reporter) finished(tried bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active > 0 || !tried && r.owesLocked() && r.ctx.Err() == nil {
		return false
	}
	clear(r.clusters)
	r.stopped = 0
	r.running = false
	return true
}

// forgetLocked removes the sources of c for which gone returns true, all of which are stopped,
// and c itself if nothing is left.
func (r *Reporter) forgetLocked(c *cluster, gone func(*source) bool) {
	before := len(c.sources)
	c.sources = slices.DeleteFunc(c.sources, gone)
	r.stopped -= before - len(c.sources)
	if len(c.sources) == 0 && c.later.empty() && r.clusters[c.key] == c {
		delete(r.clusters, c.key)
	}
}

// maxMessage approximately bounds the size of a message: a quarter of the 4 MiB that gRPC servers
// accept by default. A server that refuses a message ends the stream, and the counts of all
// clusters in the message are lost.
const maxMessage = 1 << 20

// A message is what one LoadStatsRequest reports.
type message struct {
	stats []*endpointv3.ClusterStats
	sent  []clusterReport // reported completely by this message and the ones before
}

// messages divides a report, in its order, into messages of about maxMessage. Only a cluster that
// exceeds maxMessage is divided itself. The result has at least one message, which may be empty.
func messages(report []clusterReport) []message {
	all := []message{{}}
	size := 0
	for _, c := range report {
		for _, part := range parts(c.stats) {
			n := proto.Size(part)
			if size > 0 && size+n > maxMessage {
				all, size = append(all, message{}), 0
			}
			size += n
			m := &all[len(all)-1]
			m.stats = append(m.stats, part)
		}
		m := &all[len(all)-1]
		m.sent = append(m.sent, c)
	}
	return all
}

// parts divides the report of a cluster, which may be nil. The first part has the drops.
func parts(stats *endpointv3.ClusterStats) []*endpointv3.ClusterStats {
	switch {
	case stats == nil:
		return nil
	case proto.Size(stats) <= maxMessage:
		return []*endpointv3.ClusterStats{stats}
	}
	localities := stats.GetUpstreamLocalityStats()
	stats.UpstreamLocalityStats = nil
	all, size := []*endpointv3.ClusterStats{stats}, proto.Size(stats)
	for _, l := range localities {
		n := proto.Size(l)
		if size > 0 && size+n > maxMessage {
			all, size = append(all, &endpointv3.ClusterStats{
				ClusterName:        stats.GetClusterName(),
				ClusterServiceName: stats.GetClusterServiceName(),
				LoadReportInterval: stats.GetLoadReportInterval(),
			}), 0
		}
		size += n
		part := all[len(all)-1]
		part.UpstreamLocalityStats = append(part.UpstreamLocalityStats, l)
	}
	return all
}
