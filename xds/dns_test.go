// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc/resolver"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/bootstrap"
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

// strictCluster returns a STRICT_DNS cluster of hosts on port 80. Host i has the weight i+1.
func strictCluster(name string, hosts ...string) *clusterv3.Cluster {
	c := dnsCluster(name, hosts[0], 80)
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS}
	c.DnsRefreshRate = durationpb.New(time.Millisecond) // a second is used
	l := c.LoadAssignment.Endpoints[0]
	l.LbEndpoints = nil
	for i, host := range hosts {
		e := dnsCluster("", host, 80).LoadAssignment.Endpoints[0].LbEndpoints[0]
		e.LoadBalancingWeight = wrapperspb.UInt32(uint32(i + 1))
		l.LbEndpoints = append(l.LbEndpoints, e)
	}
	return c
}

// endpointsOf formats the endpoints of the only leaf: address*weight, by locality and priority.
func endpointsOf(c *picker.Cluster) string {
	var b strings.Builder
	for _, p := range c.Leaves[0].Priorities {
		for _, l := range p.Localities {
			fmt.Fprintf(&b, "|%s", l.ID.Zone)
			for _, e := range l.Endpoints.All() {
				fmt.Fprintf(&b, " %v*%d", e.Addr.Addr(), e.Weight)
			}
		}
	}
	return b.String()
}

// TestStrictDNS: each address of a STRICT_DNS cluster is an endpoint with the weight of its name, and the
// name as its hostname. Names are looked up again at the refresh rate, which is at least a second. A
// failure, also for only one name, keeps the previous addresses.
func TestStrictDNS(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dns := &fakeDNS{conns: map[string]resolver.ClientConn{}}
		h, cp := only(t, Options{DNS: dns})
		c := strictCluster("c", "a.example", "b.example", "10.0.0.9")
		l := c.LoadAssignment.Endpoints[0]
		lower := &endpointv3.LocalityLbEndpoints{Locality: &corev3.Locality{Zone: "z"}, Priority: 1, LbEndpoints: l.LbEndpoints[1:2]}
		l.LbEndpoints = append(l.LbEndpoints[:1:1], l.LbEndpoints[2])
		c.LoadAssignment.Endpoints = append(c.LoadAssignment.Endpoints, lower)
		cp.serve(listenerTo("svc", "r"), routesTo("r", "c"), c)
		w := h.watch("svc")
		want := func(want, note string) {
			t.Helper()
			c := w.cluster(t, "c")
			got := ""
			if err := c.Leaves[0].ResolutionNote; err != nil {
				got = err.Error()
			}
			if list := endpointsOf(c); list != want || (note == "") != (got == "") || !strings.Contains(got, note) {
				t.Errorf("endpoints %q, note %q; want %q and %q", list, got, want, note)
			}
		}
		answer := func(name string, addrs ...string) {
			t.Helper()
			_ = dns.conn(name + ":80").UpdateState(state(addrs...))
		}
		answer("a.example", "10.0.0.2:80", "10.0.0.1:80")
		answer("10.0.0.9", "10.0.0.9:80")
		if w.got().updates != 0 {
			t.Fatal("an update before each name has an answer")
		}
		dns.conn("b.example:80").ReportError(errors.New("SERVFAIL"))
		want("| 10.0.0.2*1 10.0.0.1*1 10.0.0.9*3|z", "SERVFAIL")
		answer("b.example", "10.0.0.3:80", "10.0.0.1:80") // which a.example has, too
		want("| 10.0.0.2*1 10.0.0.1*1 10.0.0.9*3|z 10.0.0.3*2", "")
		if e := w.cluster(t, "c").Leaves[0].Priorities[1].Localities[0].Endpoints.At(0); e.Extra.Hostname != "b.example" {
			t.Errorf("hostname %q", e.Extra.Hostname)
		}

		updates := w.got().updates
		for i, wait := range []time.Duration{0, 999 * time.Millisecond, time.Millisecond} {
			advance(wait)
			dns.mu.Lock()
			if want := []int{3, 3, 6}[i]; dns.built != want {
				t.Errorf("%d look-ups, want %d", dns.built, want)
			}
			dns.mu.Unlock()
		}
		advance(time.Minute) // without an answer
		answer("a.example", "10.0.0.1:80", "10.0.0.2:80")
		if w.got().updates != updates {
			t.Error("another order of the addresses is a change")
		}
		advance(time.Second)
		dns.conn("a.example:80").ReportError(errors.New("NXDOMAIN"))
		want("| 10.0.0.2*1 10.0.0.1*1 10.0.0.9*3|z 10.0.0.3*2", "NXDOMAIN")
		answer("b.example", "10.0.0.5:80")
		want("| 10.0.0.2*1 10.0.0.1*1 10.0.0.9*3|z 10.0.0.5*2", "NXDOMAIN")
		advance(time.Second)
		answer("a.example", "10.0.0.1:80", "10.0.0.4:80")
		want("| 10.0.0.1*1 10.0.0.4*1 10.0.0.9*3|z 10.0.0.5*2", "")

		cp.serve(strictCluster("c", "b.example", "bad.example")) // which no resolver can be built for
		answer("b.example", "10.0.0.7:80")
		want("| 10.0.0.7*1", "no such name")
		advance(time.Second)
		answer("b.example", "10.0.0.8:80")
		want("| 10.0.0.8*1", "no such name")
		if dns.conn("a.example:80") != nil {
			t.Error("a name is looked up that no cluster has")
		}
		w.cancel()
	})
}

