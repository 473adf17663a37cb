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
	"google.golang.org/grpc"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/internal/timing"
)

// Options configures a Reporter. The zero value is ready to use.
type Options struct {
	// MinInterval is the least time between two reports; servers that ask for
	// more of them get this (T-LRS-1). 0 is one second.
	MinInterval time.Duration
	// FinalTimeout is how long Close may take to send the last report, and how
	// long a stream is kept for it after the last source has stopped, or the
	// server's first word awaited. 0 is half a second.
	FinalTimeout time.Duration
	// BackoffBase is the least time between the beginnings of two streams, and
	// the longest wait after a first failure, which then grows up to BackoffMax.
	// 0 is one second and two minutes.
	BackoffBase, BackoffMax time.Duration
	// Failed is called, by the goroutine that reports, when a stream has ended before
	// the server said anything on it, or could not be opened. Nil writes a line to
	// slog.Default().
	Failed func(error)
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
		o.Failed = func(err error) { slog.Warn("xdslb: load cannot be reported to a server", "error", err) }
	}
	return o
}

// maxStopped is how many stopped sources may wait to be reported. There are more
// only if many stop at once, or while the server is out of reach.
const maxStopped = 256

// A Reporter reports load to one server.
//
// A Reporter must be made by NewReporter and must not be copied. Any number of
// goroutines may use it.
type Reporter struct {
	conn grpc.ClientConnInterface
	node *corev3.Node
	opts Options

	ctx    context.Context // of all streams
	cancel context.CancelFunc
	wake   chan struct{} // holds a token if the last source may have stopped
	tasks  sync.WaitGroup

	backoff timing.Backoff // run's

	mu       sync.Mutex
	clusters map[key]*cluster
	active   int // sources that have not been stopped
	stopped  int // sources that have been, and are not forgotten yet
	running  bool
	closed   bool
}

// NewReporter returns a Reporter that introduces itself as node, which must not be
// changed any more and should have the client feature that lets servers ask for
// all clusters (bootstrap's LRSNode). The connection stays the caller's and must
// be usable until Close has returned. Nothing happens before Report.
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

// Report returns counters to be reported as load of a cluster and its EDS service
// until stop is called, together with those of others who report on the same.
// Counts may be added after stop, and are reported as far as that is still
// possible. Neither Report nor stop waits for anything; stop can be called again.
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
		// Its counts stay with the cluster, if that has to stay anyway.
		if len(c.sources) > 1 {
			c.fold(s)
		}
		r.forgetLocked(c, func(other *source) bool { return other == s })
	}
	if r.active == 0 {
		r.notify()
	}
}

// Close stops all sources, sends a last report if the server can be reached
// within Options.FinalTimeout, and returns when the reporter's goroutines have
// ended. It can be called again.
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

// notify makes run see that something changed.
func (r *Reporter) notify() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// idle reports whether there is no source.
func (r *Reporter) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.active == 0
}

// owes reports whether something was counted and not reported.
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

// finished reports whether run can end, because there is no source and what they
// counted was reported or tried to be, and forgets the sources then.
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

// forgetLocked removes those sources of c that gone says, all of which are stopped, and
// c if nothing is left of it.
func (r *Reporter) forgetLocked(c *cluster, gone func(*source) bool) {
	before := len(c.sources)
	c.sources = slices.DeleteFunc(c.sources, gone)
	r.stopped -= before - len(c.sources)
	if len(c.sources) == 0 && c.later.empty() && r.clusters[c.key] == c {
		delete(r.clusters, c.key)
	}
}
