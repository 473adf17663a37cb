// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"slices"

	"google.golang.org/grpc/connectivity"

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
