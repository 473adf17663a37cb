// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A ProbeReport is an endpoint's answer to a probe.
type ProbeReport struct {
	InFlight int           // RPCs of all clients
	Latency  time.Duration // of RPCs that found about as many in flight; 0 means unknown
	Failing  float64       // fraction of its recent RPCs that failed: 0 to 1
	Weight   float64       // relative capacity, within 1e-9 to 1e9; 0 means 1
	// GoingAway means that the endpoint is about to stop and should receive no RPCs.
	GoingAway bool
}

// A ProbePool has the recent answers of the endpoints of a group (Prequal). Picks read
// it, and the caller, who sends the probes, fills it:
//
//	picks ──wake──► caller ── Demand: how many probes
//	  ▲                │
//	  │ view           ▼
//	  └───────────── Answer, SetSilent, Expire
//
// Build makes a pool with the first form of a group, and later forms reuse it. A pool serves
// the picks of one form at a time: the form adopted last (ProbeGroup.Adopt). Picks of other
// forms do not use it.
//
// It is safe for concurrent use. Picks take no lock.
type ProbePool struct {
	view  atomic.Pointer[probeView] // nil before the first Adopt
	wake  atomic.Pointer[func()]
	asked atomic.Bool // wake was called after the last Demand

	_     [lineSize]byte
	picks atomic.Int64 // since the last Demand
	_     [lineSize]byte

	mu     sync.Mutex
	group  *ProbeGroup // adopted last
	cfg    Prequal     // of group
	probes []*probe    // oldest first, at most one for each endpoint
	silent map[*EndpointState]struct{}

	recent  [32]float64 // loads of recent answers, for the quantile
	answers int         // so far
	credit  float64     // probes that may be sent now
	supply  float64     // average number of probes sent per RPC
	removal float64     // answers due for removal
	oldest  bool        // remove the oldest answer next, not the worst
	sorted  []float64   // scratch memory
}

// A probe is an answer. All fields except used are constant.
type probe struct {
	endpoint *EndpointState
	load     float64 // RPCs in flight for each unit of weight
	latency  float64 // nanoseconds, adjusted for failures; 0 means unknown
	weight   float64
	own      int32 // RPCs of this client in flight at the endpoint, by its own count
	at       int64
	used     atomic.Int32 // number of picks
}

// A probeView is the part of a pool that picks read. It is immutable, except for the counts of
// picks.
type probeView struct {
	group   *ProbeGroup // the group to which the entries' indexes refer
	entries []probeEntry
	hot     float64       // endpoints with a higher load are hot
	reuse   int32         // number of picks by one entry
	silent  *leastLatency // endpoints that do not answer probes; nil without such endpoints
	spent   atomic.Uint64 // bit i is set if entries[i] is used up
}

// A probeEntry is an answer in the form that picks use.
type probeEntry struct {
	probe    *probe
	endpoint *EndpointState
	timing   *timing // of endpoint
	index    int32   // in the group
	own      int32
	load     float64
	perRPC   float64 // cost per RPC in flight, including a new one
	weight   float64
	share    float64 // load added by one RPC: 1/weight
}

// maxPool limits PoolSize to the bits of probeView.spent (T-SEC-2).
const maxPool = 64

// maxReuse limits the number of picks by one answer.
const maxReuse = 64

// Serve sets the function that the pool calls when picks need probes: once, until the next call
// of Demand. It must not block.
func (p *ProbePool) Serve(wake func()) { p.wake.Store(&wake) }

// Demand returns the number of probes to send now, for the RPCs picked since the last call:
// ProbesPerRPC for each plus the remainder of earlier calls, at most limit and the capacity of
// the pool.
func (p *ProbePool) Demand(limit int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked.Store(false)
	picks := float64(p.picks.Swap(0))
	if picks == 0 {
		return 0
	}
	p.credit += picks * p.cfg.ProbesPerRPC
	n := int(min(p.credit, float64(min(limit, p.capacity())))) // credit may exceed an int
	// Unsent probes are not sent later, since other endpoints will be needed then.
	p.credit = min(p.credit-float64(n), 1)
	p.supply += (float64(n)/picks - p.supply) * min(1, picks/16)
	return n
}

