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

// controlPlane is the control plane of the random model: the current settings, in terms that are
// easy to change, and the configuration that follows from them.
type controlPlane struct {
	clusters      []*modelCluster
	sessions      bool                    // RPCs may belong to sessions (A55)
	attempts      bool                    // RPCs are hedged, and their attempts avoid endpoints that were tried
	perTryTimeout bool                    // attempts have a per_try_timeout instead
	rewrites      string                  // of authorities: by endpoint (A81), or a literal (A111); or empty
	headers       *picker.HeaderMutations // of the routes of clusters
	// The routes that routedRPCs use, as they are now and as they were sent.
	sharedRoutes, sentRoutes []randomRoute
	servers                  []string // that load can be reported to, by their keys
	number                   int64    // distinguishes its CDS clusters from the clusters of other histories, since the process shares their breakers
}

var controlPlanes atomic.Int64

// modelCluster is a cluster that routes name or have named.
type modelCluster struct {
	name   string
	routed bool
	leaves []*modelLeaf // more than one is an aggregate
	sent   *picker.Cluster
	stale  bool // something may have changed since it was sent
}

// modelLeaf is a CDS cluster and its endpoints, which have numbers from first. Most fields have the
// current settings; their counterparts with "sent" have those of the configuration that was sent
// last.
type modelLeaf struct {
	name, realName     string
	service, server    string
	first              int
	policy, sent       picker.Policy // now, and as it was sent
	clients            uint32        // of the own fleet in the own zone: see origin
	max                uint32
	retries            *picker.RetryLimit
	sentRetries        *picker.RetryLimit
	outlier            bool
	consecutive        uint32 // failures that eject an endpoint; 0 uses their percentage
	checked            bool   // by checkEjections, since it detects outliers
	twoAddresses       bool   // every third endpoint has two addresses
	addressesSwapped   bool   // in the other order
	check              int    // the version of the health check: see healthCheck
	sentCheck          int
	keepsSessions      bool // sessions stay with endpoints that drain
	emptyFirstPriority bool // priority 0 has no endpoints
	endpoints          map[int]endpointSpec
	emptyLocalities    bool // localities and priorities without endpoints are present
	// lists are the latest endpoints by locality. Unchanged parts are shared with them, as the
	// XdsClient does.
	lists        [prioritiesPerLeaf][zones]picker.EndpointList
	tls, sentTLS int         // versions of the TLS settings: see secured
	hostnames    map[int]int // versions of the hostnames of endpoints; 0 is no hostname
	// moved means that load went to another LRS server before.
	moved bool
	// switched means that a custom policy has replaced another one, which may serve until the new
	// one is READY.
	switched bool
	// slowPolicy means that a custom policy with delays has been in force.
	slowPolicy bool
}

// endpointSpec is the place of an endpoint in the configuration.
type endpointSpec struct {
	priority, zone int
	weight         uint32
	draining       bool
}

// endpointsPerLeaf, prioritiesPerLeaf and zones are small, so that features often meet.
const (
	endpointsPerLeaf  = 9
	prioritiesPerLeaf = 3
	zones             = 2
	leafStride        = 1000
)

func newControlPlane(rng *rand.Rand) *controlPlane {
	p := &controlPlane{number: controlPlanes.Add(1), servers: modelServers(), sessions: rng.IntN(4) == 0, attempts: rng.IntN(2) == 0, perTryTimeout: rng.IntN(2) == 0, rewrites: randomRewrite(rng), headers: randomMutations(rng), sharedRoutes: randomRoutes(rng)}
	for i, leaves := range [][]string{{"a"}, {"b1", "b2"}} {
		c := &modelCluster{name: string(rune('a' + i)), routed: true}
		for _, name := range leaves {
			l := &modelLeaf{
				name: name, realName: p.realName(name), service: "s0", max: 1024, first: leafStride * (1 + i*2 + len(c.leaves)),
				twoAddresses: rng.IntN(2) == 0, endpoints: map[int]endpointSpec{}, emptyLocalities: rng.IntN(3) == 0, hostnames: map[int]int{},
			}
			if rng.IntN(2) == 0 {
				l.server = p.servers[0]
			}
			l.policy, l.clients = randomPolicy(rng), rng.Uint32N(8)
			l.retries = randomRetries(rng)
			l.check = max(0, rng.IntN(5)-2)
			for range 1 + rng.IntN(6) {
				l.endpoints[rng.IntN(endpointsPerLeaf)] = endpointSpec{priority: rng.IntN(2), zone: rng.IntN(zones), weight: 1}
			}
			c.leaves = append(c.leaves, l)
		}
		p.clusters = append(p.clusters, c)
	}
	return p
}

