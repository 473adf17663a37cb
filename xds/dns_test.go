// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/resolver"
)

// fakeDNS is a resolver.Builder whose answers tests give.
type fakeDNS struct {
	mu    sync.Mutex
	conns map[string]resolver.ClientConn // by name, open ones only
	again int                            // ResolveNow calls
	built int                            // resolvers
	at    map[string][]string            // addresses that Build reports at once
}

func (d *fakeDNS) Scheme() string { return "dns" }

func (d *fakeDNS) Build(target resolver.Target, cc resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error) {
	name := target.Endpoint()
	if strings.HasPrefix(name, "bad") {
		return nil, errors.New("no such name")
	}
	d.mu.Lock()
	d.conns[name] = cc
	d.built++
	at := d.at[name]
	d.mu.Unlock()
	if !opts.DisableServiceConfig {
		return nil, errors.New("service configs in DNS are not for xDS clusters")
	}
	if at != nil {
		_ = cc.UpdateState(state(at...))
	}
	return &fakeResolver{d, name}, nil
}

type fakeResolver struct {
	d    *fakeDNS
	name string
}

func (r *fakeResolver) ResolveNow(resolver.ResolveNowOptions) {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	r.d.again++
}

func (r *fakeResolver) Close() {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	delete(r.d.conns, r.name)
}

func (d *fakeDNS) conn(name string) resolver.ClientConn {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.conns[name]
}

func state(addrs ...string) (s resolver.State) {
	for _, a := range addrs {
		s.Addresses = append(s.Addresses, resolver.Address{Addr: a})
	}
	return s
}

// TestLogicalDNS checks the clusters whose endpoints come from DNS (A37, A61):
// one endpoint with all addresses, in a nameless locality, and the errors.
func TestLogicalDNS(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dns := &fakeDNS{conns: map[string]resolver.ClientConn{}}
		h, cp := only(t, Options{DNS: dns})
		cp.serve(listenerTo("svc", "r"), routesTo("r", "c"), dnsCluster("c", "db.example.com", 8080))
		w := h.watch("svc")
		cc := dns.conn("db.example.com:8080")
		if w.got().updates != 0 {
			t.Fatal("an update before the name is resolved")
		}
		cc.ReportError(errors.New("SERVFAIL"))
		leaf := w.cluster(t, "c").Leaves[0]
		if len(leaf.Priorities) != 0 || leaf.ResolutionNote == nil || !strings.Contains(leaf.ResolutionNote.Error(), "SERVFAIL") || !strings.Contains(leaf.ResolutionNote.Error(), "db.example.com") {
			t.Errorf("leaf = %+v, want none, and why", leaf)
		}
		_ = cc.UpdateState(state("10.0.0.1:8080", "[::ffff:10.0.0.2]:8080", "10.0.0.1:8080"))
		leaf = w.cluster(t, "c").Leaves[0]
		if leaf.ResolutionNote != nil || leaf.Service != "" {
			t.Errorf("note = %v, service = %q; want neither", leaf.ResolutionNote, leaf.Service)
		}
		e := leaf.Priorities[0].Localities[0].Endpoints.Slice()
		if len(e) != 1 || e[0].Addr.String() != "10.0.0.1:8080" || fmt.Sprint(e[0].Extra.Addrs) != "[10.0.0.2:8080]" || e[0].Extra.Hostname != "db.example.com" {
			t.Errorf("endpoints = %+v %+v", e, e[0].Extra)
		}
		updates := w.got().updates
		_ = cc.UpdateState(state("10.0.0.2:8080", "10.0.0.1:8080"))
		if n := w.got().updates; n != updates {
			t.Error("another order of the addresses was news")
		}
		if err := cc.UpdateState(state()); err == nil {
			t.Error("no addresses at all were accepted")
		}
		leaf = w.cluster(t, "c").Leaves[0]
		if len(leaf.Priorities) != 1 || leaf.ResolutionNote == nil {
			t.Errorf("leaf = %+v, want the last addresses, and a note", leaf)
		}

		h.c.ResolveNow()
		synctest.Wait()
		if dns.again != 1 {
			t.Errorf("%d look-ups asked for, want 1", dns.again)
		}

		cp.serve(dnsCluster("c", "bad.example.com", 1))
		if leaf := w.cluster(t, "c").Leaves[0]; leaf.ResolutionNote == nil || !strings.Contains(leaf.ResolutionNote.Error(), "no such name") {
			t.Errorf("leaf = %+v", leaf)
		}
		if dns.conn("db.example.com:8080") != nil {
			t.Error("the old name is still resolved")
		}
		_ = cc.UpdateState(state("10.0.0.9:1")) // too late
		cp.serve(routesTo("r", "other"), clusterTo("other", "other"), endpointsAt("other", 1))
		w.cluster(t, "other")
		if err := cc.ParseServiceConfig("{}").Err; err == nil {
			t.Error("a service config was accepted")
		}
	})
}

// TestDNSInBuild checks that a resolver may answer while it is being built, and
// that grpc's does for addresses.
func TestDNSInBuild(t *testing.T) {
	for _, dns := range []resolver.Builder{nil, &fakeDNS{conns: map[string]resolver.ClientConn{}, at: map[string][]string{"10.0.0.7:70": {"10.0.0.7:70"}}}} {
		bubble(t, func(t *testing.T) {
			h, cp := only(t, Options{DNS: dns})
			cp.serve(listenerTo("svc", "r"), routesTo("r", "c"), dnsCluster("c", "10.0.0.7", 70))
			w := h.watch("svc")
			h.c.ResolveNow()
			w.serves(t, "c", "c 70")
		})
	}
}

// TestResolveNowCost checks that ResolveNow, which gRPC calls for each connection that fails, costs
// the DNS names that are looked up and nothing for other resources; and that a name is not looked
// up any more when it is not in use.
func TestResolveNowCost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dns := &fakeDNS{conns: map[string]resolver.ClientConn{}}
		h, cp := only(t, Options{DNS: dns, Linger: -1})
		looked := func() int {
			synctest.Wait()
			h.c.mu.Lock()
			defer h.c.mu.Unlock()
			return len(h.c.lookups.running)
		}
		cp.serve(listenerTo("svc", "r"), routesTo("r", "a", "c", "d"), aggregateOf("a", "c", "d", "e"),
			dnsCluster("c", "c.example.com", 1), dnsCluster("d", "d.example.com", 1), clusterTo("e", "e"), endpointsAt("e", 1))
		w := h.watch("svc")
		if n := looked(); n != 2 {
			t.Errorf("%d names are looked up, want 2 of %d resources", n, h.entries())
		}
		h.c.ResolveNow()
		if synctest.Wait(); dns.again != 2 {
			t.Errorf("%d look-ups asked for, want 2", dns.again)
		}
		for _, name := range []string{"c.example.com:1", "d.example.com:1"} {
			_ = dns.conn(name).UpdateState(state("10.0.0.1:1"))
		}
		w.cluster(t, "a")
		cp.serve(routesTo("r", "e"))
		if n := looked(); n != 0 || len(w.must(t).Clusters) != 1 {
			t.Errorf("%d names are looked up that no cluster has", n)
		}
		h.c.ResolveNow()
		if synctest.Wait(); dns.again != 2 {
			t.Error("a name that no cluster has is looked up again")
		}
		w.cancel()
	})
}
