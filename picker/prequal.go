// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"time"
)

// Prequal has the parameters of Prequal (Wydrowski et al., "Load is not what you should
// balance: Introducing Prequal", NSDI 2024). Endpoints are probed for their load, and an RPC
// goes to the endpoint with the best answer. The asynchronous mode probes ahead of RPCs and
// keeps the answers in a ProbePool. In the synchronous mode the caller probes for each RPC, so
// the endpoint is known before the pick, and the pool is only used if that fails.
type Prequal struct {
	PoolSize     uint32        // maximum number of answers: 2 to 64
	MaxAge       time.Duration // of an answer, above 0
	ProbesPerRPC float64       // above RemovePerRPC
	RemovePerRPC float64       // answers to remove, the worst and the oldest alternately: 0 or more
	// HotQuantile is the quantile of the RPCs in flight of recent answers above which an
	// endpoint is hot: 0 to 1. With 0 nearly all endpoints are hot, and the fewest RPCs in
	// flight win; with 1 no endpoint is hot, and the least latency wins.
	HotQuantile float64
	// ProbeTimeout is the timeout of a probe, and of an RPC that waits for probes. It is above
	// 0.
	ProbeTimeout time.Duration
	// MaxProbesPerSecond limits the probes of a pool. It is above 0.
	MaxProbesPerSecond uint32
	// Synchronous is the number of endpoints probed for each RPC, which waits for all answers
	// but the last: 2 to 10. 0 selects the asynchronous mode.
	Synchronous uint32
	// IgnoreWeights gives all endpoints the same weight while there are no answers.
	IgnoreWeights bool
}

// check returns an error if the policy cannot be compiled.
func (p *Prequal) check() error {
	switch { // NaN must fail the checks
	case p.PoolSize < 2 || p.PoolSize > maxPool:
		return fmt.Errorf("pool size %d: must be within 2 to %d", p.PoolSize, maxPool)
	case p.MaxAge <= 0 || p.ProbeTimeout <= 0 || p.MaxProbesPerSecond == 0:
		return fmt.Errorf("max age %v, probe timeout %v, max probes per second %d: must be above 0", p.MaxAge, p.ProbeTimeout, p.MaxProbesPerSecond)
	case !(p.RemovePerRPC >= 0) || !(p.ProbesPerRPC > p.RemovePerRPC) || math.IsInf(p.ProbesPerRPC, 1):
		return fmt.Errorf("probes per RPC %v: must exceed removals per RPC %v", p.ProbesPerRPC, p.RemovePerRPC)
	case !(p.HotQuantile >= 0 && p.HotQuantile <= 1):
		return fmt.Errorf("hot quantile %v: must be within 0 to 1", p.HotQuantile)
	case p.Synchronous == 1 || p.Synchronous > maxChoices:
		return fmt.Errorf("synchronous probes %d: must be 0 or within 2 to %d", p.Synchronous, maxChoices)
	}
	return nil
}

// fallbackDecay is the decay of the latencies used by picks without answers.
const fallbackDecay = 10 * time.Second

// A ProbeGroup is a set of endpoints that are probed for their load and picked by the answers:
// the compiled form of a group with Prequal. It is immutable.
type ProbeGroup struct {
	Pool  *ProbePool // shared by all forms of the group
	cfg   Prequal
	first int32         // index in the priority of the group's first endpoint
	least *leastLatency // picks while there are no answers; its candidates are the group's
	index map[*EndpointState]int32
}

// prequal makes g pick by the answers of the READY endpoints of in. before is its previous
// form, or nil.
func (b *builder) prequal(g, before *group, in *groupInput, c *cluster, policy *Policy) error {
	fallback := *policy
	fallback.Latency = &LeastLatency{Decay: fallbackDecay, IgnoreWeights: policy.Prequal.IgnoreWeights}
	if err := b.leastLatency(g, before, in, c, &fallback); err != nil {
		return err
	}
	p := &ProbeGroup{cfg: *policy.Prequal, first: g.first, least: g.latency, index: make(map[*EndpointState]int32, len(g.latency.candidates))}
	for i := range p.least.candidates {
		c := &p.least.candidates[i]
		p.index[c.endpoint] = c.index
	}
	if before != nil && before.probes != nil {
		p.Pool = before.probes.Pool
	} else {
		p.Pool = new(ProbePool)
	}
	g.rule, g.latency, g.probes = byProbes, nil, p
	return nil
}

// ProbeGroups returns the groups whose endpoints are to be probed, for a cluster given by its
// index in Config.Clusters. It returns nil for other policies.
func (s *Snapshot) ProbeGroups(cluster int) []*ProbeGroup {
	var list []*ProbeGroup
	for i := range s.clusters.At(int(cluster)).groups {
		if p := s.clusters.At(int(cluster)).groups[i].probes; p != nil {
			list = append(list, p)
		}
	}
	return list
}

// ProbeGroup draws the group of an RPC to a cluster with the word r, as PickCluster does. It
// returns nil if the RPC is not picked by probes.
func (s *Snapshot) ProbeGroup(cluster int32, r uint64) *ProbeGroup {
	c := s.clusters.At(int(cluster))
	if c.outcome != Picked {
		return nil
	}
	i := 0
	if c.alias != nil {
		i = c.alias.Pick(r)
	}
	g := &c.groups[i]
	if in := g.zoned; in != nil && g.probes != nil {
		if other := in.leaves(r); other != nil {
			return other.probes
		}
	}
	return g.probes
}

