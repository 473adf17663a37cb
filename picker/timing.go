// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"math"
	"sync/atomic"
	"time"
)

// A timing estimates an endpoint's latency from the RPCs of one client, by Little's law. Over
// any time
//
//	mean latency = ∫ RPCs in flight dt / RPCs ended
//	∫ RPCs in flight dt = n·t − Σ times of beginnings + Σ times of ends
//
// with n in flight at time t. So no RPC needs to store its start time: the sums are one word,
// with one addition at each end of an RPC. And a hanging RPC counts while it hangs, not only
// once it has ended.
//
// Both the integral and the count decay with time. The estimate is
//
//	(integral + (prior + penalty·failed)·mean) / (succeeded + prior)
//
// where mean is the mean latency of all peers. So an endpoint about which nothing is known, or
// no longer, counts as average, which makes it tried like any other and not overloaded. And a
// failed RPC counts like an RPC that has to be repeated, so a server that fails immediately
// does not look fast. An endpoint whose server asks not to be sent RPCs for some time is not chosen in
// that time, and the time counts as latency.
//
// Of RPCs that ended, about the latest memory count at most. An endpoint that has become slow gets few
// RPCs, and these would need long to outweigh thousands of fast ones before.
//
// The zero timing is ready to use. It must not be copied. It is safe for concurrent use. Its
// fields share one cache line. Picks that find the estimate outdated renew it, one at a time,
// while concurrent picks use the old one.
type timing struct {
	// sums has the number of RPCs in flight in its low bits, and the sum of times, which wraps
	// around, in the other bits. As a single word they are consistent.
	sums    atomic.Uint64
	results atomic.Uint64 // RPCs that ended; the high half counts the failed ones
	latency atomic.Uint32 // the estimate, a float32; 0 if unknown
	// explored is 1 plus the integral since an RPC was sent to explore the endpoint, until one has
	// ended; otherwise 0. It and the fields after due are owned by the goroutine that renews the estimate.
	explored float32
	// due is when to renew the estimate. The goroutine that renews it sets it to renewing, to which a pushback
	// in that time adds its end.
	due atomic.Int64

	used           int64 // the last renewal that found an RPC in flight, or ended since the one before
	at             int64 // time of the last renewal; 0 before the first
	area           uint64
	seen           uint64  // results at that time
	busy           float64 // decaying: the integral
	ended, failing float32 // decaying: ended RPCs, failed RPCs
}

const (
	inFlightBits = 20
	inFlightMask = 1<<inFlightBits - 1
	areaMask     = 1<<(64-inFlightBits) - 1

	failedOne = 1 << 32 // in results

	renewing = 1 << 62 // after all times

	prior   = 2. // RPCs
	penalty = 3. // RPCs per failed RPC
	// pushedBack is the latency of endpoints whose server pushes back, so that any other is better: 73 minutes.
	pushedBack = 1 << 32
	memory     = 128. // RPCs
	outlier    = 8.   // times the mean
	// exploreEvery is the minimum number of RPCs to all peers for each RPC that explores one. With
	// 1000 or fewer, a slow peer could be the 99.9th percentile.
	exploreEvery = 1024
	// unmeasured is the initial mean of the peers (Envoy's default_rtt). Its weight is a
	// hundredth of an RPC: with more, endpoints about which more is known would look faster
	// when few RPCs are made that take much less.
	unmeasured       = 10 * time.Millisecond
	unmeasuredWeight = .01
)

// begin counts an RPC that begins at time now.
func (t *timing) begin(now int64) { t.sums.Add(1 - uint64(now)<<inFlightBits) }

// end ends an RPC. An RPC that was never sent is not measured. The duration of a canceled RPC is
// the time until its cancelation, a lower bound.
func (t *timing) end(now int64, r CallResult) {
	t.sums.Add(uint64(now)<<inFlightBits - 1)
	switch r {
	case CallOK, CallCanceled:
		t.results.Add(1)
	case CallFailed:
		t.results.Add(1 + failedOne)
	}
}

