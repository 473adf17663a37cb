// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package tap measures pickers inside real channels, through gRPC's public API
// only: it re-registers an LB policy under its own name with a wrapper that
// remembers the latest picker the policy gave to gRPC, and the PickInfo of the
// latest real RPC. What ClientConn does around a pick is the same for every
// policy and is not part of the measurement.
package tap

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/serviceconfig"
)

// Top-level policies of the channels that are compared.
const (
	Ours       = "xdslb_experimental"
	StockXDS   = "xds_cluster_manager_experimental"
	RoundRobin = "round_robin"
)

// Install wraps the named policies. It is to be called from an init function:
// gRPC's registry may not change once channels exist.
func Install(policies ...string) {
	for _, name := range policies {
		b := balancer.Get(name)
		if b == nil {
			panic(fmt.Sprintf("tap: LB policy %q is not registered", name))
		}
		balancer.Register(builder{b})
	}
}

// builder wraps a policy's builder. gRPC's own parse their configuration, so
// the wrapper does too.
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

// probeKey marks the context of the RPC whose pick is to be remembered.
type probeKey struct{}

// Pick is what an RPC's pick consists of: the picker and what it was given.
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

// probe remembers the outermost pick of an RPC: policies that are installed
// may be children of others that are.
type probe struct {
	mu    sync.Mutex
	depth int
	pick  Pick
}

// Of makes one RPC on the channel and returns its pick. The channel's policy
// must be one that was installed.
func Of(ctx context.Context, cc *grpc.ClientConn, method string, req, resp any) (Pick, error) {
	p := &probe{}
	if err := cc.Invoke(context.WithValue(ctx, probeKey{}, p), method, req, resp, grpc.WaitForReady(true)); err != nil {
		return Pick{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pick.Picker == nil {
		return Pick{}, fmt.Errorf("tap: the channel's LB policy is not tapped")
	}
	return p.pick, nil
}

// Do picks once and reports the RPC as finished: the operation to measure.
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
