// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	lb "github.com/xdslb/xdslb/integrate/internal/balancer"
	"github.com/xdslb/xdslb/picker"
)

// This file has routes that share RPCs among clusters, by headers and fractions, and change while
// RPCs are bound. Of each RPC that uses them, the model knows the clusters that it may use (A31,
// A60, D13), and the endpoint of its session at the end (A55).

// randomRoute is a route for routedRPCs.
type randomRoute struct {
	header   string // that it matches; empty matches any
	fraction *uint32
	clusters []picker.WeightedCluster
	headers  []*picker.HeaderMutations
}

// randomRoutes draws the routes for routedRPCs.
func randomRoutes(rng *rand.Rand) (list []randomRoute) {
	for range 1 + rng.IntN(3) {
		r := randomRoute{header: []string{"", "", "1", "2"}[rng.IntN(4)]}
		if rng.IntN(3) == 0 {
			f := []uint32{0, 5e5, 1e6}[rng.IntN(3)]
			r.fraction = &f
		}
		for _, name := range []string{"a", "b"} {
			if rng.IntN(3) > 0 {
				r.clusters = append(r.clusters, picker.WeightedCluster{Name: name, Weight: 1 + rng.Uint32N(3), RequestHeaders: randomMutations(rng)})
			}
		}
		for range 2 {
			if m := randomMutations(rng); m != nil {
				r.headers = append(r.headers, m)
			}
		}
		list = append(list, r)
	}
	return list
}

// routes returns the routes for routedRPCs as they are sent. Clusters that are not routed are no
// destination.
func (p *controlPlane) routes() (list []picker.Route) {
	p.sentRoutes = nil
	for _, r := range p.sharedRoutes {
		r.clusters = slices.DeleteFunc(slices.Clone(r.clusters), func(to picker.WeightedCluster) bool {
			return !slices.ContainsFunc(p.clusters, func(c *modelCluster) bool { return c.routed && c.name == to.Name })
		})
		p.sentRoutes = append(p.sentRoutes, r)
		route := picker.Route{Path: picker.StringMatch{Kind: picker.MatchPrefix, Value: "/x/"}, Fraction: r.fraction, Clusters: r.clusters, RequestHeaders: r.headers}
		p.rewrite(&route)
		if r.header != "" {
			route.Headers = []picker.HeaderMatch{{Name: "x", String: picker.StringMatch{Kind: picker.MatchExact, Value: r.header}}}
		}
		if p.attempts {
			route.Hedge, route.Retry = !p.perTryTimeout, &hedgedSoon
			if p.perTryTimeout {
				route.Retry = &timedRetries
			}
		}
		list = append(list, route)
	}
	return list
}

// hedgedSoon is the retry policy of routedRPCs, whose second attempts are made soon.
var hedgedSoon = func() picker.RetryPolicy {
	p := hedged
	p.PerTryTimeout = tryTimeout
	return p
}()

// timedRetries is the retry policy of routes whose attempts have a per_try_timeout.
var timedRetries = func() picker.RetryPolicy {
	p := hedgedSoon
	p.On = append(slices.Clip(p.On), uint32(codes.DeadlineExceeded))
	return p
}()

const tryTimeout = 200 * time.Millisecond

// routedRPC is an intercepted RPC by these routes, with its possible destinations.
type routedRPC struct {
	header        string
	cluster       string // of the cookie
	host          int    // the cookie's endpoint; 0 without cookie
	cookie        string
	routesAtStart []randomRoute
	bound         bool // by its interceptor
	// unserved means that possibly no route matched it when it began. It has no plan then.
	unserved bool
	// noPlans means that a pick found no Plans, and did not look for a Call: see Call.Picked.
	noPlans    bool
	session    bool     // a filter of its route reads the cookie
	candidates []string // that its first pick may have chosen, "" if no route; nil before
	attempts   map[string]*attempt
}

// startRouted starts some routedRPCs.
func (t *history) startRouted() {
	if len(t.tracker.intercepted) > 20 {
		return
	}
	t.drainEvents()
	n := 1 + t.Rand.IntN(6)
	t.Logf("%d RPCs by the routes %+v", n, t.controlPlane.sentRoutes)
	for range n {
		t.startRoutedRPC()
	}
}

