// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// This file holds the balancer to Config.ConnectRate: in any window of time a priority has
// no more endpoints asked to connect than its burst and its rate allow. The bound is for
// endpoints that the balancer itself connects because a priority starts: connections that
// were lost come back at once, and on-demand and child policies decide for themselves.

// dial is the first time that a SubConn was asked to connect.
type dial struct {
	at   time.Time
	conn *modelConn
}

// grant is what allows for more than burst and rate: an attempt that failed gives its place
// back, and a priority that lost a connection may start again.
type grant struct {
	at     time.Time
	number int
	n      int
}

// paceKey is a priority of a cluster, counted over all leaves.
type paceKey struct {
	cluster  *planeCluster
	priority int
}

// pace is what a priority did since its cluster's shape has changed.
type pace struct {
	dials []time.Time
	most  int       // endpoints that it has had
	ready time.Time // since when it was READY whenever somebody looked; zero if it is not
}

// paces is what is known of all priorities.
type paces struct {
	of     map[paceKey]*pace
	shapes map[*planeCluster]string
	grants map[*planeCluster][]grant
}

// modelBurst is how many endpoints of a priority may be connected at once.
const modelBurst = 2 // priorities are small

// shape is what a cluster's pacers depend on. If it changes, there may be others.
func (c *planeCluster) shape() string {
	if c.sent == nil {
		return ""
	}
	s := ""
	for i := range c.sent.Leaves {
		l := &c.sent.Leaves[i]
		s += fmt.Sprint((*policyWords)(&l.Policy), l.Service, l.Load.Server, ";")
		for _, p := range l.Priorities {
			for _, loc := range p.Localities {
				s += loc.ID.Zone
			}
			s += "|"
		}
	}
	return s
}

// repace forgets what clusters did whose shape has changed.
func (t *trial) repace() {
	for _, c := range t.plane.clusters {
		if shape := c.shape(); shape != t.paces.shapes[c] {
			t.paces.shapes[c], t.paces.grants[c] = shape, nil
			maps.DeleteFunc(t.paces.of, func(k paceKey, _ *pace) bool { return k.cluster == c })
			for _, conn := range t.grpc.open() {
				if slices.Contains(c.leaves, t.leafOf(conn.number)) {
					conn.failed = false // what it was to a child policy does not count
				}
			}
		}
	}
}

// newPaces is for a channel that begins.
func newPaces() paces {
	return paces{map[paceKey]*pace{}, map[*planeCluster]string{}, map[*planeCluster][]grant{}}
}

// checkPace takes in who was asked to connect, and judges it.
func (t *trial) checkPace() {
	dials, grants := t.grpc.asked()
	if t.options.ConnectRate == 0 {
		return
	}
	for _, g := range grants {
		if l := t.leafOf(g.number); l != nil {
			c := t.clusterOf(l)
			t.paces.grants[c] = append(t.paces.grants[c], g)
		}
	}
	for _, c := range t.plane.clusters {
		for i, p := range c.priorities() {
			t.paceOf(c, i).look(t.isReady(p), p)
		}
	}
	for _, d := range dials {
		l := t.leafOf(d.conn.number)
		if l == nil || l.switched || l.sluggish || delegates(&l.sent) || l.sent.Hashes() {
			continue
		}
		c := t.clusterOf(l)
		if at, e := c.find(d.conn.number); c.routed && e != nil && !multiAddressed(e) {
			p := t.paceOf(c, at)
			p.dials = append(p.dials, d.at)
			t.judge(c, at, p)
		}
	}
}

func (t *trial) paceOf(c *planeCluster, priority int) *pace {
	key := paceKey{c, priority}
	p := t.paces.of[key]
	if p == nil {
		p = &pace{}
		t.paces.of[key] = p
	}
	return p
}

// look notes whether the priority is READY.
func (p *pace) look(ready bool, of tier) {
	n := 0
	for _, loc := range of.Localities {
		n += loc.Endpoints.Len()
	}
	switch p.most = max(p.most, n); {
	case !ready:
		p.ready = time.Time{}
	case p.ready.IsZero():
		p.ready = time.Now()
	}
}

// judge holds the latest dial against all before it.
func (t *trial) judge(c *planeCluster, at int, p *pace) {
	o := withDefaults(t.options)
	last := p.dials[len(p.dials)-1]
	for i, from := range p.dials {
		trying := last.Sub(from) // how long of the time it was
		if !p.ready.IsZero() {
			trying = max(0, p.ready.Sub(from))
		}
		eager := max(o.ConnectRate, float64(p.most)/(o.FailoverTimeout.Seconds()/2))
		allowed := modelBurst + eager*trying.Seconds() + o.ConnectRate*(last.Sub(from)-trying).Seconds() + 1e-6
		for _, g := range t.paces.grants[c] {
			if !g.at.Before(from) && !g.at.After(last) {
				allowed += float64(g.n)
			}
		}
		if n := len(p.dials) - i; float64(n) > allowed {
			t.Fatalf("priority %d of %s had %d endpoints asked to connect within %v, and Config.ConnectRate of %v allows for %.1f of %d",
				at, c.name, n, last.Sub(from), o.ConnectRate, allowed, p.most)
			return
		}
	}
}

// note keeps the first Connect of a SubConn, unless it is to replace another one. The caller
// holds cc.mu.
func (cc *modelChannel) note(c *modelConn) {
	if !slices.ContainsFunc(cc.conns, func(o *modelConn) bool { return o != c && !o.shut && o.number == c.number }) {
		cc.dials = append(cc.dials, dial{time.Now(), c})
	}
}

// grant keeps what a change of state allows for. The caller holds cc.mu.
func (cc *modelChannel) grant(c *modelConn, n int) {
	cc.grants = append(cc.grants, grant{time.Now(), c.number, n})
}

// asked returns what was noted since the last call.
func (cc *modelChannel) asked() ([]dial, []grant) {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	dials, grants := cc.dials, cc.grants
	cc.dials, cc.grants = nil, nil
	return dials, grants
}
