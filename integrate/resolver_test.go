// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
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

// TestResolverState: what gRPC hears of the resolver (D7) is the LB policy's name
// (A27-RES-5), a way for that to find the XdsClient (A27-RES-7), and no addresses
// (A27-RES-6); at once, since the XdsClient is there from then on (A27-RES-3).
func TestResolverState(t *testing.T) {
	b, err := NewBuilder(Config{Linger: -1, Bootstrap: []byte(`{"xds_servers": [{"server_uri": "passthrough:///nowhere", "channel_creds": [{"type": "insecure"}]}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	cc := &stateCC{}
	r, err := b.Build(resolver.Target{URL: url.URL{Scheme: "xds", Path: "/svc:80"}}, cc, resolver.BuildOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if len(cc.states) != 1 {
		t.Fatalf("%d states, want 1", len(cc.states))
	}
	s := cc.states[0]
	if len(s.Addresses)+len(s.Endpoints) != 0 {
		t.Errorf("addresses: %+v", s)
	}
	if source := sourceOf(s); source == nil || source != r || source.client == nil || source.listener != "svc:80" || source.authority != "svc:80" {
		t.Errorf("source of the configuration: %+v", source)
	}
	if !strings.Contains(cc.configs[0], `"loadBalancingConfig"`) || strings.Contains(cc.configs[0], "svc") {
		t.Errorf("service config %s, want the LB policy and nothing of the target", cc.configs[0])
	}
}
