// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"errors"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/integrate/internal/link"
	"github.com/xdslb/xdslb/integrate/internal/methodconfig"
	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/integrate/internal/weights"
	"github.com/xdslb/xdslb/picker"
)

func init() { Register() }

// Config has the fields of integrate.Config that tests of this package set.
type Config struct {
	FailoverTimeout       time.Duration
	RetireAfter           time.Duration
	IgnoreEndpointWeights bool
	DefaultMaxRequests    uint32
	HealthCheckService    string
	Logger                *slog.Logger
}

func (c Config) options() *Options {
	return Options{
		FailoverTimeout:       c.FailoverTimeout,
		RetireAfter:           c.RetireAfter,
		IgnoreEndpointWeights: c.IgnoreEndpointWeights,
		DefaultMaxRequests:    c.DefaultMaxRequests,
		HealthChecks:          c.HealthCheckService != "",
		Logger:                c.Logger,
	}.WithDefaults()
}

// TestSubset: a channel connects to the policy's number of endpoints of a priority, of all
// localities together, and to the same ones after an update; another channel has others (A68).
func TestSubset(t *testing.T) {
	subset := func(endpoints ...[]picker.Endpoint) *picker.Config {
		c := clusterOf("c", prio(endpoints...))
		c.Leaves[0].Policy.Subset = 8
		return configOf(c)
	}
	whole := subset(eps(series(0, 60)...), eps(series(60, 40)...))
	b, cc := newTestLB(t, Config{})
	b.Update(whole)
	mine := cc.open(100)
	if len(mine) != 8 {
		t.Fatalf("of 100 endpoints the channel connects to %d, want 8", len(mine))
	}
	b.ready(t, mine...)
	wantPick(t, b, mine...)

	// Without one of its endpoints the channel takes another and keeps seven.
	left := slices.DeleteFunc(series(0, 100), func(n int) bool { return n == mine[0] })
	b.Update(subset(eps(left...)))
	b.flush()
	now := cc.open(100)
	kept := 0
	for _, n := range now {
		if slices.Contains(mine, n) {
			kept++
		}
	}
	if len(now) != 8 || kept != 7 || slices.Contains(now, mine[0]) {
		t.Errorf("after endpoint %d left the channel has %v of %v, want 7 of them and one other", mine[0], now, mine)
	}

	other, occ := newTestLB(t, Config{})
	other.Update(whole)
	if slices.Equal(occ.open(100), mine) {
		t.Errorf("two channels have the same subset %v", mine)
	}
}

