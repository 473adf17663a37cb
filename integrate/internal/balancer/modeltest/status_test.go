// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	lb "github.com/xdslb/xdslb/integrate/internal/balancer"
	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/picker"
)

// This file checks what a channel says of itself (Status, WaitReady) against what the
// model knows.

// checkStatus checks the channel's status.
func (t *trial) checkStatus() {
	s := statusIn(t.lb, true)
	routed := 0
	for _, c := range t.plane.clusters {
		if !c.routed || c.sent == nil {
			continue
		}
		routed++
		i := slices.IndexFunc(s.Clusters, func(cs report.ClusterStatus) bool { return cs.Name == c.sent.Name })
		if i < 0 {
			t.Fatalf("the status lacks cluster %s: %+v", c.name, s.Clusters)
			return
		}
		t.checkClusterStatus(c, &s.Clusters[i])
	}
	if len(s.Clusters) != routed {
		t.Fatalf("the status has %d clusters, of %d", len(s.Clusters), routed)
	}
	if len(s.Events) == 0 || s.Since.IsZero() || s.Error != "" {
		t.Fatalf("the status of a target in force is %+v", s)
	}
}

func (t *trial) checkClusterStatus(c *planeCluster, s *report.ClusterStatus) {
	for i, l := range c.leaves {
		if n := t.counts[account{l.name, l.service}]; s.Leaves[i].InFlight != int64(n) {
			t.Fatalf("the status has %d RPCs of %s in flight, of %d", s.Leaves[i].InFlight, l.name, n)
		}
	}
	var all []report.PriorityStatus
	for _, l := range s.Leaves {
		all = append(all, l.Priorities...)
	}
	tiers := c.priorities()
	if len(all) != len(tiers) {
		t.Fatalf("the status has %d priorities of %s, of %d", len(all), c.name, len(tiers))
	}
	inUse := 0
	for i, p := range tiers {
		t.checkPriorityStatus(c, p, &all[i])
		if all[i].InUse {
			inUse++
		}
		if all[i].Priority != i || (i == s.Priority) && !all[i].InUse {
			t.Fatalf("priority %d of %s, of which %d is in use, is %+v", i, c.name, s.Priority, all[i])
		}
		if i < s.Priority && t.isReady(p) {
			t.Fatalf("the status says that %s uses priority %d, though %d is READY (A56)", c.name, s.Priority, i)
		}
	}
	if len(tiers) > 0 && (s.Priority < 0 || inUse != 1) {
		t.Fatalf("%d priorities of %s are in use, and the cluster's is %d", inUse, c.name, s.Priority)
	}
	if s.Priority >= 0 && tiers[s.Priority].transparent() && (s.State == "READY") != t.isReady(tiers[s.Priority]) {
		t.Fatalf("the status says that %s is %s, by priority %d; READY is %v", c.name, s.State, s.Priority, t.isReady(tiers[s.Priority]))
	}
	if (s.State == "TRANSIENT_FAILURE") != (s.Error != "") {
		t.Fatalf("the status says that %s is %s: %q", c.name, s.State, s.Error)
	}
}

// checkPriorityStatus checks what the status says of a priority's endpoints.
func (t *trial) checkPriorityStatus(c *planeCluster, p tier, s *report.PriorityStatus) {
	var want report.EndpointCounts
	failed := 0
	for _, loc := range p.Localities {
		for _, e := range loc.Endpoints.All() {
			want.Total++
			switch {
			case e.Health == picker.Draining:
				want.Draining++
			case t.hasConn(e, t.usable):
				want.Ready++
			case !multiAddressed(e) && t.hasConn(e, unreachable) && !t.hasConn(e, reachable): // a replacement may be either
				failed++
			}
		}
	}
	n := s.Endpoints
	if n.Total != want.Total || n.Total != n.Ready+n.Connecting+n.Idle+n.Failed+n.Ejected+n.Draining+n.Subset {
		t.Fatalf("the status of a priority of %s has the endpoints %+v, of %d", c.name, n, want.Total)
	}
	t.checkLocalities(c, p, s)
	if !p.transparent() {
		return
	}
	if n.Ready != want.Ready || n.Draining != want.Draining || n.Failed < failed || n.Ejected+n.Subset > 0 {
		t.Fatalf("the status of a priority of %s has the endpoints %+v; %d are READY, %d drain, %d failed", c.name, n, want.Ready, want.Draining, failed)
	}
	if t.hasFailed(p) && s.State != "TRANSIENT_FAILURE" {
		t.Fatalf("the status of a priority of %s that has failed is %+v", c.name, s)
	}
}