// mutate changes something at random, and logs it.
func (p *controlPlane) mutate(rng *rand.Rand, logf func(format string, args ...any)) {
	c := p.clusters[rng.IntN(len(p.clusters))]
	l := c.leaves[rng.IntN(len(c.leaves))]
	n := rng.IntN(endpointsPerLeaf)
	at, there := l.endpoints[n]
	c.stale = true
	switch rng.IntN(30) {
	case 0, 1, 2:
		l.policy, l.clients = randomPolicy(rng), rng.Uint32N(8)
		logf("%s: policy %v", l.name, (*policyText)(&l.policy))
	case 3:
		l.outlier = !l.outlier
		logf("%s: outlier detection %v", l.name, l.outlier)
	case 4, 5:
		if there {
			at.draining = !at.draining
			l.endpoints[n] = at
		}
		logf("%s: %d draining %v", l.name, l.first+n, at.draining)
	case 6:
		k := rng.IntN(1 + len(p.servers))
		l.server, l.moved = append(p.servers, "")[k], true
		logf("%s: LRS server %d of %d", l.name, k, len(p.servers))
	case 7:
		l.service = fmt.Sprint("s", rng.IntN(2))
		logf("%s: EDS service %s", l.name, l.service)
	case 8:
		l.max, l.retries = []uint32{0, 1, 2, 1024}[rng.IntN(4)], randomRetries(rng)
		logf("%s: max_requests %d, retries %+v", l.name, l.max, l.retries)
	case 9:
		switch rng.IntN(6) {
		case 4:
			p.rewrites, p.headers = randomRewrite(rng), randomMutations(rng)
		case 0:
			p.sessions = !p.sessions
		case 3:
			p.attempts, p.perTryTimeout = rng.IntN(3) > 0, rng.IntN(2) == 0
		case 1:
			l.keepsSessions = !l.keepsSessions
		case 2:
			l.twoAddresses = !l.twoAddresses
		default:
			l.emptyFirstPriority = !l.emptyFirstPriority
		}
		logf("%s: sessions %v, attempts %v, per_try_timeout %v, rewrites %v, headers %+v, draining endpoints keep sessions %v, several addresses %v, empty first priority %v", l.name, p.sessions, p.attempts, p.perTryTimeout, p.rewrites, p.headers, l.keepsSessions, l.twoAddresses, l.emptyFirstPriority)
	case 10:
		c.routed = !c.routed || p.routed() == 1
		for _, l := range c.leaves {
			l.moved = l.moved || !c.routed
		}
		logf("cluster %s routed %v", c.name, c.routed)
	case 11:
		l.addressesSwapped = !l.addressesSwapped
		at.weight = uint32(1 + rng.IntN(3))
		if there {
			l.endpoints[n] = at
		}
		logf("%s: %d weight %d, addresses swapped %v", l.name, l.first+n, at.weight, l.addressesSwapped)
	case 28, 29:
		l.check = rng.IntN(3)
		logf("%s: health check %d", l.name, l.check)
	case 20:
		l.tls++
		logf("%s: TLS settings %d", l.name, l.tls)
	case 21:
		l.emptyLocalities = !l.emptyLocalities
		logf("%s: empty localities %v", l.name, l.emptyLocalities)
	case 26, 27:
		p.sharedRoutes = randomRoutes(rng)
		logf("other routes")
	case 24, 25:
		l.rename(rng, n)
		logf("%s: %d has hostname %d", l.name, l.first+n, l.hostnames[n])
	case 12, 13, 14:
		delete(l.endpoints, n)
		logf("%s: %d removed", l.name, l.first+n)
	default:
		l.endpoints[n] = endpointSpec{priority: rng.IntN(prioritiesPerLeaf), zone: rng.IntN(zones), weight: 1, draining: at.draining}
		logf("%s: %d to priority %d, zone %d", l.name, l.first+n, l.endpoints[n].priority, l.endpoints[n].zone)
	}
}

// markSent records the settings that are sent, and their relation to the earlier ones.
func (l *modelLeaf) markSent() {
	was := l.sent
	l.sent, l.sentTLS, l.sentRetries, l.sentCheck = l.policy, l.tls, l.retries, l.check
	if reflect.DeepEqual(was, l.policy) {
		return
	}
	if !delegates(&l.policy) {
		l.switched, l.slowPolicy = false, false
		return
	}
	l.switched = l.switched || delegates(&was)
	if c := l.policy.Custom; c != nil {
		l.slowPolicy = l.slowPolicy || c.Name == string(delaysState) || c.Name == string(delaysConns)
	}
}

// routed returns the number of clusters that are routed.
func (p *controlPlane) routed() (n int) {
	for _, c := range p.clusters {
		if c.routed {
			n++
		}
	}
	return n
}

// config returns the configuration. As in the XdsClient, clusters and lists of endpoints that did
// not change are the earlier ones.
func (p *controlPlane) config() *picker.Config {
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
			route.Hedge, route.Retry = !p.perTryTimeout, &hedged
			if p.perTryTimeout {
				route.Retry = &timedRetries
			}
		}
		cfg.Routes = append(cfg.Routes, route)
	}
	cfg.Routes = append(cfg.Routes, p.routes()...)
	return cfg
}

