// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"

	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/integrate"
	lb "github.com/xdslb/xdslb/integrate/internal/balancer"
	"github.com/xdslb/xdslb/integrate/internal/rollout"
	"github.com/xdslb/xdslb/xds"
)

// environment is what the variables for roll-out say, and whose the channel is by that.
type environment struct {
	disable, enable string
	variable        string // that hands it to stock; empty if it is ours
	malformed       bool   // for safety
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

// modelStock is google.golang.org/grpc/xds's resolver.
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

// handOver has the environment change while the channel is idle, which may make it stock's
// for a while, and ours again.
func (t *trial) handOver() {
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
		t.Fatalf("%d resolvers of stock's are left open", stock.open)
	}
}

// inEnvironment has the channel leave idle mode in an environment, and go idle again.
func (t *trial) inEnvironment(e environment, stock *modelStock) {
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
		t.Fatalf("with %+v there is no channel: %v", e, err)
	}
	own := len(xds.Clients()) - clients
	all := integrate.Channels()[channels:]
	switch {
	case len(all) != 1:
		t.Fatalf("with %+v there are %d channels", e, len(all))
	case e.variable == "" && (own != 1 || stock.built != built || lb.SourceOf(states.states[0]) == nil):
		t.Fatalf("with %+v the channel is not ours", e)
	case e.variable != "" && (own != 0 || stock.built != built+1 || lb.SourceOf(states.states[0]) != nil):
		t.Fatalf("with %+v the channel is not stock's", e)
	}
	s := all[0].Inspect()
	x, err := all[0].Explain(context.Background(), "/a/m")
	if x != nil || err == nil {
		t.Fatalf("a channel that is stock's, or has no configuration, is explained: %v", x)
	}
	switch v := s.Rollout; {
	case e.variable == "" && (v != nil || s.Stock != ""):
		t.Fatalf("with %+v the status of a channel that is ours is %+v", e, s)
	case e.variable == "":
	case v == nil || v.Variable != e.variable || v.Malformed != e.malformed || !strings.Contains(s.Stock, e.variable) || !strings.Contains(err.Error(), s.Stock) || s.Clusters != nil:
		t.Fatalf("with %+v the status of a channel that is stock's is %+v, and it is not explained: %v", e, s, err)
	case !strings.Contains(states.configs[0], `"stock"`) || !strings.Contains(states.configs[0], "methodConfig"):
		t.Fatalf("stock's service config is %s", states.configs[0])
	}
	r.Close()
	t.rest()
	if len(xds.Clients()) != clients || len(integrate.Channels()) != channels || slices.Contains(integrate.Channels(), all[0]) {
		t.Fatalf("with %+v something is left of a channel that is closed", e)
	}
}
