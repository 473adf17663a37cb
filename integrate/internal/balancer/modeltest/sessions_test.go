// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	lb "github.com/xdslb/xdslb/integrate/internal/balancer"
	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/picker"
)

// checkSession checks that an RPC of a session uses the session's endpoint if that is connected and
// may be used: a session stays with an endpoint that drains if the cluster allows it, even if that
// is the only connected one (A55), and with one of a priority that is not in use (A75).
func (t *history) checkSession(r *modelRPC, c *modelCluster) {
	list := c.priorities()
	if r.host == 0 || !t.controlPlane.sessions || !c.routed || len(list) == 0 || len(c.sent.Leaves) != 1 || !list[0].transparent() {
		return // with several leaves, only the endpoints of the leaf in use are known
	}
	_, e := c.find(r.host)
	if e == nil || e.Health == picker.Draining && !list[0].leaf.Override.Draining {
		return
	}
	connected := slices.ContainsFunc(t.grpc.open(), func(conn *modelConn) bool {
		return has(e, conn.number) && t.usable(conn)
	})
	if connected && (r.conn == nil || !t.isHost(r, e)) {
		t.Fatalf("%v of the session with endpoint %d picked %v (error %v), want the endpoint, which is connected (A55)", r, r.host, r.conn, r.err)
	}
}

// interleaveSessions makes RPCs without a session between RPCs of sessions. The latter are no picks
// of the policy, so they take no position of its order: after any number of picks, endpoints of one
// locality that have the same weight have the same number of picks, plus or minus one (EDF-2).
func (t *history) interleaveSessions() {
	c := t.controlPlane.clusters[t.Rand.IntN(len(t.controlPlane.clusters))]
	if c.routed && t.Rand.IntN(3) == 0 {
		l := c.leaves[0]
		t.Logf("%s: sessions, load reports and round robin, and its endpoints connect", l.name)
		l.policy = picker.Policy{Kind: []picker.PolicyKind{picker.PolicyEDF, picker.PolicyRoundRobin}[t.Rand.IntN(2)], Flat: t.Rand.IntN(2) == 0}
		t.controlPlane.sessions, l.moved, l.outlier, c.stale = true, l.moved || l.server == "", false, true
		l.server = cmp.Or(l.server, t.controlPlane.servers[0])
		t.push()
		t.connectAll()
	}
	if !c.routed || !t.controlPlane.sessions || !t.mustServe(c) {
		return
	}
	p := c.priorities()[t.firstReady(c)]
	if k := p.leaf.Policy.Kind; k != picker.PolicyEDF && k != picker.PolicyRoundRobin || p.leaf.Policy.SlowStart != nil || p.leaf.Policy.ZoneAware != nil {
		return
	}
	var ready []*picker.Endpoint
	for _, loc := range p.Localities {
		for _, e := range loc.Endpoints.All() {
			if e.Health != picker.Draining && t.hasConn(e, t.usable) {
				ready = append(ready, e)
			}
		}
	}
	t.Logf("RPCs with sessions at %d endpoints of %s, and RPCs without sessions between them", len(ready), p.leaf.Name)
	counts := map[*picker.Endpoint]int{}
	for range (2 + t.Rand.IntN(4)) * len(ready) {
		r := t.newRPC(c.name, t.Rand.Uint64(), false)
		if t.pick(r); r.conn == nil || !t.tryUse(r) {
			return // rejected by the circuit breaker
		}
		counts[p.find(r.conn.number)]++
		t.end(r, nil)
		for range t.Rand.IntN(3) {
			r := t.newRPC(c.name, t.Rand.Uint64(), false)
			r.host = numberOf(ready[t.Rand.IntN(len(ready))].Addr)
			if t.pick(r); r.conn == nil || !t.tryUse(r) {
				return
			}
			t.checkSession(r, c)
			t.end(r, nil)
		}
	}
	for _, loc := range p.Localities {
		for i, e := range loc.Endpoints.All() {
			for k, other := range loc.Endpoints.All() {
				if i < k && slices.Contains(ready, e) && slices.Contains(ready, other) && e.Weight == other.Weight && abs(counts[e]-counts[other]) > 1 {
					t.Fatalf("endpoints %v and %v of %s, of equal weight, get %d and %d picks between RPCs of sessions, want a difference of at most 1 (EDF-2)", e.Addr, other.Addr, p.leaf.Name, counts[e], counts[other])
				}
			}
		}
	}
}

func abs(n int) int { return max(n, -n) }

// isHost reports whether the RPC belongs to a session and used the session's endpoint.
func (t *history) isHost(r *modelRPC, e *picker.Endpoint) bool {
	return r.host > 0 && has(e, r.host) && (r.conn == nil || has(e, r.conn.number))
}

// TestSessionPolicySwitch: if the latest attempt of an RPC used a policy without sessions, since
// the policy of its cluster has changed, the RPC gets no cookie with the endpoint of an earlier
// attempt.
func TestSessionPolicySwitch(t *testing.T) {
	for name, policy := range map[string]picker.Policy{
		"pick_first": {Kind: picker.PolicyPickFirst, First: &picker.PickFirst{}},
		"custom":     {Kind: picker.PolicyCustom, Custom: &picker.CustomPolicy{Name: string(immediate), Config: []byte(`{}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc := &modelChannel{}
				b, source := newModelBalancer(cc, integrate.Config{}, nil, new(loadServers).intercept)
				defer source.Close()
				defer b.Close()
				switchTo := func(p picker.Policy) {
					cfg := configOf(picker.Leaf{Policy: p, Priorities: []picker.Priority{zone("0", member(1), member(2))}})
					cfg.Filters = []picker.Filter{sessionFilter()}
					b.Update(cfg)
					for range 5 {
						kit.Pass(lb.PublishPause)
						for _, conn := range cc.open() {
							for conn.state != connectivity.Ready && conn.step(true) {
							}
						}
					}
				}
				cookieAfter := func(between func()) []string {
					var header metadata.MD
					err := rpc.Unary(t.Context(), b.Table(), "/c/m", nil, nil, nil, func(ctx context.Context, method string, _, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
						for attempt := range 2 {
							if attempt > 0 {
								between()
							}
							p, _ := cc.seen()
							res, err := p.Pick(balancer.PickInfo{FullMethodName: method, Ctx: ctx})
							if err != nil {
								return err
							}
							res.Done(balancer.DoneInfo{})
						}
						*opts[0].(grpc.HeaderCallOption).HeaderAddr = metadata.Pairs("k", "v")
						return nil
					}, grpc.Header(&header))
					kit.Must(t, err)
					return header.Get("set-cookie")
				}
				switchTo(picker.Policy{})
				if got := cookieAfter(func() {}); len(got) != 1 {
					t.Errorf("RPC without a session gets the cookies %q, want one", got)
				}
				if got := cookieAfter(func() { switchTo(policy) }); len(got) != 0 {
					t.Errorf("RPC answered by a policy without sessions gets the cookie %q, want none", got)
				}
			})
		})
	}
}
