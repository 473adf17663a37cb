// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/leastrequest"
	"google.golang.org/grpc/balancer/ringhash"
	"google.golang.org/grpc/balancer/roundrobin"
	"google.golang.org/grpc/balancer/weightedroundrobin"
	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/bench/fakegrpc"
	"github.com/xdslb/xdslb/picker"
)

const hashHeader = "session"

// A policy is one way to choose an endpoint, ours and gRPC's, if gRPC has it.
type policy struct {
	name   string
	ours   picker.Policy
	stock  string // in grpc-go's registry
	config string
}

var policies = []policy{
	{"round_robin", picker.Policy{Kind: picker.PolicyRoundRobin}, roundrobin.Name, `{}`},
	{"edf", picker.Policy{Kind: picker.PolicyEDF}, "", ""},
	{"least_request", picker.Policy{Kind: picker.PolicyLeastRequest, Least: &picker.LeastRequest{Choices: 2}}, leastrequest.Name, `{"choiceCount":2}`},
	{"ring_hash", picker.Policy{Kind: picker.PolicyRingHash, Ring: &picker.RingPolicy{MinSize: 4096, MaxSize: 4096, XXH64: true}}, ringhash.Name, `{"minRingSize":4096,"maxRingSize":4096,"requestHashHeader":"` + hashHeader + `"}`},
	{"maglev", picker.Policy{Kind: picker.PolicyMaglev, Ring: &picker.RingPolicy{MinSize: 65537, XXH64: true}}, "", ""},
	{"client_wrr", picker.Policy{Kind: picker.PolicyClientWRR, WRR: &picker.ClientWRR{}}, weightedroundrobin.Name, `{"blackoutPeriod":"0s","weightUpdatePeriod":"0.1s"}`},
	{"least_latency", picker.Policy{Kind: picker.PolicyLeastLatency, Latency: &picker.LeastLatency{Decay: 10 * time.Second}}, "", ""},
	{"prequal", picker.Policy{Kind: picker.PolicyPrequal, Prequal: &picker.Prequal{
		PoolSize: 16, MaxAge: time.Second, ProbesPerRPC: 3, RemovePerRPC: 1, HotQuantile: .75, ProbeTimeout: time.Millisecond, MaxProbesPerSecond: 1000,
	}}, "", ""},
}

// BenchmarkPolicy picks an endpoint by each policy and ends the RPC: with ours
// route, breaker and load counters included, since they are one function, and
// with gRPC's public balancers the picker of that balancer alone. Weights of
// EDF and of client WRR differ, 1 to 1000. RPCs to be hashed differ in a header.
func BenchmarkPolicy(b *testing.B) {
	for _, p := range policies {
		for _, n := range sizes(10, 1000, 100_000) {
			if p.ours.Kind != picker.PolicyMaglev || n < 65537 {
				k := sync.OnceValue(func() *kernel { return newKernel(b, 1, n, "random", p.ours) })
				b.Run(fmt.Sprintf("impl=ours/policy=%s/n=%d", p.name, n), func(b *testing.B) { measureKernel(b, k()) })
			}
			if p.stock != "" && n <= 1000 {
				stock := sync.OnceValue(func() balancer.Picker { return pickerOf(b, p, n, nil) })
				b.Run(fmt.Sprintf("impl=stock/policy=%s/n=%d", p.name, n), func(b *testing.B) { measurePicker(b, stock()) })
			}
		}
	}
}

// BenchmarkPickDown picks by ring hash from 1000 endpoints of which some
// percentage has failed.
func BenchmarkPickDown(b *testing.B) {
	const n = 1000
	p := policies[3]
	for _, percent := range []int{0, 99, 100} {
		down := make(map[string]bool)
		for _, i := range newRand().Perm(n)[:n*percent/100] {
			down[endpointAddr(i).String()] = true
		}
		k := sync.OnceValue(func() *kernel {
			k := newKernel(b, 1, n, "equal", p.ours)
			for i, e := range k.endpoints {
				if down[endpointAddr(i).String()] {
					e.Connectivity = picker.TransientFailure
				}
			}
			k.states[0].Version++
			k.build(b)
			return k
		})
		stock := sync.OnceValue(func() balancer.Picker { return pickerOf(b, p, n, down) })
		b.Run(fmt.Sprintf("impl=ours/down=%d", percent), func(b *testing.B) { measureKernel(b, k()) })
		b.Run(fmt.Sprintf("impl=stock/down=%d", percent), func(b *testing.B) { measurePicker(b, stock()) })
	}
}

