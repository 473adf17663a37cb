// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

const (
	maxClusters = 5
	poolSize    = 6 // backends that a cluster may have
)

// backendNames returns all backends of a world: a pool for each cluster, so that an RPC's
// backend identifies its cluster.
func backendNames() []string {
	var names []string
	for c := range maxClusters {
		for b := range poolSize {
			names = append(names, fmt.Sprintf("c%d.%d", c, b))
		}
	}
	return names
}

// clusterOf is the cluster that a backend belongs to.
func clusterOf(backend string) string {
	name, _, _ := strings.Cut(backend, ".")
	return name
}

// gen draws worlds.
type gen struct {
	*rand.Rand
	versions int
	timeouts bool // routes and listeners have them
	changes  bool // of request headers, by routes
}

func newGen(rng *rand.Rand) *gen {
	g := &gen{Rand: rng}
	g.timeouts, g.changes = g.chance(70), g.chance(40)
	return g
}

// without reports whether worlds are to do without something.
func (g *gen) without(what string) bool { return strings.Contains(*without, what) }

func (g *gen) chance(percent int) bool { return g.IntN(100) < percent }

func pick[T any](g *gen, from ...T) T { return from[g.IntN(len(from))] }

// world draws a world that is in order.
func (g *gen) world() *world {
	w := &world{inline: g.chance(15), ignoreWeights: g.chance(85)}
	if g.timeouts && g.chance(30) {
		w.maxStream = pick(g, 2*time.Second, 3*time.Second)
	}
	if g.chance(30) {
		w.fault = g.fault()
	}
	n := 2 + g.IntN(maxClusters-1)
	for i := range n {
		w.clusters = append(w.clusters, g.cluster(fmt.Sprintf("c%d", i)))
	}
	// The last one may be an aggregate of the previous ones.
	if last := &w.clusters[n-1]; n > 2 && g.chance(35) {
		last.kind = aggregate
		for _, i := range g.Perm(n - 1)[:1+g.IntN(min(3, n-1))] {
			last.children = append(last.children, w.clusters[i].name)
		}
	}
	domains := [][]string{{"*"}, {service}, {"shop.*"}, {"*.example"}, {"other.example"}}
	for _, i := range g.Perm(len(domains))[:1+g.IntN(2)] {
		w.hosts = append(w.hosts, host{domains: domains[i]})
	}
	if g.chance(95) && !w.hasHost() {
		w.hosts[0].domains = []string{"*"}
	}
	for i := range w.hosts {
		w.fillHost(g, &w.hosts[i])
	}
	return w
}

// hasHost reports whether there is a virtual host for the service.
func (w *world) hasHost() bool {
	for _, h := range w.hosts {
		if h.domains[0] != "other.example" {
			return true
		}
	}
	return false
}

func (w *world) fillHost(g *gen, h *host) {
	h.retry, h.fault, h.routes = nil, nil, nil
	h.changes = g.changes && g.chance(70)
	if g.chance(25) {
		h.retry = g.retry()
	}
	if w.fault != nil && g.chance(20) {
		h.fault = g.fault()
	}
	for range 1 + g.IntN(5) {
		h.routes = append(h.routes, g.route(w))
	}
	if g.chance(90) { // a way for all
		r := g.route(w)
		r.kind, r.path, r.ignoreCase, r.headers, r.fraction = matchPrefix, pick(g, "", "/"), false, nil, fraction{}
		r.action = forward
		if r.clusters == nil {
			r.clusters = []weighted{{cluster: w.anyCluster(g), weight: 1}}
		}
		h.routes = append(h.routes, r)
	}
}

func (w *world) anyCluster(g *gen) string { return w.clusters[g.IntN(len(w.clusters))].name }

