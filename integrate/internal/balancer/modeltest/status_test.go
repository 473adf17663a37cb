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

// This file compares Status, WaitReady and Explain with the model.

// checkStatus checks the channel's status.
func (t *history) checkStatus() {
	s := statusIn(t.lb, true)
	routed := 0
	for _, c := range t.controlPlane.clusters {
		if !c.routed || c.sent == nil {
			continue
		}
		routed++
		i := slices.IndexFunc(s.Clusters, func(cs report.ClusterStatus) bool { return cs.Name == c.sent.Name })
		if i < 0 {
			t.Fatalf("Status has no cluster %s, want it among %+v", c.name, s.Clusters)
			return
		}
		t.checkClusterStatus(c, &s.Clusters[i])
	}
	if len(s.Clusters) != routed {
		t.Fatalf("Status has %d clusters, want %d", len(s.Clusters), routed)
	}
	if len(s.Events) == 0 || s.Since.IsZero() || s.Error != "" {
		t.Fatalf("Status of a target with a configuration is %+v, want events, a time and no error", s)
	}
}

func (t *history) checkClusterStatus(c *modelCluster, s *report.ClusterStatus) {
	for i, l := range c.leaves {
		if n := t.counts[account{l.name, l.service}]; s.Leaves[i].InFlight != int64(n) {
			t.Fatalf("Status has %d RPCs of %s in flight, want %d", s.Leaves[i].InFlight, l.name, n)
		}
	}
	var all []report.PriorityStatus
	for _, l := range s.Leaves {
		all = append(all, l.Priorities...)
	}
	priorities := c.priorities()
	if len(all) != len(priorities) {
		t.Fatalf("Status has %d priorities of %s, want %d", len(all), c.name, len(priorities))
	}
	inUse := 0
	for i, p := range priorities {
		t.checkPriorityStatus(c, p, &all[i])
		if all[i].InUse {
			inUse++
		}
		if all[i].Priority != i || (i == s.Priority) && !all[i].InUse {
			t.Fatalf("Status of priority %d of %s, which uses priority %d, is %+v", i, c.name, s.Priority, all[i])
		}
		if i < s.Priority && t.isReady(p) {
			t.Fatalf("Status: %s uses priority %d, want %d, which is READY (A56)", c.name, s.Priority, i)
		}
	}
	if len(priorities) > 0 && (s.Priority < 0 || inUse != 1) {
		t.Fatalf("Status: %d priorities of %s are in use and the cluster uses %d, want one", inUse, c.name, s.Priority)
	}
	if s.Priority >= 0 && priorities[s.Priority].transparent() && (s.State == "READY") != t.isReady(priorities[s.Priority]) {
		t.Fatalf("Status: %s is %s and uses priority %d, want READY: %v", c.name, s.State, s.Priority, t.isReady(priorities[s.Priority]))
	}
	if (s.State == "TRANSIENT_FAILURE") != (s.Error != "") {
		t.Fatalf("Status: %s is %s with error %q, want an error only in TRANSIENT_FAILURE", c.name, s.State, s.Error)
	}
}

// checkPriorityStatus checks the endpoints of a priority in the status.
func (t *history) checkPriorityStatus(c *modelCluster, p priorityView, s *report.PriorityStatus) {
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
			case !multiAddressed(e) && t.hasConn(e, unreachable) && !t.hasConn(e, reachable):
				failed++
			}
		}
	}
	n := s.Endpoints
	if n.Total != want.Total || n.Total != n.Ready+n.Connecting+n.Idle+n.Failed+n.Ejected+n.Draining+n.Subset {
		t.Fatalf("Status of a priority of %s has the endpoints %+v, want %d that add up", c.name, n, want.Total)
	}
	t.checkLocalities(c, p, s)
	if !p.transparent() {
		return
	}
	if n.Ready != want.Ready || n.Draining != want.Draining || n.Failed < failed || n.Ejected+n.Subset > 0 {
		t.Fatalf("Status of a priority of %s has the endpoints %+v, want %d READY, %d draining, at least %d failed", c.name, n, want.Ready, want.Draining, failed)
	}
	if t.hasFailed(p) && s.State != "TRANSIENT_FAILURE" {
		t.Fatalf("Status of a priority of %s all of whose endpoints failed is %+v, want TRANSIENT_FAILURE", c.name, s)
	}
}