// hedged is the retry policy of routes whose RPCs are hedged.
var hedged = picker.RetryPolicy{On: []uint32{uint32(codes.Unavailable)}, MaxAttempts: 3, BaseBackoff: time.Second, MaxBackoff: time.Second, OtherHosts: true, PerTryTimeout: time.Hour}

// render sets the cluster that is sent. It is the earlier one if nothing has changed.
func (c *modelCluster) render() {
	next := &picker.Cluster{Name: c.name}
	for _, l := range c.leaves {
		l.markSent()
		next.Leaves = append(next.Leaves, l.render())
	}
	c.stale = false
	if c.sent == nil || !reflect.DeepEqual(c.sent, next) {
		reuse(c.sent, next)
		c.sent = next
	}
}

// reuse replaces the lists of endpoints in next by equal ones in old.
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

// realName is the name of a CDS cluster in the process.
func (p *controlPlane) realName(name string) string { return fmt.Sprint(name, ".", p.number) }

func (l *modelLeaf) render() picker.Leaf {
	out := picker.Leaf{Name: l.realName, Service: l.service, MaxRequests: l.max, Retries: l.retries, Policy: l.policy, Origin: origin(&l.policy, l.clients)}
	out.Load.Server, out.Override.Draining = l.server, l.keepsSessions
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
	if l.emptyFirstPriority {
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
				if at, ok := l.endpoints[n]; ok && at.priority == priority && at.zone == zone {
					list.Add(l.endpoint(n, at), i)
					i++
				}
			}
			loc.Endpoints = list.List()
			if l.lists[priority][zone] = loc.Endpoints; loc.Endpoints.Len() > 0 || l.emptyLocalities {
				pr.Localities = append(pr.Localities, loc)
			}
		}
		if pr.Localities != nil {
			out.Priorities = append(out.Priorities, pr)
		}
	}
	return out
}

// maxEjection is the maximum duration of an ejection.
const maxEjection = 8 * time.Second

func (l *modelLeaf) endpoint(n int, at endpointSpec) picker.Endpoint {
	e := picker.Endpoint{Addr: addr(l.first + n), Weight: at.weight}
	if at.draining {
		e.Health = picker.Draining
	}
	if l.twoAddresses && n%3 == 2 {
		other := addr(l.first + n + leafStride/2)
		if l.addressesSwapped {
			e.Addr, other = other, e.Addr
		}
		e.Extra = &picker.EndpointExtra{Addrs: []netip.AddrPort{other}}
	}
	l.nameEndpoint(&e, n)
	return e
}

func (l *modelLeaf) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %v, service %s, LRS %v, max %d, outlier %v, health check %d;", l.name, (*policyText)(&l.policy), l.service, l.server != "", l.max, l.outlier, l.check)
	for n := range endpointsPerLeaf {
		if at, ok := l.endpoints[n]; ok {
			fmt.Fprintf(&b, " %d@P%d/z%d", l.first+n, at.priority, at.zone)
			if at.draining {
				b.WriteString("(draining)")
			}
			if e := l.endpoint(n, at); multiAddressed(&e) {
				b.WriteString("+")
			}
		}
	}
	if l.emptyLocalities {
		b.WriteString(" with empty localities")
	}
	return b.String()
}

// The functions below find parts of the configuration that was sent last.

// priorityView is a priority of a cluster with its leaf.
type priorityView struct {
	*picker.Priority
	leaf *picker.Leaf
}

// priorities returns the priorities of all leaves in the order of A75.
func (c *modelCluster) priorities() (list []priorityView) {
	if c.sent == nil {
		return nil
	}
	for i := range c.sent.Leaves {
		l := &c.sent.Leaves[i]
		for k := range l.Priorities {
			list = append(list, priorityView{&l.Priorities[k], l})
		}
	}
	return list
}

// find returns the endpoint that has the address of a number, and the index of its
// priority.
func (c *modelCluster) find(number int) (at int, e *picker.Endpoint) {
	for i, p := range c.priorities() {
		if e := p.find(number); e != nil {
			return i, e
		}
	}
	return 0, nil
}

func (p priorityView) find(number int) *picker.Endpoint {
	for _, loc := range p.Localities {
		for _, e := range loc.Endpoints.All() {
			if has(e, number) {
				return e
			}
		}
	}
	return nil
}

// usable reports whether the priority has an endpoint that RPCs may use.
func (p priorityView) usable() bool { return p.usableEndpoints() > 0 }

// transparent reports whether the states of the SubConns determine the state of the priority.
func (p priorityView) transparent() bool {
	return !delegates(&p.leaf.Policy) && p.leaf.Outlier == nil && p.leaf.Policy.Subset == 0
}

// slowPolicy reports whether a custom policy of the cluster has delays.
func (c *modelCluster) slowPolicy() bool {
	return slices.ContainsFunc(c.leaves, func(l *modelLeaf) bool { return l.slowPolicy })
}

func (t *history) clusterOf(l *modelLeaf) *modelCluster {
	for _, c := range t.controlPlane.clusters {
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