// startRoutedRPC starts a routedRPC.
func (t *history) startRoutedRPC() {
	v := &routedRPC{
		header: []string{"", "1", "2"}[t.Rand.IntN(3)], routesAtStart: t.controlPlane.sentRoutes, session: t.controlPlane.sessions,
		bound: t.controlPlane.sessions || t.controlPlane.attempts, attempts: map[string]*attempt{},
	}
	f := &interceptedRPC{cluster: "x", routed: v}
	ctx, cancel := context.WithCancel(t.contextFor(f))
	f.cancel = cancel
	f.ownHeaders, _ = metadata.FromOutgoingContext(ctx)
	delete(f.ownHeaders, "cookie")
	if f.nested {
		v.header = strings.Join(f.ownHeaders["x"], ",")
	} else if v.header != "" {
		f.ownHeaders = metadata.Pairs("x", v.header)
	}
	v.unserved = slices.Contains(v.destinations(v.routesAtStart, false), "")
	if f.nested && v.unserved {
		cancel()
		return // its interceptor may or may not cancel attempts
	}
	ctx = metadata.NewOutgoingContext(ctx, f.ownHeaders)
	if t.Rand.IntN(2) == 0 {
		c := t.controlPlane.clusters[t.Rand.IntN(len(t.controlPlane.clusters))]
		v.cluster, v.host = c.name, c.leaves[t.Rand.IntN(len(c.leaves))].first+t.Rand.IntN(endpointsPerLeaf)
		v.cookie = fmt.Sprintf("%v;cluster:%s", addr(v.host), c.name)
		ctx = metadata.AppendToOutgoingContext(ctx, "cookie", "c="+base64.StdEncoding.EncodeToString([]byte(v.cookie)))
	}
	var reply any
	if t.Rand.IntN(2) == 0 {
		reply = &emptypb.Empty{} // may be hedged
	}
	f.ownHeaders, _ = metadata.FromOutgoingContext(ctx)
	f.sends = v.sent(v.routesAtStart, f.ownHeaders)
	f.cancels = t.controlPlane.attempts && !v.unserved
	f.timed = f.cancels && t.controlPlane.perTryTimeout
	t.tracker.mu.Lock()
	t.tracker.intercepted = append(t.tracker.intercepted, f)
	t.tracker.mu.Unlock()
	go t.tracker.run(ctx, f, t.lb.Table(), reply)
}

// contextFor returns the context of a routedRPC: now and then that of an attempt in flight, as if
// that made another RPC.
func (t *history) contextFor(f *interceptedRPC) context.Context {
	if n := len(t.tracker.picked); n > 0 && t.lb.Table().Plans != nil && t.Rand.IntN(4) == 0 {
		f.nested = true
		return t.tracker.picked[t.Rand.IntN(n)].ctx
	}
	return context.Background()
}

// routes returns the routes that may match.
func (v *routedRPC) routes(by []randomRoute) (list []randomRoute) {
	for _, r := range by {
		if r.header != "" && r.header != v.header || r.fraction != nil && *r.fraction == 0 {
			continue
		}
		if list = append(list, r); r.fraction == nil || *r.fraction == 1e6 {
			break
		}
	}
	return list
}

// destinations returns the clusters that an RPC may use by some routes; "" means none.
func (v *routedRPC) destinations(by []randomRoute, session bool) (names []string) {
	list := v.routes(by)
	for _, r := range list {
		names = append(names, r.destinations(v, session)...)
	}
	if n := len(list); n > 0 && (list[n-1].fraction == nil || *list[n-1].fraction == 1e6) {
		return names
	}
	return append(names, "")
}

// destinations returns the clusters of one route: the cluster of the cookie if the route has it
// (A60).
func (r *randomRoute) destinations(v *routedRPC, session bool) (names []string) {
	for _, c := range r.clusters {
		if session && c.Name == v.cluster {
			return []string{c.Name}
		}
		names = append(names, c.Name)
	}
	if names == nil {
		names = []string{""}
	}
	return names
}