// pushBack keeps the endpoint out of choice for d from time now on, or for the rest of a longer time of an
// earlier pushback: until its estimate is due then, it counts as pushedBack. d also counts as the latency
// of an RPC. If another goroutine renews the estimate, that one ends its renewal with the pushback.
func (t *timing) pushBack(now int64, d time.Duration) {
	wait := int64(units(d))
	t.sums.Add(uint64(wait) << inFlightBits)
	for until := now + wait; ; {
		due := t.due.Load()
		switch {
		case due >= renewing+until || due >= until && due < renewing && t.latestMean() == pushedBack:
			return
		case t.due.CompareAndSwap(due, renewing+until):
			if due < renewing {
				t.endRenewal(until)
			}
			return
		}
	}
}

// endRenewal sets the time of the next renewal, or to the end of a pushback that has come during this one,
// which it reports. The caller has set due to renewing.
func (t *timing) endRenewal(next int64) (pushed bool) {
	for due := int64(renewing); !t.due.CompareAndSwap(due, next); pushed = true {
		due = t.due.Load()
		next = due - renewing
		t.latency.Store(math.Float32bits(pushedBack))
	}
	return pushed
}

// isPushedBack reports whether the endpoint is kept out of choice.
func (t *timing) isPushedBack(c *Clock) bool {
	return t.latestMean() == pushedBack && c.now() < t.due.Load()
}

// inFlight returns the number of RPCs in flight: at most about a million.
func (t *timing) inFlight() int { return int(t.sums.Load() & inFlightMask) }

// meanLatency renews the estimate if it is outdated, and returns it, in units of Clock.
func (t *timing) meanLatency(now int64, p *peers) float32 {
	t.renewIfDue(now, p, false)
	return t.latestMean()
}

func (t *timing) latestMean() float32 { return math.Float32frombits(t.latency.Load()) }

// renewIfDue renews the estimate if it is outdated, unless another goroutine does. It reports
// whether the pick for which it is called, if any, should go to the endpoint to explore it.
func (t *timing) renewIfDue(now int64, p *peers, pick bool) (explore bool) {
	due := t.due.Load()
	if now < due || !t.due.CompareAndSwap(due, renewing) {
		return false
	}
	t.renew(now, p)
	explore = pick && t.explores(now, p)
	return !t.endRenewal(now+p.interval) && explore
}

// explores reports whether the endpoint has been without RPCs for so long that one should be sent
// to it, and then counts that RPC. The caller has set due to renewing.
func (t *timing) explores(now int64, p *peers) bool {
	idle := float64(now - t.used)
	if idle < p.decay/2 || idle < p.decay/2*(1+float64(draw(uint64(t.used), 0))/(1<<64)) || !p.mayExplore(now) {
		return false
	}
	t.used, t.explored = now, 1
	return true
}

// estimate returns the current estimate; 0 until an RPC has ended, since the estimate has no
// measurement of the endpoint before.
func (t *timing) estimate() time.Duration {
	if t.results.Load() == 0 {
		return 0
	}
	return time.Duration(math.Float32frombits(t.latency.Load()) * (1 << unitShift))
}

// renew renews the estimate. The caller has set due to renewing.
//
// The first results after an exploration replace older ones if they are much better: an endpoint
// that has recovered would otherwise need several explorations.
func (t *timing) renew(now int64, p *peers) {
	sums, results := t.sums.Load(), t.results.Load()
	n := sums & inFlightMask
	area := (n*uint64(now) + sums>>inFlightBits) & areaMask
	if t.at == 0 { // RPCs may have begun before, but recently
		t.at, t.area = now, area
	}
	passed := max(now-t.at, 0)
	busy := t.busyFor(area, n, passed)
	ended, failed := (results-t.seen)&(failedOne-1), (results-t.seen)/failedOne
	if n > 0 || ended > 0 || t.used == 0 {
		t.used = now
	}
	if t.explored > 0 {
		if before := float64(t.explored - 1); ended == 0 {
			t.explored += float32(busy)
		} else {
			t.explored = 0
			if failed == 0 && (before+busy)/float64(ended) < float64(t.latestMean())/2 {
				t.busy, t.ended, t.failing = before, 0, 0
			}
		}
	}
	x := float64(passed) / p.decay
	// The changes since the last renewal are assumed to be evenly distributed over the time.
	keep, spread := math.Exp(-x), 1.
	if x > 1e-4 {
		spread = (1 - keep) / x
	}
	if n := float64(t.ended)*keep + float64(ended); n > memory && ended > 0 {
		keep *= memory / n
	}
	t.busy = t.busy*keep + busy*spread
	t.ended = float32(float64(t.ended)*keep + float64(ended)*spread)
	t.failing = float32(float64(t.failing)*keep + float64(failed)*spread)
	before := t.seen
	t.at, t.seen = max(now, t.at), results
	mean := p.add(p.bounded(t, busy*spread), float64(ended)*spread, x)
	if p.zone != nil {
		p.zone.add(busy, results-before)
	}
	failing := float64(t.failing)
	succeeded := max(float64(t.ended)-failing, 0)
	estimate := (t.busy + (prior+penalty*failing)*mean) / (succeeded + prior)
	t.latency.Store(math.Float32bits(float32(estimate)))
}

