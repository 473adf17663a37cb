// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
)

// randomHashes are the random hashes of a channel's RPCs that had to wait for an endpoint. Each
// is kept until its RPC ends, so that later picks and gRPC's further attempts use the same hash
// (T-RING-6).
//
// The context is the only identity of an RPC in gRPC's picks. gRPC makes the context's Done
// channel for each RPC, and it is the same for all attempts: see doneIdentifiesRPC.
type randomHashes struct {
	count   atomic.Int64
	byDone  sync.Map // <-chan struct{} to uint64
	perPick bool     // contexts do not identify RPCs: each pick gets a new hash
}

// Of implements picker.randomHashes: one load while no RPC waits. An RPC that cannot end, which
// gRPC never makes, gets a new hash for each pick.
func (h *randomHashes) Of(ctx context.Context, drawn uint64, wait bool) uint64 {
	if !wait && h.count.Load() == 0 {
		return drawn
	}
	if h.perPick {
		return drawn
	}
	done := ctx.Done()
	if hash, ok := h.byDone.Load(done); ok {
		return hash.(uint64)
	}
	if !wait || done == nil {
		return drawn
	}
	if hash, kept := h.byDone.LoadOrStore(done, drawn); kept {
		return hash.(uint64)
	}
	h.count.Add(1)
	context.AfterFunc(ctx, func() {
		h.byDone.Delete(done)
		h.count.Add(-1)
	})
	return drawn
}

// doneIdentifiesRPC reports whether the linked version of gRPC makes a Done channel for each RPC, which
// the contexts of all picks for the RPC have. This is an implementation detail of gRPC, so it is
// checked once, before the first channel of the process picks. If it does not hold, an error is logged,
// and an RPC without a value to hash gets a new random hash for each pick: it may connect several
// endpoints of a hash ring, and its attempts may go to different ones.
var doneIdentifiesRPC = sync.OnceValue(func() bool {
	parent, picks := observePicks()
	if identifies(parent, picks) {
		return true
	}
	grpclog.Component("xdslb").Error("RPCs without a value to hash get a new random hash for each pick: this version of grpc-go is not supported")
	return false
})

// identifies reports whether the Done channels of the picks for some RPCs identify the RPCs. All RPCs
// were made with a context whose Done channel is parent.
func identifies(parent <-chan struct{}, rpcs map[string][]<-chan struct{}) bool {
	taken := map[<-chan struct{}]bool{nil: true, parent: true}
	for _, picks := range rpcs {
		if len(picks) < 2 || taken[picks[0]] {
			return false
		}
		taken[picks[0]] = true
		for _, done := range picks[1:] {
			if done != picks[0] {
				return false
			}
		}
	}
	return len(rpcs) > 1
}

// A doneCheck is a channel whose picks record the Done channels of their contexts, by method. The first
// pick for an RPC waits, and the next ones fail, so that gRPC picks again for the same and for
// another attempt. Nothing is connected.
type doneCheck struct {
	mu    sync.Mutex
	picks map[string][]<-chan struct{}
}

// doneCheckName is the name of the LB policy of a doneCheck.
const doneCheckName = "xdslb_done_check"

// observePicks makes RPCs on a doneCheck with one context. It returns the Done channel of that, and
// those of the picks.
func observePicks() (parent <-chan struct{}, picks map[string][]<-chan struct{}) {
	c := &doneCheck{picks: map[string][]<-chan struct{}{}}
	cc, err := grpc.NewClient("xdslb-done-check:///x", grpc.WithResolvers(c), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"`+doneCheckName+`": {}}], "methodConfig": [{"name": [{}], "retryPolicy": {
			"maxAttempts": 2, "initialBackoff": "0.000001s", "maxBackoff": "0.000001s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`))
	if err != nil {
		return nil, nil
	}
	defer func() { _ = cc.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, method := range []string{"/xdslb/1", "/xdslb/2"} {
		_ = cc.Invoke(ctx, method, nil, nil) // fails
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return ctx.Done(), c.picks
}

// Scheme implements resolver.Builder.
func (*doneCheck) Scheme() string { return "xdslb-done-check" }

// Build implements resolver.Builder.
func (c *doneCheck) Build(_ resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	_ = cc.UpdateState(resolver.State{Endpoints: []resolver.Endpoint{{Addresses: []resolver.Address{{Addr: "x"}}}}, Attributes: attributes.New(doneCheckKey{}, c)})
	return c, nil
}

// ResolveNow implements resolver.Resolver.
func (*doneCheck) ResolveNow(resolver.ResolveNowOptions) {}

// Close implements resolver.Resolver.
func (*doneCheck) Close() {}

// doneCheckBuilder builds the LB policy of a doneCheck, which the resolver passes.
type doneCheckBuilder struct{}

// Name implements balancer.Builder.
func (doneCheckBuilder) Name() string { return doneCheckName }

// ParseConfig implements balancer.ConfigParser.
func (doneCheckBuilder) ParseConfig(json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	return struct {
		serviceconfig.LoadBalancingConfig
	}{}, nil
}

// Build implements balancer.Builder.
func (doneCheckBuilder) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	return doneCheckBalancer{cc}
}

// doneCheckKey is the key of the *doneCheck in a resolver's state.
type doneCheckKey struct{}

// A doneCheckBalancer is the LB policy of a doneCheck.
type doneCheckBalancer struct{ cc balancer.ClientConn }

// UpdateClientConnState implements balancer.Balancer.
func (b doneCheckBalancer) UpdateClientConnState(s balancer.ClientConnState) error {
	c, ok := s.ResolverState.Attributes.Value(doneCheckKey{}).(*doneCheck)
	if !ok {
		return errors.New("xdslb: this LB policy is for a check of gRPC only")
	}
	b.publish(c)
	return nil
}

// publish has waiting RPCs pick again.
func (b doneCheckBalancer) publish(c *doneCheck) {
	b.cc.UpdateState(balancer.State{ConnectivityState: connectivity.Connecting, Picker: &doneCheckPicker{b, c}})
}

// ResolverError implements balancer.Balancer.
func (doneCheckBalancer) ResolverError(error) {}

// UpdateSubConnState implements balancer.Balancer.
func (doneCheckBalancer) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

// ExitIdle implements balancer.Balancer.
func (doneCheckBalancer) ExitIdle() {}

// Close implements balancer.Balancer.
func (doneCheckBalancer) Close() {}

// A doneCheckPicker is the picker of a doneCheck.
type doneCheckPicker struct {
	b doneCheckBalancer
	c *doneCheck
}

// Pick implements balancer.Picker.
func (p *doneCheckPicker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	p.c.mu.Lock()
	picks := append(p.c.picks[info.FullMethodName], info.Ctx.Done())
	p.c.picks[info.FullMethodName] = picks
	p.c.mu.Unlock()
	if len(picks) == 1 {
		p.b.publish(p.c)
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	}
	return balancer.PickResult{}, errors.New("xdslb: the RPC is part of a check of gRPC")
}
