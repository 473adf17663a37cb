// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package shadowing compares the cluster that google.golang.org/grpc/xds, called stock here,
// chooses for an RPC with the clusters that xdslb might choose, for package shadow.
//
//	comparer.go  receives configurations, counts differences
//	call.go      one RPC, until its difference is settled
//	state.go     the result of a configuration for an RPC
//	weights.go   clusters with endpoint weights, which stock ignores
package shadowing

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xdslb/xdslb/integrate/internal/link"
	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/integrate/internal/weights"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// Kind is the kind of a difference between stock and xdslb.
type Kind string

// The kinds of differences.
const (
	// Cluster is an RPC that stock sent to a cluster to which xdslb would not send it.
	Cluster Kind = "cluster"
	// NoRoute is an RPC that stock sent, and for which xdslb has no route.
	NoRoute Kind = "no_route"
	// Route is an RPC for which stock found no route, and xdslb has one.
	Route Kind = "route"
	// Unserved is an RPC that stock sent while xdslb cannot serve the target.
	Unserved Kind = "unserved"
	// Shares is a weighted route with a cluster that gets another share of stock's RPCs than its
	// weight, by 6 standard deviations in 4096 RPCs or more. It counts once for each
	// configuration. Routes for fractions of RPCs, and routes with HTTP filters, are not compared.
	Shares Kind = "shares"
	// Weights is a cluster whose endpoints have different weights: see Report.Weights. Each
	// cluster counts once.
	Weights Kind = "weights"
)

// Report is a snapshot of the results.
type Report struct {
	// Calls is the number of RPCs that were compared: RPCs after the first configuration that
	// stock sent, or failed for lack of a route.
	Calls uint64
	// Pending is the number of calls with differences that are not settled.
	Pending     int
	Differences map[Kind]uint64
	// Weights are the clusters of the current configuration whose endpoints get other shares of
	// the RPCs from xdslb, with the expected shares of both.
	Weights []weights.Shift
}

// A Comparer compares the RPCs of one channel at a time, between Begin and End.
type Comparer struct {
	logger        *slog.Logger
	log           *eventlog.Log // of clusters with endpoint weights
	ignoreWeights bool
	state         atomic.Pointer[state] // nil before the first configuration
	calls         atomic.Uint64

	mu      sync.Mutex
	target  string // of the channel, while it is not idle
	metrics *metric.Channel
	found   map[Kind]uint64
	noted   map[Kind]bool
	pending []call      // with differences that are not settled
	timer   *time.Timer // runs while calls are pending
	// weighted are the clusters that were counted as Weights.
	weighted map[string]bool
}

// New returns a Comparer that logs the first difference of each kind. ignoreWeights is whether
// xdslb would ignore endpoint weights, as stock does.
func New(logger *slog.Logger, ignoreWeights bool) *Comparer {
	s := &Comparer{logger: link.LoggerOr(logger), ignoreWeights: ignoreWeights, found: map[Kind]uint64{}, noted: map[Kind]bool{}, weighted: map[string]bool{}}
	s.log = eventlog.NewLog(func() *slog.Logger { return s.logger })
	return s
}

// Begin begins to compare the RPCs of a target. It fails if it compares a target already, and
// returns that target.
func (s *Comparer) Begin(target string) (other string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.target != "" {
		return s.target, false
	}
	s.target = target
	return "", true
}

// Record counts differences in the metrics of a channel until End, which stops them.
func (s *Comparer) Record(metrics *metric.Channel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.metrics = metrics
}

// End removes the target and its configurations.
func (s *Comparer) End() {
	weights.Close(s.log)
	s.mu.Lock()
	metrics := s.metrics
	defer metrics.Stop() // without the mutex
	defer s.mu.Unlock()
	s.target, s.metrics = "", nil
	s.pending = nil
	s.state.Store(nil)
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// Report returns the results so far.
func (s *Comparer) Report() Report {
	shifts := s.shifts()
	s.mu.Lock()
	defer s.mu.Unlock()
	return Report{Calls: s.calls.Load(), Pending: len(s.pending), Differences: maps.Clone(s.found), Weights: shifts}
}

// Update implements xds.Watcher.
func (s *Comparer) Update(cfg *picker.Config) {
	next, err := newState(cfg)
	if err != nil {
		s.Error(err)
		return
	}
	s.noteWeights(cfg)
	s.install(next)
}

// Error implements xds.Watcher.
func (s *Comparer) Error(err error) { s.install(&state{err: err}) }

// install makes next the state that RPCs are compared with. Pending RPCs that next explains are
// no longer differences: stock had the configuration earlier.
func (s *Comparer) install(next *state) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.target == "" {
		return
	}
	if last := s.state.Load(); last != nil {
		next.follow(last)
	}
	s.state.Store(next)
	s.pending = slices.DeleteFunc(s.pending, func(c call) bool { return next.classify(&c) == "" })
}

// note counts a difference, and logs the first of its kind. The caller does not hold the mutex.
func (s *Comparer) note(kind Kind, c *call, by *state) {
	s.mu.Lock()
	target, metrics, first := s.target, s.metrics, !s.noted[kind]
	s.found[kind]++
	s.noted[kind] = true
	s.mu.Unlock()
	metrics.Count(metric.ShadowDifferences, 1, target, string(kind))
	if first {
		s.logger.Log(context.Background(), slog.LevelWarn, "xdslb: stock and xdslb differ for an RPC; this is logged once for each kind of difference",
			"target", target, "kind", string(kind), "method", c.method, "stock", c.stockResult(), "xdslb", by.explain(target, c))
	}
}
