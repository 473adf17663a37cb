// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
)

// plane is the control plane of the random model: what it would have clients do,
// in terms that are easy to change, and the configuration that comes of it.
type plane struct {
	clusters []*planeCluster
	sessions bool                    // RPCs may belong to sessions (A55)
	attempts bool                    // RPCs are hedged, and their attempts avoid endpoints that were tried
	tries    bool                    // attempts have a limited time instead
	rewrites string                  // of authorities: by endpoint (A81), or a literal (A111); empty is none
	headers  *picker.HeaderMutations // of the routes of clusters
	// crossing are the routes of trips, as they are to be and as they were sent.
	crossing, sentCrossing []crossroad
	servers                []string // that load can be reported to, by their keys
	number                 int64    // tells its CDS clusters from those of other histories: the process shares their breakers
}

var planes atomic.Int64

// planeCluster is a cluster that routes name, or have named.
type planeCluster struct {
	name   string
	routed bool
	leaves []*planeLeaf // more than one is an aggregate
	sent   *picker.Cluster
	stale  bool // something may have changed since it was sent
}

// planeLeaf is a CDS cluster and its endpoints, which have numbers from first.
type planeLeaf struct {
	name, realName  string
	service, server string
	first           int
	policy, sent    picker.Policy // as it is to be, and as it was sent
	clients         uint32        // of the own fleet in the own zone: see origin
	max             uint32
	retries         *picker.RetryLimit // as it is to be
	sentRetries     *picker.RetryLimit // as it was sent
	outlier         bool
	consecutive     uint32 // failures that eject, in place of their percentage; 0 is none
	judged          bool   // checkEjections has seen it since it detects outliers
	several         bool   // every third endpoint has two addresses
	swapped         bool   // in the other order
	check           int    // the health check, as it is to be: see healthCheck
	sentCheck       int    // as it was sent
	lasting         bool   // sessions stay with endpoints that drain
	hollow          bool   // a priority 0 without endpoints comes first
	spots           map[int]spot
	vacant          bool // localities and priorities without endpoints are present
	// lists are the latest endpoints by locality. Unchanged parts are shared with them, as the
	// XdsClient does.
	lists        [prioritiesPerLeaf][zones]picker.EndpointList
	tls, sentTLS int         // the version of the TLS settings, as it is to be, and as it was sent: see secured
	hostnames    map[int]int // the version of the hostnames of endpoints; 0 is none
	// moved says that the LRS server was another.
	moved bool
	// switched says that a custom policy has taken over from another, which may
	// serve until the new one is ready.
	switched bool
	// sluggish says that a custom policy has been in force that takes its time to
	// say what there is.
	sluggish bool
}

// spot is where an endpoint is.
type spot struct {
	priority, zone int
	weight         uint32
	draining       bool
}

// endpointsPerLeaf, prioritiesPerLeaf and zones bound the world: small ones meet
// more often.
const (
	endpointsPerLeaf  = 9
	prioritiesPerLeaf = 3
	zones             = 2
	leafStride        = 1000
)

func newPlane(rng *rand.Rand) *plane {
	p := &plane{number: planes.Add(1), servers: modelServers(), sessions: rng.IntN(4) == 0, attempts: rng.IntN(2) == 0, tries: rng.IntN(2) == 0, rewrites: randomRewrite(rng), headers: randomMutations(rng), crossing: randomCrossing(rng)}
	for i, leaves := range [][]string{{"a"}, {"b1", "b2"}} {
		c := &planeCluster{name: string(rune('a' + i)), routed: true}
		for _, name := range leaves {
			l := &planeLeaf{
				name: name, realName: p.realName(name), service: "s0", max: 1024, first: leafStride * (1 + i*2 + len(c.leaves)),
				several: rng.IntN(2) == 0, spots: map[int]spot{}, vacant: rng.IntN(3) == 0, hostnames: map[int]int{},
			}
			if rng.IntN(2) == 0 {
				l.server = p.servers[0]
			}
			l.policy, l.clients = randomPolicy(rng), rng.Uint32N(8)
			l.retries = randomRetries(rng)
			l.check = max(0, rng.IntN(5)-2)
			for range 1 + rng.IntN(6) {
				l.spots[rng.IntN(endpointsPerLeaf)] = spot{priority: rng.IntN(2), zone: rng.IntN(zones), weight: 1}
			}
			c.leaves = append(c.leaves, l)
		}
		p.clusters = append(p.clusters, c)
	}
	return p
}

