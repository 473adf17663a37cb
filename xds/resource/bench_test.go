// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/cputime"
	"github.com/xdslb/xdslb/bench/kit"
)

// lbEndpoint returns an endpoint with an IPv4 address made of n.
func lbEndpoint(n int, weight uint32) *endpointv3.LbEndpoint {
	return &endpointv3.LbEndpoint{
		HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
			Address: socketAddress(fmt.Sprintf("10.%d.%d.%d", n>>16&255, n>>8&255, n&255), 8080),
		}},
		LoadBalancingWeight: wrapperspb.UInt32(weight),
	}
}

func socketAddress(host string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       host,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

// assignment returns a message of n endpoints in 3 localities.
func assignment(n int, decorate func(i int, e *endpointv3.LbEndpoint)) *endpointv3.ClusterLoadAssignment {
	m := &endpointv3.ClusterLoadAssignment{ClusterName: "cluster"}
	for l := range 3 {
		loc := &endpointv3.LocalityLbEndpoints{
			Locality:            &corev3.Locality{Region: "region", Zone: fmt.Sprintf("zone-%d", l)},
			LoadBalancingWeight: wrapperspb.UInt32(uint32(l + 1)),
		}
		for i := n * l / 3; i < n*(l+1)/3; i++ {
			e := lbEndpoint(i, uint32(1+i%100))
			if decorate != nil {
				decorate(i, e)
			}
			loc.LbEndpoints = append(loc.LbEndpoints, e)
		}
		m.Endpoints = append(m.Endpoints, loc)
	}
	return m
}

// workload marks an endpoint as Istio does.
func workload(i int, e *endpointv3.LbEndpoint) {
	e.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"istio": {
		Fields: map[string]*structpb.Value{"workload": structpb.NewStringValue(fmt.Sprintf("echo-%d;default;echo;v1;Kubernetes", i/100))},
	}}}
}

func encode(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	kit.Must(tb, err)
	return b
}

// BenchmarkDecodeEndpoints measures an EDS update: from the wire, and through proto.Unmarshal
// and the oracle. With change=all, prev is nil. Otherwise two messages alternate, each decoded with the
// other as the previous version: they differ in the weight of one endpoint, in one endpoint in the
// middle, in their order, in all weights or in all addresses.
func BenchmarkDecodeEndpoints(b *testing.B) {
	for _, kind := range []struct {
		name     string
		decorate func(int, *endpointv3.LbEndpoint)
	}{{"plain", nil}, {"istio", workload}} {
		for _, n := range []int{100, 5000, 10000} {
			first := encode(b, assignment(n, kind.decorate))
			suffix := fmt.Sprintf("/n=%d/metadata=%s", n, kind.name)
			for _, change := range decodeChanges {
				m := assignment(n, kind.decorate)
				change.apply(m)
				versions := [2][]byte{first, encode(b, m)}
				b.Run("impl=wire/change="+change.name+suffix, func(b *testing.B) {
					b.ReportAllocs()
					b.SetBytes(int64(len(first)))
					var prev *Endpoints
					begin := cputime.Process()
					for i := range b.N {
						if change.name == "all" {
							prev = nil
						}
						next, err := decodeEndpoints(versions[i%2], Options{Previous: prev}, stopper{})
						if err != nil {
							b.Fatal(err)
						}
						prev = next
					}
					b.ReportMetric(float64((cputime.Process()-begin).Nanoseconds())/float64(b.N), "cpu-ns/op")
				})
			}
			b.Run("impl=proto/change=all"+suffix, func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(first)))
				for b.Loop() {
					m := new(endpointv3.ClusterLoadAssignment)
					if err := proto.Unmarshal(first, m); err != nil || naiveEndpoints(m, false) == nil {
						b.Fatal("refused")
					}
				}
			})
		}
	}
}

// decodeChanges are the changes of BenchmarkDecodeEndpoints.
var decodeChanges = []struct {
	name  string
	apply func(m *endpointv3.ClusterLoadAssignment)
}{
	{"all", func(*endpointv3.ClusterLoadAssignment) {}},
	{"weight", func(m *endpointv3.ClusterLoadAssignment) { m.Endpoints[1].LbEndpoints[0].LoadBalancingWeight.Value++ }},
	{"endpoint", func(m *endpointv3.ClusterLoadAssignment) {
		list := m.Endpoints[1].LbEndpoints
		m.Endpoints[1].LbEndpoints = slices.Delete(list, len(list)/2, len(list)/2+1)
	}},
	{"order", func(m *endpointv3.ClusterLoadAssignment) {
		for _, l := range m.Endpoints {
			slices.Reverse(l.LbEndpoints)
		}
		m.Endpoints[0].LbEndpoints[0].LoadBalancingWeight.Value++ // otherwise it is the same list
	}},
	{"weights", func(m *endpointv3.ClusterLoadAssignment) {
		for _, l := range m.Endpoints {
			for _, e := range l.LbEndpoints {
				e.LoadBalancingWeight.Value += 100
			}
		}
	}},
	{"addresses", func(m *endpointv3.ClusterLoadAssignment) {
		for _, l := range m.Endpoints {
			for _, e := range l.LbEndpoints {
				e.GetEndpoint().Address.GetSocketAddress().PortSpecifier = &corev3.SocketAddress_PortValue{PortValue: 8081}
			}
		}
	}},
}

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
