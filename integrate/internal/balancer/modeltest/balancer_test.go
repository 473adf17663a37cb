// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"context"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/credentials"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/xdslb/xdslb/integrate"
	lb "github.com/xdslb/xdslb/integrate/internal/balancer"
	"github.com/xdslb/xdslb/integrate/internal/counters"
	"github.com/xdslb/xdslb/integrate/internal/rollout"
	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/resource"
)

// This file builds balancers as gRPC builds them, makes RPCs as the interceptors make them, and runs
// the checks that need the balancer's state. Everything else goes through gRPC's interfaces.

// modelBootstrap has two servers, whose keys are modelServers.
const modelBootstrap = `{"node": {"id": "model"}, "xds_servers": [
	{"server_uri": "passthrough:///primary", "channel_creds": [{"type": "insecure"}]},
	{"server_uri": "passthrough:///secondary", "channel_creds": [{"type": "insecure"}]}]}`

// newModelBalancer returns the resolver and the LB policy as gRPC builds them, with the options of
// a channel. The interceptor answers the streams to the control plane.
func newModelBalancer(cc balancer.ClientConn, opts integrate.Config, creds credentials.TransportCredentials, interceptor grpc.StreamClientInterceptor) (*lb.Balancer, resolver.Resolver) {
	states := &stateCC{}
	r, err := buildModel(states, opts, interceptor)
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
func buildModel(states *stateCC, opts integrate.Config, interceptor grpc.StreamClientInterceptor) (resolver.Resolver, error) {
	opts.Linger, opts.Resources.Timeout = -1, 1e6*time.Hour
	opts.ControlPlaneDialOptions = []grpc.DialOption{grpc.WithChainStreamInterceptor(interceptor)}
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

// avoidingTried is the context of an RPC as the interceptor makes it. If its route requires it, its
// attempts avoid endpoints that earlier attempts have picked.
func avoidingTried(ctx context.Context, b *lb.Balancer, method string) (of context.Context, bound bool) {
	table := b.Table()
	if table.Plans == nil {
		return ctx, false
	}
	ctx, call := rpc.Bind(ctx, table, method)
	return ctx, call != nil && call.Tried() != nil
}

// breakersInUse returns the number of circuit breakers in the process.
func breakersInUse() (n int) {
	counters.Breakers(func(string, string, *counters.Breaker) { n++ })
	return n
}

// statusIn returns the result of Channel.Inspect, or Channel.Status, for the balancer's channel.
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

func (t *history) checkPublished() {
	var err error
	if t.published, err = t.lb.CheckPublished(t.published); err != nil {
		t.Fatalf("%v", err)
	}
}

func init() { lb.SetShutdownDelay(0) }

// defaulted returns the options of a channel, with defaults for those that are not set.
func defaulted(c integrate.Config) *lb.Options {
	return lb.Options{FailoverTimeout: c.FailoverTimeout, RetireAfter: c.RetireAfter}.WithDefaults()
}

// delegates reports whether a policy has balancers of gRPC's registry as children.
func delegates(p *picker.Policy) bool { return p.Kind.Traits().Connects }

func multiAddressed(e *picker.Endpoint) bool { return e.Extra != nil && len(e.Extra.Addrs) > 0 }

func hostname(e *picker.Endpoint) string {
	if e.Extra == nil {
		return ""
	}
	return e.Extra.Hostname
}

// addr returns the address of the endpoint with a number.
func addr(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 80)
}

// member returns an endpoint of weight 1.
func member(n int) picker.Endpoint { return picker.Endpoint{Addr: addr(n), Weight: 1} }

// zone returns a priority of one locality.
func zone(name string, endpoints ...picker.Endpoint) picker.Priority {
	return picker.Priority{Localities: []picker.Locality{{ID: picker.LocalityID{Zone: name}, Weight: 1, Endpoints: picker.ListOf(endpoints...)}}}
}

// configOf returns a configuration that routes all RPCs to a cluster c of one leaf.
func configOf(leaf picker.Leaf) *picker.Config {
	leaf.Name, leaf.Service, leaf.MaxRequests = "c", "c", 1024
	return &picker.Config{
		Routes:   []picker.Route{{Clusters: []picker.WeightedCluster{{Name: "c", Weight: 1}}}},
		Clusters: []*picker.Cluster{{Name: "c", Leaves: []picker.Leaf{leaf}}},
	}
}

// endpointIn returns the status of the endpoint with an address, or nil.
func endpointIn(c *report.RouteTarget, address string) *report.EndpointStatus {
	for _, l := range c.Status.Localities() {
		for k := range l.Endpoints {
			if e := &l.Endpoints[k]; e.Address == address || slices.Contains(e.More, address) {
				return e
			}
		}
	}
	return nil
}

// stateCC is gRPC's side of a resolver.
type stateCC struct {
	resolver.ClientConn // nil: any other method is not expected

	states  []resolver.State
	configs []string
}

func (cc *stateCC) UpdateState(s resolver.State) error {
	cc.states = append(cc.states, s)
	return nil
}

func (cc *stateCC) ParseServiceConfig(text string) *serviceconfig.ParseResult {
	cc.configs = append(cc.configs, text)
	return &serviceconfig.ParseResult{}
}

// environment has the values of the roll-out variables and the expected outcome.
type environment struct {
	disable, enable string
	variable        string // that selects grpc-go's resolver; empty if none does
	malformed       bool   // selects grpc-go's resolver to be safe
}

var environments = []environment{
	{disable: "model", variable: rollout.Disable},
	{disable: "other, mod*", variable: rollout.Disable},
	{disable: "xds:///model", enable: "model", variable: rollout.Disable},
	{disable: "ALL", variable: rollout.Disable},
	{enable: "other", variable: rollout.Enable},
	{enable: "none", variable: rollout.Enable},
	{disable: "other", enable: "other", variable: rollout.Enable},
	{disable: "[", enable: "model", variable: rollout.Disable, malformed: true},
	{enable: "other, [", variable: rollout.Enable, malformed: true},
	{disable: "other"},
	{disable: "none", enable: " model "},
	{enable: "[, model"},
	{disable: " , "},
}

// modelStock stands for the resolver of google.golang.org/grpc/xds.
type modelStock struct {
	resolver.Resolver // nil
	open, built       int
}

func (s *modelStock) Scheme() string { return "xds" }

func (s *modelStock) Build(_ resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	s.open++
	s.built++
	return s, cc.UpdateState(resolver.State{ServiceConfig: cc.ParseServiceConfig(`{"loadBalancingConfig": [{"stock": {}}]}`)})
}

func (s *modelStock) Close() { s.open-- }

// changeEnvironment changes the roll-out variables while the channel is idle. The channel may use
// grpc-go's resolver for a while, and this module's again.
func (t *history) changeEnvironment() {
	if t.Rand.IntN(3) > 0 {
		return
	}
	stock, before := &modelStock{}, rollout.Earlier
	rollout.Earlier = stock
	defer func() { rollout.Earlier = before }()
	for range 1 + t.Rand.IntN(3) {
		t.inEnvironment(environments[t.Rand.IntN(len(environments))], stock)
	}
	if stock.open != 0 {
		t.Fatalf("%d of grpc-go's resolvers are open after Close, want 0", stock.open)
	}
}

// inEnvironment has the channel leave idle mode with some roll-out variables, and go idle again.
func (t *history) inEnvironment(e environment, stock *modelStock) {
	t.Logf("the environment has %s=%q and %s=%q", rollout.Disable, e.disable, rollout.Enable, e.enable)
	for variable, value := range map[string]string{rollout.Disable: e.disable, rollout.Enable: e.enable} {
		if err := os.Setenv(variable, value); err != nil {
			panic(err)
		}
		defer func() { _ = os.Unsetenv(variable) }()
	}
	clients, channels, built := len(xds.Clients()), len(integrate.Channels()), stock.built
	states := &stateCC{}
	opts := t.options
	opts.Logger = slog.New(slog.DiscardHandler) // other tests look for such lines in the log
	r, err := buildModel(states, opts, t.servers.intercept)
	if err != nil {
		t.Fatalf("environment %+v: Build fails: %v", e, err)
	}
	own := len(xds.Clients()) - clients
	all := integrate.Channels()[channels:]
	switch {
	case len(all) != 1:
		t.Fatalf("environment %+v: %d channels, want 1", e, len(all))
	case e.variable == "" && (own != 1 || stock.built != built || lb.SourceOf(states.states[0]) == nil):
		t.Fatalf("environment %+v: %d xDS clients and %d resolvers of grpc-go, want this module's resolver", e, own, stock.built-built)
	case e.variable != "" && (own != 0 || stock.built != built+1 || lb.SourceOf(states.states[0]) != nil):
		t.Fatalf("environment %+v: %d xDS clients and %d resolvers of grpc-go, want grpc-go's resolver", e, own, stock.built-built)
	}
	s := all[0].Inspect()
	x, err := all[0].Explain(context.Background(), "/a/m")
	if x != nil || err == nil {
		t.Fatalf("Explain of a channel without configuration returns %v, want an error", x)
	}
	switch v := s.Rollout; {
	case e.variable == "" && (v != nil || s.Stock != ""):
		t.Fatalf("environment %+v: Status of a channel with this module's resolver is %+v, want no Rollout", e, s)
	case e.variable == "":
	case v == nil || v.Variable != e.variable || v.Malformed != e.malformed || !strings.Contains(s.Stock, e.variable) || !strings.Contains(err.Error(), s.Stock) || s.Clusters != nil:
		t.Fatalf("environment %+v: Status of a channel with grpc-go's resolver is %+v, want the variable in Rollout and Stock; Explain returns %v", e, s, err)
	case !strings.Contains(states.configs[0], `"stock"`) || !strings.Contains(states.configs[0], "methodConfig"):
		t.Fatalf("service config for grpc-go's resolver is %s, want policy and methodConfig", states.configs[0])
	}
	r.Close()
	t.drainEvents()
	if len(xds.Clients()) != clients || len(integrate.Channels()) != channels || slices.Contains(integrate.Channels(), all[0]) {
		t.Fatalf("environment %+v: %d clients and %d channels after Close, want %d and %d", e, len(xds.Clients()), len(integrate.Channels()), clients, channels)
	}
}
