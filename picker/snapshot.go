// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"context"
	"sync"

	"github.com/xdslb/xdslb/picker/persistent"
)

// A Snapshot has a target's routes, clusters and endpoints at one moment, in the form that
// picks use. Build makes it, and its caller publishes it through an atomic pointer.
//
// The zero Snapshot is not usable. A Snapshot must not be copied. It is immutable and safe for
// concurrent use, even while the next one is built and after it has been published. The state
// that picks modify (Load, Breaker, Counter) belongs to the caller and is shared by all
// snapshots that refer to it.
type Snapshot struct {
	_        [0]sync.Mutex
	table    *routeTable
	clusters persistent.Slice[cluster] // parallel to Config.Clusters
	env      Env
	random   bool

	drawing int              // number of clusters whose picks depend on the random word
	routes  []Route          // from which table was made
	index   map[string]int32 // cluster indexes by name; used by Build only
}

// A clusterItem is a cluster as stored in snapshots.
type clusterItem = persistent.Item[cluster]

// A cluster is the compiled form of a Cluster in a certain state. All snapshots between two
// changes of that state share it.
type cluster struct {
	outcome     Outcome // Picked if there are groups, otherwise the outcome of all picks
	random      bool
	inSlowStart bool
	limit       uint32      // of breaker
	uncounted   bool        // a copy of breaker.Unlimited
	dropped     probability // probability of being dropped by any category
	alias       *Alias      // draws from groups; nil if there is at most one
	breaker     *Breaker
	groups      []group // groups that RPCs can use, in configuration order

	drops    []probability // upper bounds by category
	counts   []*Counter    // of drops
	overload *Counter

	// cursor has the position in the sequence of a flat group of several localities. Each form
	// of the cluster inherits it from the previous one.
	cursor *Load
	// peers has the mean latency, if the policy uses it. It is inherited as well.
	peers *peers

	name    string
	version uint64
	err     error // why the cluster could not be compiled

	routing *LocalityRouting // nil unless the policy has a rule for localities
	zones   *zones           // nil unless RPCs may leave their zone; its state is inherited

	// Compared by the next Build: see canReuse.
	policy  Policy // localities were grouped for it
	sources []compiledLocality
}

// Result is the result of a pick. The compiler keeps at most four fields in registers: with a
// fifth one BenchmarkPickFinish takes twice as long.
type Result struct {
	Outcome Outcome
	Route   int32 // index in Config.Routes, or -1 if no route matched or was looked up
	Cluster int32 // index in Config.Clusters, or -1
	// Index is the endpoint's index among all endpoints of the active priority, with its
	// localities concatenated. For Dropped it is the index of the drop category. For Delegate
	// it is the index of the locality, or 0 if the policy is Flat. For other outcomes it is 0.
	Index int32
}

// Outcome enumerates the outcomes of a pick.
type Outcome uint8

// The outcomes of a pick. Only Picked, PickedConnect and Delegate require a further call.
const (
	Picked        Outcome = iota // the endpoint at Index; the caller must call its EndpointState.Finish
	Queue                        // no endpoint yet: wait for the next snapshot
	Failed                       // no endpoint is reachable; wait-for-ready RPCs wait
	Dropped                      // by category Index; final (T-DROP-3)
	Overloaded                   // rejected by the circuit breaker; final (A32)
	NoRoute                      // no route matches; final (A28)
	NotForwarding                // the matching route does not forward; final (A36)
	QueueConnect                 // like Queue, and the IDLE endpoint at Index must be connected (A61)
	PickedConnect                // like Picked, and an IDLE endpoint must be connected: see Snapshot.ConnectIndex (A76)
	Delegate                     // the balancer of the locality at Index picks: see Cancel (A52)
)

// ClusterErr returns the reason why a cluster could not be compiled, or nil. cluster is an
// index in Config.Clusters. All RPCs of the cluster fail; other clusters are not affected.
func (s *Snapshot) ClusterErr(cluster int) error {
	if cluster < 0 || cluster >= s.clusters.Len() {
		return nil
	}
	return s.clusters.At(cluster).err
}