// TestWeightsCount: endpoint weights make a difference where a locality's differ and
// the policy is ROUND_ROBIN or LEAST_REQUEST, unless they are to be ignored (D2).
func TestWeightsCount(t *testing.T) {
	equal, unequal := eps(0, 1), eps(2, 3)
	for i := range equal {
		equal[i].Weight = 5
	}
	unequal[1].Weight = 2
	for _, tt := range []struct {
		name    string
		cluster *picker.Cluster
		ignore  bool
		want    bool
	}{
		{"equal", clusterOf("c", prio(equal)), false, false},
		{"equal in each locality", clusterOf("c", prio(equal, eps(4, 5))), false, false},
		{"unequal", clusterOf("c", prio(equal, unequal)), false, true},
		{"unequal in a lower priority", clusterOf("c", prio(equal), prio(unequal)), false, true},
		{"unequal but ignored", clusterOf("c", prio(unequal)), true, false},
		{"of least request", least(clusterOf("c", prio(unequal))), false, true},
		{"of least request but ignored", least(clusterOf("c", prio(unequal))), true, false},
		{"of least latency", latency(clusterOf("c", prio(unequal))), false, true},
		{"of least latency but ignored", latency(clusterOf("c", prio(unequal))), true, false},
		{"of a ring", ring(clusterOf("c", prio(unequal))), false, false},
	} {
		b, _ := newTestLB(t, Config{IgnoreEndpointWeights: tt.ignore})
		if got := weights.Matter(b.adapt.config(&b.list, configOf(tt.cluster), []int{0}).Clusters[0]); got != tt.want {
			t.Errorf("%s: weights count: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// least makes the cluster pick by LEAST_REQUEST.
func least(c *picker.Cluster) *picker.Cluster {
	c.Leaves[0].Policy = picker.Policy{Kind: picker.PolicyLeastRequest, Least: &picker.LeastRequest{Choices: 2}}
	return c
}

// latency makes the cluster pick by least latency.
func latency(c *picker.Cluster) *picker.Cluster {
	c.Leaves[0].Policy = picker.Policy{Kind: picker.PolicyLeastLatency, Latency: &picker.LeastLatency{Decay: time.Second}}
	return c
}

// TestIgnoreEndpointWeights: the option makes ROUND_ROBIN and LEAST_REQUEST give all
// endpoints the same share (A27-CLA-9, A48); without it they are picked by weight (D2).
func TestIgnoreEndpointWeights(t *testing.T) {
	for _, tt := range []struct {
		ignore bool
		policy picker.Policy
		within int // random variation of the shares: seven deviations
	}{
		{false, picker.Policy{}, 0},
		{true, picker.Policy{}, 0},
		{false, picker.Policy{Kind: picker.PolicyLeastRequest, Least: &picker.LeastRequest{Choices: 2}}, 70},
		{true, picker.Policy{Kind: picker.PolicyLeastRequest, Least: &picker.LeastRequest{Choices: 2}}, 70},
	} {
		b, cc := newTestLB(t, Config{IgnoreEndpointWeights: tt.ignore})
		weighted := eps(1, 2)
		weighted[0].Weight = 3
		cfg := configOf(clusterOf("c", prio(weighted)))
		cfg.Clusters[0].Leaves[0].Policy = tt.policy
		b.Update(cfg)
		b.ready(t, 1, 2)
		b.Update(&picker.Config{Routes: cfg.Routes, Clusters: cfg.Clusters}) // the same clusters
		got := b.shares(t, 400)[1]
		want := 300
		if tt.ignore {
			want = 200
		}
		if got < want-tt.within || got > want+tt.within {
			t.Errorf("IgnoreEndpointWeights %v, policy %v: %d of 400 picks went to the endpoint of weight 3 of 4, want %d", tt.ignore, tt.policy.Kind, got, want)
		}
		if cc.Opened != 2 {
			t.Errorf("opened %d connections, want 2", cc.Opened)
		}
	}
}

// TestLargeSubset: a subset_size above the number of endpoints, up to the largest uint32, keeps
// all of them.
func TestLargeSubset(t *testing.T) {
	for _, size := range []uint32{2, math.MaxInt32 + 1, math.MaxUint32} {
		synctest.Test(t, func(t *testing.T) {
			b, cc := newTestLB(t, Config{})
			c := clusterOf("c", prio(eps(1, 2)))
			c.Leaves[0].Policy.Subset = size
			b.Update(configOf(c))
			b.flush()
			if !cc.has(1) || !cc.has(2) {
				t.Errorf("subset_size %d: connections to endpoints 1: %t, 2: %t", size, cc.has(1), cc.has(2))
			}
		})
	}
}

// TestKernelAddr checks that addresses of resolvers that differ in their text or server name differ
// in the kernel too, and that IP addresses and DNS names keep their text.
func TestKernelAddr(t *testing.T) {
	seen := map[netip.AddrPort]resolver.Address{}
	for _, a := range []resolver.Address{
		{Addr: "10.0.0.1:80"}, {Addr: "10.0.0.1:80", ServerName: "a"}, {Addr: "10.0.0.1:80 \"a\""}, {Addr: "010.0.0.1:80"},
		{Addr: "[::1]:80"}, {Addr: "[::1%eth0]:80"}, {Addr: "[::%a]:0"}, {Addr: "a.example:80"}, {Addr: "a.example"}, {Addr: ":80"}, {Addr: ""},
		{Addr: "/run/a.sock"}, {Addr: "unix:/run/a.sock"}, {Addr: "bufnet"}, {ServerName: "bufnet"},
	} {
		key := kernelAddr(a)
		if !key.IsValid() {
			t.Errorf("%v has no valid address", a)
		}
		if b, ok := seen[key]; ok {
			t.Errorf("%v and %v have the same address %v", a, b, key)
		}
		seen[key] = a
	}
	for _, text := range []string{"10.0.0.1:80", "[::1]:80", "a.example:80"} {
		if got := picker.AddrText(kernelAddr(resolver.Address{Addr: text})); got != text {
			t.Errorf("address %q is %q", text, got)
		}
	}
}

// TestForgetMethodConfigs checks that the timeouts and retries of routes are withdrawn from gRPC once
// the target has an error, and sent again with its next configuration.
func TestForgetMethodConfigs(t *testing.T) {
	b, _ := newTestLB(t, Config{})
	var sent []methodconfig.Config
	b.src = &Source{
		Channel:   rpc.NewChannel(link.Options{}, rpc.ChannelOptions{}),
		Configure: func(methods []methodconfig.Config) { sent = methods },
	}
	limit := 77 * time.Millisecond
	update := configOf(clusterOf("c", prio(eps(1))))
	update.Routes[0].Timeout = &limit
	for i, step := range []struct {
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
		if got := len(sent) > 0 && strings.HasPrefix(sent[0].Timeout, "0.077"); got != step.want {
			t.Errorf("step %d: method configs %+v, want a timeout of 77 ms: %t", i, sent, step.want)
		}
	}
}