// capacity returns the maximum number of answers in the pool.
func (p *ProbePool) capacity() int {
	n := int(min(p.cfg.PoolSize, maxPool))
	if p.group != nil {
		n = min(n, len(p.group.least.candidates))
	}
	return n
}

// Answer records the answer of an endpoint at time now, in nanoseconds. It replaces an older
// answer of the endpoint. O(PoolSize·log PoolSize).
func (p *ProbePool) Answer(e *EndpointState, r ProbeReport, now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.probes = slices.DeleteFunc(p.probes, func(q *probe) bool { return q.endpoint == e })
	delete(p.silent, e)
	if !r.GoingAway {
		q := newProbe(e, r, now)
		q.own = int32(e.InFlight())
		p.recent[p.answers%len(p.recent)] = q.load
		p.answers++
		p.probes = append(p.probes, q)
		p.shrinkLocked()
	}
	p.publishLocked(now)
}

// Weights of answers are clamped to these bounds, so that loads and costs are finite.
const (
	minProbeWeight = 1e-9
	maxProbeWeight = 1e9
)

func newProbe(e *EndpointState, r ProbeReport, now int64) *probe {
	q := &probe{endpoint: e, weight: 1, at: now}
	if r.Weight > 0 && r.Weight <= math.MaxFloat64 {
		q.weight = min(max(r.Weight, minProbeWeight), maxProbeWeight)
	}
	q.load = max(0, float64(r.InFlight)) / q.weight
	// An endpoint that fails half of its RPCs is equivalent to one with twice the latency.
	q.latency = max(0, float64(r.Latency)) / max(1e-6, 1-r.Failing)
	if q.latency == 0 && r.Failing > 0 {
		q.latency = float64(time.Millisecond) / max(1e-6, 1-r.Failing)
	}
	return q
}

// shrinkLocked keeps the pool within its size, and removes the configured number of answers for
// each new one: alternately the oldest and the worst. Otherwise the pool would fill with bad
// answers, since picks use up the good ones.
func (p *ProbePool) shrinkLocked() {
	if n := len(p.probes) - p.capacity(); n > 0 {
		p.probes = slices.Delete(p.probes, 0, n)
	}
	p.removal += p.cfg.RemovePerRPC / p.cfg.ProbesPerRPC
	for ; p.removal >= 1; p.removal-- {
		if len(p.probes) <= 2 {
			continue
		}
		i := 0
		if !p.oldest {
			i = p.worstLocked()
		}
		p.probes = slices.Delete(p.probes, i, i+1)
		p.oldest = !p.oldest
	}
}

// worstLocked returns the index of the hot answer with the highest load, or, if none is hot, of
// the answer with the highest latency.
func (p *ProbePool) worstLocked() int {
	hot := p.hotLocked()
	worst := 0
	for i, q := range p.probes {
		w := p.probes[worst]
		switch {
		case q.load > hot || w.load > hot:
			if q.load > w.load {
				worst = i
			}
		case q.latency > w.latency:
			worst = i
		}
	}
	return worst
}

// hotLocked returns the quantile of recent loads above which an endpoint is hot.
func (p *ProbePool) hotLocked() float64 {
	n := min(p.answers, len(p.recent))
	if n == 0 {
		return 0
	}
	p.sorted = append(p.sorted[:0], p.recent[:n]...)
	slices.Sort(p.sorted)
	return p.sorted[int(p.cfg.HotQuantile*float64(n-1))]
}

// SetSilent records whether an endpoint answers no probes. A silent endpoint is picked for its
// share of the RPCs as if there were no probes, and the other RPCs are picked by the pool.
func (p *ProbePool) SetSilent(e *EndpointState, silent bool, now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, was := p.silent[e]; was == silent {
		return
	}
	if silent {
		if p.silent == nil {
			p.silent = map[*EndpointState]struct{}{}
		}
		p.silent[e] = struct{}{}
		p.probes = slices.DeleteFunc(p.probes, func(q *probe) bool { return q.endpoint == e })
	} else {
		delete(p.silent, e)
	}
	p.publishLocked(now)
}

