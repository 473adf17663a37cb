// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"math"
	"time"

	admissionv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/admission_control/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// An AdmissionControl is the configuration of an admission control filter: clients
// refuse a part of their RPCs while too many fail (Envoy's admission_control). It is the
// Config of a picker.Filter, and what overrides map filter names to. Two that are equal
// ask for the same.
//
// There is no runtime on a client: of fields with a runtime_key the default counts.
type AdmissionControl struct {
	Enabled bool
	// Window is how long the result of an RPC counts; whole seconds, at least 1.
	Window time.Duration
	// Threshold is the share of successes below which RPCs are refused; above 0, at most 1.
	Threshold float64
	// Aggression is at least 1. The more, the more is refused just below the threshold.
	Aggression float64
	// MinRPS is how many RPCs have to end in a second, on average over the window.
	MinRPS uint32
	// MaxRejection is the greatest share of RPCs that are refused; from 0 to 1.
	MaxRejection float64
	Success      uint32 // a bit for each gRPC status code that is a success
}

// Succeeded reports whether an RPC that ended with a status code was a success.
func (a *AdmissionControl) Succeeded(code uint32) bool { return a.Success&(1<<code) != 0 }

// admissionSuccess are the codes that are successes unless the filter names others. As in
// Envoy they are all but DEADLINE_EXCEEDED, PERMISSION_DENIED, RESOURCE_EXHAUSTED, ABORTED,
// INTERNAL, UNAVAILABLE and DATA_LOSS.
const admissionSuccess = 1<<17 - 1 - (1<<4 | 1<<7 | 1<<8 | 1<<10 | 1<<13 | 1<<14 | 1<<15)

func newAdmission(m *admissionv3.AdmissionControl, p *path) *AdmissionControl {
	a := &AdmissionControl{
		Enabled: m.GetEnabled().GetDefaultValue() == nil || m.GetEnabled().GetDefaultValue().GetValue(),
		Window:  30 * time.Second, Threshold: .95, Aggression: 1, MaxRejection: .8,
		MinRPS: m.GetRpsThreshold().GetDefaultValue(), Success: admissionSuccess,
	}
	if w := m.GetSamplingWindow(); w != nil {
		p := p.dot("sampling_window")
		if a.Window = p.duration(w).Round(time.Second); a.Window == 0 && w.IsValid() && w.AsDuration() >= 0 {
			p.refuse(w.AsDuration(), "must be at least 0.5s: it is rounded to seconds")
		}
	}
	if m.GetSrThreshold() != nil {
		p := p.dot("sr_threshold").dot("default_value")
		if a.Threshold = percent(m.GetSrThreshold().GetDefaultValue(), p); a.Threshold < .01 {
			p.refuse(100*a.Threshold, "must be at least 1")
		}
	}
	if m.GetMaxRejectionProbability() != nil {
		a.MaxRejection = percent(m.GetMaxRejectionProbability().GetDefaultValue(), p.dot("max_rejection_probability").dot("default_value"))
	}
	if m.GetAggression() != nil {
		aggression := m.GetAggression().GetDefaultValue()
		if math.IsNaN(aggression) || math.IsInf(aggression, 0) {
			p.dot("aggression").dot("default_value").refuse(aggression, "must be a finite number")
		}
		a.Aggression = max(aggression, 1)
	}
	if m.GetSuccessCriteria() == nil {
		p.fail("must have success_criteria")
	}
	// http_criteria are for RPCs that are not gRPC's.
	if c := m.GetSuccessCriteria().GetGrpcCriteria(); c != nil {
		p := p.dot("success_criteria").dot("grpc_criteria").dot("grpc_success_status")
		if len(c.GetGrpcSuccessStatus()) == 0 {
			p.fail("must not be empty")
		}
		a.Success = 0
		for i, code := range c.GetGrpcSuccessStatus() {
			p.at(i).atMost(code, 16)
			a.Success |= 1 << min(code, 31)
		}
	}
	return a
}

// percent returns a percentage as a share.
func percent(m *typev3.Percent, p *path) float64 {
	v := m.GetValue()
	if !(v >= 0 && v <= 100) {
		p.refuse(v, "must be from 0 to 100")
		return 1
	}
	return v / 100
}
