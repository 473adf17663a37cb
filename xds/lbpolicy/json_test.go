// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"google.golang.org/grpc/balancer"
	_ "google.golang.org/grpc/balancer/leastrequest"
	_ "google.golang.org/grpc/balancer/randomsubsetting"
	_ "google.golang.org/grpc/balancer/ringhash"
	_ "google.golang.org/grpc/balancer/weightedroundrobin"

	"github.com/xdslb/xdslb/picker"
)

// TestJSONParses is A52-NACK-2: grpc-go's own parsers accept the JSON of everything that this
// package accepts, except wrr_locality (which grpc-go does not export) and maglev (which it
// does not have).
func TestJSONParses(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range goldenClusters(t) {
		policy, err := new(Registry).OfCluster(c.cluster)
		if err != nil || policy.Kind == picker.PolicyMaglev {
			continue
		}
		policy.Flat = true
		var list []map[string]json.RawMessage
		if err := json.Unmarshal(JSON(policy), &list); err != nil || len(list) != 1 || len(list[0]) != 1 {
			t.Errorf("%s: %s is not a list of one policy", c.name, JSON(policy))
			continue
		}
		for name, config := range list[0] {
			b := balancer.Get(name)
			if b == nil {
				t.Errorf("%s: %q is not a policy of gRPC", c.name, name)
				continue
			}
			seen[name] = true
			parser, ok := b.(balancer.ConfigParser)
			if !ok {
				continue
			}
			if _, err := parser.ParseConfig(config); err != nil {
				t.Errorf("%s: gRPC refuses %s: %v", c.name, JSON(policy), err)
			}
		}
	}
	for _, name := range []string{nameRoundRobin, namePickFirst, nameRingHash, nameLeastRequest, nameClientWRR, nameSubsetting} {
		if !seen[name] {
			t.Errorf("no case with %s", name)
		}
	}
}

// TestJSONReadBack converts the JSON of policies that a TypedStruct can name back
// into the same policies.
func TestJSONReadBack(t *testing.T) {
	for _, want := range []picker.Policy{
		{Kind: picker.PolicyRoundRobin},
		{Kind: picker.PolicyPickFirst, First: &picker.PickFirst{Shuffle: true}},
		{Kind: picker.PolicyLeastRequest, Least: &picker.LeastRequest{Choices: 7}},
		{Kind: picker.PolicyLeastLatency, Latency: &picker.LeastLatency{Decay: 1500 * time.Millisecond}},
		{Kind: picker.PolicyRingHash, Ring: &picker.RingPolicy{MinSize: 3, MaxSize: 9, XXH64: true, RequestHeader: "h"}},
		{Kind: picker.PolicyClientWRR, WRR: &picker.ClientWRR{
			OutOfBand: true, OOBPeriod: time.Minute, Blackout: 1, Expiration: math.MaxInt64,
			UpdatePeriod: 1500 * time.Millisecond, ErrorPenalty: 0.25, UtilizationFrom: []string{"named_metrics.<&>", ""},
		}},
	} {
		want.Flat = true
		var list []map[string]map[string]any
		if err := json.Unmarshal(JSON(want), &list); err != nil {
			t.Fatalf("%s: %v", JSON(want), err)
		}
		for name, config := range list[0] {
			got, err := new(Registry).Convert(listOf(t, typedStruct(t, name, config)))
			if err != nil || describe(got) != describe(want) {
				t.Errorf("%s: got %s, %v, want %s", JSON(want), describe(got), err, describe(want))
			}
		}
	}
}

// TestJSONOfAnything checks policies that no registry returns.
func TestJSONOfAnything(t *testing.T) {
	for _, test := range []struct {
		policy picker.Policy
		want   string
	}{
		{picker.Policy{Kind: 99}, `[]`},
		{picker.Policy{Kind: 99, Flat: true, Subset: 1}, `[]`},
		{picker.Policy{Kind: picker.PolicyCustom}, `[]`},
		{picker.Policy{Kind: picker.PolicyCustom, Custom: &picker.CustomPolicy{Name: "x", Config: json.RawMessage("{")}}, `[]`},
		{picker.Policy{Kind: picker.PolicyCustom, Flat: true, Custom: &picker.CustomPolicy{Name: "x"}}, `[{"x":{}}]`},
		{picker.Policy{Kind: picker.PolicyRingHash, Flat: true}, `[{"ring_hash_experimental":{"maxRingSize":0,"minRingSize":0}}]`},
		{picker.Policy{Kind: picker.PolicyMaglev, Flat: true}, `[{"maglev":{"tableSize":0}}]`},
		{picker.Policy{Kind: picker.PolicyLeastRequest, Flat: true}, `[{"least_request_experimental":{"choiceCount":0}}]`},
		{picker.Policy{Kind: picker.PolicyPickFirst, Flat: true}, `[{"pick_first":{"shuffleAddressList":false}}]`},
		{picker.Policy{Kind: picker.PolicyClientWRR, Flat: true, WRR: &picker.ClientWRR{ErrorPenalty: math.Inf(1)}}, `[]`},
	} {
		if got := string(JSON(test.policy)); got != test.want {
			t.Errorf("%+v: got %s, want %s", test.policy, got, test.want)
		}
	}
}
