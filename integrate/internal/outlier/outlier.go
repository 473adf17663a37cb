// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package outlier judges the endpoints of a cluster by how their RPCs end, and
// ejects those that do far worse than they should (A50): numbers in, ejections
// out.
//
// Each endpoint has a [Host], which counts its RPCs with one atomic addition
// each. Once per interval the owner calls [Sweep] with the hosts of the whole
// cluster (A75), which takes the counts, judges, and lets hosts return whose
// time has come. Timers, locks and what an ejection means are the owner's.
//
// An RPC is a success if its status is OK. All else is a failure, deadlines and
// cancellations included (T-OD-3): so A50's implementations have it, and an
// endpoint that hangs shows up as nothing else. Callers that cancel as a matter
// of course do so on all endpoints alike, which the success rate algorithm,
// being relative, forgives.
//
// A host that is ejected is not ejected again by RPCs that were under way,
// nor by the second algorithm in the same sweep: its time would grow without a
// new trial. grpc-go and gRPC Java do that; A50's text can be read either way.
package outlier

import (
	"math"
	"sync/atomic"

	"github.com/xdslb/xdslb/picker"
)

// A Host is what is known of one endpoint, whatever its addresses (A61). The
// zero Host is ready to use; it must not be copied. Any number of goroutines may
// call Count; the other methods and Sweep are for one at a time.
type Host struct {
	// calls counts RPCs since the last sweep: successes in the low half, failures
	// in the high half, so that an RPC costs one addition.
	calls atomic.Uint64

	ok, failed uint32 // of the interval under judgement
	// multiplier is how many base times the next ejection lasts less one, and
	// the present one: one up at each ejection, one down at each sweep outside.
	multiplier uint32
	ejected    bool
	since      int64 // of the ejection
}

// Count counts an RPC that has ended. One atomic addition; does not allocate.
func (h *Host) Count(ok bool) {
	if ok {
		h.calls.Add(1)
	} else {
		h.calls.Add(1 << 32)
	}
}

// Ejected reports whether the host is ejected.
func (h *Host) Ejected() bool { return h.ejected }

// Until returns when the ejection of a host that is ejected ends, on the clock of Sweep:
// the first Sweep after that lets it return.
func (h *Host) Until(cfg *picker.OutlierDetection) int64 {
	return h.since + min(h.term(cfg), math.MaxInt64-h.since)
}

// Sweep is one run of A50's interval timer over the hosts of a cluster, at now,
// in nanoseconds on any monotonic clock that is the same in each run. draw
// returns a uniform number below n; an ejection that is enforced by some percent
// takes one draw. It returns what came of the outliers that it found. O(hosts).
func Sweep(cfg *picker.OutlierDetection, hosts []*Host, now int64, draw func(n uint32) uint32) Findings {
	s := sweep{cfg: cfg, hosts: hosts, now: now, draw: draw}
	for _, h := range hosts {
		calls := h.calls.Swap(0)
		h.ok, h.failed = uint32(calls), uint32(calls>>32)
		if h.ejected {
			s.ejected++
		}
	}
	if cfg.SuccessRate != nil {
		s.bySuccessRate(cfg.SuccessRate)
	}
	if cfg.FailurePercentage != nil {
		s.byFailurePercentage(cfg.FailurePercentage)
	}
	for _, h := range hosts {
		switch {
		case !h.ejected:
			h.multiplier -= min(h.multiplier, 1)
		case now-h.since > h.term(cfg):
			h.ejected = false
		}
	}
	return s.found
}

// Findings are the outliers that a sweep found among the hosts that were not ejected,
// by algorithm.
type Findings struct{ SuccessRate, FailurePercentage Verdicts }

// Verdicts say what came of the outliers that an algorithm found.
type Verdicts struct {
	Ejected  int
	Overflow int // not ejected, because too many are
	Spared   int // not ejected, because of the enforcement percentage
}

// term returns how long the host is ejected for, in nanoseconds.
func (h *Host) term(cfg *picker.OutlierDetection) int64 {
	base := int64(cfg.BaseEjectionTime)
	limit := max(base, int64(cfg.MaxEjectionTime))
	if base > 0 && int64(h.multiplier) > limit/base { // the product may not fit
		return limit
	}
	return base * int64(h.multiplier)
}

// sweep is one run.
type sweep struct {
	cfg     *picker.OutlierDetection
	hosts   []*Host
	ejected int
	now     int64
	draw    func(n uint32) uint32
	found   Findings
}

// total returns the host's RPCs in the interval.
func (h *Host) total() uint64 { return uint64(h.ok) + uint64(h.failed) }

// busy returns the hosts that have had enough RPCs to be judged. One that had
// none has no rate.
func (s *sweep) busy(volume uint32) []*Host {
	var busy []*Host
	for _, h := range s.hosts {
		if n := h.total(); n > 0 && n >= uint64(volume) {
			busy = append(busy, h)
		}
	}
	return busy
}

// bySuccessRate ejects hosts whose success rate is far below the mean, in terms
// of the standard deviation of all.
func (s *sweep) bySuccessRate(cfg *picker.SuccessRate) {
	hosts := s.busy(cfg.RequestVolume)
	if uint64(len(hosts)) < uint64(cfg.MinimumHosts) {
		return
	}
	rate := func(h *Host) float64 { return float64(h.ok) / float64(h.total()) }
	mean, variance := 0., 0.
	for _, h := range hosts {
		mean += rate(h) / float64(len(hosts))
	}
	for _, h := range hosts {
		d := rate(h) - mean
		variance += d * d / float64(len(hosts))
	}
	// Hosts that are all the same are no outliers by a rounding error.
	const rounding = 1e-12
	required := mean - math.Sqrt(variance)*float64(cfg.StdevFactor)/1000 - rounding
	for _, h := range hosts {
		if rate(h) < required {
			s.eject(h, cfg.Enforcement, &s.found.SuccessRate)
		}
	}
}

// byFailurePercentage ejects hosts that fail more than a share of their RPCs.
func (s *sweep) byFailurePercentage(cfg *picker.FailurePercentage) {
	hosts := s.busy(cfg.RequestVolume)
	if uint64(len(hosts)) < uint64(cfg.MinimumHosts) {
		return
	}
	for _, h := range hosts {
		if 100*uint64(h.failed) > uint64(cfg.Threshold)*h.total() {
			s.eject(h, cfg.Enforcement, &s.found.FailurePercentage)
		}
	}
}

// eject ejects a host, unless it is or too many are, or the draw spares it. The
// share of those that are ejected is looked at before: 10 % of 5 hosts is one,
// and 0 % is none (T-OD-1).
func (s *sweep) eject(h *Host, enforcement uint32, v *Verdicts) {
	switch {
	case h.ejected:
	case 100*uint64(s.ejected) >= uint64(s.cfg.MaxEjectionPercent)*uint64(len(s.hosts)):
		v.Overflow++
	case s.draw(100) >= enforcement:
		v.Spared++
	default:
		v.Ejected++
		h.ejected, h.since = true, s.now
		h.multiplier++
		s.ejected++
	}
}
