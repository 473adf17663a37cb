// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
)

// TestLinkOfOthers: to ask for the link of a channel that cannot have one changes no
// service config: whoever looks at all channels of a program may look at many.
func TestLinkOfOthers(t *testing.T) {
	updates := 0
	l := NewLink(LinkOptions{Update: func() { updates++ }})
	l.Register()
	defer l.Close()
	for _, target := range []string{"passthrough:///x", "dns:///localhost"} {
		cc, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		if got := LinkOf(cc); got != nil || updates != 0 {
			t.Errorf("%s: LinkOf() = %v, with %d updates of another channel's service config", target, got, updates)
		}
		if err := cc.Close(); err != nil {
			t.Error(err)
		}
	}
}

// testChannels are channels without interceptors, each with a link that its service config
// names when it is to.
type testChannels struct {
	ccs     []*grpc.ClientConn
	links   []*Link
	updates atomic.Int64 // how often links were asked to have gRPC told
}

// add adds a channel that is awake.
func (c *testChannels) add(t *testing.T) {
	t.Helper()
	r := manual.NewBuilderWithScheme("xdslb")
	var l *Link
	l = NewLink(LinkOptions{Update: func() {
		c.updates.Add(1)
		methods := []MethodConfig{}
		if l.ToBeNamed() {
			methods = append(methods, l.MethodConfig())
		}
		config, err := json.Marshal(map[string]any{"methodConfig": methods})
		if err != nil {
			t.Fatal(err)
		}
		r.UpdateState(resolver.State{ServiceConfig: r.CC().ParseServiceConfig(string(config))})
	}})
	r.InitialState(resolver.State{})
	cc := c.idle(t, grpc.WithResolvers(r))
	cc.Connect()
	l.Register()
	t.Cleanup(l.Close)
	c.ccs, c.links = append(c.ccs, cc), append(c.links, l)
}

// idle returns a channel that has no link.
func (c *testChannels) idle(t *testing.T, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient("xdslb:///x", append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// check checks that each channel from the first on has its own link.
func (c *testChannels) check(t *testing.T, first int) {
	t.Helper()
	for i := first; i < len(c.ccs); i++ {
		if got := LinkOf(c.ccs[i]); got != c.links[i] {
			t.Fatalf("LinkOf(channel %d) = %p, want %p", i, got, c.links[i])
		}
	}
}

// TestLinkOfAll: to look at n channels without interceptors, and at others that are idle,
// changes each service config twice: it names its link, and then no more. To look again
// changes none, and channels that come later cost as much as the first.
func TestLinkOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 50
		var c testChannels
		for range n {
			c.add(t)
		}
		round := func(first int, want int64) {
			t.Helper()
			c.updates.Store(0)
			c.check(t, first)
			for range n {
				if l := LinkOf(c.idle(t, grpc.WithResolvers(manual.NewBuilderWithScheme("xdslb")))); l != nil {
					t.Errorf("an idle channel has link %d", l.Number())
				}
			}
			if time.Sleep(10 * searchTime); c.updates.Load() != want {
				t.Errorf("%d updates of service configs, want %d", c.updates.Load(), want)
			}
		}
		round(0, 2*n)
		round(0, 0)
		for range n {
			c.add(t)
		}
		round(n, 2*n)
	})
}

// TestSearchEnds: a service config names its link for a while, if that is not found. While
// others are, a search goes on, so a round may take its time.
func TestSearchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c testChannels
		for range 9 {
			c.add(t)
		}
		for i := range 8 {
			if got := LinkOf(c.ccs[i]); got != c.links[i] || got.ToBeNamed() {
				t.Errorf("LinkOf(channel %d) = %p, named %v; want %p, not named any more", i, got, got.ToBeNamed(), c.links[i])
			}
			if time.Sleep(searchTime * 3 / 4); !c.links[8].ToBeNamed() {
				t.Errorf("the search has ended after %d channels", i)
			}
		}
		if time.Sleep(3 * searchTime); c.links[8].ToBeNamed() || c.updates.Load() != 2*9 {
			t.Errorf("after %d updates of service configs the link of a channel that nobody looked at is named: %v", c.updates.Load(), c.links[8].ToBeNamed())
		}
		c.links[8].Close()
		if _, ok := unsought.Load(c.links[8]); ok {
			t.Error("a link that is closed is still to be named")
		}
		c.links[8] = nil
		c.check(t, 8)
	})
}

// TestLinksByTarget: links are found by their targets, in their order, until they close.
func TestLinksByTarget(t *testing.T) {
	var all []*Link
	for i := range 6 {
		target := fmt.Sprintf("xds:///by-target-%d", i%2)
		l := NewLink(LinkOptions{Update: func() {}, Canonical: target, Aside: i >= 2})
		l.Register()
		defer l.Close()
		all = append(all, l)
	}
	if got := LinksTo("xds:///by-target-1"); !slices.Equal(got, []*Link{all[1], all[3], all[5]}) {
		t.Errorf("LinksTo() = %v, want those of indexes 1, 3, 5 of %v", got, all)
	}
	for i, l := range all {
		if l.Close(); i == 3 && aside.any(l.Canonical) != all[5] {
			t.Error("the last link that stands aside is not found")
		}
	}
	if got, one := LinksTo("xds:///by-target-1"), aside.any("xds:///by-target-1"); len(got) > 0 || one != nil || len(aside.links) > 0 {
		t.Errorf("links that are closed are found: %v, %v", got, one)
	}
}