// mutate changes something at random, and says what.
func (p *plane) mutate(rng *rand.Rand, say func(format string, args ...any)) {
	c := p.clusters[rng.IntN(len(p.clusters))]
	l := c.leaves[rng.IntN(len(c.leaves))]
	n := rng.IntN(endpointsPerLeaf)
	at, there := l.spots[n]
	c.stale = true
	switch rng.IntN(30) {
	case 0, 1, 2:
		l.policy, l.clients = randomPolicy(rng), rng.Uint32N(8)
		say("%s: policy %v", l.name, (*policyWords)(&l.policy))
	case 3:
		l.outlier = !l.outlier
		say("%s: outlier detection %v", l.name, l.outlier)
	case 4, 5:
		if there {
			at.draining = !at.draining
			l.spots[n] = at
		}
		say("%s: %d draining %v", l.name, l.first+n, at.draining)
	case 6:
		k := rng.IntN(1 + len(p.servers))
		l.server, l.moved = append(p.servers, "")[k], true
		say("%s: LRS server %d of %d", l.name, k, len(p.servers))
	case 7:
		l.service = fmt.Sprint("s", rng.IntN(2))
		say("%s: EDS service %s", l.name, l.service)
	case 8:
		l.max, l.retries = []uint32{0, 1, 2, 1024}[rng.IntN(4)], randomRetries(rng)
		say("%s: max_requests %d, retries %+v", l.name, l.max, l.retries)
	case 9:
		switch rng.IntN(6) {
		case 4:
			p.rewrites, p.headers = randomRewrite(rng), randomMutations(rng)
		case 0:
			p.sessions = !p.sessions
		case 3:
			p.attempts, p.tries = rng.IntN(3) > 0, rng.IntN(2) == 0
		case 1:
			l.lasting = !l.lasting
		case 2:
			l.several = !l.several
		default:
			l.hollow = !l.hollow
		}
		say("%s: sessions %v, attempts %v, tries %v, rewrites %v, headers %+v, lasting %v, several addresses %v, hollow priority %v", l.name, p.sessions, p.attempts, p.tries, p.rewrites, p.headers, l.lasting, l.several, l.hollow)
	case 10:
		c.routed = !c.routed || p.routed() == 1
		for _, l := range c.leaves {
			l.moved = l.moved || !c.routed
		}
		say("cluster %s routed %v", c.name, c.routed)
	case 11:
		l.swapped = !l.swapped
		at.weight = uint32(1 + rng.IntN(3))
		if there {
			l.spots[n] = at
		}
		say("%s: %d weight %d, addresses swapped %v", l.name, l.first+n, at.weight, l.swapped)
	case 28, 29:
		l.check = rng.IntN(3)
		say("%s: health check %d", l.name, l.check)
	case 20:
		l.tls++
		say("%s: TLS settings %d", l.name, l.tls)
	case 21:
		l.vacant = !l.vacant
		say("%s: empty localities %v", l.name, l.vacant)
	case 26, 27:
		p.crossing = randomCrossing(rng)
		say("other routes")
	case 24, 25:
		l.rename(rng, n)
		say("%s: %d has hostname %d", l.name, l.first+n, l.hostnames[n])
	case 12, 13, 14:
		delete(l.spots, n)
		say("%s: %d removed", l.name, l.first+n)
	default:
		l.spots[n] = spot{priority: rng.IntN(prioritiesPerLeaf), zone: rng.IntN(zones), weight: 1, draining: at.draining}
		say("%s: %d to priority %d, zone %d", l.name, l.first+n, l.spots[n].priority, l.spots[n].zone)
	}
}

// succeed notes what the policy that was sent before leaves to its successor.
func (l *planeLeaf) succeed() {
	was := l.sent
	l.sent, l.sentTLS, l.sentRetries, l.sentCheck = l.policy, l.tls, l.retries, l.check
	if reflect.DeepEqual(was, l.policy) {
		return
	}
	if !delegates(&l.policy) {
		l.switched, l.sluggish = false, false
		return
	}
	l.switched = l.switched || delegates(&was)
	if c := l.policy.Custom; c != nil {
		l.sluggish = l.sluggish || c.Name == string(tardy) || c.Name == string(late)
	}
}