// TestStrictDNSWeights: the sum of the weights of a locality stays below 2³², whatever the number of addresses.
func TestStrictDNSWeights(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dns := &fakeDNS{conns: map[string]resolver.ClientConn{}}
		h, cp := only(t, Options{DNS: dns})
		c := strictCluster("c", "a.example", "b.example")
		c.LoadAssignment.Endpoints[0].LbEndpoints[1].LoadBalancingWeight.Value = 4_000_000_000
		cp.serve(listenerTo("svc", "r"), routesTo("r", "c"), c)
		w := h.watch("svc")
		var many []string
		for i := range 4000 {
			many = append(many, fmt.Sprintf("10.1.%d.%d:80", i/256, i%256))
		}
		_ = dns.conn("a.example:80").UpdateState(state("10.0.0.1:80"))
		_ = dns.conn("b.example:80").UpdateState(state(many...))
		var sum uint64
		least := uint32(1)
		for _, e := range w.cluster(t, "c").Leaves[0].Priorities[0].Localities[0].Endpoints.All() {
			sum += uint64(e.Weight)
			least = min(least, e.Weight)
		}
		if sum>>32 > 0 || sum < 1<<30 || least != 1 {
			t.Errorf("weights with the sum %d, at least %d", sum, least)
		}
		w.cancel()
		synctest.Wait()
	})
}

// asking is gRPC's resolver with a DNS server.
type asking struct {
	resolver.Builder
	server string
}

func (a asking) Build(target resolver.Target, cc resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error) {
	target.URL.Host = a.server
	return a.Builder.Build(target, cc, opts)
}

// TestStrictDNSRecords: thousands of A and AAAA records, which no UDP packet holds, are endpoints, and changes
// of them are in use.
func TestStrictDNSRecords(t *testing.T) {
	dns := kit.NewDNS(t)
	var addrs []netip.Addr
	for i := range 4000 {
		four := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		addrs = append(addrs, four)
		if i < 2000 {
			six := four.As16()
			six[0], six[10], six[11] = 0xfd, 0, 0
			addrs = append(addrs, netip.AddrFrom16(six))
		}
	}
	dns.Set("many.example", addrs...)
	m, doc := newMemory(t) // real time has no fake servers
	m.set = []proto.Message{listenerTo("svc", "r"), routesTo("r", "c"), strictCluster("c", "many.example.")}
	cfg, err := bootstrap.Parser{}.Parse("test", []byte(`{"xds_servers": [`+doc+`]}`))
	kit.Must(t, err)
	c := Acquire(cfg, Options{DNS: asking{resolver.Get("dns"), dns.Addr}, Linger: -1, Logger: slog.New(slog.DiscardHandler)})
	w := make(sizes, 1)
	cancel := c.View(nil, "").Watch("svc", "svc", w)
	defer func() {
		cancel()
		c.Release()
		<-c.done
	}()
	for _, want := range []int{len(addrs), len(addrs) - 1} {
		kit.WaitFor(t, fmt.Sprint(want, " endpoints"), func() bool {
			select {
			case n := <-w:
				return n == want
			default:
				return false
			}
		})
		dns.Set("many.example", addrs[1:]...)
	}
}

// sizes is a watcher that tells the number of endpoints.
type sizes chan int

func (s sizes) Update(c *picker.Config) {
	for _, p := range c.Clusters[0].Leaves[0].Priorities {
		s <- p.Localities[0].Endpoints.Len()
	}
}

func (sizes) Error(error) {}
