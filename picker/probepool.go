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

// A ProbeReport is what an endpoint says about its load when it is asked.
type ProbeReport struct {
	InFlight int           // RPCs, of all clients
	Latency  time.Duration // of RPCs that found about as many in flight; 0 is not known
	Failing  float64       // part of its RPCs of late that failed: 0 to 1
	Weight   float64       // how much it can do, compared with others, within 1e-9 to 1e9; 0 is 1
	// GoingAway says that it is about to stop, and should get no RPCs.
	GoingAway bool
}

// A ProbePool has what the endpoints of a group said of late (PolicyPrequal). Picks read
// it, and the caller, who sends the probes, fills it:
//
//	picks ──wake──► caller ── Demand: how many probes
//	  ▲                │
//	  │ view           ▼
//	  └───────────── Answer, SetSilent, Expire
//
// Build makes a pool with the first form of a group, and later forms take it over. A pool
// serves the picks of one form at a time: the one that was adopted last
// (ProbeGroup.Adopt). Picks of others do without it.
//
// Any number of goroutines may call its methods. Only picks take no lock.
type ProbePool struct {
	view  atomic.Pointer[probeView] // nil before the first Adopt
	wake  atomic.Pointer[func()]
	asked atomic.Bool // wake was called, and Demand was not since

	_     [lineSize]byte
	picks atomic.Int64 // since the last Demand
	_     [lineSize]byte

	mu     sync.Mutex
	group  *ProbeGroup // adopted last
	cfg    Prequal     // of group
	probes []*probe    // oldest first, one for an endpoint at most
	silent map[*EndpointState]struct{}

	recent  [32]float64 // loads of the last answers, for the quantile
	answers int         // so far
	credit  float64     // probes that may be sent
	supply  float64     // probes sent for an RPC, on average
	removal float64     // answers that are due to be removed
	oldest  bool        // the next to be removed is the oldest, not the worst
	sorted  []float64   // memory
}

// A probe is an answer. All fields but used are fixed.
type probe struct {
	endpoint *EndpointState
	load     float64 // RPCs in flight for each unit of weight
	latency  float64 // nanoseconds, as if it had no failures; 0 is not known
	weight   float64
	own      int32 // RPCs of this client that were in flight there, by its own count
	at       int64
	used     atomic.Int32 // by picks
}

// A probeView is what picks read of a pool. It is immutable, but for what picks count.
type probeView struct {
	group   *ProbeGroup // whose indexes the entries have
	entries []probeEntry
	hot     float64       // an endpoint with a load above is hot
	reuse   int32         // picks that an entry is good for
	silent  *leastLatency // of the endpoints that answer no probes; nil if there are none
	spent   atomic.Uint64 // bit i says that entries[i] is used up
}

// A probeEntry is an answer as picks use it.
type probeEntry struct {
	probe    *probe
	endpoint *EndpointState
	timing   *Timing // of endpoint
	index    int32   // in the group
	own      int32
	load     float64
	perRPC   float64 // cost for each RPC in flight, a new one included
	weight   float64
	share    float64 // of the load that an RPC is: 1/weight
}

// maxPool bounds PoolSize by the bits of probeView.spent (T-SEC-2).
const maxPool = 64

// maxReuse bounds how many picks go by one answer.
const maxReuse = 64

// Serve has the pool call wake when picks want probes: once, until Demand is called
// again. It must not block.
func (p *ProbePool) Serve(wake func()) { p.wake.Store(&wake) }

// Demand returns how many probes to send now, for the RPCs that were picked since the last
// call: ProbesPerRPC for each, and those that were left by earlier calls, no more than
// limit and than the pool can hold.
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
	// What could not be sent is not sent later: by then others are wanted.
	p.credit = min(p.credit-float64(n), 1)
	p.supply += (float64(n)/picks - p.supply) * min(1, picks/16)
	return n
}

// capacity is how many answers the pool keeps.
func (p *ProbePool) capacity() int {
	n := int(min(p.cfg.PoolSize, maxPool))
	if p.group != nil {
		n = min(n, len(p.group.least.candidates))
	}
	return n
}

// Answer takes note of what an endpoint said at the time now, in nanoseconds. An older
// answer of the endpoint goes. O(PoolSize·log PoolSize).
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
	// One that fails half of its RPCs is as good as one that takes twice as long.
	q.latency = max(0, float64(r.Latency)) / max(1e-6, 1-r.Failing)
	if q.latency == 0 && r.Failing > 0 {
		q.latency = float64(time.Millisecond) / max(1e-6, 1-r.Failing)
	}
	return q
}

// shrinkLocked keeps the pool within its size, and removes as many answers as it is told
// for each that comes: the oldest and the worst in turn. Without that the pool would fill with
// bad ones, since it is the good ones that are used up.
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

// worstLocked returns the index of the answer with the highest load of those that are hot,
// or with the highest latency if none is.
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

// hotLocked returns the quantile of the loads of the last answers above which an endpoint
// is hot.
func (p *ProbePool) hotLocked() float64 {
	n := min(p.answers, len(p.recent))
	if n == 0 {
		return 0
	}
	p.sorted = append(p.sorted[:0], p.recent[:n]...)
	slices.Sort(p.sorted)
	return p.sorted[int(p.cfg.HotQuantile*float64(n-1))]
}

// SetSilent says whether an endpoint answers no probes: it is then picked for its share
// of the RPCs as if there were no probes, and the other RPCs go by the pool.
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

// Expire removes answers that are too old at the time now. It returns for how long there
// will be none other, or 0 if no answer is left.
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

// Stats is what a pool has at the moment: answers, endpoints that are silent, and the load
// above which one is hot.
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
			continue // it is not READY any more
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

// typicalLocked returns the median of the latencies that are known, or 1 without any.
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

// cost is what an answer is worth at the time now: its latency, which the endpoint comes
// back from to what is typical, as its queue changes, within a few latencies. A latency that
// is not known is typical. So the best of many old answers, which is mostly one that was
// very good for a moment, does not beat a good new one.
//
// All answers fade alike from then on, so the order of their costs stays what it is
// until another comes, and picks need not know the time.
func (q *probe) cost(typical float64, now int64) float64 {
	if q.latency == 0 {
		return typical
	}
	return typical + (q.latency-typical)*max(faded, math.Exp(-float64(now-q.at)/(fading*typical)))
}

// An answer loses 1-1/e of what it says within fading times the typical latency, and
// keeps the part faded of it: an endpoint that is always slow is slow after a second.
const (
	fading = 2
	faded  = 1. / 64
)

// reuseLocked returns how many picks one answer is good for: the paper's
// (1+δ)/((1−m/n)·r−r_remove) with δ = 1, without the part of the pool that other answers
// of the same endpoint replace, for which it has no value if n ≤ m. r is what could be
// sent, which is less than was asked for if RPCs come faster than probes may. While
// probes are not scarce it is 1: an answer that is used again is the next best of the
// moment, and all clients think so.
func (p *ProbePool) reuseLocked() int32 {
	const delta = 1
	left := p.supply * (1 - p.cfg.RemovePerRPC/p.cfg.ProbesPerRPC)
	if !(left > 0) {
		return 1
	}
	return int32(max(1, min(maxReuse, math.Round((1+delta)/left))))
}
