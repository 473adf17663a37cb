// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/go-kratos/kratos/v2/registry"
	"github.com/go-kratos/kratos/v2/selector"
	"github.com/go-kratos/kratos/v2/selector/p2c"
	"github.com/go-kratos/kratos/v2/selector/wrr"
	kratos "github.com/go-kratos/kratos/v2/transport/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/roundrobin"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/bench/fakegrpc"
	"github.com/xdslb/xdslb/picker"
)

// kratos registers its balancer, named "selector", in an init function and
// takes the policy from a global.
var _ = kratos.NewServer

// BenchmarkPolicy has the LB policies that kratos gives to gRPC: P2C, by
// latency and RPCs in flight, and smooth weighted round robin. They stand beside
// the policies that have the same aim.
func BenchmarkPolicy(b *testing.B) {
	for _, n := range []int{10, 1000} {
		for _, p := range []struct {
			name  string
			peer  selector.Builder
			ours  picker.Policy
			alias string
		}{
			{"least_request", p2c.NewBuilder(), picker.Policy{Kind: picker.PolicyLeastRequest, Least: &picker.LeastRequest{Choices: 2}}, "kratos_p2c"},
			{"edf", wrr.NewBuilder(), picker.Policy{Kind: picker.PolicyEDF}, "kratos_wrr"},
		} {
			ours := sync.OnceValues(func() (*picker.Snapshot, []*picker.EndpointState) { return snapshot(b, n, p.ours) })
			b.Run(fmt.Sprintf("impl=ours/policy=%s/n=%d", p.name, n), func(b *testing.B) {
				s, endpoints := ours()
				measure(b, func(ctx context.Context) {
					if res := s.Pick(ctx, "/s/m", rand.Uint64()); res.Outcome == picker.Picked {
						endpoints[res.Index].Finish(picker.CallOK)
					}
				})
			})
			peer := sync.OnceValue(func() balancer.Picker {
				selector.SetGlobalSelector(p.peer)
				return play(b, "selector", n)
			})
			b.Run(fmt.Sprintf("impl=%s/policy=%s/n=%d", p.alias, p.name, n), func(b *testing.B) { measurePicker(b, peer()) })
		}
		floor := sync.OnceValue(func() balancer.Picker { return play(b, roundrobin.Name, n) })
		b.Run(fmt.Sprintf("impl=round_robin/policy=round_robin/n=%d", n), func(b *testing.B) { measurePicker(b, floor()) })
	}
}

func measurePicker(b *testing.B, p balancer.Picker) {
	measure(b, func(ctx context.Context) {
		if res, err := p.Pick(balancer.PickInfo{Ctx: ctx, FullMethodName: "/s/m"}); err == nil && res.Done != nil {
			res.Done(balancer.DoneInfo{})
		}
	})
}

func measure(b *testing.B, pick func(context.Context)) {
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		ctx := context.Background()
		for pb.Next() {
			pick(ctx)
		}
	})
}

// play returns the policy's picker once its n endpoints, whose weights are
// 1 to 7, have connected.
func play(b *testing.B, policy string, n int) balancer.Picker {
	b.Helper()
	s := fakegrpc.New(nil)
	b.Cleanup(s.Close)
	state := resolver.State{}
	for i, name := range hosts(n) {
		addr := resolver.Address{Addr: name}
		instance := &registry.ServiceInstance{Metadata: map[string]string{"weight": fmt.Sprint(1 + i%7)}}
		addr.Attributes = addr.Attributes.WithValue("rawServiceInstance", instance)
		state.Addresses = append(state.Addresses, addr)
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{addr}})
	}
	if err := s.StartState(policy, "{}", state); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p, err := s.Wait(ctx, n, 0)
	if err != nil {
		b.Fatal(err)
	}
	return p
}

// snapshot is ours for the same endpoints, of which the caller ends the RPCs.
func snapshot(b *testing.B, n int, policy picker.Policy) (*picker.Snapshot, []*picker.EndpointState) {
	load, breaker := &picker.ClusterLoad{}, &picker.Breaker{}
	id := picker.LocalityID{Zone: "a"}
	var (
		list   []picker.Endpoint
		states []*picker.EndpointState
	)
	binding := picker.NewBinding(load.Locality(id), breaker, policy.CountsInFlight())
	for i := range hosts(n) {
		e := &picker.EndpointState{Connectivity: picker.Ready}
		e.Bind(binding)
		list, states = append(list, picker.Endpoint{Weight: uint32(1 + i%7)}), append(states, e)
	}
	s, err := picker.Build(nil, &picker.Config{
		Routes: []picker.Route{{Clusters: []picker.WeightedCluster{{Name: "c", Weight: 1}}}},
		Clusters: []*picker.Cluster{{Name: "c", Leaves: []picker.Leaf{{
			Name: "c", Policy: policy, MaxRequests: 1 << 20,
			Priorities: []picker.Priority{{Localities: []picker.Locality{{ID: id, Weight: 1, Endpoints: picker.ListOf(list...)}}}},
		}}}},
	}, []picker.ClusterState{{
		Version: 1, Breaker: breaker, Overload: load.Overload(),
		Localities: []picker.LocalityState{{Load: load.Locality(id), Endpoints: picker.StateSlice(states)}},
	}}, picker.Env{})
	if err == nil {
		err = s.ClusterErr(0)
	}
	if err != nil {
		b.Fatal(err)
	}
	return s, states
}