// allowed returns the clusters that a pick of the RPC may use now. The first pick determines the
// cluster, since the model does not know the random draw.
func (t *history) allowed(v *routedRPC, sends []metadata.MD) []string {
	now, session := t.controlPlane.sentRoutes, v.session && v.host > 0
	switch {
	case t.lb.Table().Plans == nil:
		return v.changed(sends, now)
	case !v.bound:
		return append(v.destinations(now, false), v.destinations(v.routesAtStart, false)...)
	}
	if v.candidates == nil {
		by := v.routesAtStart
		if slices.ContainsFunc(by, func(r randomRoute) bool { return r.header != "" }) {
			by = now
		}
		v.candidates = v.destinations(by, session)
	}
	names := slices.Clone(v.candidates)
	if v.unserved || slices.ContainsFunc(names, t.isUnrouted) {
		names = append(names, v.destinations(now, false)...)
		names = append(names, v.destinations(now, session)...)
	}
	return names
}

// changed returns the clusters that a pick may use by routes without Plans. It does not know the
// headers before mutations of earlier routes.
func (v *routedRPC) changed(sends []metadata.MD, by []randomRoute) (names []string) {
	for _, md := range sends {
		sent := *v
		sent.header = strings.Join(md["x"], ",")
		names = append(names, sent.destinations(by, false)...)
	}
	return append(names, v.destinations(by, false)...)
}

// reasonOf returns the reason in the ErrorInfo of an error, or "".
func reasonOf(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == lb.ErrorDomain {
			return info.GetReason()
		}
	}
	return ""
}

// isUnrouted reports whether no route leads to a cluster any more.
func (t *history) isUnrouted(cluster string) bool {
	return cluster != "" && !t.clusterNamed(cluster).routed
}

// checkRoutedPick checks the cluster that an attempt picked, or its error.
func (t *history) checkRoutedPick(l *attempt, conn *modelConn, err error) {
	v := l.of.routed
	v.noPlans = v.noPlans || t.lb.Table().Plans == nil
	first, may := v.candidates == nil, t.allowed(v, l.of.sends)
	narrow := func(name string) {
		v.candidates = slices.DeleteFunc(v.candidates, func(n string) bool { return n != name && !t.isUnrouted(n) })
	}
	if err != nil {
		r := reasonOf(err)
		if r != lb.ReasonNoRoute && r != lb.ReasonNotForwarding {
			return
		}
		if !slices.Contains(may, "") {
			t.Fatalf("an RPC with header %q and cookie %q has no route (%v), want cluster %q; it began with the routes %+v, bound: %v; the routes are %+v", v.header, v.cookie, err, may, v.routesAtStart, v.bound, t.controlPlane.sentRoutes)
		}
		narrow("")
		return
	}
	leaf := t.leafOf(conn.Data.number)
	c := t.clusterOf(leaf)
	if !slices.Contains(may, c.name) {
		t.Fatalf("an RPC with header %q and cookie %q picked %v of cluster %s, want cluster %q; it began with the routes %+v, bound: %v; the routes are %+v",
			v.header, v.cookie, conn, c.name, may, v.routesAtStart, v.bound, t.controlPlane.sentRoutes)
	}
	narrow(c.name)
	_, e := c.find(conn.Data.number)
	if l.sure = !v.unserved && !leaf.switched && !leaf.slowPolicy && t.controlPlane.sessions; e == nil || delegates(&leaf.sent) {
		return
	}
	l.upstream = e.Addr.String()
	if multiAddressed(e) {
		l.upstream += "," + e.Extra.Addrs[0].String()
	}
	if now := v.destinations(t.controlPlane.sentRoutes, false); !leaf.switched && !leaf.slowPolicy && l.rpc.authority != t.authorityFor(e) && (l.rpc.authority != "" || !slices.Contains(now, "")) {
		t.Fatalf("a routed RPC picked %v with authority %q, want %q (A81)", conn, l.rpc.authority, t.authorityFor(e))
	}
	l.upstream += ";cluster:" + c.name
	if first && l.sure && v.session && v.cluster == c.name {
		t.checkSession(&modelRPC{id: l.rpc.id, cluster: c.name, host: v.host, conn: conn}, c)
	}
}

