// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package outlier

import (
	"sync/atomic"

	"google.golang.org/grpc/codes"

	"github.com/xdslb/xdslb/picker"
)

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
