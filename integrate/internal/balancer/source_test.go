// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

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

// TestForgetMethodConfigs: once the target cannot be served, gRPC is told of no
// timeouts and retries of its former routes; and of those of the next ones.
func TestForgetMethodConfigs(t *testing.T) {
	cfg := Config{Linger: -1, Bootstrap: []byte(`{"xds_servers": [{"server_uri": "passthrough:///nowhere", "channel_creds": [{"type": "insecure"}]}]}`)}
	cc := &stateCC{}
	r, err := BuildResolver(cfg, resolver.Target{URL: url.URL{Scheme: "xds", Path: "/svc:80"}}, cc, resolver.BuildOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, _ := newTestLB(t, Config{})
	b.src = SourceOf(cc.states[0])
	limit := 77 * time.Millisecond
	update := configOf(clusterOf("c", prio(eps(1))))
	update.Routes[0].Timeout = &limit
	for _, step := range []struct {
		update func()
		want   bool
	}{
		{func() { b.Update(update) }, true},
		{func() { b.Error(errors.New("deleted")) }, false},
		{func() { b.Update(update) }, true},
		{func() { b.Error(errors.New("deleted")); b.Update(update) }, true},
		{func() { b.Update(update); b.Error(errors.New("deleted")) }, false},
	} {
		step.update()
		b.calm()
		if last := cc.configs[len(cc.configs)-1]; strings.Contains(last, `"timeout":"0.077`) != step.want {
			t.Errorf("after %d service configs the last is %s, want a timeout: %v", len(cc.configs), last, step.want)
		}
	}
}