// checkLocalities checks the endpoints of a priority in the status one by one: they add up to the
// counts, and no endpoint that cannot be picked has a share of the RPCs.
func (t *history) checkLocalities(c *modelCluster, p priorityView, s *report.PriorityStatus) {
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
				t.Fatalf("Status of %s has a share for an endpoint of locality %d that cannot be picked: %+v", c.name, i, e)
			}
		}
		if share > loc.Share+1e-9 {
			t.Fatalf("Status of %s has share %v for locality %d, and its endpoints have %v, want no more", c.name, loc.Share, i, share)
		}
		sum += loc.Share
	}
	n.Total, n.Subset = n.Total+s.Endpoints.Subset, s.Endpoints.Subset
	if n != s.Endpoints {
		t.Fatalf("Status of a priority of %s counts the endpoints %+v, want %+v", c.name, s.Endpoints, n)
	}
	if sum > 1+1e-9 {
		t.Fatalf("Status of a priority of %s has shares of %v in total, want at most 1", c.name, sum)
	}
}

func unreachable(conn *modelConn) bool { return conn.State == connectivity.TransientFailure }
func reachable(conn *modelConn) bool   { return !unreachable(conn) }

// hasConn reports whether an endpoint has a SubConn that satisfies a condition.
func (t *history) hasConn(e *picker.Endpoint, such func(*modelConn) bool) bool {
	return slices.ContainsFunc(t.grpc.Open(), func(conn *modelConn) bool { return has(e, conn.Data.number) && such(conn) })
}

// checkReady checks that WaitReady would return if RPCs of a cluster must be served, and that RPCs
// do not wait if it would.
func (t *history) checkReady() {
	for _, c := range t.controlPlane.clusters {
		if !c.routed || c.slowPolicy() {
			continue
		}
		ready := t.lb.IsReady(t.Context(), "/"+c.name+"/m")
		t.drainEvents()
		if !ready && t.mustServe(c) {
			t.Fatalf("WaitReady waits for %s, want it to return: a priority is READY", c.name)
		}
		if !ready || t.hashes(c) || slices.ContainsFunc(c.priorities(), func(p priorityView) bool { return !p.transparent() }) {
			continue
		}
		r := t.newRPC(c.name, t.Rand.Uint64(), false)
		if t.pick(r); r.waiting || r.conn == nil && !t.refused(r) {
			t.Fatalf("WaitReady returns for %s, but %v has no connection: %v", c.name, r, r.err)
		}
		t.checkPicked(r)
	}
}

// Queries (Status, Inspect, Explain) may be made at any moment: they change nothing, do not block,
// and return a result.

// queryAtRest makes queries while there is no work left, and checks that they cause none.
func (t *history) queryAtRest() {
	t.drainEvents()
	b := t.lb
	table, _ := b.Published()
	before, busyBefore := callCounts(t.grpc), b.InFlight()
	t.queryAll()
	t.drainEvents()
	if after := callCounts(t.grpc); after != before {
		t.Fatalf("Status or Explain changed the channel: calls %+v, want %+v", after, before)
	}
	if now, _ := b.Published(); now != table {
		t.Fatalf("Status or Explain published a picker, want no change")
	}
	if n := b.InFlight(); n != busyBefore {
		t.Fatalf("Status or Explain changed the RPCs in flight: %d, want %d", n, busyBefore)
	}
}

// queryUnsettled makes queries while the balancer has work to do.
func (t *history) queryUnsettled() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.queryAll()
	}()
	<-done
}

// queryAll makes all queries.
func (t *history) queryAll() {
	b := t.lb
	for _, detailed := range []bool{false, true} {
		s := statusIn(b, detailed)
		if _, err := json.Marshal(s); err != nil {
			t.Fatalf("Status cannot be encoded as JSON: %v", err)
		}
		if problem := inconsistency(&s); problem != "" {
			t.Fatalf("Status contradicts itself: %s: %+v", problem, s)
		}
	}
	for _, c := range t.controlPlane.clusters {
		x, err := lb.Explain(metadatautil.WithHash(context.Background(), rand.Uint64()), b, "/"+c.name+"/m")
		switch {
		case err != nil:
			if _, ok := b.Published(); ok {
				t.Fatalf("Explain of an RPC to %s fails: %v", c.name, err)
			}
		case x.NoRoute < 1 && len(x.Routes) == 0:
			t.Fatalf("Explain of an RPC to %s has neither a route nor NoRoute: %v", c.name, x)
		case (x.NoRoute == 1) == c.routed && !x.Pending && c.sent != nil:
			t.Fatalf("Explain of an RPC to %s, which is routed: %v, has NoRoute for the opposite: %v", c.name, c.routed, x)
		}
		if x != nil && x.String() == "" {
			t.Fatalf("Explain of an RPC to %s has no text", c.name)
		}
	}
}

