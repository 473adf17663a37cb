// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"math"
	"time"

	admissionv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/admission_control/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// An AdmissionControl is the configuration of an admission control filter: clients reject a
// fraction of their RPCs while too many fail (Envoy's admission_control). It is the Config of a
// picker.Filter, and the value type of override maps. Equal values are equivalent.
//
// Clients have no runtime: for fields with a runtime_key, the default applies.
type AdmissionControl struct {
	Enabled bool
	// Window is the time for which the result of an RPC counts; whole seconds, at least 1.
	Window time.Duration
	// Threshold is the fraction of successes below which RPCs are rejected; above 0, at most 1.
	Threshold float64
	// Aggression is at least 1. Larger values reject more RPCs just below the threshold.
	Aggression float64
	// MinRPS is the minimum rate of completed RPCs per second, averaged over the window.
	MinRPS uint32
	// MaxRejection is the maximum fraction of rejected RPCs; from 0 to 1.
	MaxRejection float64
	Success      uint32 // one bit per gRPC status code that counts as success
}

// Succeeded reports whether an RPC with a status code was a success.
func (a *AdmissionControl) Succeeded(code uint32) bool { return a.Success&(1<<code) != 0 }

// admissionSuccess has the default success codes. As in Envoy they are all except
// DEADLINE_EXCEEDED, PERMISSION_DENIED, RESOURCE_EXHAUSTED, ABORTED, INTERNAL, UNAVAILABLE and
// DATA_LOSS.
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
			p.refuse(w.AsDuration(), "must be at least 0.5s, since it is rounded to seconds")
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
	// http_criteria do not apply to gRPC.
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

// percent returns a percentage as a fraction.
func percent(m *typev3.Percent, p *path) float64 {
	v := m.GetValue()
	if !(v >= 0 && v <= 100) {
		p.refuse(v, "must be from 0 to 100")
		return 1
	}
	return v / 100
}