// InSlowStart reports whether an endpoint of a cluster is in slow start. cluster is an index in
// Config.Clusters. The endpoint's share is computed when the snapshot is built, so the caller should
// periodically change the cluster's Version and build again until InSlowStart is false.
func (s *Snapshot) InSlowStart(cluster int) bool {
	return cluster >= 0 && cluster < s.clusters.Len() && s.clusters.At(cluster).inSlowStart
}

// NeedsRandom reports whether any pick depends on its random word. If not, a caller may pass 0.
func (s *Snapshot) NeedsRandom() bool { return s.random }

// Pick routes an RPC to a cluster and picks one of its endpoints. method is the RPC's path,
// "/package.Service/Method". r is a uniform random word, a new one for each pick. A picked
// endpoint costs two atomic writes. It does not allocate, except in Env.Header and to join
// several values of a header.
func (s *Snapshot) Pick(ctx context.Context, method string, r uint64) Result {
	if t := s.table; t.only >= 0 { // saves the call of Match, 3 to 5 ns (BenchmarkSelect/case=plain)
		return s.PickCluster(ctx, t.always, t.only, r)
	}
	route, cluster, outcome := s.Match(ctx, method, r)
	if outcome != Picked {
		return Result{Outcome: outcome, Route: route, Cluster: cluster}
	}
	return s.PickCluster(ctx, route, cluster, r)
}

// Match is the first half of Pick: it returns the route of an RPC and its cluster. The outcome
// is Picked if there is a cluster, otherwise NoRoute or NotForwarding.
func (s *Snapshot) Match(ctx context.Context, method string, r uint64) (route, cluster int32, outcome Outcome) {
	t := s.table
	if route = t.always; route < 0 {
		route = t.match(ctx, method, r, s.env.Header)
		if route == noRoute {
			return -1, -1, NoRoute
		}
	}
	to := &t.routes[route]
	if cluster = to.cluster; cluster >= 0 {
		return route, cluster, Picked
	}
	if cluster == noCluster {
		return route, -1, NotForwarding
	}
	return route, to.clusters[to.split.Pick(draw(r, drawCluster))], Picked
}

// PickCluster is the second half of Pick: it picks an endpoint of a known cluster. r may be the
// word passed to Match. route has the hash policies, for clusters whose policy hashes; -1 if
// unknown.
//
// An RPC that has to wait, or fails for lack of an endpoint, is neither dropped nor rejected:
// it will be picked again, and drops are drawn once per RPC (T-DROP-4). Drops apply before the
// breaker (T-DROP-2). An RPC that passes both gets an endpoint, so PickCluster never has to
// undo its counts.
func (s *Snapshot) PickCluster(ctx context.Context, route, cluster int32, r uint64) Result {
	k := uint(cluster)
	if k >= uint(s.clusters.Len()) {
		return Result{Outcome: NoRoute, Route: -1, Cluster: -1}
	}
	c, current := s.clusters.Latest(int(k))
	if !current {
		c = s.clusters.At(int(k))
	}
	if c.outcome != Picked {
		return Result{Outcome: c.outcome, Route: route, Cluster: cluster}
	}
	i := 0
	if c.alias != nil {
		i = c.alias.Pick(r)
	}
	g := &c.groups[i]
	var found Result
	if g.rule == byHash {
		found = s.pickByHash(ctx, route, cluster, c, g, r)
		if found.Outcome != Picked && found.Outcome != PickedConnect {
			return found
		}
	}
	if c.dropped > 0 && c.dropped.hit(draw(r, drawDrop)) {
		return c.refuse(route, cluster, r)
	}
	if !c.uncounted {
		b := c.breaker // hand-inlined c.breaker.Acquire(c.limit), see Acquire
		if v := b.taken.Load(); b.striped.Load() != 0 || v<<takenShift>>takenShift >= uint64(c.limit) || !b.taken.CompareAndSwap(v, v+takenOne) {
			if !b.acquireSlowly(c.limit) {
				return c.refuse(route, cluster, r)
			}
		}
	}
	var endpoint int32
	switch g.rule {
	case byHash:
		g.endpoints[found.Index-g.first].begin()
		return found
	case byDelegate:
		return Result{Outcome: Delegate, Route: route, Cluster: cluster, Index: g.first}
	case byLeastRequest:
		endpoint = g.least.pick(r)
	case byLeastLatency:
		endpoint = g.latency.pick(r)
	case byProbes:
		endpoint = g.probes.pick(r)
	case byZones:
		endpoint = g.pickZoned(r)
	default:
		l := g.cursor // hand-inlined g.cursor.issue(), see issue
		n := l.issued.Load()
		if l.striped.Load() != 0 || !l.issued.CompareAndSwap(n, n+1) {
			n = l.issueSlowly()
		}
		endpoint = int32(g.schedule.At(n))
		if g.endpoints != nil {
			g.endpoints[endpoint].begin()
		}
	}
	return Result{Outcome: Picked, Route: route, Cluster: cluster, Index: g.first + endpoint}
}

