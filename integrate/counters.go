// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/lrs"
)

// This file has what a leaf's RPCs are counted with: a circuit breaker and the
// counters of load reports, which leaves, channels and the XdsClient share.

// breaker is the circuit breaker of one (cluster, EDS service name) pair. All
// channels of the process share it (A32). It outlives its last user while RPCs are
// in flight (T-CB-2): whoever uses the pair next is to know of them.
type breaker struct {
	*picker.Breaker
	retries atomic.Int64 // of its RPCs that are under way, if they are limited
	key     breakerKey
	refs    int // guarded by breakers.mu
}

type breakerKey struct{ cluster, service string }

var breakers = struct {
	mu     sync.Mutex
	m      map[breakerKey]*breaker
	unused map[*breaker]struct{} // those of m without refs
}{m: map[breakerKey]*breaker{}, unused: map[*breaker]struct{}{}}

func acquireBreaker(cluster, service string) *breaker {
	breakers.mu.Lock()
	defer breakers.mu.Unlock()
	k := breakerKey{cluster, service}
	b := breakers.m[k]
	if b == nil {
		b = &breaker{Breaker: new(picker.Breaker), key: k}
		breakers.m[k] = b
	}
	b.refs++
	delete(breakers.unused, b)
	forgetIdleBreakersLocked()
	return b
}

func (b *breaker) release() {
	breakers.mu.Lock()
	defer breakers.mu.Unlock()
	if b.refs--; b.refs == 0 {
		breakers.unused[b] = struct{}{}
	}
	forgetIdleBreakersLocked()
}

// forgetIdleBreakersLocked forgets breakers that nobody uses and no RPC is in flight
// of. It is called whenever one is acquired or released, and before they are shown.
func forgetIdleBreakersLocked() {
	for b := range breakers.unused {
		if b.InFlight() == 0 {
			delete(breakers.unused, b)
			if breakers.m[b.key] == b {
				delete(breakers.m, b.key)
			}
		}
	}
}

// acquireCounters acquires what the leaf counts its RPCs with.
func (l *leaf) acquireCounters(b *lb) {
	if b.simulated {
		l.breaker = &breaker{Breaker: new(picker.Breaker), refs: 1}
	} else {
		l.breaker = acquireBreaker(l.cfg.Name, l.cfg.Service)
	}
	l.load, l.stopReports = &picker.ClusterLoad{Unreported: true}, func() {}
	if server := l.cfg.Load.Server; server != "" && b.src != nil {
		load, stop, err := reportLoad(b.src, server, l.cfg.Name, l.cfg.Service)
		if err != nil {
			b.rec.write(slog.LevelError, "xdslb: a cluster's load is not reported", l.cfg.Name, slog.String("server", server), slog.String("error", err.Error()))
			return
		}
		l.load, l.stopReports = load, stop
	}
}

// loadObserver returns what collects the ORCA reports of a locality's endpoints, or
// nil if no load is reported.
func (l *leaf) loadObserver(id picker.LocalityID) *observers {
	if l.load.Unreported || l.cfg.Load.Server == "" {
		return nil
	}
	return &observers{orca: &orcaRecorder{l.load.Metrics(id), &l.metrics}}
}

// releaseCounters gives back what acquireCounters acquired. RPCs under way may go
// on counting.
func (l *leaf) releaseCounters(b *lb) { l.heldCounters(b)() }

// heldCounters returns what gives back the counters that the leaf has now.
func (l *leaf) heldCounters(b *lb) (release func()) {
	cfg, load, breaker, stop := l.cfg, l.load, l.breaker, l.stopReports
	return func() {
		if b.rec.metrics != nil {
			b.retired[load] = cfg
		}
		breaker.release()
		stop()
	}
}

// reporter is the load reporter for one server, shared by all channels that
// use the same XdsClient. It is gone with its last user.
type reporter struct {
	*lrs.Reporter
	key     reporterKey
	release func() // of the connection
	refs    int    // guarded by reporters.mu
}

type reporterKey struct {
	client *xds.Client
	server string
}

var reporters = struct {
	mu sync.Mutex
	m  map[reporterKey]*reporter
}{m: map[reporterKey]*reporter{}}

// reportLoad returns counters that are reported to a server until stop. It fails only if
// the server is not one of the bootstrap, or cannot be dialed at all.
func reportLoad(src *source, server, cluster, service string) (load *picker.ClusterLoad, stop func(), err error) {
	reporters.mu.Lock()
	defer reporters.mu.Unlock()
	k := reporterKey{src.Client, server}
	r := reporters.m[k]
	if r == nil {
		conn, release, err := src.Client.Conn(server)
		if err != nil {
			return nil, nil, err
		}
		r = &reporter{Reporter: lrs.NewReporter(conn, src.Bootstrap.LRSNode(), lrs.Options{
			Failed: func(err error) { k.client.LogLoadReports(server, err) },
		}), key: k, release: release}
		reporters.m[k] = r
	}
	r.refs++
	load, quit := r.Report(cluster, service)
	return load, func() { quit(); r.unref() }, nil
}

// unref gives up one use. The last one lets the final report go out in the
// background: closing a channel does not wait for a server.
func (r *reporter) unref() {
	reporters.mu.Lock()
	defer reporters.mu.Unlock()
	if r.refs--; r.refs == 0 {
		delete(reporters.m, r.key)
		go func() {
			r.Close()
			r.release()
		}()
	}
}