// busyFor returns the integral since the last renewal. Goroutines read slightly different
// times, so it can be negative. The deficit is left for the next renewal.
func (t *timing) busyFor(area, n uint64, passed int64) float64 {
	d := int64((area-t.area)<<inFlightBits) >> inFlightBits
	if float64(n)*float64(passed) > areaMask/2 { // it has wrapped around
		t.area = area
		return float64(n) * float64(passed)
	}
	if d < 0 {
		return 0
	}
	t.area = area
	return float64(d)
}

// peers is the state that the Timings of a group of endpoints share: the decay of their estimates
// and their mean latency. It is safe for concurrent use.
type peers struct {
	*peersState
	decay    float64 // time constant of the decay, in units of Clock
	interval int64   // between renewals of an estimate, in units of Clock
	count    float64
	zone     *zoneState // of the endpoints, or nil
}

// A peersState is the part of peers that survives changes of the endpoints.
type peersState struct {
	mean     atomic.Uint64 // decaying: the integral and the count of all peers, two float32
	explored atomic.Int64  // the last time at which an RPC explored a peer
}

// newPeers returns the peers of count endpoints whose estimates decay with the given time
// constant. It inherits the mean of before, which may be nil.
func newPeers(before *peers, count int, decay time.Duration) *peers {
	p := &peers{
		decay: units(decay),
		count: float64(count),
		// A thousandth of the decay, or a millisecond: more frequent renewals hardly change the
		// estimate.
		interval: int64(max(units(decay)/1000, units(time.Millisecond))),
	}
	if before == nil {
		p.peersState = new(peersState)
	} else {
		p.peersState = before.peersState
	}
	return p
}

// bounded returns the part of an integral of t that counts for the mean: a peer counts as at most
// outlier times as slow as the mean. Otherwise one RPC in a thousand that explores a slow peer would
// move the mean, and with it each estimate from few RPCs, so far that peers with few RPCs would get
// none. If all peers become slower, the mean follows in a few steps.
func (p *peers) bounded(t *timing, busy float64) float64 {
	mean := p.meanOf(p.mean.Load())
	own := (t.busy + prior*mean) / (float64(t.ended) + prior)
	return busy * min(1, outlier*mean/own)
}

// add adds the results of one peer, over a time of x time constants, to the mean and returns
// the mean.
func (p *peers) add(busy, ended, x float64) (mean float64) {
	for {
		old := p.mean.Load()
		keep := math.Exp(-x / p.count) // each of the peers contributes a part of the time
		b, n := float64(math.Float32frombits(uint32(old>>32)))*keep+busy, float64(math.Float32frombits(uint32(old)))*keep+ended
		word := uint64(math.Float32bits(float32(b)))<<32 | uint64(math.Float32bits(float32(n)))
		if p.mean.CompareAndSwap(old, word) {
			return p.meanOf(word)
		}
	}
}

// meanOf returns the mean of a value of the field mean.
func (*peers) meanOf(word uint64) float64 {
	b, n := float64(math.Float32frombits(uint32(word>>32))), float64(math.Float32frombits(uint32(word)))
	return (b + unmeasuredWeight*units(unmeasured)) / (n + unmeasuredWeight)
}

// mayExplore reports whether a peer may be explored now, and then counts it.
func (p *peers) mayExplore(now int64) bool {
	last := p.explored.Load()
	ended := float64(math.Float32frombits(uint32(p.mean.Load()))) // within the decay time
	return float64(now-last)*ended >= exploreEvery*p.decay && p.explored.CompareAndSwap(last, now)
}
