// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/eventlog"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// outages are the properties of a world of TestModelOutages. Besides the authorities of TestModel it has
// "here", with the top-level servers, and "far", with servers of its own, and perhaps a
// top-level one as the fallback.
type outages struct {
	far       []int   // the chain of authority "far"
	transient [4]bool // servers with resource_timer_is_transient_error
	down      [4]bool // servers that cannot be reached
	names     [worldSize]unusualName
	direct    bool // targets name xdstp resources, and not the authority

	invalid [len(invalidTargets)]*worldWatch // nil if it is not watched
}

// end lets all servers be reached again.
func (o *outages) end() { o.down = [4]bool{} }

// newOutageWorld returns the world of a history of TestModelOutages.
func newOutageWorld(t *kit.Trial, opts Options) *world {
	rng := rand.New(rand.NewPCG(t.Seed, 11))
	n := 1 + int(t.Seed/4%2)
	o := &outages{far: [][]int{{n}, {n, n + 1}, {n, 0}}[rng.IntN(3)], direct: rng.IntN(2) == 0}
	for i := range o.transient {
		o.transient[i] = rng.IntN(2) == 0
	}
	w := newWorld(t, opts, worldOptions{drops: t.Seed/2%2 == 1, federated: t.Seed/8%2 == 1, servers: n, outages: o})
	for i := range o.names {
		names := unusualNames
		if w.authorities[i].name == "" {
			names = names[:len(names)-1]
		}
		o.names[i] = names[rng.IntN(len(names))]
	}
	return w
}

// unusualName is the end of the name of a service: in the URL of a target, in a name of the old style, and
// in an xdstp name, which is percent-encoded except for the characters of a path (A47, RFC 3986).
type unusualName struct{ url, plain, encoded string }