// routed is how many clusters are.
func (p *plane) routed() (n int) {
	for _, c := range p.clusters {
		if c.routed {
			n++
		}
	}
	return n
}

// config renders what clients are told. Clusters and lists of endpoints that did
// not change are those of before, as the XdsClient has it.
func (p *plane) config() *picker.Config {
	cfg := &picker.Config{}
	if p.sessions {
		cfg.Filters = []picker.Filter{sessionFilter()}
	}
	for _, c := range p.clusters {
		if !c.routed {
			c.sent = nil
			continue
		}
		if c.sent == nil || c.stale {
			c.render()
		}
		cfg.Clusters = append(cfg.Clusters, c.sent)
		route := picker.Route{
			Path:     picker.StringMatch{Kind: picker.MatchPrefix, Value: "/" + c.name + "/"},
			Clusters: []picker.WeightedCluster{{Name: c.name, Weight: 1}},
		}
		if p.headers != nil {
			route.RequestHeaders = []*picker.HeaderMutations{p.headers}
		}
		p.rewrite(&route)
		if p.attempts {
			route.Hedge, route.Retry = !p.tries, &hedged
			if p.tries {
				route.Retry = &tried
			}
		}
		cfg.Routes = append(cfg.Routes, route)
	}
	cfg.Routes = append(cfg.Routes, p.routes()...)
	return cfg
}

// hedged is the retry policy of routes whose RPCs are hedged.
var hedged = picker.RetryPolicy{On: []uint32{uint32(codes.Unavailable)}, MaxAttempts: 3, BaseBackoff: time.Second, MaxBackoff: time.Second, OtherHosts: true, PerTryTimeout: time.Hour}

// render sets what is sent of a cluster. It is what was sent before if nothing has
// changed after all.
func (c *planeCluster) render() {
	next := &picker.Cluster{Name: c.name}
	for _, l := range c.leaves {
		l.succeed()
		next.Leaves = append(next.Leaves, l.render())
	}
	c.stale = false
	if c.sent == nil || !reflect.DeepEqual(c.sent, next) {
		reuse(c.sent, next)
		c.sent = next
	}
}

// reuse gives next the lists of endpoints of old that are equal.
func reuse(old, next *picker.Cluster) {
	if old == nil {
		return
	}
	for i := range next.Leaves {
		for k := range next.Leaves[i].Priorities {
			if k >= len(old.Leaves[i].Priorities) {
				break
			}
			was := old.Leaves[i].Priorities[k].Localities
			for j := range next.Leaves[i].Priorities[k].Localities {
				l := &next.Leaves[i].Priorities[k].Localities[j]
				for _, w := range was {
					if w.ID == l.ID && reflect.DeepEqual(w.Endpoints, l.Endpoints) {
						l.Endpoints = w.Endpoints
					}
				}
			}
		}
	}
}

// realName is what the process knows a CDS cluster by.
func (p *plane) realName(name string) string { return fmt.Sprint(name, ".", p.number) }

func (l *planeLeaf) render() picker.Leaf {
	out := picker.Leaf{Name: l.realName, Service: l.service, MaxRequests: l.max, Retries: l.retries, Policy: l.policy, Origin: origin(&l.policy, l.clients)}
	out.Load.Server, out.Override.Draining = l.server, l.lasting
	out.TLS = l.secured(l.tls)
	out.HealthCheck = healthCheck(l.check)
	if l.outlier {
		out.Outlier = &picker.OutlierDetection{
			Interval: time.Second, BaseEjectionTime: 2 * time.Second, MaxEjectionTime: maxEjection, MaxEjectionPercent: 100,
			FailurePercentage: &picker.FailurePercentage{Threshold: 50, Enforcement: 100, RequestVolume: 3},
		}
		if l.consecutive > 0 {
			out.Outlier.FailurePercentage, out.Outlier.Consecutive5xx = nil, &picker.Consecutive{Failures: l.consecutive, Enforcement: 100}
		}
	}
	if l.hollow {
		out.Priorities = append(out.Priorities, picker.Priority{})
	}
	for priority := range prioritiesPerLeaf {
		var pr picker.Priority
		for zone := range zones {
			loc := picker.Locality{ID: picker.LocalityID{Zone: strconv.Itoa(zone)}, Weight: uint32(1 + zone)}
			var list persistent.Builder[picker.Endpoint]
			list.Follow(l.lists[priority][zone], 0)
			i := 0
			for n := range endpointsPerLeaf {
				if at, ok := l.spots[n]; ok && at.priority == priority && at.zone == zone {
					list.Add(l.endpoint(n, at), i)
					i++
				}
			}
			loc.Endpoints = list.List()
			if l.lists[priority][zone] = loc.Endpoints; loc.Endpoints.Len() > 0 || l.vacant {
				pr.Localities = append(pr.Localities, loc)
			}
		}
		if pr.Localities != nil {
			out.Priorities = append(out.Priorities, pr)
		}
	}
	return out
}

