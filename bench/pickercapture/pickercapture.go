// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package pickercapture provides the pickers of real channels to benchmarks, using only
// gRPC's public API. It re-registers an LB policy under its own name with a wrapper that
// captures the picker and the PickInfo of an RPC. The work that ClientConn does around a pick
// is the same for every policy and is not measured.
package pickercapture

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/serviceconfig"
)

// Names of the top-level policies of the compared channels.
const (
	Ours       = "xdslb_experimental"
	StockXDS   = "xds_cluster_manager_experimental"
	RoundRobin = "round_robin"
)

// Install wraps the named policies. It must be called from an init function, since gRPC's
// registry must not change once channels exist.
func Install(policies ...string) {
	for _, name := range policies {
		b := balancer.Get(name)
		if b == nil {
			panic(fmt.Sprintf("pickercapture: LB policy %q is not registered", name))
		}
		balancer.Register(builder{b})
	}
}

// builder wraps a policy's builder. It implements ConfigParser, as gRPC's builders do.
type builder struct{ balancer.Builder }

func (b builder) Build(cc balancer.ClientConn, o balancer.BuildOptions) balancer.Balancer {
	return b.Builder.Build(&clientConn{ClientConn: cc}, o)
}

func (b builder) ParseConfig(js json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	if p, ok := b.Builder.(balancer.ConfigParser); ok {
		return p.ParseConfig(js)
	}
	return nil, nil
}

type clientConn struct{ balancer.ClientConn }

func (cc *clientConn) UpdateState(s balancer.State) {
	s.Picker = &picker{s.Picker}
	cc.ClientConn.UpdateState(s)
}

// probeKey marks the context of the RPC whose pick is captured.
type probeKey struct{}

// Pick is the picker and the arguments of one RPC's pick.
type Pick struct {
	Picker balancer.Picker
	Info   balancer.PickInfo
}

type picker struct{ balancer.Picker }

func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	probe, ok := info.Ctx.Value(probeKey{}).(*probe)
	if !ok {
		return p.Picker.Pick(info)
	}
	probe.mu.Lock()
	if probe.depth == 0 {
		probe.pick = Pick{p.Picker, info}
	}
	probe.depth++
	probe.mu.Unlock()
	defer func() {
		probe.mu.Lock()
		probe.depth--
		probe.mu.Unlock()
	}()
	return p.Picker.Pick(info)
}

// probe records the outermost pick of an RPC. A wrapped policy may have wrapped children.
type probe struct {
	mu    sync.Mutex
	depth int
	pick  Pick
}

// Capture sends one RPC on the channel and returns its pick. The channel's policy must be
// wrapped by Install.
func Capture(ctx context.Context, cc *grpc.ClientConn, method string, req, resp any) (Pick, error) {
	p := &probe{}
	if err := cc.Invoke(context.WithValue(ctx, probeKey{}, p), method, req, resp, grpc.WaitForReady(true)); err != nil {
		return Pick{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pick.Picker == nil {
		return Pick{}, fmt.Errorf("pickercapture: the channel's LB policy is not wrapped: call Install for it")
	}
	return p.pick, nil
}

// Do picks once and finishes the RPC. Benchmarks measure it.
func (p *Pick) Do() error {
	res, err := p.Picker.Pick(p.Info)
	if err != nil {
		return err
	}
	if res.Done != nil {
		res.Done(balancer.DoneInfo{BytesSent: true, BytesReceived: true})
	}
	return nil
}
