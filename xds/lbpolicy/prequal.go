// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/xdslb/xdslb/picker"
)

// prequalConfig is the policy's configuration in JSON. Durations are like "0.5s".
type prequalConfig struct {
	PoolSize           uint32  `json:"poolSize"`
	MaxAge             string  `json:"maxAge"`
	ProbesPerRPC       float64 `json:"probesPerRpc"`
	RemovePerRPC       float64 `json:"removePerRpc"`
	HotQuantile        float64 `json:"hotQuantile"`
	ProbeTimeout       string  `json:"probeTimeout"`
	MaxProbesPerSecond uint32  `json:"maxProbesPerSecond"`
	Synchronous        uint32  `json:"synchronous"`
}

// DecodeFields decodes the JSON configuration of a policy of this module. Unknown fields are
// errors, so that misspelled names are not silently ignored.
func DecodeFields(config []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(config))
	d.DisallowUnknownFields()
	return d.Decode(to)
}

// Limits of the configuration, since it affects the load of servers (T-SEC-2).
const (
	maxPrequalPool   = 64
	maxProbesPerRPC  = 10
	maxProbeRate     = 10_000 // per second
	maxProbeDuration = time.Minute
)

// Prequal converts the JSON configuration of xdslb_prequal. All fields are optional:
//
//	poolSize            maximum number of answers: 16; 2 to 64
//	maxAge              of an answer: "1s"; up to a minute
//	probesPerRpc        3; up to 10
//	removePerRpc        answers that are removed unused: 1; less than probesPerRpc
//	hotQuantile         of the reported RPCs in flight, above which an endpoint
//	                    is hot: 0.84; 0 to 1
//	probeTimeout        also of an RPC that waits for answers: "0.1s"; up to a minute
//	maxProbesPerSecond  of a client: 500; up to 10000
//	synchronous         0, or the number of endpoints probed for each RPC: 2 to 10
//
// and the common fields of LeastLatency. Unknown fields are errors: see DecodeFields.
func Prequal(config []byte) (picker.Policy, error) {
	return withCommonFields(picker.PolicyPrequal, prequal)(config, nil)
}

func prequal(config []byte, _ Nested) (picker.Policy, error) {
	c := prequalConfig{
		PoolSize: 16, MaxAge: "1s", ProbesPerRPC: 3, RemovePerRPC: 1, HotQuantile: .84,
		ProbeTimeout: "0.1s", MaxProbesPerSecond: 500,
	}
	if err := DecodeFields(config, &c); err != nil {
		return picker.Policy{}, err
	}
	p := picker.Prequal{
		PoolSize: c.PoolSize, ProbesPerRPC: c.ProbesPerRPC, RemovePerRPC: c.RemovePerRPC, HotQuantile: c.HotQuantile,
		MaxProbesPerSecond: c.MaxProbesPerSecond, Synchronous: c.Synchronous,
	}
	for _, f := range []struct {
		name, value string
		to          *time.Duration
	}{{"maxAge", c.MaxAge, &p.MaxAge}, {"probeTimeout", c.ProbeTimeout, &p.ProbeTimeout}} {
		var err error
		if *f.to, err = time.ParseDuration(f.value); err != nil || *f.to <= 0 || *f.to > maxProbeDuration {
			return picker.Policy{}, fmt.Errorf("%s %.100q is not a duration above 0 and up to %v, like \"0.5s\"", f.name, f.value, maxProbeDuration)
		}
	}
	switch { // NaN, which JSON cannot express, would fail the checks
	case p.PoolSize < 2 || p.PoolSize > maxPrequalPool:
		return picker.Policy{}, fmt.Errorf("poolSize %d is not within 2 to %d", p.PoolSize, maxPrequalPool)
	case !(p.ProbesPerRPC > 0 && p.ProbesPerRPC <= maxProbesPerRPC):
		return picker.Policy{}, fmt.Errorf("probesPerRpc %v is not above 0 and up to %d", p.ProbesPerRPC, maxProbesPerRPC)
	case !(p.RemovePerRPC >= 0 && p.RemovePerRPC < p.ProbesPerRPC):
		return picker.Policy{}, fmt.Errorf("removePerRpc %v is not within 0 to probesPerRpc, %v", p.RemovePerRPC, p.ProbesPerRPC)
	case !(p.HotQuantile >= 0 && p.HotQuantile <= 1):
		return picker.Policy{}, fmt.Errorf("hotQuantile %v is not within 0 to 1", p.HotQuantile)
	case p.MaxProbesPerSecond < 1 || p.MaxProbesPerSecond > maxProbeRate:
		return picker.Policy{}, fmt.Errorf("maxProbesPerSecond %d is not within 1 to %d", p.MaxProbesPerSecond, maxProbeRate)
	case p.Synchronous == 1 || p.Synchronous > maxChoices:
		return picker.Policy{}, fmt.Errorf("synchronous %d is not 0 or within 2 to %d", p.Synchronous, maxChoices)
	}
	return picker.Policy{Kind: picker.PolicyPrequal, Flat: true, Prequal: &p}, nil
}
