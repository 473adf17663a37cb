// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"context"
	"sync"
)

// A Snapshot is a target's routes, clusters and endpoints at one moment, in the
// form that picks walk. Build makes one; its caller publishes it through an
// atomic pointer.
//
// The zero Snapshot is not usable. A Snapshot must not be copied. It is
// immutable, and any number of goroutines may use it, also while the next one is
// built and after it was published. What picks write (Load, Breaker, Counter)
// belongs to the caller and is shared by all snapshots that refer to it.
type Snapshot struct {
	_        [0]sync.Mutex
	table    *routeTable
	clusters []*cluster // parallel to Config.Clusters
	env      Env
	random   bool

	routes []Route          // that table was made of
	index  map[string]int32 // of each cluster by name; for Build only
}

// A cluster is the compiled form of a Cluster in the state it was in. It is
// shared by all snapshots between two changes.
type cluster struct {
	outcome Outcome // Picked if there is an endpoint to pick, else what picks come to
	random  bool
	warming bool
	limit   uint32 // of breaker
	dropped chance // by any of the drop categories
	alias   *Alias // draws from groups; nil if there is only one
	breaker *Breaker
	groups  []group // those with an endpoint to pick, in the order of the configuration

	drops    []chance   // upper bounds by category
	counts   []*Counter // of drops
	overload *Counter

	// tickets is the place in the sequence of a group that has several
	// localities. It is handed from each form of the cluster to the next.
	tickets *Counter

	name    string
	version uint64
	err     error // why there is no more to it
}

// Result is what a pick comes to. It has no more than the four fields that the
// compiler is willing to keep in registers: with a fifth one BenchmarkPickFinish
// takes twice as long.
type Result struct {
	Outcome Outcome
	Route   int32 // index in Config.Routes, or -1 if none matched or none was sought
	Cluster int32 // index in Config.Clusters, or -1
	// Index is the endpoint's index among all endpoints of the priority in use,
	// its localities concatenated; of a dropped RPC, the index of the drop
	// category.
	//
	// Of Delegate it is the locality's, or 0 if the policy makes one layer of
	// them; of other outcomes 0.
	Index int32
}

// Outcome enumerates what a pick can come to.
type Outcome uint8

// The outcomes of a pick. All but Picked, PickedWake and Delegate leave nothing to be
// undone.
const (
	Picked        Outcome = iota // the endpoint at Index; its EndpointState.Finish must follow
	Queue                        // no endpoint yet: wait for another snapshot
	Failed                       // no endpoint is reachable; an RPC that waits for ready waits
	Dropped                      // by category Index; final (T-DROP-3)
	Overloaded                   // refused by the circuit breaker; final (A32)
	NoRoute                      // no route matches; final (A28)
	NotForwarding                // the route that matches does not forward; final (A36)
	Wake                         // as Queue, and the endpoint at Index, which is IDLE, is to be connected (A61)
	PickedWake                   // as Picked, and an endpoint that is IDLE is to be connected: see Snapshot.Asleep (A76)
	Delegate                     // to the balancer of the locality at Index; see PolicyCustom
)

// ClusterErr returns why the cluster with an index in Config.Clusters could not be
// compiled, or nil. All its RPCs fail, and those of other clusters do not.
func (s *Snapshot) ClusterErr(cluster int) error {
	if cluster < 0 || cluster >= len(s.clusters) {
		return nil
	}
	return s.clusters[cluster].err
}

// Warming reports whether an endpoint of the cluster with an index in
// Config.Clusters is in its slow start: its share is that of the moment of the
// build, so the cluster's Version should change, and a build follow, every so often
// until it is through.
func (s *Snapshot) Warming(cluster int) bool {
	return cluster >= 0 && cluster < len(s.clusters) && s.clusters[cluster].warming
}

// NeedsRandom reports whether any pick depends on its random word. If not, a
// caller may save the draw and pass 0.
func (s *Snapshot) NeedsRandom() bool { return s.random }

// Pick routes an RPC to a cluster and picks an endpoint there. method is the
// RPC's path, "/package.Service/Method", and r a uniform random word, new for
// each pick. It takes two atomic additions if it picks an endpoint. It does not
// allocate unless a route's conditions read headers; what that takes is up to the
// hook, and several values are joined for it.
func (s *Snapshot) Pick(ctx context.Context, method string, r uint64) Result {
	route, cluster, outcome := s.Match(ctx, method, r)
	if outcome != Picked {
		return Result{Outcome: outcome, Route: route, Cluster: cluster}
	}
	return s.PickCluster(ctx, route, cluster, r)
}

// Match is the first half of Pick: the route that an RPC takes and the cluster it
// is sent to. The outcome is Picked if there is one, else NoRoute or
// NotForwarding.
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

// PickCluster is the second half of Pick, for RPCs whose cluster is known: it
// picks one of the cluster's endpoints. r may be the same word as for Match. The
// route, or -1 if it is not known, has the hash policies, for clusters whose
// policy hashes.
//
// An RPC that is to wait, or fails for lack of an endpoint, is neither dropped
// nor refused: it will be picked for again, and drops are drawn once for each RPC
// (T-DROP-4). After that come the drops and then the breaker (T-DROP-2), which
// nothing can follow but a pick, so there is no place to be given back.
func (s *Snapshot) PickCluster(ctx context.Context, route, cluster int32, r uint64) Result {
	k := uint(cluster)
	if k >= uint(len(s.clusters)) {
		return Result{Outcome: NoRoute, Route: -1, Cluster: -1}
	}
	c := s.clusters[k]
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
		found = s.seek(ctx, route, cluster, c, g, r)
		if found.Outcome != Picked && found.Outcome != PickedWake {
			return found
		}
	}
	if c.dropped > 0 {
		if x := draw(r, drawDrop); c.dropped.hit(x) {
			return Result{Outcome: Dropped, Route: route, Cluster: cluster, Index: c.drop(x)}
		}
	}
	if !c.breaker.Acquire(c.limit) {
		c.overload.Add()
		return Result{Outcome: Overloaded, Route: route, Cluster: cluster}
	}
	var endpoint int32
	switch g.rule {
	case byHash:
		g.endpoints[found.Index-g.first].Begin()
		return found
	case byChild:
		return Result{Outcome: Delegate, Route: route, Cluster: cluster, Index: g.first}
	case byLottery:
		endpoint = g.lottery.pick(r)
	default:
		endpoint = int32(g.schedule.At(g.tickets.Add(1) - 1))
		if g.endpoints != nil {
			g.endpoints[endpoint].Begin()
		}
	}
	return Result{Outcome: Picked, Route: route, Cluster: cluster, Index: g.first + endpoint}
}

// drop counts an RPC that word x drops and returns the category.
//
//go:noinline
func (c *cluster) drop(x uint64) int32 {
	i := dropCategory(c.drops, x)
	c.counts[i].Add()
	return int32(i)
}