// maxEjection is how long outlier detection may keep an endpoint out.
const maxEjection = 8 * time.Second

func (l *planeLeaf) endpoint(n int, at spot) picker.Endpoint {
	e := picker.Endpoint{Addr: addr(l.first + n), Weight: at.weight}
	if at.draining {
		e.Health = picker.Draining
	}
	if l.several && n%3 == 2 {
		other := addr(l.first + n + leafStride/2)
		if l.swapped {
			e.Addr, other = other, e.Addr
		}
		e.Extra = &picker.EndpointExtra{Addrs: []netip.AddrPort{other}}
	}
	l.nameEndpoint(&e, n)
	return e
}

func (l *planeLeaf) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %v, service %s, LRS %v, max %d, outlier %v, health check %d;", l.name, (*policyWords)(&l.policy), l.service, l.server != "", l.max, l.outlier, l.check)
	for n := range endpointsPerLeaf {
		if at, ok := l.spots[n]; ok {
			fmt.Fprintf(&b, " %d@P%d/z%d", l.first+n, at.priority, at.zone)
			if at.draining {
				b.WriteString("(draining)")
			}
			if e := l.endpoint(n, at); multiAddressed(&e) {
				b.WriteString("+")
			}
		}
	}
	if l.vacant {
		b.WriteString(" with empty localities")
	}
	return b.String()
}

// This file finds things in the configuration that was sent last.

// tier is a priority of a cluster with the leaf that it is of: neither a
// picker.Priority nor a priority of the balancer's.
type tier struct {
	*picker.Priority
	leaf *picker.Leaf
}

// priorities returns the priorities of all leaves in the order of A75.
func (c *planeCluster) priorities() (list []tier) {
	if c.sent == nil {
		return nil
	}
	for i := range c.sent.Leaves {
		l := &c.sent.Leaves[i]
		for k := range l.Priorities {
			list = append(list, tier{&l.Priorities[k], l})
		}
	}
	return list
}

// find returns the endpoint that has the address of a number, and the index of its
// priority.
func (c *planeCluster) find(number int) (at int, e *picker.Endpoint) {
	for i, p := range c.priorities() {
		if e := p.find(number); e != nil {
			return i, e
		}
	}
	return 0, nil
}

func (p tier) find(number int) *picker.Endpoint {
	for _, loc := range p.Localities {
		for _, e := range loc.Endpoints.All() {
			if has(e, number) {
				return e
			}
		}
	}
	return nil
}

// usable reports whether the priority has an endpoint that RPCs may go to.
func (p tier) usable() bool { return p.usables() > 0 }

// transparent reports whether the states of the SubConns tell that of the priority.
func (p tier) transparent() bool {
	return !delegates(&p.leaf.Policy) && p.leaf.Outlier == nil && p.leaf.Policy.Subset == 0
}

// sluggish reports whether a custom policy of the cluster's takes its time.
func (c *planeCluster) sluggish() bool {
	return slices.ContainsFunc(c.leaves, func(l *planeLeaf) bool { return l.sluggish })
}

func (t *trial) clusterOf(l *planeLeaf) *planeCluster {
	for _, c := range t.plane.clusters {
		if slices.Contains(c.leaves, l) {
			return c
		}
	}
	return nil
}

// has reports whether an endpoint has the address of a number.
func has(e *picker.Endpoint, number int) bool {
	return numberOf(e.Addr) == number ||
		e.Extra != nil && slices.ContainsFunc(e.Extra.Addrs, func(a netip.AddrPort) bool { return numberOf(a) == number })
}

// numberOf is the inverse of addr.
func numberOf(address netip.AddrPort) int {
	a := address.Addr().As4()
	return int(a[1])<<16 | int(a[2])<<8 | int(a[3])
}

func numberAt(address string) int { return numberOf(netip.MustParseAddrPort(address)) }
