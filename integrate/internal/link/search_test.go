// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/xdslb/xdslb/integrate/internal/methodconfig"
)

// A client is a channel with a resolver that sends the service configs of a link.
type client struct {
	*grpc.ClientConn
	conn resolver.ClientConn // nil until build
	link *Link
	mu   sync.Mutex
	sent int // service configs
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
	if err != nil {
		t.Fatal(err)
	}
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
		if !c.hasEntry() {
			t.Error("the first service config has no entry during a search")
		}
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