var unusualNames = []unusualName{
	{"", "", ""},
	{" today", " today", "%20today"},
	{"%20today", " today", "%20today"},
	{"%C3%BC", "ü", "%C3%BC"},
	{"%252F", "%2F", "%252F"},
	{"/a:b@c;d=e!", "/a:b@c;d=e!", "/a:b@c;d=e!"},
	{"%01%7F%0A", "\x01\x7f\n", "%01%7F%0A"},
	{"%00", "\x00", "%00"},
	{"%3Fa=1&b=%2F%23", "?a=1&b=/#", "%3Fa=1&b=/%23"},
	{"*", "*", "*"},
	{"%5B%22%5D%5C", `["]\`, "%5B%22%5D%5C"},
	{"%E2%80%AE", "\u202e", "%E2%80%AE"},
	{"%FF", "", "%FF"}, // cannot be requested in a name of the old style: see invalidTargets
}

// invalidTargets are targets whose Listeners cannot be requested: names that are not UTF-8 or too long, names without
// a service or authority, and names that stand for all resources (xDS protocol; xRFC TP1).
var invalidTargets = [...]string{
	"xds:///t%FF",
	"xds:///t0%C3",
	"xds:///xdstp://far/envoy.config.listener.v3.Listener/%FF",
	"xds:///" + strings.Repeat("x", maxName+1),
	"xds:///",
	"xds://nowhere/t0",
	"xds:///xdstp://nowhere/envoy.config.listener.v3.Listener/t0",
	"xds:///*",
	"xds://far/*",
	"xds:///xdstp://here/envoy.config.listener.v3.Listener/x/*",
}

// listenerOf returns the names of the Listener and the virtual host of a target, as the resolver of
// package integrate does for the target that gRPC has parsed.
func (w *world) listenerOf(target string) (listener, authority string, err error) {
	u, err := url.Parse(target)
	if err != nil {
		return "", "", err
	}
	t := resolver.Target{URL: *u}
	listener, err = w.c.cfg.ListenerName(t.URL.Host, t.Endpoint())
	return listener, t.Endpoint(), err
}

// dial has a watch use the names that a target leads to.
func (w *world) dial(watch *worldWatch) {
	i := watch.target
	target := fmt.Sprintf("xds://%s/t%d%s", w.authorities[i].name, i, w.outages.names[i].url)
	if name := w.name(lds, i); w.outages.direct && strings.HasPrefix(name, "xdstp:") {
		target = "xds:///" + (&url.URL{Path: name}).EscapedPath()
	}
	var err error
	if watch.listener, watch.authority, err = w.listenerOf(target); err != nil || watch.listener != w.name(lds, i) {
		w.t.Errorf("target %q leads to Listener %q, error %v; want %q", target, watch.listener, err, w.name(lds, i))
	}
}

// toggleInvalid begins or ends the watch of a target that cannot be requested.
func (w *world) toggleInvalid(choice int) {
	i := choice % len(invalidTargets)
	if watch := w.outages.invalid[i]; watch != nil {
		w.outages.invalid[i] = nil
		watch.cancel()
		return
	}
	watch := &worldWatch{view: w.view(0)}
	var err error
	if watch.listener, watch.authority, err = w.listenerOf(invalidTargets[i]); err != nil {
		return // NewClient has this error
	}
	watch.cancel = watch.view.Watch(watch.listener, watch.authority, watch)
	w.outages.invalid[i] = watch
}

// checkInvalid checks that the targets that cannot be requested have errors.
func (w *world) checkInvalid() {
	if w.outages == nil {
		return
	}
	for i, watch := range w.outages.invalid {
		if watch == nil {
			continue
		}
		watch.mu.Lock()
		last := watch.last
		watch.mu.Unlock()
		if last.err == nil {
			w.t.Errorf("target %q has no error", eventlog.Cut(invalidTargets[i]))
		}
	}
}

// outage begins or ends an outage of a server, or of all servers of an authority.
func (w *world) outage(o op) {
	servers := []int{int(o.a) % len(w.servers)}
	if o.b%2 == 0 {
		servers = w.authorities[int(o.c)%worldSize].chain
	}
	begins := slices.ContainsFunc(servers, w.up)
	for _, number := range servers {
		w.outages.down[number] = begins
		if begins {
			w.servers[number].refuse()
		}
	}
}

// leaveAndReturn has a RouteConfiguration or Cluster lead to another resource for a while. When that is in use,
// the one to which it leads again is deleted.
func (w *world) leaveAndReturn(typ resource.Type, i, to int) {
	own := w.link[typ][i]
	w.change(typ, i, to)
	w.deliver()
	w.harm(typ+1, own)
	w.present[typ+1][own] = false
	w.touch(typ+1, own)
	w.change(typ, i, own)
	w.deliver()
}

// checkMissing checks that resources which were subscribed to again, and which the server does not have,
// count as missing (A57). Responses in state of the world do not say so for routes and endpoints.
func (w *world) checkMissing() {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	for i := range worldSize {
		sim := w.servers[w.first(i)]
		if sim.stream == nil || !w.up(sim.number) {
			continue
		}
		wire, ok := sim.stream.wire.(*sotwWire)
		for typ := range sim.types() {
			name := w.name(typ, i)
			if !ok || w.present[typ][i] || !wire.types[typ].missing[name] {
				continue
			}
			if e := w.c.cache.entries[entryKey{typ, name}]; e != nil && len(e.watchers) > 0 && e.err == nil {
				w.t.Errorf("%v resource %q is in state %v, but the server does not have it", typ, name, e.state)
			}
		}
	}
}

// checkQuiet has all incremental streams end, and ends the next ones after the time in which servers send all
// wanted resources. A server that has received the versions of the resources that the client has need not
// send anything (xds/doc.go, "Failures"), so that the end of such a stream is not a failure to reach
// the server.
func (w *world) checkQuiet() {
	errAge := errors.New("maximum age of the stream")
	for _, sim := range w.servers {
		if sim.delta {
			sim.end(errAge)
		}
	}
	w.deliver()
	<-time.After(31 * time.Second)
	w.tame()
	w.deliver()
	for _, sim := range w.servers {
		if sim.stream == nil || sim.stream.responded || w.mortal {
			continue
		}
		if wire, ok := sim.stream.wire.(*deltaWire); !ok || !wire.claims {
			continue
		}
		s := sim.s
		sim.end(errAge)
		w.c.mu.Lock()
		err := s.err
		w.c.mu.Unlock()
		if err != nil {
			w.t.Errorf("server %d counts as unreachable, but had nothing to send: %v", sim.number, err)
		}
	}
	w.deliver()
}

// routesWithLongErrors returns an invalid RouteConfiguration. The text of the NACK is longer than the limit,
// which is within a character for two of three values of pad.
func routesWithLongErrors(name string, pad int) *routev3.RouteConfiguration {
	var routes []*routev3.Route
	for range 40 {
		r := xdstest.Route("/", "svc")
		r.Match.Headers = []*routev3.HeaderMatcher{{Name: "x-lang", HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: strings.Repeat("x", pad) + "(" + strings.Repeat("語", 40)}},
		}}}}
		routes = append(routes, r)
	}
	return xdstest.RouteConfig(name, routes...)
}
