// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"reflect"

	"github.com/xdslb/xdslb/integrate/internal/channelmetrics"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/eventlog"
	"google.golang.org/grpc/connectivity"
)

// leaf is the live counterpart of a picker.Leaf.
type leaf struct {
	common
	priorities []*priority
	detector   detector
}

// update applies a new configuration of the leaf: it reconciles priorities and endpoints with it,
// and configures the features. changed is the cluster's list of tallies.
func (l *leaf) update(cfg *picker.Leaf, changes *eventlog.Changes, changed *[]*tally) {
	was := l.adopt(cfg)
	moved := l.reconcile(changes, changed)
	l.configure(was, moved, changes)
}

// adopt sets the configuration, and with it the counters and TLS settings that endpoints and
// connections use. It returns the previous configuration, or nil if there is none.
func (l *leaf) adopt(cfg *picker.Leaf) (was *picker.Leaf) {
	was = l.cfg
	switch {
	case was == nil:
		l.cfg = cfg
		l.acquireCounters()
	case was.Service != cfg.Service || was.Load.Server != cfg.Load.Server || was.CountsRPCs() != cfg.CountsRPCs():
		// Breaker and load reports belong to the pair of names. Unchanged counters are acquired
		// again before they are released, so that they keep counting the RPCs in flight.
		l.releaseCounters()
		l.cfg = cfg
		l.acquireCounters()
	default:
		l.cfg = cfg
	}
	l.rt.Call(l.security.Swap(cfg.TLS))
	return was
}

// configure applies the configuration to one feature after the other, once priorities and endpoints
// match it. was is the previous configuration, nil for a new leaf. moved reports whether the states
// of endpoints must be counted again.
func (l *leaf) configure(was *picker.Leaf, moved bool, changes *eventlog.Changes) {
	rehashed := false
	if was == nil || was.Outlier != l.cfg.Outlier { // endpoints may return
		moved = true
	}
	if was != nil {
		noteLeaf(changes, was, l.cfg)
		rehashed = was.Policy.Hashes() != l.cfg.Policy.Hashes()
		if l.opts.ReconnectOnTLSChange && !reflect.DeepEqual(was.TLS, l.cfg.TLS) {
			moved = true
			l.replaceConns()
		}
		rechecked := !sameHealthCheck(was, l.cfg)
		if rechecked {
			l.recheckHealth()
		}
		if rechecked || delegates(&was.Policy) != l.delegates() { // child policies do not use the cluster's check
			l.recheckReplacements()
		}
	}
	l.updateDetection()
	l.updateWRR()
	for _, p := range l.priorities {
		if moved {
			p.recount()
		}
		if rehashed {
			p.invalidate() // IDLE endpoints may have to connect now
		}
	}
	if l.rec.metrics != nil { // before localities are removed
		channelmetrics.FoldLoad(l.rec.metrics, l.cfg, l.load)
	}
	l.load.Retain(l.cfg)
	l.metrics.Store(newMetricNames(l.cfg.Load.Metrics))
}

// endpoints visits the endpoints of all priorities.
func (l *leaf) endpoints(yield func(*endpoint) bool) {
	for _, p := range l.priorities {
		for e := range p.endpoints {
			if !yield(e) {
				return
			}
		}
	}
}

// close releases all resources of the leaf.
func (l *leaf) close(changes *eventlog.Changes) {
	l.detector.stop()
	l.rt.Call(l.security.Close)
	for _, p := range l.priorities {
		p.place = -1
		p.enter(dormant)
		for g := range p.liveGroups {
			g.close()
		}
		p.groups = nil
		for e := range p.endpoints {
			changes.EndpointsRemoved++
			e.remove()
		}
	}
	l.releaseCounters()
}

// recheckHealth applies a changed health check to READY connections, which stay in use until they
// are reported as unhealthy.
func (l *leaf) recheckHealth() {
	for e := range l.endpoints {
		c := e.conn
		if c == nil || c.child != nil || c.state != picker.Ready || c.multiAddress() || l.delegates() {
			continue
		}
		if l.checksHealth() {
			c.checkHealth()
			continue
		}
		if c.stopHealthWatch(); e.Connectivity != picker.Ready {
			e.observe(connectivity.Ready, nil)
		}
	}
}
