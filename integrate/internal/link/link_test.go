// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/internal/methodconfig"
)

// TestLinkLeavesNothing: whichever of bind and close comes first, a link that
// ended cannot be found, and pins no channel.
func TestLinkLeavesNothing(t *testing.T) {
	for _, bindFirst := range []bool{true, false} {
		l, cc := New(Options{}), new(grpc.ClientConn)
		if bindFirst {
			l.Bind(cc, 5)
			if got := channels.find(cc); got != l {
				t.Errorf("a bound channel has link %v", got)
			}
			l.Close()
		} else {
			l.Close()
			l.Bind(cc, 5)
		}
		if slices.Contains(All(), l) {
			t.Errorf("bind first %v: the link is still registered", bindFirst)
		}
		if channels.find(cc) != nil || channels.bound != 0 {
			t.Errorf("bind first %v: the link can be found by its channel", bindFirst)
		}
	}
}

// TestLinkIsReadable: channelz shows the entry of a link under a name of this package, with a
// readable timeout that differs between links.
func TestLinkIsReadable(t *testing.T) {
	seen := map[string]bool{}
	for range 3 {
		l := New(Options{})
		defer l.Close()
		m := l.MethodConfig()
		timeout, err := time.ParseDuration(m.Timeout)
		if err != nil || timeout != l.id || timeout > time.Hour || seen[m.Timeout] {
			t.Errorf("timeout %q: %v; want less than an hour, and another one for each link", m.Timeout, err)
		}
		seen[m.Timeout] = true
		if name := m.Name[0]["service"] + "/" + m.Name[0]["method"]; name != "xdslb.internal.Channel/Number" {
			t.Errorf("the entry is named %s", name)
		}
	}
}

// connected returns a channel of a target whose resolver gives it the method configs, and
// that has left idle mode.
func connected(t *testing.T, target string, methods ...methodconfig.Config) *grpc.ClientConn {
	t.Helper()
	scheme, _, _ := strings.Cut(target, ":")
	r := manual.NewBuilderWithScheme(scheme)
	r.BuildCallback = func(_ resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) {
		config, err := json.Marshal(map[string]any{"methodConfig": methods})
		kit.Must(t, err)
		r.InitialState(resolver.State{ServiceConfig: cc.ParseServiceConfig(string(config))})
	}
	cc, err := grpc.NewClient(target, grpc.WithResolvers(r), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithMaxCallAttempts(3))
	kit.Must(t, err)
	t.Cleanup(func() { _ = cc.Close() })
	cc.Connect()
	return cc
}

// TestLinkOf: channels of one target each lead to their own link, with the attempts that they
// allow, and to none once that is closed. Other channels lead to none, also if their methods
// have the timeout of a link's entry, by default or by its name.
func TestLinkOf(t *testing.T) {
	const target = "xdslb:///link-of"
	var all []*Link
	var channels []*grpc.ClientConn
	for range 3 {
		l := New(Options{Canonical: target})
		l.Register()
		defer l.Close()
		all, channels = append(all, l), append(channels, connected(t, target, l.MethodConfig()))
	}
	for i, cc := range channels {
		if got, attempts := named(cc); got != all[i] || attempts != 3 {
			t.Errorf("channel %d leads to link %v and allows %d attempts, want link %d and 3", i, got, attempts, all[i].Number())
		}
	}
	byDefault, retries := all[0].MethodConfig(), all[0].MethodConfig().RetryPolicy
	byDefault.Name = []map[string]string{{}}
	timeout := byDefault
	timeout.RetryPolicy = nil
	for name, cc := range map[string]*grpc.ClientConn{
		"the entry, and another target": connected(t, "xds:///another", all[0].MethodConfig()),
		"a default of another target":   connected(t, "xds:///another", byDefault),
		"a default timeout":             connected(t, target, timeout),
		"a default without timeout":     connected(t, target, methodconfig.Config{Name: byDefault.Name, RetryPolicy: retries}),
		"no method config":              connected(t, target),
		"another scheme":                connected(t, "passthrough:///x"),
	} {
		if got := Of(cc); got != nil {
			t.Errorf("%s: the channel leads to link %d, want none", name, got.Number())
		}
	}
	all[1].Close()
	if got := Of(channels[1]); got != nil {
		t.Errorf("a channel leads to link %d, which is closed", got.Number())
	}
}

