// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package counters has the counters that the channels of the process share: circuit breakers,
// and the counters of load reports.
package counters

import (
	"sync"
	"sync/atomic"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/lrs"
)

// A Breaker is the circuit breaker of one pair of cluster and EDS service name. All channels of
// the process share it (A32). It is kept without users while RPCs are in flight, so that the
// next user of the pair counts them (T-CB-2).
type Breaker struct {
	*picker.Breaker
	Retries atomic.Int64 // in flight, if they are limited
	key     breakerKey
	refs    int // guarded by breakers.mu
}

type breakerKey struct{ cluster, service string }

var breakers = struct {
	mu     sync.Mutex
	m      map[breakerKey]*Breaker
	unused map[*Breaker]struct{} // the entries of m with refs = 0
}{m: map[breakerKey]*Breaker{}, unused: map[*Breaker]struct{}{}}

// NewUnlimited returns a breaker that counts nothing. It is not shared.
func NewUnlimited() *Breaker { return &Breaker{Breaker: &picker.Breaker{Unlimited: true}, refs: 1} }

// NewBreaker returns a breaker that is not shared.
func NewBreaker() *Breaker { return &Breaker{Breaker: new(picker.Breaker), refs: 1} }

// AcquireBreaker returns the breaker of a pair. The caller calls Unref when it is done.
func AcquireBreaker(cluster, service string) *Breaker {
	breakers.mu.Lock()
	defer breakers.mu.Unlock()
	k := breakerKey{cluster, service}
	b := breakers.m[k]
	if b == nil {
		b = &Breaker{Breaker: new(picker.Breaker), key: k}
		breakers.m[k] = b
	}
	b.refs++
	delete(breakers.unused, b)
	forgetIdleLocked()
	return b
}

// Unref releases one use of the breaker.
func (b *Breaker) Unref() {
	breakers.mu.Lock()
	defer breakers.mu.Unlock()
	if b.refs--; b.refs == 0 {
		breakers.unused[b] = struct{}{}
	}
	forgetIdleLocked()
}

// Breakers visits the shared breakers, with the mutex held that AcquireBreaker and Unref take.
func Breakers(visit func(cluster, service string, b *Breaker)) {
	breakers.mu.Lock()
	defer breakers.mu.Unlock()
	forgetIdleLocked()
	for k, b := range breakers.m {
		visit(k.cluster, k.service, b)
	}
}

// forgetIdleLocked removes breakers without users and RPCs in flight. It is called whenever a
// breaker is acquired or released, and before breakers are visited.
func forgetIdleLocked() {
	for b := range breakers.unused {
		if b.InFlight() == 0 {
			delete(breakers.unused, b)
			if breakers.m[b.key] == b {
				delete(breakers.m, b.key)
			}
		}
	}
}

// reporter is the load reporter for one server, shared by all channels that use the same
// XdsClient. The last user closes it.
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

// ReportLoad returns counters of a cluster that are reported to a server until stop. It fails
// only if the bootstrap lacks the server, or the server cannot be dialed at all.
func ReportLoad(client *xds.Client, boot *bootstrap.Config, server, cluster, service string) (load *picker.ClusterLoad, stop func(), err error) {
	reporters.mu.Lock()
	defer reporters.mu.Unlock()
	k := reporterKey{client, server}
	r := reporters.m[k]
	if r == nil {
		conn, release, err := client.Conn(server)
		if err != nil {
			return nil, nil, err
		}
		r = &reporter{Reporter: lrs.NewReporter(conn, boot.LRSNode(), lrs.Options{
			Failed: func(err error) { client.LogLoadReports(server, err) },
			Ended:  func(err error) { client.LogLoadReportsEnded(server, err) },
		}), key: k, release: release}
		reporters.m[k] = r
	}
	r.refs++
	load, quit := r.Report(cluster, service)
	return load, func() { quit(); r.unref() }, nil
}

// unref releases one use. After the last use the final report is sent in the background, so
// that closing a channel does not wait for a server.
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
