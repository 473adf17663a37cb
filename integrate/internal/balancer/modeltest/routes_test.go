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

// This file is routes that share RPCs among clusters, by headers and fractions, and change
// while RPCs are bound: trips. They are flights (see modelflights_test.go) of which the model
// knows where they may go (A31, A60, D13), and what their session is with in the end (A55).

// crossroad is a route for trips.
type crossroad struct {
	header   string // that it is for; empty is any
	fraction *uint32
	clusters []picker.WeightedCluster
	headers  []*picker.HeaderMutations
}

// randomCrossing draws the routes for trips.
func randomCrossing(rng *rand.Rand) (list []crossroad) {
	for range 1 + rng.IntN(3) {
		r := crossroad{header: []string{"", "", "1", "2"}[rng.IntN(4)]}
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

// routes are those for trips, as they are sent. Clusters that are not routed are no destination.
func (p *plane) routes() (list []picker.Route) {
	p.sentCrossing = nil
	for _, r := range p.crossing {
		r.clusters = slices.DeleteFunc(slices.Clone(r.clusters), func(to picker.WeightedCluster) bool {
			return !slices.ContainsFunc(p.clusters, func(c *planeCluster) bool { return c.routed && c.name == to.Name })
		})
		p.sentCrossing = append(p.sentCrossing, r)
		route := picker.Route{Path: picker.StringMatch{Kind: picker.MatchPrefix, Value: "/x/"}, Fraction: r.fraction, Clusters: r.clusters, RequestHeaders: r.headers}
		p.rewrite(&route)
		if r.header != "" {
			route.Headers = []picker.HeaderMatch{{Name: "x", String: picker.StringMatch{Kind: picker.MatchExact, Value: r.header}}}
		}
		if p.attempts {
			route.Hedge, route.Retry = !p.tries, &hedgedSoon
			if p.tries {
				route.Retry = &tried
			}
		}
		list = append(list, route)
	}
	return list
}

// hedgedSoon is the retry policy of trips, the second attempts of which are made soon.
var hedgedSoon = func() picker.RetryPolicy {
	p := hedged
	p.PerTryTimeout = tryTimeout
	return p
}()

// tried is the retry policy of routes whose attempts have a limited time.
var tried = func() picker.RetryPolicy {
	p := hedgedSoon
	p.On = append(slices.Clip(p.On), uint32(codes.DeadlineExceeded))
	return p
}()

const tryTimeout = 200 * time.Millisecond

// trip is what the model knows of a flight by these routes.
type trip struct {
	header  string
	cluster string // of the cookie
	host    int    // the cookie's endpoint; 0 is no cookie
	cookie  string
	begun   []crossroad
	bound   bool // by its interceptor, for certain
	// unserved says that no route may have served it when it began. It has no plan then.
	unserved bool
	// blind says that a pick has found no Plans, and has looked for no Call: see Call.Picked.
	blind   bool
	session bool     // a filter of its route reads the cookie
	settled []string // where its first pick may have settled that it goes, "" being nowhere; nil before
	legs    map[string]*leg
}

// depart begins some trips.
func (t *trial) depart() {
	if len(t.sky.flights) > 20 {
		return
	}
	t.rest()
	n := 1 + t.Rand.IntN(6)
	t.Logf("%d trips by %+v", n, t.plane.sentCrossing)
	for range n {
		t.embark()
	}
}

// embark begins a trip.
func (t *trial) embark() {
	v := &trip{
		header: []string{"", "1", "2"}[t.Rand.IntN(3)], begun: t.plane.sentCrossing, session: t.plane.sessions,
		bound: t.plane.sessions || t.plane.attempts, legs: map[string]*leg{},
	}
	f := &flight{cluster: "x", trip: v}
	ctx, cancel := context.WithCancel(t.outside(f))
	f.cancel = cancel
	f.own, _ = metadata.FromOutgoingContext(ctx)
	delete(f.own, "cookie")
	if f.nested {
		v.header = strings.Join(f.own["x"], ",")
	} else if v.header != "" {
		f.own = metadata.Pairs("x", v.header)
	}
	v.unserved = slices.Contains(v.destinations(v.begun, false), "")
	if f.nested && v.unserved {
		cancel()
		return // its interceptor may or may not cancel attempts
	}
	ctx = metadata.NewOutgoingContext(ctx, f.own)
	if t.Rand.IntN(2) == 0 {
		c := t.plane.clusters[t.Rand.IntN(len(t.plane.clusters))]
		v.cluster, v.host = c.name, c.leaves[t.Rand.IntN(len(c.leaves))].first+t.Rand.IntN(endpointsPerLeaf)
		v.cookie = fmt.Sprintf("%v;cluster:%s", addr(v.host), c.name)
		ctx = metadata.AppendToOutgoingContext(ctx, "cookie", "c="+base64.StdEncoding.EncodeToString([]byte(v.cookie)))
	}
	var reply any
	if t.Rand.IntN(2) == 0 {
		reply = &emptypb.Empty{} // may be hedged
	}
	f.own, _ = metadata.FromOutgoingContext(ctx)
	f.sends = v.sent(v.begun, f.own)
	f.cancels = t.plane.attempts && !v.unserved
	f.timed = f.cancels && t.plane.tries
	t.sky.mu.Lock()
	t.sky.flights = append(t.sky.flights, f)
	t.sky.mu.Unlock()
	go t.sky.fly(ctx, f, t.lb.Table(), reply)
}

// outside returns the context that a trip is made with: now and then it is that of an attempt
// in flight, as if that made an RPC of its own.
func (t *trial) outside(f *flight) context.Context {
	if n := len(t.sky.aloft); n > 0 && t.lb.Table().Plans != nil && t.Rand.IntN(4) == 0 {
		f.nested = true
		return t.sky.aloft[t.Rand.IntN(n)].ctx
	}
	return context.Background()
}

// routes returns the routes that may match.
func (v *trip) routes(by []crossroad) (list []crossroad) {
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

// destinations returns where an RPC may go by some routes; "" is that no cluster serves it.
func (v *trip) destinations(by []crossroad, session bool) (names []string) {
	list := v.routes(by)
	for _, r := range list {
		names = append(names, r.destinations(v, session)...)
	}
	if n := len(list); n > 0 && (list[n-1].fraction == nil || *list[n-1].fraction == 1e6) {
		return names
	}
	return append(names, "")
}

// destinations are those of one route: the cluster of the cookie if it leads there (A60).
func (r *crossroad) destinations(v *trip, session bool) (names []string) {
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

// allowed returns where a pick of the trip may go now. The first one settles it, for what the
// model cannot know of what was drawn.
func (t *trial) allowed(v *trip, sends []metadata.MD) []string {
	now, session := t.plane.sentCrossing, v.session && v.host > 0
	switch {
	case t.lb.Table().Plans == nil:
		return v.changed(sends, now)
	case !v.bound:
		return append(v.destinations(now, false), v.destinations(v.begun, false)...)
	}
	if v.settled == nil {
		by := v.begun
		if slices.ContainsFunc(by, func(r crossroad) bool { return r.header != "" }) {
			by = now
		}
		v.settled = v.destinations(by, session)
	}
	names := slices.Clone(v.settled)
	if v.unserved || slices.ContainsFunc(names, t.isGone) {
		names = append(names, v.destinations(now, false)...)
		names = append(names, v.destinations(now, session)...)
	}
	return names
}

// changed returns where a pick may go by routes without Plans. It does not know the headers before
// mutations of earlier routes.
func (v *trip) changed(sends []metadata.MD, by []crossroad) (names []string) {
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

// isGone reports whether the routes do not lead to a cluster any more.
func (t *trial) isGone(cluster string) bool { return cluster != "" && !t.clusterNamed(cluster).routed }

// follow judges where an attempt of a trip has gone, or that it has gone nowhere.
func (t *trial) follow(l *leg, conn *modelConn, err error) {
	v := l.of.trip
	v.blind = v.blind || t.lb.Table().Plans == nil
	first, may := v.settled == nil, t.allowed(v, l.of.sends)
	settle := func(name string) {
		v.settled = slices.DeleteFunc(v.settled, func(n string) bool { return n != name && !t.isGone(n) })
	}
	if err != nil {
		r := reasonOf(err)
		if r != lb.ReasonNoRoute && r != lb.ReasonNotForwarding {
			return
		}
		if !slices.Contains(may, "") {
			t.Fatalf("a trip with header %q, cookie %q by %+v, bound %v and settled for %q, has no route by %+v: %v", v.header, v.cookie, v.begun, v.bound, v.settled, t.plane.sentCrossing, err)
		}
		settle("")
		return
	}
	leaf := t.leafOf(conn.number)
	c := t.clusterOf(leaf)
	if !slices.Contains(may, c.name) {
		t.Fatalf("a trip with header %q, cookie %q by %+v, bound %v and settled for %q, went to %v, of cluster %s, by %+v; want one of %q",
			v.header, v.cookie, v.begun, v.bound, v.settled, conn, c.name, t.plane.sentCrossing, may)
	}
	settle(c.name)
	_, e := c.find(conn.number)
	if l.sure = !v.unserved && !leaf.switched && !leaf.sluggish && t.plane.sessions; e == nil || delegates(&leaf.sent) {
		return
	}
	l.upstream = e.Addr.String()
	if multiAddressed(e) {
		l.upstream += "," + e.Extra.Addrs[0].String()
	}
	if now := v.destinations(t.plane.sentCrossing, false); !leaf.switched && !leaf.sluggish && l.rpc.authority != t.authorityFor(e) && (l.rpc.authority != "" || !slices.Contains(now, "")) {
		t.Fatalf("a trip went to %v with the authority %q, want %q", conn, l.rpc.authority, t.authorityFor(e))
	}
	l.upstream += ";cluster:" + c.name
	if first && l.sure && v.session && v.cluster == c.name {
		t.checkSession(&modelRPC{id: l.rpc.id, cluster: c.name, host: v.host, conn: conn}, c)
	}
}

// checkTrip checks the cookie of a trip that has ended well: its session is with the endpoint
// that has answered.
func (t *trial) checkTrip(f *flight) {
	v := f.trip
	if f.err != nil || v.blind || len(f.header.Get("leg")) == 0 {
		return
	}
	l, got := v.legs[f.header.Get("leg")[0]], ""
	if lines := f.header.Get("set-cookie"); len(lines) > 0 {
		c, err := http.ParseSetCookie(lines[0])
		if err != nil || len(lines) > 1 {
			t.Fatalf("a trip ends with the cookies %q: %v", lines, err)
		}
		text, _ := base64.StdEncoding.DecodeString(c.Value)
		got = string(text)
	}
	want := l.upstream
	if want == v.cookie || !v.session {
		want = ""
	}
	if got != want && (l.sure || got != "") {
		t.Fatalf("a trip with the cookie %q was answered by %v (%s), and its cookie is %q, want %q", v.cookie, l.rpc.conn, strings.TrimSpace(l.upstream), got, want)
	}
}

// This file changes request headers as Envoy documents it: routes and sessions use the headers
// before, and attempts send those after.

// randomMutations draws the header mutations of one level, or none. They affect the headers that
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

// mutated returns headers after some levels of mutations. At each level, what is present is decided
// after the removals, and values are replaced before others are added.
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
func (v *trip) sent(by []crossroad, own metadata.MD) (list []metadata.MD) {
	for _, r := range v.routes(by) {
		to := r.destinations(v, v.session && v.host > 0)
		for _, c := range r.clusters {
			if slices.Contains(to, c.Name) {
				list = append(list, mutated(own, append([]*picker.HeaderMutations{c.RequestHeaders}, r.headers...)...))
			}
		}
	}
	if v.unserved {
		list = append(list, own)
	}
	return list
}

// checkSent checks the headers of an attempt, which are the same for all attempts at an RPC.
func (t *trial) checkSent(l *leg) {
	got, _ := metadata.FromOutgoingContext(l.ctx)
	delete(got, "grpc-previous-rpc-attempts")
	f := l.of
	f.sends = slices.DeleteFunc(f.sends, func(want metadata.MD) bool { return !maps.EqualFunc(got, want, slices.Equal) })
	if len(f.sends) == 0 {
		t.Fatalf("attempt %s at an RPC of %s sends the headers %v; its own are %v, its routes were %+v", l.id, f.cluster, got, f.own, f.trip)
	}
}