// TestLinksByTarget: links are found by their targets, in their order, until they close.
func TestLinksByTarget(t *testing.T) {
	var all []*Link
	for i := range 6 {
		target := fmt.Sprintf("xds:///by-target-%d", i%2)
		l := New(Options{Canonical: target, Bypassed: i >= 2})
		l.Register()
		defer l.Close()
		all = append(all, l)
	}
	if got := To("xds:///by-target-1"); !slices.Equal(got, []*Link{all[1], all[3], all[5]}) {
		t.Errorf("To() = %v, want those of indexes 1, 3, 5 of %v", got, all)
	}
	for i, l := range all {
		if l.Close(); i == 3 && first(l.Canonical, isBypassed) != all[5] {
			t.Error("the last link that stands aside is not found")
		}
	}
	if got, one := To("xds:///by-target-1"), first("xds:///by-target-1", isBypassed); len(got) > 0 || one != nil {
		t.Errorf("links that are closed are found: %v, %v", got, one)
	}
}

// TestFindWaitsForConfirm checks that interceptors wait while another package's resolver is being
// built: they let RPCs pass once it is confirmed, and find this package's link if it is not.
func TestFindWaitsForConfirm(t *testing.T) {
	for _, confirmed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			const target = "xds:///confirm"
			r := manual.NewBuilderWithScheme("xds") // sends no state
			cc, err := grpc.NewClient(target, grpc.WithResolvers(r), grpc.WithTransportCredentials(insecure.NewCredentials()))
			kit.Must(t, err)
			defer func() { _ = cc.Close() }()
			cc.Connect()
			other := New(Options{Canonical: target, Bypassed: true})
			other.Register()
			defer other.Close()
			found := make(chan *Link, 1)
			go func() { found <- Find(context.Background(), cc) }()
			synctest.Wait()
			select {
			case l := <-found:
				t.Fatalf("Find() = %v before the decision", l)
			default:
			}
			var want *Link
			if confirmed {
				other.Confirm()
			} else {
				other.Close()
				want = New(Options{Canonical: target})
				want.Register()
				defer want.Close()
				config, err := json.Marshal(map[string]any{"methodConfig": []methodconfig.Config{want.MethodConfig()}})
				kit.Must(t, err)
				r.UpdateState(resolver.State{ServiceConfig: r.CC().ParseServiceConfig(string(config)), Addresses: []resolver.Address{{Addr: "127.0.0.1:0"}}})
			}
			if l := <-found; l != want {
				t.Errorf("confirmed %v: Find() = %v, want %v", confirmed, l, want)
			}
		})
	}
}

// A client is a channel with a resolver that sends the service configs of a link.
type client struct {
	*grpc.ClientConn
	conn resolver.ClientConn // nil until build
	link *Link
	mu   sync.Mutex
	sent int // service configs
	// first is the first one as text. Later ones may follow at once.
	first string
}

// newClient returns a channel of a target that has left idle mode. If build is not set, the test
// must call the method build.
func newClient(t *testing.T, opts Options, build bool, methods ...methodconfig.Config) *client {
	t.Helper()
	scheme, _, _ := strings.Cut(opts.Canonical, ":")
	r, c := manual.NewBuilderWithScheme(scheme), new(client)
	opts.Update = func() { c.send(t, methods) }
	c.link = New(opts)
	t.Cleanup(func() { c.link.Close() })
	r.BuildCallback = func(_ resolver.Target, conn resolver.ClientConn, _ resolver.BuildOptions) {
		if c.conn = conn; build {
			c.build(t, methods)
		}
	}
	var err error
	c.ClientConn, err = grpc.NewClient(opts.Canonical, grpc.WithResolvers(r), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithMaxCallAttempts(3))
	kit.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	c.Connect()
	return c
}