// PickEndpoint picks an endpoint that the caller has chosen for an RPC, as with session affinity
// (A55), and returns index in the Result. Drops and circuit breaker apply as in PickCluster; r is
// the RPC's word. It does not require that PickCluster could pick the endpoint, nor any other, as
// long as the state from which the cluster was built names an active priority. Does not allocate.
func (s *Snapshot) PickEndpoint(route, cluster, index int32, e *EndpointState, r uint64) Result {
	k := uint(cluster)
	if k >= uint(s.clusters.Len()) {
		return Result{Outcome: NoRoute, Route: -1, Cluster: -1}
	}
	c := s.clusters.At(int(k))
	switch {
	case c.breaker == nil:
		return Result{Outcome: c.outcome, Route: route, Cluster: cluster}
	case !c.admit(r):
		return c.refuse(route, cluster, r)
	}
	e.Begin()
	return Result{Outcome: Picked, Route: route, Cluster: cluster, Index: index}
}

// admit reports whether an RPC is neither dropped nor rejected by the circuit breaker, and
// counts it in flight if so.
func (c *cluster) admit(r uint64) bool {
	if c.dropped > 0 && c.dropped.hit(draw(r, drawDrop)) {
		return false
	}
	return c.uncounted || c.breaker.Acquire(c.limit)
}

// refuse counts an RPC that is not admitted, and returns its result.
//
//go:noinline
func (c *cluster) refuse(route, cluster int32, r uint64) Result {
	if x := draw(r, drawDrop); c.dropped.hit(x) {
		category := dropCategory(c.drops, x)
		c.counts[category].Add()
		return Result{Outcome: Dropped, Route: route, Cluster: cluster, Index: int32(category)}
	}
	c.overload.Add()
	return Result{Outcome: Overloaded, Route: route, Cluster: cluster}
}

// Cancel undoes the counts of a pick with outcome Delegate (T-CB-1). It must be called on the
// Snapshot that returned the Result, at most once, and not if Finish is called. For results
// with other outcomes it does nothing.
//
// A custom policy (A52, D10) leaves the choice of the endpoint to a balancer of the caller. Such
// a pick has the outcome Delegate and the locality in Index. It has passed the drops and the
// circuit breaker. The caller then
//
//   - calls Cancel if its balancer has no endpoint to pick, or
//   - calls Begin of the endpoint that its balancer picked, and Finish at the end of the RPC.
//
// The locality is drawn from the localities with a READY endpoint, or, if there are none, from
// those with an IDLE endpoint, since a balancer may connect on a pick. Otherwise RPCs wait or
// fail. So the caller maintains the endpoints' Connectivity as with any other policy. It should
// not report an endpoint as IDLE that no pick will connect, since a delegated RPC that is
// canceled draws its drops again (T-DROP-4).
func (s *Snapshot) Cancel(r Result) {
	if r.Outcome == Delegate {
		s.clusters.At(int(r.Cluster)).breaker.Release()
	}
}