func (g *gen) route(w *world) route {
	r := route{kind: matchPrefix, path: pick(g, "", "/", "/shop.", "/shop.Cart/", "/shop.Cart/", "/shop.Pay/", "/shop.Cart/A", "/SHOP.")}
	switch {
	case g.chance(30):
		r.kind, r.path = matchExact, pick(g, methods...)
	case g.chance(20):
		r.kind, r.path = matchRegex, pick(g, `/shop\.(Cart|Pay)/.*`, `/.*`, `/shop\.Cart/(Add|Get)`, `shop`, `/[a-z]+\..*`)
	}
	r.ignoreCase = g.chance(20)
	if g.chance(40) {
		for range 1 + g.IntN(2) {
			r.headers = append(r.headers, g.header())
		}
	}
	if g.chance(20) {
		r.fraction = g.fraction()
	}
	r.action = pick(g, forward, forward, forward, forward, forward, forward, forward, nonForward, direct, redirect)
	if r.action != forward {
		return r
	}
	r.changes, r.authority = g.changes && g.chance(70), g.chance(20)
	r.clusters = []weighted{{cluster: w.anyCluster(g), weight: 1}}
	for len(r.clusters) < 3 && g.chance(30) {
		r.clusters = append(r.clusters, weighted{cluster: w.anyCluster(g), weight: uint32(g.IntN(5))})
	}
	if w.fault != nil {
		for i := range r.clusters {
			if g.chance(10) {
				r.clusters[i].fault = g.fault()
			}
		}
		if g.chance(15) {
			r.fault = g.fault()
		}
	}
	if g.timeouts && g.chance(30) {
		d := pick(g, 0, time.Second, 4*time.Second)
		r.timeout = &d
	}
	if g.timeouts && g.chance(10) {
		d := pick(g, 0, 1500*time.Millisecond)
		r.headerMax = &d
	}
	if g.chance(35) {
		r.retry = g.retry()
	}
	for len(r.hash) < 2 && g.chance(50) || g.changes && len(r.hash) == 0 {
		r.hash = append(r.hash, g.hashPolicy())
	}
	return r
}

func (g *gen) header() header {
	h := header{name: pick(g, "x-tenant", "x-tenant", "X-Tenant", "x-n", "x-user", "content-type", "x-data-bin")}
	h.kind = pick(g, matchExact, matchExact, matchPrefix, matchSuffix, matchRegex, matchPresent, matchRange, matchContain)
	h.invert, h.ignoreCase = g.chance(25), g.chance(20)
	switch h.kind {
	case matchPresent:
		h.value = pick(g, "true", "false")
	case matchRange:
		h.name, h.value = "x-n", pick(g, "0-10", "5-6", "6-50")
	case matchRegex:
		h.value = pick(g, "can.*", "[a-z]+", "u[0-4]", "application/.*")
	default:
		h.value = pick(g, "canary", "can", "ary", "blue", "u1", "5", "application/grpc", "canary,blue")
	}
	return h
}

func (g *gen) fraction() fraction {
	return pick(g, fraction{0, 100}, fraction{10, 100}, fraction{50, 100}, fraction{100, 100}, fraction{2500, 10_000}, fraction{900_000, 1_000_000}, fraction{150, 100})
}

func (g *gen) retry() *retry {
	if g.without("retries") {
		return nil
	}
	r := &retry{on: []string{"unavailable"}}
	if g.chance(40) {
		r.on = append(r.on, pick(g, "cancelled", "internal", "deadline-exceeded", "resource-exhausted", "5xx"))
	}
	if g.chance(5) {
		r.on = []string{"5xx"}
	}
	if g.chance(20) {
		r.perTry = time.Second
	}
	if g.chance(80) {
		r.n = uint32(1 + g.IntN(4))
	}
	if g.chance(60) {
		r.base = pick(g, 5*time.Millisecond, 20*time.Millisecond)
		if g.chance(50) {
			r.max = pick(g, r.base, 4*r.base)
		}
	}
	return r
}