// build registers the link and sends the first service config.
func (c *client) build(t *testing.T, methods []methodconfig.Config) {
	c.link.Register()
	c.send(t, methods)
}

func (c *client) send(t *testing.T, methods []methodconfig.Config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent++
	config, err := json.Marshal(map[string]any{"methodConfig": c.link.Append(methods)})
	if err != nil {
		t.Error(err)
	}
	if c.sent == 1 {
		c.first = string(config)
	}
	parsed := c.conn.ParseServiceConfig(string(config))
	if parsed.Err != nil {
		t.Errorf("gRPC rejects the service config %s: %v", config, parsed.Err)
	}
	_ = c.conn.UpdateState(resolver.State{ServiceConfig: parsed})
}

// hasEntry reports whether the channel's service config has the entry of a link.
func (c *client) hasEntry() bool {
	return c.GetMethodConfig("/"+linkService+"/"+linkMethod).Timeout != nil
}

// TestSearch checks that each of several channels of one target is found by Of and by Find, and
// that their service configs have no entry afterwards.
func TestSearch(t *testing.T) {
	for name, find := range map[string]func(*grpc.ClientConn) *Link{
		"Of":   Of,
		"Find": func(cc *grpc.ClientConn) *Link { return Find(context.Background(), cc) },
	} {
		for _, intercepted := range []bool{false, true} {
			opts := Options{Canonical: fmt.Sprintf("xds:///search-%s-%v", name, intercepted), Intercepted: intercepted}
			var all []*client
			for range 4 {
				all = append(all, newClient(t, opts, true))
			}
			for i, c := range all {
				for again := range 2 {
					if l := find(c.ClientConn); l != c.link {
						t.Errorf("%s: intercepted %v: channel %d, search %d: got %v, want link %d", name, intercepted, i, again, l, c.link.Number())
					}
				}
				if l := c.link; l.MaxAttempts() != 3 || l.ClientConn() != c.ClientConn || l.Intercepted() != (intercepted || name == "Find") {
					t.Errorf("%s: channel %d: the link has %d attempts, channel %v, interceptors %v", name, i, l.MaxAttempts(), l.ClientConn(), l.Intercepted())
				}
				for k, other := range all {
					if want := intercepted && k > i; other.hasEntry() != want {
						t.Errorf("%s: intercepted %v: %d channels were found, and the entry of channel %d is there: %v, want %v", name, intercepted, i+1, k, !want, want)
					}
				}
			}
			if searches := registered.searches[opts.Canonical]; searches != 0 {
				t.Errorf("%d searches have not ended", searches)
			}
		}
	}
}

// TestSearchOfNewResolver checks that Find finds a channel whose resolver is built while it
// waits, also if the channel was not made with interceptors.
func TestSearchOfNewResolver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := Options{Canonical: "xds:///search-later"}
		c := newClient(t, opts, false)
		found := make(chan *Link, 1)
		go func() { found <- Find(context.Background(), c.ClientConn) }()
		synctest.Wait()
		c.build(t, nil)
		c.mu.Lock()
		if !strings.Contains(c.first, linkService) {
			t.Errorf("the first service config during a search is %s, want the entry", c.first)
		}
		c.mu.Unlock()
		c.conn.ReportError(errors.New("no endpoints")) // the channel's new state wakes Find
		if l := <-found; l != c.link || c.hasEntry() {
			t.Errorf("Find() = %v; the service config has the entry: %v, want false", l, c.hasEntry())
		}
	})
}

