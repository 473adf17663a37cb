// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package outlier provides outlier detection (A50): it ejects endpoints of a cluster whose RPCs
// fail far more often than they should.
//
// Each endpoint has a [Host], which counts its RPCs with one atomic addition each. Once per
// interval the owner calls [Sweep] with the hosts of the whole cluster (A75), which evaluates
// the counts, ejects outliers, and returns hosts whose ejection time has expired. Timers, locks
// and the effect of an ejection are up to the owner.
//
// An RPC is a success if its status is OK. All other results are failures, including deadlines
// and cancelations (T-OD-3), as in A50's implementations: an endpoint that hangs shows no other
// symptom. Callers that cancel routinely do so on all endpoints alike, which the success rate
// algorithm tolerates, since it is relative.
//
// An ejected host is not ejected again by RPCs that were in flight, nor by the second algorithm
// in the same sweep: its time would grow without a new trial. grpc-go and gRPC Java do that;
// A50's text can be read either way.
//
// # How to add a rule
//
// The parameters of a rule are fields of picker.OutlierDetection, decoded in xds/resource/outlier.go. There
// are two ways to an ejection, and both end in ejection.eject (outlier.go): Sweep compares the
// hosts of a leaf once per interval, and Eject decides about a host with consecutive failures, at
// the end of an RPC (balancer.leaf.decide, on a goroutine of its own). balancer.leaf.applyEjections
// passes the result to endpoints and child policies. A rule about the time since a connection
// became READY uses StateSince of picker.EndpointState, which is on the clock of Sweep. Endpoints
// of a child policy have the state of their balancer.group.
package outlier

import (
	"fmt"
	"math"
	"sync/atomic"

	"google.golang.org/grpc/codes"

	"github.com/xdslb/xdslb/picker"
)

// A Host is the state of one endpoint, regardless of its addresses (A61). The zero Host is
// ready to use. It must not be copied. Count is safe for concurrent use; the other methods and
// Sweep must be serialized.
type Host struct {
	// calls counts RPCs since the last sweep: successes in the low half, failures
	// in the high half, so that an RPC costs one addition.
	calls atomic.Uint64

	ok, failed uint32 // of the evaluated interval
	// multiplier is the factor of the base time for the current ejection. The next ejection uses
	// multiplier+1: it is incremented at each ejection and decremented at each sweep while
	// the host is not ejected.
	multiplier uint32
	ejected    bool
	since      int64 // of the ejection
	cause      Cause // of the ejection

	runs runs
}

// Cause is the reason for an ejection.
type Cause struct {
	By Detector
	// Value is what the detector measured: the success rate or failure percentage, in percent, or
	// the number of consecutive failures.
	Value float64
}

// String returns the cause as in "success_rate: 12.5 %".
func (c Cause) String() string {
	if c.By >= Consecutive5xx {
		return fmt.Sprintf("%v: %v consecutive failures", c.By, c.Value)
	}
	return fmt.Sprintf("%v: %.4g %%", c.By, c.Value)
}

// Cause returns the reason for the present or latest ejection.
func (h *Host) Cause() Cause { return h.cause }

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

// Until returns the end of the current ejection, on the clock of Sweep. The first Sweep after
// that time unejects the host.
func (h *Host) Until(cfg *picker.OutlierDetection) int64 {
	return h.since + min(h.term(cfg), math.MaxInt64-h.since)
}

// Sweep is one run of A50's interval timer over the hosts of a cluster, at now, in nanoseconds
// on a monotonic clock that is the same in each run. draw returns a uniform number below n; an
// ejection with an enforcement percentage takes one draw. It returns the outliers it found.
// O(hosts).
func Sweep(cfg *picker.OutlierDetection, hosts []*Host, now int64, draw func(n uint32) uint32) Findings {
	s := sweep{ejection: ejection{cfg: cfg, total: len(hosts), now: now, draw: draw}, hosts: hosts}
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
			h.runs.packed.Store(0) // as in Envoy, so that few further failures do not eject it again
		}
	}
	return s.found
}

// Findings count the outliers among the hosts that were not ejected, by detector.
type Findings [NumDetectors]Verdicts

// Verdicts count the outliers found by a detector.
type Verdicts struct {
	Ejected  int
	Overflow int // not ejected because of the maximum ejection percentage
	Spared   int // not ejected, because of the enforcement percentage
}

