// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"sync"

	"github.com/xdslb/xdslb/picker"
)

// breaker is the circuit breaker of one (cluster, EDS service name) pair. All
// channels of the process share it (A32); it is gone with its last user
// (T-CB-2).
type breaker struct {
	*picker.Breaker
	key  breakerKey
	refs int // guarded by breakers.mu
}

type breakerKey struct{ cluster, service string }

var breakers = struct {
	mu sync.Mutex
	m  map[breakerKey]*breaker
}{m: map[breakerKey]*breaker{}}

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
	return b
}

func (b *breaker) release() {
	breakers.mu.Lock()
	defer breakers.mu.Unlock()
	if b.refs--; b.refs == 0 {
		delete(breakers.m, b.key)
	}
}

// account acquires what the leaf counts its RPCs with.
func (l *leaf) account(b *lb) {
	l.breaker = acquireBreaker(l.cfg.Name, l.cfg.Service)
	if server := l.cfg.Load.Server; server != "" && b.src != nil {
		l.load, l.stopLoad = reportLoad(b.src, server, l.cfg.Name, l.cfg.Service)
	} else {
		l.load, l.stopLoad = &picker.ClusterLoad{Silent: true}, func() {}
	}
}

// sink returns where endpoints of a locality leave ORCA reports, or nil if no
// load is reported.
func (l *leaf) sink(id picker.LocalityID) *taps {
	if l.load.Silent {
		return nil
	}
	return &taps{orca: &orcaSink{l.load.Metrics(id), &l.metrics}}
}

// discharge gives back what account acquired. RPCs under way may go on
// counting.
func (l *leaf) discharge() {
	l.breaker.release()
	l.stopLoad()
}

// close releases everything the leaf has.
func (l *leaf) close(b *lb) {
	l.detector.stop()
	for _, p := range l.priorities {
		p.keep()
		p.stopFailover()
		p.dismiss()
		for _, loc := range p.localities {
			for _, e := range loc.endpoints {
				e.retire(b)
			}
		}
	}
	l.discharge()
}