// TestSearchOfOtherChannels checks that a channel of another package's resolver, which is found by
// no search, changes the service configs of the target's other channels once and not for each RPC,
// but searches among channels that are built later.
func TestSearchOfOtherChannels(t *testing.T) {
	const target = "xds:///search-other"
	other := connected(t, target)
	for i := range 2 {
		c := newClient(t, Options{Canonical: target}, true)
		for range 3 {
			if l := Of(other); l != nil {
				t.Fatalf("the channel leads to link %d", l.Number())
			}
		}
		if c.sent != 3 || c.hasEntry() {
			t.Errorf("channel %d has sent %d service configs, want its own, one with the entry and one without; the last has the entry: %v", i, c.sent, c.hasEntry())
		}
	}
}

// TestRouteOfLink checks that a route for the path of the entry does not make gRPC reject the
// service config, and that all other routes are in it.
func TestRouteOfLink(t *testing.T) {
	route := func(service, method, timeout string) methodconfig.Config {
		name := map[string]string{"service": service}
		if method != "" {
			name["method"] = method
		}
		return methodconfig.Config{Name: []map[string]string{name}, Timeout: timeout}
	}
	c := newClient(t, Options{Canonical: "xds:///route-of-link", Intercepted: true}, true,
		route(linkService, linkMethod, "7s"), route(linkService, "", "8s"), route("s", "m", "9s"))
	if timeout := c.GetMethodConfig("/s/m").Timeout; timeout == nil || timeout.Seconds() != 9 {
		t.Errorf("the timeout of another route is %v, want 9 s", timeout)
	}
	if l := Of(c.ClientConn); l != c.link {
		t.Errorf("the channel leads to %v, want its own link", l)
	}
	for path, want := range map[string]float64{"/s/m": 9, "/" + linkService + "/" + linkMethod: 7, "/" + linkService + "/Other": 8} {
		if timeout := c.GetMethodConfig(path).Timeout; timeout == nil || timeout.Seconds() != want {
			t.Errorf("once the channel is known, the timeout of %s is %v, want %v s", path, timeout, want)
		}
	}
}

// TestTable compares a table with a map through random changes.
func TestTable(t *testing.T) {
	tab, want := newTable(), map[*grpc.ClientConn]*Link{}
	var all []*grpc.ClientConn
	var links []*Link
	for range 100 {
		all, links = append(all, new(grpc.ClientConn)), append(links, New(Options{}))
	}
	random := rand.New(rand.NewPCG(1, 2))
	for step := range 20_000 {
		n := 1 + step/200 // of which many, or few, are in the table
		cc, l := all[random.IntN(n)], links[random.IntN(2)]
		if random.IntN(2) == 0 {
			tab.set(cc, l)
			want[cc] = l
		} else {
			tab.remove(cc, l)
			if want[cc] == l {
				delete(want, cc)
			}
		}
		if got := tab.find(cc); got != want[cc] {
			t.Fatalf("step %d: find() = %v, want %v", step, got, want[cc])
		}
		if tab.bound != len(want) || 2*tab.used > len(*tab.slots.Load()) {
			t.Fatalf("step %d: %d channels, of which %d are known, %d slots in use of %d", step, len(want), tab.bound, tab.used, len(*tab.slots.Load()))
		}
	}
	for _, cc := range all {
		if got := tab.find(cc); got != want[cc] {
			t.Errorf("find() = %v, want %v", got, want[cc])
		}
	}
	if n := len(*tab.slots.Load()); n > 1024 {
		t.Errorf("the table of at most 100 channels has %d slots", n)
	}
}

// BenchmarkFind finds the links of channels in turn.
func BenchmarkFind(b *testing.B) {
	for name, n := range map[string]int{"channels=1": 1, "channels=16": 16, "channels=256": 256} {
		b.Run(name, func(b *testing.B) {
			var all []*grpc.ClientConn
			for range n {
				cc, l := new(grpc.ClientConn), New(Options{})
				l.Bind(cc, 1)
				b.Cleanup(func() { l.Close() })
				all = append(all, cc)
			}
			for i := 0; b.Loop(); i++ {
				if Find(b.Context(), all[i&(n-1)]) == nil {
					b.Fatal("no link")
				}
			}
		})
	}
}