// checkLocalities checks what the status says of a priority's endpoints one by one: they are
// those that are counted, in the states that are counted, and no share goes to one that
// cannot be picked.
func (t *trial) checkLocalities(c *planeCluster, p tier, s *report.PriorityStatus) {
	var n report.EndpointCounts
	sum := 0.
	for i, loc := range s.Localities {
		share := 0.
		for _, e := range loc.Endpoints {
			n.Total++
			share += e.Share
			switch {
			case e.Draining:
				n.Draining++
			case e.Ejected && e.State == "READY":
				n.Ejected++
			case e.State == "READY":
				n.Ready++
			case e.State == "CONNECTING":
				n.Connecting++
			case e.State == "IDLE":
				n.Idle++
			default:
				n.Failed++
			}
			if e.Share > 0 && (!s.InUse || e.Out != "") {
				t.Fatalf("the status of %s says that an endpoint of locality %d gets RPCs: %+v", c.name, i, e)
			}
		}
		if share > loc.Share+1e-9 {
			t.Fatalf("the status of %s says that locality %d gets %v of the RPCs, and its endpoints %v", c.name, i, loc.Share, share)
		}
		sum += loc.Share
	}
	n.Total, n.Subset = n.Total+s.Endpoints.Subset, s.Endpoints.Subset
	if n != s.Endpoints {
		t.Fatalf("the status of a priority of %s counts %+v, and has %+v", c.name, s.Endpoints, n)
	}
	if sum > 1+1e-9 {
		t.Fatalf("the status of a priority of %s gives %v of the RPCs away", c.name, sum)
	}
}

func unreachable(conn *modelConn) bool { return conn.state == connectivity.TransientFailure }
func reachable(conn *modelConn) bool   { return !unreachable(conn) }

// hasConn reports whether an endpoint has such a SubConn.
func (t *trial) hasConn(e *picker.Endpoint, such func(*modelConn) bool) bool {
	return slices.ContainsFunc(t.grpc.open(), func(conn *modelConn) bool { return has(e, conn.number) && such(conn) })
}

// checkReady checks that WaitReady would return if RPCs of a cluster are served for
// certain, and that they do not wait if it would.
func (t *trial) checkReady() {
	for _, c := range t.plane.clusters {
		if !c.routed || c.sluggish() {
			continue
		}
		ready := t.lb.IsReady(t.Context(), "/"+c.name+"/m")
		t.rest()
		if !ready && t.mustServe(c) {
			t.Fatalf("WaitReady would wait for %s, which has an endpoint to pick", c.name)
		}
		if !ready || t.hashes(c) || slices.ContainsFunc(c.priorities(), func(p tier) bool { return !p.transparent() }) {
			continue
		}
		r := t.newRPC(c.name, t.Rand.Uint64(), false)
		if t.pick(r); r.waiting || r.conn == nil && !t.refused(r) {
			t.Fatalf("WaitReady would return for %s, and %v is not sent: %v", c.name, r, r.err)
		}
		t.settle(r)
	}
}

// This file asks channels what they are at and where RPCs would go, at any moment: such
// questions disturb nothing, wait for nobody, and have an answer.

// look asks while everything is at rest, and checks that it stays so.
func (t *trial) look() {
	t.rest()
	b := t.lb
	table, _ := b.Published()
	before, busyBefore := t.grpc.doings(), b.InFlight()
	t.ask()
	t.rest()
	if after := t.grpc.doings(); after != before {
		t.Fatalf("questions have the balancer act: it was at %+v, and is at %+v", before, after)
	}
	if now, _ := b.Published(); now != table {
		t.Fatalf("questions have something published")
	}
	if n := b.InFlight(); n != busyBefore {
		t.Fatalf("questions are counted as RPCs: endpoints have %d in flight, and had %d", n, busyBefore)
	}
}

// glimpse asks while the balancer has not settled.
func (t *trial) glimpse() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.ask()
	}()
	<-done
}

// ask asks everything.
func (t *trial) ask() {
	b := t.lb
	for _, detailed := range []bool{false, true} {
		s := statusIn(b, detailed)
		if _, err := json.Marshal(s); err != nil {
			t.Fatalf("the status cannot be printed: %v", err)
		}
		if wrong := unsound(&s); wrong != "" {
			t.Fatalf("the status is not sound: %s: %+v", wrong, s)
		}
	}
	for _, c := range t.plane.clusters {
		x, err := lb.Explain(metadatautil.WithHash(context.Background(), rand.Uint64()), b, "/"+c.name+"/m")
		switch {
		case err != nil:
			if _, ok := b.Published(); ok {
				t.Fatalf("an RPC to %s cannot be explained: %v", c.name, err)
			}
		case x.NoRoute < 1 && len(x.Routes) == 0:
			t.Fatalf("an RPC to %s takes no route, and is not refused for that: %v", c.name, x)
		case (x.NoRoute == 1) == c.routed && !x.Pending && c.sent != nil:
			t.Fatalf("an RPC to %s, which is routed: %v, is without a route: %v", c.name, c.routed, x)
		}
		if x != nil && x.String() == "" {
			t.Fatalf("the explanation of an RPC to %s has no text", c.name)
		}
	}
}