// measureKernel picks from snapshots and ends RPCs, from as many goroutines as
// there are processors.
func measureKernel(b *testing.B, k *kernel) {
	ctxs := sessions()
	b.ReportAllocs()
	b.ResetTimer()
	defer charge(b)()
	b.RunParallel(func(pb *testing.PB) {
		s := k.snapshot
		for i := rand.Uint32(); pb.Next(); i++ {
			var r uint64
			if s.NeedsRandom() {
				r = rand.Uint64()
			}
			if res := s.Pick(ctxs[i%uint32(len(ctxs))], method, r); res.Outcome == picker.Picked {
				k.finish(res.Index)
			}
		}
	})
}

// measurePicker does the same to a picker made for gRPC.
func measurePicker(b *testing.B, p balancer.Picker) {
	ctxs := sessions()
	b.ReportAllocs()
	b.ResetTimer()
	defer charge(b)()
	b.RunParallel(func(pb *testing.PB) {
		info := balancer.PickInfo{FullMethodName: method}
		for i := rand.Uint32(); pb.Next(); i++ {
			info.Ctx = ctxs[i%uint32(len(ctxs))]
			if res, err := p.Pick(info); err == nil && res.Done != nil {
				res.Done(balancer.DoneInfo{BytesSent: true, BytesReceived: true})
			}
		}
	})
}

// sessions are RPCs with different values of the header that is hashed, more
// than a branch predictor can learn.
func sessions() []context.Context {
	ctxs := make([]context.Context, 4096)
	for i := range ctxs {
		ctxs[i] = metadata.AppendToOutgoingContext(context.Background(), "x-request-id", "abcdef", hashHeader, fmt.Sprintf("user-%015d", i*7919))
	}
	return ctxs
}

// pickerOf returns the picker of a balancer in gRPC's registry after its n endpoints have
// connected, except for endpoints that are down.
func pickerOf(b *testing.B, p policy, n int, down map[string]bool) balancer.Picker {
	b.Helper()
	s := fakegrpc.New(func(addr string) bool { return down[addr] })
	b.Cleanup(s.Close)
	if err := s.Start(p.stock, p.config, addresses(n)); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if p.ours.Kind == picker.PolicyRingHash {
		return connectRing(ctx, b, s)
	}
	picked, err := s.Wait(ctx, n-len(down), len(down))
	if err != nil {
		b.Fatal(err)
	}
	if p.ours.Kind == picker.PolicyClientWRR {
		return weighOwn(ctx, b, s, n)
	}
	return picked
}

// connectRing sends RPCs until no RPC waits for its endpoint, which connects on demand, or
// fails to.
func connectRing(ctx context.Context, b *testing.B, s *fakegrpc.Channel) balancer.Picker {
	ctxs := sessions()
	for {
		p, err := s.Wait(ctx, 0, 0)
		if err != nil {
			b.Fatal(err)
		}
		waiting := false
		for _, rpc := range ctxs {
			_, err := p.Pick(balancer.PickInfo{FullMethodName: method, Ctx: rpc})
			waiting = waiting || errors.Is(err, balancer.ErrNoSubConnAvailable)
		}
		if !waiting {
			return p
		}
	}
}

// weighOwn reports the load of endpoints, as their RPCs end, until the balancer
// has weighed them.
func weighOwn(ctx context.Context, b *testing.B, s *fakegrpc.Channel, n int) balancer.Picker {
	weights := skewed(n, "random")
	reports := make(map[balancer.SubConn]*orcav3.OrcaLoadReport, n)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range 8 { // the update period is 100 ms
		p := s.Picker()
		for range 4 * n {
			res, err := p.Pick(balancer.PickInfo{FullMethodName: method, Ctx: ctx})
			if err != nil {
				b.Fatal(err)
			}
			r := reports[res.SubConn]
			if r == nil {
				r = &orcav3.OrcaLoadReport{RpsFractional: float64(weights[len(reports)%n]), CpuUtilization: .5}
				reports[res.SubConn] = r
			}
			res.Done(balancer.DoneInfo{ServerLoad: r})
		}
		<-tick.C
	}
	return s.Picker()
}

func addresses(n int) []string {
	addrs := make([]string, n)
	for i := range addrs {
		addrs[i] = endpointAddr(i).String()
	}
	return addrs
}
