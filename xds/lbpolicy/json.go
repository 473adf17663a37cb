// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy

import (
	"cmp"
	"encoding/json"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/picker"
)

// JSON returns p in the form of a gRPC service config's loadBalancingConfig, which other
// clients use (A52-JSON-1): a list of one policy, with nested policies inside. It is meant for
// people, not for parsing: settings without a gRPC field (EDF's weights, slow start, hash
// functions, bounded loads) are omitted, and maglev and random are named although gRPC does not have them. A
// policy that no Registry returns may yield an empty list, which means no policy (A24).
func JSON(p picker.Policy) json.RawMessage {
	name, config := endpointJSON(p)
	if name == "" {
		return json.RawMessage("[]")
	}
	if !p.Flat {
		name, config = nameWRRLocality, object{"childPolicy": list{{name: config}}}
	}
	if p.Subset != 0 {
		name, config = nameSubsetting, object{"subsetSize": p.Subset, "childPolicy": list{{name: config}}}
	}
	js, err := json.Marshal(list{{name: config}})
	if err != nil { // the configuration of a custom policy is not JSON
		return json.RawMessage("[]")
	}
	return js
}

type (
	object map[string]any
	list   []object
)

// endpointJSON returns the name and the configuration of the policy that picks endpoints. A
// missing member is treated as zero.
func endpointJSON(p picker.Policy) (name string, config any) {
	switch p.Kind {
	case picker.PolicyEDF, picker.PolicyRoundRobin:
		return nameRoundRobin, object{}
	case picker.PolicyRandom:
		return "random", object{}
	case picker.PolicyRingHash:
		r := zeroIfNil(p.Ring)
		config := object{"minRingSize": r.MinSize, "maxRingSize": r.MaxSize}
		if r.RequestHeader != "" {
			config["requestHashHeader"] = r.RequestHeader
		}
		return nameRingHash, config
	case picker.PolicyMaglev:
		return "maglev", object{"tableSize": zeroIfNil(p.Ring).MinSize}
	case picker.PolicyLeastRequest:
		return nameLeastRequest, object{"choiceCount": zeroIfNil(p.Least).Choices}
	case picker.PolicyLeastLatency:
		return nameLeastLatency, object{"decayTime": zeroIfNil(p.Latency).Decay.String()}
	case picker.PolicyClientWRR:
		return nameClientWRR, wrrJSON(zeroIfNil(p.WRR))
	case picker.PolicyPickFirst:
		return namePickFirst, object{"shuffleAddressList": zeroIfNil(p.First).Shuffle}
	case picker.PolicyPrequal:
		return NamePrequal, prequalJSON(zeroIfNil(p.Prequal))
	case picker.PolicyCustom:
		c := zeroIfNil(p.Custom)
		return c.Name, json.RawMessage(cmp.Or(string(c.Config), "{}"))
	}
	return "", nil
}

func wrrJSON(w picker.ClientWRR) object {
	config := object{
		"blackoutPeriod":          seconds(w.Blackout),
		"weightExpirationPeriod":  seconds(w.Expiration),
		"weightUpdatePeriod":      seconds(w.UpdatePeriod),
		"errorUtilizationPenalty": w.ErrorPenalty,
	}
	if w.OutOfBand {
		config["enableOobLoadReport"] = true
		config["oobReportingPeriod"] = seconds(w.OOBPeriod)
	}
	if len(w.UtilizationFrom) > 0 {
		config["metricNamesForComputingUtilization"] = w.UtilizationFrom
	}
	return config
}

// seconds returns d in protobuf's JSON format: "0.100s".
func seconds(d time.Duration) json.RawMessage {
	js, err := protojson.Marshal(durationpb.New(d))
	if err != nil { // every time.Duration is in range
		return nil
	}
	return js
}

func zeroIfNil[T any](p *T) T {
	if p == nil {
		return *new(T)
	}
	return *p
}