// Adopt makes the pool serve picks of the group from time now on. It is a no-op if the pool
// already does. O(endpoints).
func (g *ProbeGroup) Adopt(now int64) {
	p := g.Pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.group == g {
		return
	}
	p.group, p.cfg = g, g.cfg
	unknown := func(e *EndpointState) bool { _, ok := g.index[e]; return !ok }
	p.probes = slices.DeleteFunc(p.probes, func(q *probe) bool { return unknown(q.endpoint) })
	maps.DeleteFunc(p.silent, func(e *EndpointState, _ struct{}) bool { return unknown(e) })
	p.publishLocked(now)
}

// Len returns the number of endpoints of the group.
func (g *ProbeGroup) Len() int { return len(g.least.candidates) }

// Endpoint returns the k-th endpoint and its index as in Result.
func (g *ProbeGroup) Endpoint(k int) (*EndpointState, int32) {
	c := &g.least.candidates[k]
	return c.endpoint, g.first + c.index
}

// only returns a leastLatency for a subset of the group's endpoints with equal sampling
// probabilities, or nil if the subset is empty.
func (g *ProbeGroup) only(some map[*EndpointState]struct{}) *leastLatency {
	l := &leastLatency{clock: g.least.clock, peers: g.least.peers}
	for i := range g.least.candidates {
		if c := &g.least.candidates[i]; member(some, c.endpoint) {
			l.candidates = append(l.candidates, *c)
		}
	}
	if len(l.candidates) == 0 {
		return nil
	}
	return l
}

func member(set map[*EndpointState]struct{}, e *EndpointState) bool {
	_, ok := set[e]
	return ok
}

// pick returns the index of an endpoint in the group and counts the RPC there.
// O(PoolSize); does not allocate.
func (g *ProbeGroup) pick(r uint64) int32 {
	p := g.Pool
	p.picks.Add(1)
	if !p.asked.Load() && p.asked.CompareAndSwap(false, true) {
		if wake := p.wake.Load(); wake != nil {
			(*wake)()
		}
	}
	v := p.view.Load()
	if v == nil || v.group != g {
		return g.least.pick(r)
	}
	// The numbers of decisions of hash policies are unused here.
	if v.silent != nil {
		if x, _ := bits.Mul64(draw(r, drawHash), uint64(len(g.least.candidates))); x < uint64(len(v.silent.candidates)) {
			now := v.silent.clock.now()
			if c := v.silent.choose(r, now); c.endpoint.binding.timing.latestMean() != pushedBack {
				c.endpoint.beginTimed(now)
				return c.index
			}
		}
	}
	first, _ := bits.Mul64(draw(r, drawProbe), uint64(len(v.entries)))
	for {
		i := v.best(int(first), v.spent.Load())
		if i < 0 {
			return g.least.pick(r)
		}
		e := &v.entries[i]
		if e.timing.isPushedBack(g.least.clock) {
			v.spent.Or(1 << i)
			continue
		}
		if v.use(i) {
			e.endpoint.Begin()
			return e.index
		}
	}
}

// best returns the index of the entry to pick by, or -1 without entries that are not spent: the cold entry with
// the least cost, or the entry with the least load if all are hot. Ties are broken uniformly,
// since first is uniform. A single hot entry is not used, since it only indicates that other
// endpoints are better.
func (v *probeView) best(first int, spent uint64) int {
	cold, hot, left := -1, -1, 0
	var cost, load float64
	for k := range v.entries {
		i := first + k
		if i >= len(v.entries) {
			i -= len(v.entries)
		}
		if spent>>i&1 != 0 {
			continue
		}
		left++
		e := &v.entries[i]
		now := e.now()
		if now > v.hot {
			if hot < 0 || now < load {
				hot, load = i, now
			}
		} else if c := e.perRPC * (now*e.weight + 1); cold < 0 || c < cost {
			cold, cost = i, c
		}
	}
	switch {
	case cold >= 0:
		return cold
	case left > 1:
		return hot
	}
	return -1
}

// now returns the load of the entry's endpoint as known to this client: the answer, adjusted by
// the client's own RPCs since then.
func (e *probeEntry) now() float64 {
	return max(0, e.load+float64(int32(e.timing.inFlight())-e.own)*e.share)
}

// use counts a pick by entry i, and reports whether the entry was still usable.
func (v *probeView) use(i int) bool {
	n := v.entries[i].probe.used.Add(1)
	if n >= v.reuse {
		v.spent.Or(1 << i)
	}
	return n <= v.reuse
}

// ProbedIndex returns the index, as in Result, of an endpoint that was probed for an RPC to a
// cluster. ok is false if it is no longer one of the endpoints to pick. Does not allocate.
func (s *Snapshot) ProbedIndex(cluster int32, e *EndpointState) (index int32, ok bool) {
	c := s.clusters.At(int(cluster))
	for i := range c.groups {
		if g := c.groups[i].probes; g != nil {
			if index, ok = g.index[e]; ok {
				return g.first + index, true
			}
		}
	}
	return 0, false
}

// Best returns the index of the report by which an RPC should be picked, from reports of
// endpoints probed for this RPC. It uses the rule of the pool and the pool's loads of other
// endpoints. Reports with GoingAway count only if all have it. It returns -1 without reports.
func (g *ProbeGroup) Best(reports []ProbeReport) int {
	_, _, hot := g.Pool.Stats()
	best := -1
	var bestProbe *probe
	for i, r := range reports {
		q := newProbe(nil, r, 0)
		if best < 0 || reports[best].GoingAway && !r.GoingAway || reports[best].GoingAway == r.GoingAway && q.better(bestProbe, hot) {
			best, bestProbe = i, q
		}
	}
	return best
}

// better reports whether q is better than another answer of the same time.
func (q *probe) better(other *probe, hot float64) bool {
	switch a, b := q.load <= hot, other.load <= hot; {
	case a != b:
		return a
	case !a || q.latency == 0 || other.latency == 0 || q.latency == other.latency:
		return q.load < other.load
	}
	return q.latency < other.latency
}
