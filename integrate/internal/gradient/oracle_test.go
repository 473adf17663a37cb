// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package gradient

import (
	"math"
	"slices"
	"time"

	"github.com/xdslb/xdslb/xds/resource"
)

// An oracle is a controller with timers that go off one after the other, and a list of
// latencies. It takes no jitter.
type oracle struct {
	cfg                 resource.AdaptiveConcurrency
	limit, kept, least  uint32
	inFlight            int
	measuring           bool
	epoch               time.Duration
	minRTT, sampleRTT   time.Duration
	updateAt, measureAt time.Duration // of timers; Forever is off
	list                []time.Duration
}

func newOracle(cfg resource.AdaptiveConcurrency) *oracle {
	o := &oracle{cfg: cfg, limit: cfg.Min, minRTT: cfg.FixedRTT, updateAt: cfg.Update, measureAt: Forever}
	if cfg.FixedRTT == 0 {
		o.measure(0)
	}
	return o
}

func (o *oracle) measure(at time.Duration) {
	o.kept, o.measuring, o.epoch, o.list, o.least = o.limit, true, at, nil, 0
	o.updateAt, o.measureAt = Forever, Forever
	if o.cfg.Pins {
		o.limit = o.cfg.Min
	}
}

// advance has timers go off until now.
func (o *oracle) advance(now time.Duration) {
	for {
		switch {
		case o.updateAt <= o.measureAt && o.updateAt <= now:
			at := o.updateAt
			o.updateAt += o.cfg.Update
			o.update(at)
		case o.measureAt <= now:
			o.measure(now) // at the next event
		default:
			return
		}
	}
}

func (o *oracle) update(at time.Duration) {
	if len(o.list) == 0 {
		return
	}
	o.sampleRTT = o.percentile()
	gradient := float64(o.minRTT) * (1 + o.cfg.Buffer) / float64(o.sampleRTT)
	if gradient > 2 {
		gradient = 2
	}
	if gradient < 0.5 {
		gradient = 0.5
	}
	limit := float64(o.limit) * gradient
	limit = math.Floor(limit + math.Sqrt(limit))
	if limit > float64(o.cfg.Max) {
		limit = float64(o.cfg.Max)
	}
	if limit < float64(o.cfg.Min) {
		limit = float64(o.cfg.Min)
	}
	if o.limit == o.cfg.Min && uint32(limit) == o.cfg.Min {
		o.least++
	} else {
		o.least = 0
	}
	o.limit = uint32(limit)
	if o.least == 5 && o.cfg.FixedRTT == 0 {
		o.measureAt = at
	}
}

func (o *oracle) begin(now time.Duration) bool {
	o.advance(now)
	if o.inFlight >= int(o.limit) {
		return false
	}
	o.inFlight++
	return true
}

// end ends an RPC with a latency, or 0 if it is not a sample.
func (o *oracle) end(began, now, took time.Duration) {
	o.inFlight--
	if took == 0 {
		return
	}
	if o.advance(now); began < o.epoch {
		return
	}
	o.list = append(o.list, took)
	if !o.measuring || len(o.list) < int(o.cfg.Requests) {
		return
	}
	rtt := o.percentile()
	if rtt == Forever && o.minRTT == 0 {
		return
	}
	if rtt != Forever {
		o.minRTT = rtt
	}
	o.measuring, o.limit = false, o.kept
	o.updateAt, o.measureAt = now+o.cfg.Update, now+o.cfg.Interval
}

// percentile takes the list.
func (o *oracle) percentile() time.Duration {
	slices.Sort(o.list)
	i := int(math.Ceil(o.cfg.Percentile*float64(len(o.list)))) - 1
	rtt := o.list[max(i, 0)]
	o.list = nil
	if rtt == Forever {
		return rtt
	}
	fraction, exponent := math.Frexp(float64(rtt)) // from a half to one
	return time.Duration(math.Ldexp(math.Floor(64*fraction)/64, exponent))
}
