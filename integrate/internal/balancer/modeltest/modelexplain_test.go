// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/status"

	lb "github.com/xdslb/xdslb/integrate/internal/balancer"
	"github.com/xdslb/xdslb/integrate/report"
)

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
