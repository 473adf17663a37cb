// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/internal/balancer"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/lbpolicy"
)

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

// TestResolverState: the resolver's state (D7) has the LB policy's name (A27-RES-5), an attribute
// from which the policy gets the XdsClient (A27-RES-7), and no addresses (A27-RES-6); it is sent at
// once, since the XdsClient is there from then on (A27-RES-3).
func TestResolverState(t *testing.T) {
	b, err := NewBuilder(Config{Linger: -1, Bootstrap: []byte(`{"xds_servers": [{"server_uri": "passthrough:///nowhere", "channel_creds": [{"type": "insecure"}]}]}`)})
	kit.Must(t, err)
	cc := &stateCC{}
	r, err := b.Build(resolver.Target{URL: url.URL{Scheme: "xds", Path: "/svc:80"}}, cc, resolver.BuildOptions{})
	kit.Must(t, err)
	defer r.Close()
	if len(cc.states) != 1 {
		t.Fatalf("%d states, want 1", len(cc.states))
	}
	s := cc.states[0]
	if len(s.Addresses)+len(s.Endpoints) != 0 {
		t.Errorf("addresses: %+v", s)
	}
	if source := balancer.SourceOf(s); source == nil || source != &r.(*xdsResolver).Source || source.Client == nil || source.Listener != "svc:80" || source.Authority != "svc:80" {
		t.Errorf("source of the configuration: %+v", source)
	}
	if !strings.Contains(cc.configs[0], `"loadBalancingConfig"`) || strings.Contains(cc.configs[0], "svc") {
		t.Errorf("service config %s, want the LB policy and nothing of the target", cc.configs[0])
	}
}

// TestWhoSharesClient: channels share an XdsClient unless their Configs require different connections or accept
// different resources. TestConfigsShareStream has the fields that do not matter.
func TestWhoSharesClient(t *testing.T) {
	bootstrap := []byte(`{"xds_servers": [{"server_uri": "passthrough:///nowhere", "channel_creds": [{"type": "insecure"}]}]}`)
	clientOf := func(cfg Config) *xds.Client {
		cfg.Bootstrap, cfg.Linger = bootstrap, -1
		b, err := NewBuilder(cfg)
		kit.Must(t, err)
		r, err := b.Build(resolver.Target{URL: url.URL{Scheme: "xds", Path: "/svc:80"}}, &stateCC{}, resolver.BuildOptions{})
		kit.Must(t, err)
		t.Cleanup(r.Close)
		return r.(*xdsResolver).Client
	}
	first := clientOf(Config{})
	for name, cfg := range map[string]Config{
		"Policies":                {Policies: new(lbpolicy.Registry)},
		"ControlPlaneDialOptions": {ControlPlaneDialOptions: []grpc.DialOption{grpc.WithNoProxy()}},
	} {
		if client := clientOf(cfg); client == first {
			t.Errorf("another %s: the channels share an XdsClient, want different ones", name)
		} else if again := clientOf(cfg); again != client {
			t.Errorf("another %s: channels with the same Config have different XdsClients", name)
		}
	}
}
