// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"math"
	"sync/atomic"
	"time"
)

// A Timing is what is known of an endpoint's latency: that of the RPCs of one client, by
// Little's law. Over any time
//
//	mean latency = ∫ RPCs in flight dt / RPCs ended
//	∫ RPCs in flight dt = n·t − Σ times of beginnings + Σ times of ends
//
// with n in flight at time t. So no RPC needs to remember when it began: the sums are one
// word, one addition at each end of an RPC. And an RPC that hangs counts while it hangs, not
// only once it has ended.
//
// The integral and the count are of late: both decay with time. The estimate is
//
//	(integral + (prior + penalty·failed)·mean) / (succeeded + prior)
//
// mean being the mean latency of all peers. So an endpoint that nothing is known of, or
// nothing any more, counts as average, which has it tried like any other and not swamped.
// And an RPC that fails counts as one that has to be made again: a server that fails at once
// is not a fast one.
//
// The zero Timing is ready to use. It must not be copied. Any number of goroutines may use
// it. It is the fields of one cache line, and the estimate is renewed by picks that find it
// too old, one at a time, while others go by the old one.
type Timing struct {
	// sums has the number of RPCs in flight in its low bits, and the sum of times, which
	// wraps, in the others. Being one word, they fit together.
	sums    atomic.Uint64
	results atomic.Uint64 // RPCs that ended, and those of them that failed in the high half
	latency atomic.Uint32 // the estimate, a float32; 0 if there is none yet
	due     atomic.Int64  // when the estimate is to be renewed; whoever does sets it to renewing

	// The rest belongs to whoever renews the estimate.
	at                   int64 // of the last time; 0 if there was none
	area                 uint64
	seen                 uint64  // of results
	busy, ended, failing float64 // decaying: the integral, RPCs that ended, those that failed
}

const (
	inFlightBits = 20
	inFlightMask = 1<<inFlightBits - 1
	areaMask     = 1<<(64-inFlightBits) - 1

	failedOne = 1 << 32 // in results

	renewing = math.MaxInt64

	prior   = 2. // RPCs
	penalty = 3. // RPCs for one that fails
	// unmeasured is the mean of peers of whom nothing is known (Envoy's default_rtt). It weighs
	// as much as a hundredth of an RPC: with more, endpoints of which more is known would look
	// faster where few RPCs are made that take far less.
	unmeasured       = 10 * time.Millisecond
	unmeasuredWeight = .01
)

// Begin counts an RPC that begins now.
func (t *Timing) Begin(now int64) { t.sums.Add(1 - uint64(now)<<inFlightBits) }

// End ends an RPC. One that was never sent says nothing of the endpoint, and one that was
// canceled, that it takes at least so long.
func (t *Timing) End(now int64, r CallResult) {
	t.sums.Add(uint64(now)<<inFlightBits - 1)
	switch r {
	case CallOK, CallCanceled:
		t.results.Add(1)
	case CallFailed:
		t.results.Add(1 + failedOne)
	}
}

// InFlight returns the number of RPCs in flight: at most about a million.
func (t *Timing) InFlight() int { return int(t.sums.Load() & inFlightMask) }

// Latency returns the estimate, in units of Clock, and renews it if it is old.
func (t *Timing) Latency(now int64, p *Peers) float32 {
	if due := t.due.Load(); now >= due && t.due.CompareAndSwap(due, renewing) {
		t.renew(now, p)
	}
	return math.Float32frombits(t.latency.Load())
}

// estimate returns the estimate as it is; 0 if there is none yet.
func (t *Timing) estimate() time.Duration {
	return time.Duration(math.Float32frombits(t.latency.Load()) * (1 << unitShift))
}

// Cost returns what an RPC costs that begins now: by how much longer all RPCs to the endpoint
// take together, if it has the latency that it had of late. The endpoint with the least cost
// is the one to pick. Two atomic loads, unless the estimate is to be renewed; does not
// allocate.
func (t *Timing) Cost(now int64, p *Peers) float32 {
	return t.Latency(now, p) * float32(1+t.sums.Load()&inFlightMask)
}

// renew renews the estimate. The caller has set due.
func (t *Timing) renew(now int64, p *Peers) {
	sums, results := t.sums.Load(), t.results.Load()
	n := sums & inFlightMask
	area := (n*uint64(now) + sums>>inFlightBits) & areaMask
	if t.at == 0 { // RPCs may have begun before, but are not old
		t.at, t.area = now, area
	}
	passed := max(now-t.at, 0)
	busy := t.busyFor(area, n, passed)
	ended, failed := (results-t.seen)&(failedOne-1), (results-t.seen)/failedOne
	x := float64(passed) / p.decay
	// What happened since the last time is taken to be spread over it.
	keep, spread := math.Exp(-x), 1.
	if x > 1e-4 {
		spread = (1 - keep) / x
	}
	t.busy = t.busy*keep + busy*spread
	t.ended = t.ended*keep + float64(ended)*spread
	t.failing = t.failing*keep + float64(failed)*spread
	t.at, t.seen = max(now, t.at), results
	mean := p.add(busy*spread, float64(ended)*spread, x)
	succeeded := max(t.ended-t.failing, 0)
	estimate := (t.busy + (prior+penalty*t.failing)*mean) / (succeeded + prior)
	t.latency.Store(math.Float32bits(float32(estimate)))
	t.due.Store(now + p.interval)
}

// busyFor returns the integral since the last time. Goroutines do not read the same time, so
// it may come to less than nothing. That is left for the next time.
func (t *Timing) busyFor(area, n uint64, passed int64) float64 {
	d := int64((area-t.area)<<inFlightBits) >> inFlightBits
	if float64(n)*float64(passed) > areaMask/2 { // it has wrapped
		t.area = area
		return float64(n) * float64(passed)
	}
	if d < 0 {
		return 0
	}
	t.area = area
	return float64(d)
}

// Peers are the endpoints that a Timing is one of: how fast what is known of them decays,
// and their mean latency. Any number of goroutines may use it.
type Peers struct {
	mean     *atomic.Uint64 // decaying: the integral and the count of all, two float32
	decay    float64        // time constant of the decay, in units of Clock
	interval int64          // between renewals of an estimate, in units of Clock
	count    float64
}

// NewPeers returns those of count endpoints whose estimates decay with a time constant. They
// take over what before, which may be nil, knows.
func NewPeers(before *Peers, count int, decay time.Duration) *Peers {
	p := &Peers{
		decay: units(decay),
		count: float64(count),
		// A thousandth of the decay, or a millisecond: an estimate that is renewed more
		// often is hardly another one.
		interval: int64(max(units(decay)/1000, units(time.Millisecond))),
	}
	if p.mean = new(atomic.Uint64); before != nil {
		p.mean = before.mean
	}
	return p
}

// add adds to the mean what has become of one of the peers in a time of x time constants, and
// returns it.
func (p *Peers) add(busy, ended, x float64) (mean float64) {
	for {
		old := p.mean.Load()
		keep := math.Exp(-x / p.count) // each of the peers brings a part of the time
		b, n := float64(math.Float32frombits(uint32(old>>32)))*keep+busy, float64(math.Float32frombits(uint32(old)))*keep+ended
		word := uint64(math.Float32bits(float32(b)))<<32 | uint64(math.Float32bits(float32(n)))
		if p.mean.CompareAndSwap(old, word) {
			return (b + unmeasuredWeight*units(unmeasured)) / (n + unmeasuredWeight)
		}
	}
}