// checkCookie checks the cookie of an RPC that has succeeded: its session is with the endpoint that
// has answered.
func (t *history) checkCookie(f *interceptedRPC) {
	v := f.routed
	if f.err != nil || v.noPlans || len(f.header.Get("attempt")) == 0 {
		return
	}
	l, got := v.attempts[f.header.Get("attempt")[0]], ""
	if lines := f.header.Get("set-cookie"); len(lines) > 0 {
		c, err := http.ParseSetCookie(lines[0])
		if err != nil || len(lines) > 1 {
			t.Fatalf("a routed RPC returns the cookies %q (%v), want one valid cookie", lines, err)
		}
		text, _ := base64.StdEncoding.DecodeString(c.Value)
		got = string(text)
	}
	want := l.upstream
	if want == v.cookie || !v.session {
		want = ""
	}
	if got != want && (l.sure || got != "") {
		t.Fatalf("a routed RPC with the cookie %q was answered by %v (%s) and returns the cookie %q, want %q (A55)", v.cookie, l.rpc.conn, strings.TrimSpace(l.upstream), got, want)
	}
}

// Header mutations follow Envoy's documentation: routes and sessions use the headers before, and
// attempts send the headers after them.

// randomMutations draws the header mutations of one level, or nil. They change the headers that
// routes and sessions use.
func randomMutations(rng *rand.Rand) *picker.HeaderMutations {
	if rng.IntN(3) > 0 {
		return nil
	}
	names := []string{"x", "cookie", "other"}
	m := &picker.HeaderMutations{}
	if rng.IntN(3) == 0 {
		m.Remove = []string{names[rng.IntN(3)]}
	}
	for range rng.IntN(3) {
		m.Add = append(m.Add, picker.HeaderMutation{Name: names[rng.IntN(3)], Value: []string{"1", "2", "3"}[rng.IntN(3)], Action: picker.HeaderAction(rng.IntN(4))})
	}
	return m
}

// mutated returns headers after some levels of mutations. At each level, removals come first, then
// the present headers are determined, then values are replaced, and at last others are added.
func mutated(md metadata.MD, levels ...*picker.HeaderMutations) metadata.MD {
	md = md.Copy()
	for _, m := range levels {
		if m == nil {
			continue
		}
		for _, name := range m.Remove {
			delete(md, name)
		}
		present, added := maps.Clone(md), metadata.MD{}
		for _, h := range m.Add {
			switch has := len(present[h.Name]) > 0; {
			case h.Action == picker.SetHeader, h.Action == picker.ReplaceHeaderIfPresent && has:
				md[h.Name] = []string{h.Value}
			case h.Action == picker.AppendHeader, h.Action == picker.AddHeaderIfAbsent && !has:
				added.Append(h.Name, h.Value)
			}
		}
		md = metadata.Join(md, added)
	}
	return md
}

// sent returns the headers that attempts may send by some routes, from the RPC's own.
func (v *routedRPC) sent(by []randomRoute, ownHeaders metadata.MD) (list []metadata.MD) {
	for _, r := range v.routes(by) {
		to := r.destinations(v, v.session && v.host > 0)
		for _, c := range r.clusters {
			if slices.Contains(to, c.Name) {
				list = append(list, mutated(ownHeaders, append([]*picker.HeaderMutations{c.RequestHeaders}, r.headers...)...))
			}
		}
	}
	if v.unserved {
		list = append(list, ownHeaders)
	}
	return list
}

// checkSent checks the headers of an attempt, which are the same for all attempts at an RPC.
func (t *history) checkSent(l *attempt) {
	got, _ := metadata.FromOutgoingContext(l.ctx)
	delete(got, "grpc-previous-rpc-attempts")
	f := l.of
	f.sends = slices.DeleteFunc(f.sends, func(want metadata.MD) bool { return !maps.EqualFunc(got, want, slices.Equal) })
	if len(f.sends) == 0 {
		t.Fatalf("attempt %s of an RPC to %s sends the headers %v, want the header mutations of its route applied once to %v; the RPC is %+v", l.id, f.cluster, got, f.ownHeaders, f.routed)
	}
}