// Expire removes answers that are too old at time now. It returns the time until the next
// answer expires, or 0 if no answer is left.
func (p *ProbePool) Expire(now int64) (next time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.probes)
	p.probes = slices.DeleteFunc(p.probes, func(q *probe) bool { return now-q.at >= int64(p.cfg.MaxAge) })
	if len(p.probes) != n {
		p.publishLocked(now)
	}
	if len(p.probes) == 0 {
		return 0
	}
	return p.cfg.MaxAge - time.Duration(now-p.probes[0].at)
}

// Stats returns the number of answers, the number of silent endpoints, and the load above which
// an endpoint is hot.
func (p *ProbePool) Stats() (answers, silent int, hot float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.probes), len(p.silent), p.hotLocked()
}

// publishLocked makes a new view for picks.
func (p *ProbePool) publishLocked(now int64) {
	if p.group == nil {
		return
	}
	v := &probeView{group: p.group, hot: p.hotLocked(), reuse: p.reuseLocked()}
	typical := p.typicalLocked()
	v.entries = make([]probeEntry, 0, len(p.probes))
	for _, q := range p.probes {
		index, ok := p.group.index[q.endpoint]
		if !ok {
			continue // no longer READY
		}
		if q.used.Load() >= v.reuse {
			v.spent.Or(1 << len(v.entries))
		}
		v.entries = append(v.entries, probeEntry{
			probe: q, endpoint: q.endpoint, timing: q.endpoint.binding.timing, index: index, own: q.own,
			load: q.load, weight: q.weight, share: 1 / q.weight, perRPC: q.cost(typical, now) / (q.load*q.weight + 1),
		})
	}
	if len(p.silent) > 0 {
		v.silent = p.group.only(p.silent)
	}
	p.view.Store(v)
}

// typicalLocked returns the median of the known latencies, or 1 without any.
func (p *ProbePool) typicalLocked() float64 {
	p.sorted = p.sorted[:0]
	for _, q := range p.probes {
		if q.latency > 0 {
			p.sorted = append(p.sorted, q.latency)
		}
	}
	if len(p.sorted) == 0 {
		return 1
	}
	slices.Sort(p.sorted)
	return p.sorted[len(p.sorted)/2]
}

// cost returns the cost of an answer at time now. It is the answer's latency, which converges
// to the typical one within a few latencies, as the endpoint's queue changes. An unknown
// latency counts as typical. So the best of many old answers, which is mostly one that was very
// good for a moment, does not beat a good new one.
//
// All answers age alike after that, so the order of their costs does not change until another
// answer arrives, and picks need not read the time.
func (q *probe) cost(typical float64, now int64) float64 {
	if q.latency == 0 {
		return typical
	}
	return typical + (q.latency-typical)*max(faded, math.Exp(-float64(now-q.at)/(fading*typical)))
}

// An answer loses 1-1/e of its deviation within fading times the typical latency, and keeps the
// fraction faded of it: an endpoint that is always slow is still slow after a second.
const (
	fading = 2
	faded  = 1. / 64
)

// reuseLocked returns the number of picks for one answer: the paper's
// (1+δ)/((1−m/n)·r−r_remove) with δ = 1, ignoring the part of the pool that other answers of
// the same endpoint replace, for which the formula has no value if n ≤ m. r is the rate of sent
// probes, which is below the demand if RPCs are more frequent than probes may be. While probes
// are not scarce it is 1: a reused answer is the next best one at the moment, for all clients.
func (p *ProbePool) reuseLocked() int32 {
	const delta = 1
	left := p.supply * (1 - p.cfg.RemovePerRPC/p.cfg.ProbesPerRPC)
	if !(left > 0) {
		return 1
	}
	return int32(max(1, min(maxReuse, math.Round((1+delta)/left))))
}