// term returns the duration of the host's ejection in nanoseconds.
func (h *Host) term(cfg *picker.OutlierDetection) int64 {
	base := int64(cfg.BaseEjectionTime)
	limit := max(base, int64(cfg.MaxEjectionTime))
	if base > 0 && int64(h.multiplier) > limit/base { // the product may overflow
		return limit
	}
	return base * int64(h.multiplier)
}

// sweep is the state of one run.
type sweep struct {
	ejection
	hosts []*Host
	found Findings
}

// total returns the host's RPCs in the interval.
func (h *Host) total() uint64 { return uint64(h.ok) + uint64(h.failed) }

// busy returns the hosts with enough RPCs to be evaluated. A host without RPCs has no rate.
func (s *sweep) busy(volume uint32) []*Host {
	var busy []*Host
	for _, h := range s.hosts {
		if n := h.total(); n > 0 && n >= uint64(volume) {
			busy = append(busy, h)
		}
	}
	return busy
}

// bySuccessRate ejects hosts whose success rate is far below the mean, in units of the standard
// deviation of all hosts, and hosts without any success unless all hosts are: several hosts that
// fail all RPCs raise the deviation so much that the first rule misses them (grpc/proposal#523).
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
	// Equal hosts must not be outliers because of rounding errors.
	const rounding = 1e-12
	required := mean - math.Sqrt(variance)*float64(cfg.StdevFactor)/1000 - rounding
	for _, h := range hosts {
		if rate(h) < required || h.ok == 0 && mean > 0 {
			s.eject(h, cfg.Enforcement, Cause{SuccessRate, 100 * rate(h)}, &s.found)
		}
	}
}

// byFailurePercentage ejects hosts that fail more than a fraction of their RPCs.
func (s *sweep) byFailurePercentage(cfg *picker.FailurePercentage) {
	hosts := s.busy(cfg.RequestVolume)
	if uint64(len(hosts)) < uint64(cfg.MinimumHosts) {
		return
	}
	for _, h := range hosts {
		if 100*uint64(h.failed) > uint64(cfg.Threshold)*h.total() {
			s.eject(h, cfg.Enforcement, Cause{FailurePercentage, 100 * float64(h.failed) / float64(h.total())}, &s.found)
		}
	}
}

// ejection holds the inputs of decisions about ejections.
type ejection struct {
	cfg     *picker.OutlierDetection
	total   int // hosts of the cluster
	ejected int // hosts that are ejected
	now     int64
	draw    func(n uint32) uint32
}

// eject ejects a host unless it is ejected already, too many hosts are, or the draw spares it. The
// share of ejected hosts is compared before the ejection: 10 % of 5 hosts is one, and 0 % is none
// (T-OD-1).
func (s *ejection) eject(h *Host, enforcement uint32, cause Cause, found *Findings) {
	v := &found[cause.By]
	switch {
	case h.ejected:
	case 100*uint64(s.ejected) >= uint64(s.cfg.MaxEjectionPercent)*uint64(s.total):
		v.Overflow++
	case s.draw(100) >= enforcement:
		v.Spared++
	default:
		v.Ejected++
		h.ejected, h.since, h.cause = true, s.now, cause
		h.multiplier++
		s.ejected++
	}
}

// Detector is an algorithm that finds outliers.
type Detector uint8

// The detectors: two that compare the hosts of a cluster in each sweep (A50), and three that count
// the consecutive failures of a host, as in Envoy.
const (
	SuccessRate Detector = iota
	FailurePercentage
	Consecutive5xx
	ConsecutiveGatewayFailure
	ConsecutiveLocalOriginFailure
	NumDetectors
)

// String returns the name that Envoy and A91 have for the detector.
func (d Detector) String() string {
	return [NumDetectors]string{
		"success_rate", "failure_percentage",
		"consecutive_5xx", "consecutive_gateway_failure", "consecutive_local_origin_failure",
	}[d]
}

// runs are the numbers of consecutive failures of a host since the latest RPC that counts as a
// success, for each of the consecutive detectors in runBits bits.
type runs struct{ packed atomic.Uint64 }

const (
	runBits = 21
	runMask = 1<<runBits - 1
)

