// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"math"
	"time"

	faultcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// A Fault is the configuration of a fault injection filter (A33), and of a route's override of
// it. It is the Config of a picker.Filter, and the value type of override maps. The zero value
// injects no faults.
type Fault struct {
	Delay *FaultDelay // precedes Abort; nil means no delay
	Abort *FaultAbort // nil means no abort
	// MaxActive is the maximum number of concurrent faults in the process; math.MaxUint32 means
	// no limit.
	MaxActive uint32
}

// A FaultDelay delays RPCs before they are sent.
type FaultDelay struct {
	Chance Percentage
	Fixed  time.Duration // unless Header
	Header bool          // the RPC's header has the duration: x-envoy-fault-delay-request
}

// A FaultAbort fails RPCs before they are sent.
type FaultAbort struct {
	Chance Percentage
	Code   uint32 // gRPC status code, unless Header; 0 ends the RPC with status OK
	Header bool   // the RPC's headers have the code: x-envoy-fault-abort-request, -abort-grpc-request
}

// A Percentage is the probability of a fault.
type Percentage struct {
	PerMillion uint32 // at most 10⁶
	// Unit is the value of 1 in a header such as x-envoy-fault-delay-request-percentage, per
	// million. A header can only reduce the probability.
	Unit uint32
}

// AbortCode returns the gRPC status code for the HTTP status of a fault, by gRPC's mapping of
// HTTP statuses. It is UNKNOWN for 200, since an aborted RPC has no gRPC status either (A33).
// ok is false if status is not a valid HTTP response status.
func AbortCode(status uint32) (code uint32, ok bool) {
	switch status {
	case 400:
		return 13, true // INTERNAL
	case 401:
		return 16, true // UNAUTHENTICATED
	case 403:
		return 7, true // PERMISSION_DENIED
	case 404:
		return 12, true // UNIMPLEMENTED
	case 429, 502, 503, 504:
		return 14, true // UNAVAILABLE
	}
	return 2, 200 <= status && status < 600 // UNKNOWN
}

func newFault(m *faultv3.HTTPFault, p *path) *Fault {
	p.to.ignoreIn(m)
	f := &Fault{MaxActive: math.MaxUint32}
	if limit := m.GetMaxActiveFaults(); limit != nil {
		f.MaxActive = limit.GetValue()
	}
	if m.GetDelay() != nil {
		f.Delay = newFaultDelay(m.GetDelay(), p.dot("delay"))
	}
	if m.GetAbort() != nil {
		f.Abort = newFaultAbort(m.GetAbort(), p.dot("abort"))
	}
	return f
}

func newFaultDelay(m *faultcommonv3.FaultDelay, p *path) *FaultDelay {
	f := &FaultDelay{Chance: percentage(m.GetPercentage(), p.dot("percentage"))}
	switch m.GetFaultDelaySecifier().(type) {
	case *faultcommonv3.FaultDelay_FixedDelay:
		f.Fixed = p.dot("fixed_delay").duration(m.GetFixedDelay())
	case *faultcommonv3.FaultDelay_HeaderDelay_:
		f.Header = true
	default:
		p.fail("must have fixed_delay or header_delay")
	}
	return f
}

func newFaultAbort(m *faultv3.FaultAbort, p *path) *FaultAbort {
	p.to.ignoreIn(m)
	f := &FaultAbort{Chance: percentage(m.GetPercentage(), p.dot("percentage"))}
	switch kind := m.GetErrorType().(type) {
	case *faultv3.FaultAbort_HttpStatus:
		var ok bool
		if f.Code, ok = AbortCode(kind.HttpStatus); !ok {
			p.dot("http_status").refuse(kind.HttpStatus, "must be from 200 to 599")
		}
	case *faultv3.FaultAbort_GrpcStatus:
		if f.Code = kind.GrpcStatus; f.Code > 16 {
			f.Code = 2 // UNKNOWN, as for an unknown status code from a server
		}
	case *faultv3.FaultAbort_HeaderAbort_:
		f.Header = true
	default:
		p.fail("must have http_status, grpc_status or header_abort")
	}
	return f
}

func percentage(m *typev3.FractionalPercent, p *path) Percentage {
	result, ok := fraction(m.GetNumerator(), m.GetDenominator())
	if !ok {
		p.dot("denominator").refuse(int32(m.GetDenominator()), knownDenominator)
	}
	return result
}

const knownDenominator = "must be HUNDRED, TEN_THOUSAND or MILLION"

// fraction converts a FractionalPercent to parts per million. It multiplies in 64 bits and caps
// the result at one: 50000000 % is 100 %, not the 12 % that would result from overflow (T-RC-4,
// T-DROP-1).
func fraction(numerator uint32, denominator typev3.FractionalPercent_DenominatorType) (p Percentage, ok bool) {
	switch denominator {
	case typev3.FractionalPercent_HUNDRED:
		p.Unit = 1e4
	case typev3.FractionalPercent_TEN_THOUSAND:
		p.Unit = 100
	case typev3.FractionalPercent_MILLION:
		p.Unit = 1
	default:
		return p, false
	}
	p.PerMillion = uint32(min(uint64(numerator)*uint64(p.Unit), 1e6))
	return p, true
}