// inconsistency returns a contradiction within a status, or "".
func inconsistency(s *report.TargetStatus) string {
	for _, c := range s.Clusters {
		inUse := 0
		for _, l := range c.Leaves {
			if l.InFlight < 0 {
				return "the number of RPCs in flight is negative"
			}
			for _, p := range l.Priorities {
				n := p.Endpoints
				if n.Total != n.Ready+n.Connecting+n.Idle+n.Failed+n.Ejected+n.Draining+n.Subset {
					return "the counts of endpoints do not add up"
				}
				if p.InUse {
					inUse++
				}
				for _, loc := range p.Localities {
					if loc.Share < 0 || loc.Share > 1+1e-9 {
						return "a share is not between 0 and 1"
					}
				}
			}
		}
		if (c.Priority >= 0) != (inUse > 0) {
			return "the priority of a cluster and the priorities in use differ"
		}
	}
	return ""
}

// callCounts returns the numbers of calls that the balancer has made, and of open streams.
func callCounts(cc *modelChannel) [4]int {
	cc.Mu.Lock()
	defer cc.Mu.Unlock()
	return [4]int{cc.Opened, cc.Announced, cc.Calls, cc.Streams}
}

// queryFrom returns a callback that queries a balancer now and then while the balancer calls it.
// The callback may do so, since the balancer holds no mutex then.
func (t *history) queryFrom(b *lb.Balancer) func(*modelConn, string) {
	return func(_ *modelConn, method string) {
		if method != "Connect" && rand.IntN(8) == 0 {
			_ = statusIn(b, true) // if this deadlocks, the trace of the test shows the goroutines
		}
	}
}

// explain explains some of the RPCs before they pick. The function that it returns gets the result
// of the pick, and checks that the explanation allows it. RPCs of sessions are skipped, because the
// model makes them without the cookie that explanations read, and so are further attempts, which
// avoid endpoints.
func (t *history) explain(r *modelRPC, ctx context.Context, method string) (possible func(balancer.PickResult, error)) {
	b := t.lb
	table, published := b.Published()
	if r.id%4 > 0 || r.host > 0 || r.made > 0 || !published {
		return func(balancer.PickResult, error) {}
	}
	x, err := lb.Explain(ctx, b, method)
	if err != nil {
		t.Fatalf("Explain of %v fails: %v", r, err)
	}
	return func(res balancer.PickResult, err error) {
		if now, _ := b.Published(); now != table {
			return // another snapshot was published in between
		}
		behind := t.updating || t.clusterNamed(r.cluster).slowPolicy()
		if why := impossible(x, res, err, behind, t.updating); why != "" {
			t.Fatalf("%v picked (%v, %v), which contradicts Explain: %s:\n%v", r, res.SubConn, err, why, x)
		}
	}
}

// impossible returns why a result of a pick contradicts an explanation, or "". behind means that a
// child policy has a delay, and may pick an endpoint that was removed; updating that picks may use
// an earlier configuration, whose circuit breakers and clusters the status does not have.
func impossible(x *report.Explanation, res balancer.PickResult, err error, behind, updating bool) string {
	var all report.RouteTarget // of the clusters that the RPC may have used
	for i := range x.Routes {
		for k := range x.Routes[i].Clusters {
			c := &x.Routes[i].Clusters[k]
			all.Picked, all.Delegated, all.Waits, all.Fails = all.Picked+c.Picked, all.Delegated+c.Delegated, all.Waits+c.Waits, all.Fails+c.Fails
			if conn, ok := res.SubConn.(*modelConn); ok && err == nil {
				e := endpointIn(c, addr(conn.Data.number).String())
				if e != nil && (e.Out == "" || strings.Contains(e.Out, "one in 64 RPCs")) || (e == nil || behind) && c.Delegated+c.Fails > 0 || e == nil && updating { // a child policy may use an earlier list
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
		return "the endpoint cannot be picked"
	case all.Delegated > 0 || all.Fails > 0:
		return "" // the result depends on a child policy
	case errors.Is(err, balancer.ErrNoSubConnAvailable) && all.Waits == 0:
		return "no RPC waits"
	case !final && !errors.Is(err, balancer.ErrNoSubConnAvailable):
		return "no RPC fails"
	case final && len(x.Routes) > 0 && x.NoRoute == 0:
		return "no RPC is rejected"
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