func (g *gen) hashPolicy() hashPolicy {
	p := hashPolicy{header: pick(g, "x-user", "x-user", "x-tenant", "X-User", "x-missing", "x-data-bin"), terminal: g.chance(20)}
	if g.chance(15) {
		p.regex, p.rewritten = "u([0-9])", pick(g, "x", "user")
	}
	if g.chance(8) {
		p = hashPolicy{}
	}
	return p
}

func (g *gen) fault() *fault {
	if g.without("faults") {
		return nil
	}
	f := &fault{}
	if g.chance(70) {
		f.abort = pick(g, fraction{20, 100}, fraction{100, 100}, fraction{500, 10_000}, fraction{0, 100})
		f.code = pick[uint32](g, 14, 7, 8, 4, 3)
		if g.chance(5) {
			f.code = 0
		}
		if g.chance(30) {
			f.http = pick[uint32](g, 503, 404, 200, 418)
		}
	}
	if g.chance(40) {
		f.delay, f.delayBy = pick(g, fraction{30, 100}, fraction{100, 100}), 10*time.Millisecond
		if !g.timeouts || g.chance(5) {
			f.delayBy = 2500 * time.Millisecond
		}
	}
	f.byHeader = g.chance(15)
	return f
}

func (g *gen) cluster(name string) cluster {
	c := cluster{name: name, kind: eds, policy: roundRobin}
	switch {
	case g.changes && g.chance(40):
		c.policy = ringHash // uses headers
	case g.chance(50):
		c.policy = g.policy()
	}
	if g.chance(10) {
		c.kind = dns
	}
	if g.chance(30) {
		c.edsName = "service-" + name
	}
	if g.chance(20) {
		c.maxRequests = uint32(1 + g.IntN(4))
	}
	c.loadReports, c.outlier, c.checked = g.chance(20), g.chance(10), g.chance(25)
	for len(c.drops) < 2 && g.chance(15) {
		c.drops = append(c.drops, drop{category: fmt.Sprintf("d%d", len(c.drops)), fraction: g.fraction()})
	}
	g.fillCluster(&c)
	return c
}

func (g *gen) policy() string {
	return pick(g, leastRequest, ringHash, ringHash, wrrRoundRobin, wrrRandom, wrrLeastRequest, wrrPickFirst, plainRoundRobin, pickFirst, typedRingHash, clientWeightedRR)
}

// fillCluster draws localities and endpoints.
func (g *gen) fillCluster(c *cluster) {
	c.localities = nil
	backends := g.Perm(poolSize)
	for i := range 1 + g.IntN(3) {
		l := locality{name: fmt.Sprintf("z%d", i), weight: uint32(1 + g.IntN(4))}
		if i > 0 && g.chance(35) {
			l.priority = c.localities[i-1].priority + 1
		} else if i > 0 {
			l.priority = c.localities[i-1].priority
		}
		if i > 0 && g.chance(5) {
			l.weight = 0
		}
		for range min(1+g.IntN(3), len(backends)) {
			l.endpoints = append(l.endpoints, g.endpoint(fmt.Sprintf("%s.%d", c.name, backends[0])))
			backends = backends[1:]
		}
		c.localities = append(c.localities, l)
	}
	// A locality without weight does not count, and would leave a gap if it was
	// all of its priority.
	for i := range c.localities {
		if c.localities[i].weight == 0 && i+1 < len(c.localities) {
			c.localities[i].weight = 1
		}
	}
}

func (g *gen) endpoint(backend string) endpoint {
	e := endpoint{backend: backend}
	if g.chance(30) {
		e.weight = uint32(1 + g.IntN(5))
	}
	if g.chance(12) {
		e.health = pick(g, corev3.HealthStatus_UNHEALTHY, corev3.HealthStatus_DRAINING, corev3.HealthStatus_HEALTHY, corev3.HealthStatus_TIMEOUT, corev3.HealthStatus_DEGRADED)
	}
	return e
}