// CountRun counts an RPC of the host that has ended for the consecutive detectors, and returns the
// detectors whose number of failures it completes; these start from zero again. The owner then
// calls [Eject]. answered reports whether the server sent a response, and local whether a failure
// without one was the connection's or a timeout.
//
// The status of a response counts as the HTTP status that Envoy maps it to: UNKNOWN, INTERNAL and
// DATA_LOSS are 500, UNIMPLEMENTED is 501, UNAVAILABLE is 503 and DEADLINE_EXCEEDED is 504. Failures
// without a response count only if the status is UNAVAILABLE or DEADLINE_EXCEEDED: as 503 and 504,
// or as local origin failures if cfg splits them off.
//
// CountRun takes one atomic load if the RPC succeeds after others that did, and one
// compare-and-swap otherwise. Any number of goroutines may call it.
func (h *Host) CountRun(cfg *picker.OutlierDetection, status codes.Code, answered bool) (found Detectors) {
	gateway := status == codes.Unavailable || status == codes.DeadlineExceeded
	if !answered && !gateway {
		return 0 // canceled, or failed in the client: no evidence about the host
	}
	for {
		old := h.runs.packed.Load()
		var next uint64
		if next, found = count(cfg, old, status, answered); next == old || h.runs.packed.CompareAndSwap(old, next) {
			return found
		}
	}
}

// count returns the packed counts of consecutive failures after an RPC, and the detectors whose
// threshold the RPC reaches.
func count(cfg *picker.OutlierDetection, packed uint64, status codes.Code, answered bool) (next uint64, found Detectors) {
	server, gateway, local := packed&runMask, packed>>runBits&runMask, packed>>(2*runBits)
	add := func(n *uint64, c *picker.Consecutive, d Detector) {
		if c == nil {
			return
		}
		if *n++; *n >= min(uint64(c.Failures), runMask) {
			*n = 0
			found |= 1 << d
		}
	}
	switch failed, throughGateway := serverError(status); {
	case !answered && cfg.SplitLocalOrigin:
		add(&local, cfg.ConsecutiveLocalOrigin, ConsecutiveLocalOriginFailure)
	case !failed:
		server, gateway, local = 0, 0, 0
	default:
		if answered {
			local = 0
		}
		add(&server, cfg.Consecutive5xx, Consecutive5xx)
		if throughGateway {
			add(&gateway, cfg.ConsecutiveGateway, ConsecutiveGatewayFailure)
		} else {
			gateway = 0
		}
	}
	return server | gateway<<runBits | local<<(2*runBits), found
}

// serverError reports whether Envoy maps a gRPC status to an HTTP status of 500 or above, and
// whether to one of a gateway: 502, 503 or 504 (source/common/grpc/status.cc, grpcToHttpStatus).
func serverError(status codes.Code) (failed, gateway bool) {
	switch status {
	case codes.Unavailable, codes.DeadlineExceeded:
		return true, true
	case codes.Unknown, codes.Internal, codes.DataLoss, codes.Unimplemented:
		return true, false
	}
	return status > codes.Unauthenticated, false // an unknown status is 500
}

// Detectors is a set of detectors: bit d is Detector d.
type Detectors uint8

// Eject decides about a host that CountRun has found detectors for, as Sweep does about its
// outliers. ejected and total are the numbers of ejected hosts and of all hosts of the cluster; now
// and draw are as for Sweep. The owner serializes it with Sweep.
func Eject(cfg *picker.OutlierDetection, h *Host, by Detectors, ejected, total int, now int64, draw func(n uint32) uint32) (found Findings) {
	e := ejection{cfg: cfg, total: total, ejected: ejected, now: now, draw: draw}
	for _, c := range []struct {
		d   Detector
		cfg *picker.Consecutive
	}{
		{ConsecutiveGatewayFailure, cfg.ConsecutiveGateway},
		{Consecutive5xx, cfg.Consecutive5xx},
		{ConsecutiveLocalOriginFailure, cfg.ConsecutiveLocalOrigin},
	} {
		if by>>c.d&1 != 0 && c.cfg != nil {
			e.eject(h, c.cfg.Enforcement, Cause{c.d, float64(c.cfg.Failures)}, &found)
		}
	}
	return found
}
