// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"context"
	"net/netip"
	"net/url"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/credentials"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/integrate"
	lb "github.com/xdslb/xdslb/integrate/internal/balancer"
	"github.com/xdslb/xdslb/integrate/internal/counters"
	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/resource"
)

// This file builds balancers as gRPC builds them, makes RPCs as the interceptors make them, and runs
// the checks that need the balancer's state. Everything else goes through gRPC's interfaces.

// modelBootstrap has two servers, whose keys are modelServers.
const modelBootstrap = `{"node": {"id": "model"}, "xds_servers": [
	{"server_uri": "passthrough:///primary", "channel_creds": [{"type": "insecure"}]},
	{"server_uri": "passthrough:///secondary", "channel_creds": [{"type": "insecure"}]}]}`

// newModelBalancer returns the resolver and the LB policy as gRPC builds them,
// with a channel's options. The control plane's streams are what the interceptor
// makes of them.
func newModelBalancer(cc balancer.ClientConn, opts integrate.Config, creds credentials.TransportCredentials, control grpc.StreamClientInterceptor) (*lb.Balancer, resolver.Resolver) {
	states := &stateCC{}
	r, err := buildModel(states, opts, control)
	if err != nil {
		panic(err)
	}
	b := balancer.Get(lb.PolicyName).Build(cc, balancer.BuildOptions{DialCreds: creds}).(*lb.Balancer)
	if err := b.UpdateClientConnState(balancer.ClientConnState{ResolverState: states.states[0]}); err != nil {
		panic(err)
	}
	return b, r
}

// buildModel builds the resolver.
func buildModel(states *stateCC, opts integrate.Config, control grpc.StreamClientInterceptor) (resolver.Resolver, error) {
	opts.Linger, opts.Resources.Timeout = -1, 1e6*time.Hour
	opts.ControlPlaneDialOptions = []grpc.DialOption{grpc.WithChainStreamInterceptor(control)}
	opts.Bootstrap = []byte(modelBootstrap)
	builder, err := integrate.NewBuilder(opts)
	if err != nil {
		return nil, err
	}
	return builder.Build(resolver.Target{URL: url.URL{Scheme: "xds", Path: "/model"}}, states, resolver.BuildOptions{MetricsRecorder: estats.UnimplementedMetricsRecorder{}})
}

// modelServers returns the keys of the servers that load can be reported to.
func modelServers() (keys []string) {
	cfg, err := bootstrap.Parser{}.Parse("model", []byte(modelBootstrap))
	if err != nil {
		panic(err)
	}
	for _, s := range cfg.Servers {
		keys = append(keys, s.Key())
	}
	return keys
}

// sessionFilter is the HTTP filter of session affinity as the XdsClient decodes it.
func sessionFilter() picker.Filter {
	return picker.Filter{Name: "session", Config: &resource.Session{Cookie: "c", Path: "/"}}
}

// inSessionWith is the context of an RPC whose cookie names an endpoint, as the
// interceptor makes it.
func inSessionWith(ctx context.Context, b *lb.Balancer, method string, host netip.AddrPort) context.Context {
	table := b.Table()
	if table.Plans == nil {
		return ctx
	}
	ctx, call := rpc.Bind(ctx, table, method)
	if call != nil {
		call.StartSession([]netip.AddrPort{host})
	}
	return ctx
}

// avoidingTried is the context of an RPC whose attempts avoid endpoints that were tried, if
// its route says so, as the interceptor makes it.
func avoidingTried(ctx context.Context, b *lb.Balancer, method string) (of context.Context, bound bool) {
	table := b.Table()
	if table.Plans == nil {
		return ctx, false
	}
	ctx, call := rpc.Bind(ctx, table, method)
	return ctx, call != nil && call.Tried() != nil
}

// breakersInUse is how many circuit breakers the process has.
func breakersInUse() (n int) {
	counters.Breakers(func(string, string, *counters.Breaker) { n++ })
	return n
}

// statusIn returns what Channel.Inspect, or Channel.Status, returns for the balancer's channel.
func statusIn(b *lb.Balancer, detailed bool) report.TargetStatus {
	for _, c := range integrate.Channels() {
		switch {
		case c.Number() != b.Channel().Number():
		case detailed:
			return c.Inspect()
		default:
			return c.Status()
		}
	}
	return report.TargetStatus{}
}

func (t *trial) checkReplacements() {
	if err := t.lb.CheckReplacements(); err != nil {
		t.Fatalf("%v", err)
	}
}

func (t *trial) checkPublished() {
	var err error
	if t.published, err = t.lb.CheckPublished(t.published); err != nil {
		t.Fatalf("%v", err)
	}
}
