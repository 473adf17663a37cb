// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"runtime"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/kit"
)

// TestDecodeAllocs compares the allocations of decodeEndpoints for 10,000 endpoints with those
// of proto.Unmarshal and a walk: a tenth at most, and for one changed endpoint at most 1 MiB.
// BenchmarkDecodeEndpoints has the times.
func TestDecodeAllocs(t *testing.T) {
	const n = 10000
	m := assignment(n, nil)
	first := encode(t, m)
	m.Endpoints[1].LbEndpoints[0].LoadBalancingWeight.Value++
	second := encode(t, m)
	wire := testing.AllocsPerRun(5, func() {
		if _, err := decodeEndpoints(first, Options{}, stopper{}); err != nil {
			t.Fatal(err)
		}
	})
	walk := testing.AllocsPerRun(2, func() {
		m := new(endpointv3.ClusterLoadAssignment)
		if err := proto.Unmarshal(first, m); err != nil || naiveEndpoints(m, false) == nil {
			t.Fatal("refused")
		}
	})
	t.Logf("%d endpoints: %v allocations from the wire, %v through proto.Unmarshal", n, wire, walk)
	if wire > walk/10 {
		t.Errorf("%v allocations, want no more than a tenth of %v", wire, walk)
	}

	prev, err := decodeEndpoints(first, Options{}, stopper{})
	kit.Must(t, err)
	const rounds = 10
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		if _, err := decodeEndpoints(second, Options{Previous: prev}, stopper{}); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	garbage := (after.TotalAlloc - before.TotalAlloc) / rounds
	t.Logf("one endpoint changed: %d KiB", garbage>>10)
	if garbage > 1<<20 {
		t.Errorf("%d bytes allocated for one endpoint that changed, want 1 MiB at most", garbage)
	}
}