// unsound returns in what a status contradicts itself, whatever is going on.
func unsound(s *report.TargetStatus) string {
	for _, c := range s.Clusters {
		inUse := 0
		for _, l := range c.Leaves {
			if l.InFlight < 0 {
				return "RPCs in flight are less than none"
			}
			for _, p := range l.Priorities {
				n := p.Endpoints
				if n.Total != n.Ready+n.Connecting+n.Idle+n.Failed+n.Ejected+n.Draining+n.Subset {
					return "endpoints do not add up"
				}
				if p.InUse {
					inUse++
				}
				for _, loc := range p.Localities {
					if loc.Share < 0 || loc.Share > 1+1e-9 {
						return "a share is no part of one"
					}
				}
			}
		}
		if (c.Priority >= 0) != (inUse > 0) {
			return "a cluster uses a priority and none is in use, or the other way round"
		}
	}
	return ""
}

// doings is what the balancer has had gRPC do.
type doings struct{ made, announced, actions, streams int }

func (cc *modelChannel) doings() doings {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	return doings{cc.made, cc.announced, cc.actions, cc.streams}
}

// lookFrom returns what asks a balancer now and then when it calls others, which may do so:
// it holds no mutex then.
func (t *trial) lookFrom(b *lb.Balancer) func() {
	return func() {
		if rand.IntN(8) == 0 {
			_ = statusIn(b, true) // or the test hangs, and its trace says who waits
		}
	}
}

// callBack is code of others' that the balancer has called.
func (cc *modelChannel) callBack() {
	if cc.called != nil {
		cc.called()
	}
}

// explain explains some of the RPCs before they pick. What it returns is told what the pick
// came to, and checks that the explanation calls it possible. RPCs of sessions are made by
// the model without a cookie, which is what explanations go by, and further attempts avoid
// endpoints.
func (t *trial) explain(r *modelRPC, ctx context.Context, method string) (possible func(balancer.PickResult, error)) {
	b := t.lb
	table, published := b.Published()
	if r.id%4 > 0 || r.host > 0 || r.made > 0 || !published {
		return func(balancer.PickResult, error) {}
	}
	x, err := lb.Explain(ctx, b, method)
	if err != nil {
		t.Fatalf("%v cannot be explained: %v", r, err)
	}
	return func(res balancer.PickResult, err error) {
		if now, _ := b.Published(); now != table {
			return // another snapshot was published in between
		}
		behind := t.updating || t.clusterNamed(r.cluster).sluggish()
		if why := impossible(x, res, err, behind, t.updating); why != "" {
			t.Fatalf("%v results in (%v, %v), and the explanation disagrees: %s:\n%v", r, res.SubConn, err, why, x)
		}
	}
}

// impossible returns why a pick cannot have come to what it came to, or "". behind says that
// a child policy takes its time, and may pick an endpoint that has moved on; updating that picks may
// use an earlier configuration, whose circuit breakers and removed clusters the status does not have.
func impossible(x *report.Explanation, res balancer.PickResult, err error, behind, updating bool) string {
	var all report.RouteTarget // of the clusters that the RPC may have gone to
	for i := range x.Routes {
		for k := range x.Routes[i].Clusters {
			c := &x.Routes[i].Clusters[k]
			all.Picked, all.Delegated, all.Waits, all.Fails = all.Picked+c.Picked, all.Delegated+c.Delegated, all.Waits+c.Waits, all.Fails+c.Fails
			if conn, ok := res.SubConn.(*modelConn); ok && err == nil {
				e := endpointIn(c, addr(conn.number).String())
				if e != nil && e.Out == "" || (e == nil || behind) && c.Delegated+c.Fails > 0 || e == nil && updating { // a child policy may be a list behind
					return ""
				}
			}
			if err != nil && strings.Contains(err.Error(), "circuit breaker") && (updating || c.Status != nil && mayRefuse(x, c.Status)) {
				return ""
			}
		}
	}
	_, final := status.FromError(err)
	switch {
	case err == nil:
		return "the endpoint is out"
	case all.Delegated > 0 || all.Fails > 0:
		return "" // a child policy may do anything
	case errors.Is(err, balancer.ErrNoSubConnAvailable) && all.Waits == 0:
		return "no RPC waits"
	case !final && !errors.Is(err, balancer.ErrNoSubConnAvailable):
		return "no RPC fails"
	case final && len(x.Routes) > 0 && x.NoRoute == 0:
		return "no RPC is refused"
	}
	return ""
}

// mayRefuse reports whether the circuit breaker of the leaf that picks use may be at its limit. The
// status is at most a few milliseconds ahead of what picks use, so a pending explanation may name
// the next leaf.
func mayRefuse(x *report.Explanation, c *report.ClusterStatus) bool {
	if x.Pending {
		return slices.ContainsFunc(c.Leaves, func(l report.LeafStatus) bool { return l.Refuses() })
	}
	l := c.LeafInUse()
	return l != nil && l.Refuses()
}
