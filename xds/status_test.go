// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestClients checks that Clients returns the process's clients, oldest first, with their nodes.
func TestClients(t *testing.T) {
	bubble(t, func(t *testing.T) {
		before := len(Clients())
		var want []*Client
		for i := range 5 {
			cfg, err := bootstrap.Parser{}.Parse("test", []byte(fmt.Sprintf(`{"xds_servers": [%s], "node": {"id": "%s %d"}}`, serverDoc("nowhere"), t.Name(), i)))
			kit.Must(t, err)
			c := Acquire(cfg, Options{Linger: -1})
			want = append(want, c)
			if c.nodeID() != fmt.Sprint(t.Name(), " ", i) || c.Node().GetUserAgentName() != "xdslb" {
				t.Errorf("node id %q, node %v", c.nodeID(), c.Node())
			}
		}
		if got := Clients(); !slices.Equal(got[before:], want) {
			t.Errorf("clients = %v, want %v", got[before:], want)
		}
		want[0].Node().Id = "changed"
		if want[0].nodeID() == "changed" {
			t.Error("Node is no copy")
		}
		for _, c := range want {
			c.Release()
			<-c.done
		}
		if n := len(Clients()); n != before {
			t.Errorf("%d clients, want %d", n, before)
		}
	})
}

// TestTargets checks that Targets has the watched targets.
func TestTargets(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, _ := only(t, Options{Linger: time.Second})
		b := h.watch("b")
		h.watch("a")
		h.c.view().Watch("a", "other", &recorder{})
		if got, want := h.c.Targets(), []Target{{"a", "a"}, {"a", "other"}, {"b", "b"}}; !slices.Equal(got, want) {
			t.Errorf("targets = %v, want %v", got, want)
		}
		b.cancel()
		advance(2 * time.Second)
		if got := h.c.Targets(); len(got) != 2 {
			t.Errorf("targets = %v", got)
		}
	})
}

// TestTargetResources checks that TargetResources has the resources of one target,
// whatever others there are.
func TestTargetResources(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		h.watch("a")
		h.watch("b")
		synctest.Wait()
		cp.serve(append(targetOf("a", 1), targetOf("b", 1)...)...)
		for _, name := range []string{"a", "b"} {
			var types []resource.Type
			for s := range h.c.view().TargetResources(name, name) {
				if types = append(types, s.Type); s.State != Acked || s.Name != name {
					t.Errorf("of %s: %+v", name, s)
				}
			}
			if !slices.Equal(types, []resource.Type{lds, rds, cds, eds}) {
				t.Errorf("of %s: resources of types %v", name, types)
			}
		}
		for s := range h.c.view().TargetResources("c", "c") {
			t.Errorf("of a target that is not watched: %+v", s)
		}
	})
}

// TestStatusRejected checks that a rejected version has its own version, time, server and error,
// beside the fields of the version in use, until one is accepted (A40).
func TestStatusRejected(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		begin := time.Now()
		advance(time.Second)
		h.watch("svc")
		synctest.Wait()
		at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
		if s := statusOf(h.c, lds, "svc"); s.State != Requested || !s.Asked.Equal(at(1)) || !s.Since.Equal(at(1)) || !s.Watched || s.Authority != oldStyle {
			t.Errorf("status = %+v", s)
		}
		for _, m := range targetOf("svc", 1)[:3] {
			typ, _ := nameOf(m)
			cp.send(typ, "1", m)
		}
		advance(time.Second)
		cp.send(eds, "1", endpointsAt("svc", 1))
		if s := statusOf(h.c, eds, "svc"); s.State != Acked || s.Version != "1" || !s.Updated.Equal(at(2)) || !s.Since.Equal(at(2)) || !s.Asked.Equal(at(1)) || s.Rejected != (rejectedStatus{}) {
			t.Errorf("accepted: %+v", s)
		}
		advance(time.Second)
		cp.send(eds, "2", badEndpoints("svc"))
		advance(time.Second)
		cp.send(eds, "3", badEndpoints("svc"))
		s := statusOf(h.c, eds, "svc")
		if s.State != Nacked || s.Version != "1" || !s.Updated.Equal(at(2)) || !s.Since.Equal(at(3)) {
			t.Errorf("rejected: %+v", s)
		}
		if r := s.Rejected; r.Version != "3" || !r.Time.Equal(at(4)) || r.Server != "passthrough:///cp" || r.Err == nil || !strings.Contains(r.Err.Error(), "priority 0") {
			t.Errorf("rejected version: %+v", r)
		}
		advance(time.Second)
		cp.send(eds, "4", endpointsAt("svc", 1))
		if s := statusOf(h.c, eds, "svc"); s.State != Acked || s.Version != "4" || !s.Updated.Equal(at(2)) || !s.Since.Equal(at(5)) || s.Rejected != (rejectedStatus{}) {
			t.Errorf("accepted again: %+v", s)
		}
	})
}

// TestStatusRejectedDrops checks that a rejected version is shown where the rejection
// takes the version in force away (A88).
func TestStatusRejectedDrops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, _ := serving(t, Options{}, "fail_on_data_errors")
		cp.send(cds, "9", badCluster("svc"))
		if s := statusOf(h.c, cds, "svc"); s.State != Nacked || s.Version != "" || !s.Updated.IsZero() || s.Rejected.Version != "9" || s.Rejected.Err == nil {
			t.Errorf("status = %+v", s)
		}
		cp.send(cds, "10")
		if s := statusOf(h.c, cds, "svc"); s.Rejected != (rejectedStatus{}) {
			t.Errorf("status = %+v", s)
		}
	})
}

// TestStatusAuthority checks the authority of each kind of name (A47), and the state
// of names that no server of the bootstrap is for.
func TestStatusAuthority(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHarness(t, Options{}, []string{serverDoc("cp")}, `, "authorities": {"known": {}, "": {}}`)
		for name, want := range map[string]string{
			"plain": oldStyle,
			"xdstp:///envoy.config.listener.v3.Listener/x":        "",
			"xdstp://known/envoy.config.listener.v3.Listener/x":   "known",
			"xdstp://unknown/envoy.config.listener.v3.Listener/x": "unknown",
		} {
			h.watch(name)
			synctest.Wait()
			s := statusOf(h.c, lds, name)
			if s.Authority != want {
				t.Errorf("%q: authority %q, want %q", name, s.Authority, want)
			}
			unknown := want == "unknown"
			if (s.State == Unknown) != unknown || (s.Err != nil) != unknown || s.State.String() == "" {
				t.Errorf("%q: %+v", name, s)
			}
		}
	})
}

// TestStatusBytes checks that the bytes of the version in force are kept as they were
// received, wrapped or not, if KeepBytes was called first, and are no part of the
// message that they came in.
func TestStatusBytes(t *testing.T) {
	for _, keep := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			old := keepBytes.Swap(keep)
			defer keepBytes.Store(old)
			d := newDirect(t)
			// An unknown field, and fields out of order, which encoding the message again would not
			// keep.
			resource := wrap(listenerTo("svc", "r"))
			resource.Value = append([]byte{0xfa, 0xff, 0x7f, 1, 'x'}, resource.Value...)
			want := bytes.Clone(resource.Value)
			wrapped := wrap(&discoveryv3.Resource{Name: "svc", Resource: resource})
			for _, sent := range []*anypb.Any{resource, wrapped} {
				d.respond(lds, "1", sent)
				clear(sent.Value)
				s := statusOf(d.c, lds, "svc")
				if s.State != Acked || !keep && s.Raw != nil || keep && (!bytes.Equal(s.Raw.GetValue(), want) || s.Raw.GetTypeUrl() != lds.URL()) {
					t.Errorf("keep = %v: %v, bytes %v; want %q", keep, s.State, s.Raw, want)
				}
			}
			bad := wrap(listenerTo("svc", ""))
			d.respond(lds, "2", bad)
			if s := statusOf(d.c, lds, "svc"); s.State != Nacked || keep && !bytes.Equal(s.Raw.GetValue(), want) {
				t.Errorf("after a rejected version: %+v", s)
			}
			changed := wrap(listenerTo("svc", "r2"))
			d.respond(lds, "3", changed)
			if s := statusOf(d.c, lds, "svc"); keep && !bytes.Equal(s.Raw.GetValue(), changed.Value) {
				t.Errorf("after another version: %+v", s)
			}
		})
	}
}

// TestServers checks the status of servers: connected as in A78, failures, and counts of sent
// messages, which outlast the use of a server.
func TestServers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHarness(t, Options{Linger: -1}, []string{serverDoc("one"), serverDoc("two")}, "")
		one, two := h.servers["one"], h.servers["two"]
		begin := time.Now()
		status := func(i int) serverStatus { synctest.Wait(); return h.c.Servers()[i] }
		if got := h.c.Servers(); len(got) != 0 {
			t.Errorf("servers = %+v before anybody watches", got)
		}
		h.watch("svc")
		s := status(0)
		if !s.Connected || !s.Since.Equal(begin) || s.URI != "passthrough:///one" || !s.InUse || s.Streams != 1 || s.Failures != 0 || s.Err != nil || !strings.Contains(s.Description, "insecure") {
			t.Errorf("with a first stream, which has no response yet: %+v", s)
		}
		one.hangUp(errors.New("no"))
		advance(500 * time.Millisecond)
		if s = status(0); s.Connected || s.Failures != 1 || s.Err == nil || !s.ErrTime.Equal(begin) || !s.Since.Equal(begin) {
			t.Errorf("after a stream without a response: %+v", s)
		}
		two.serve(targetOf("svc", 1)...)
		advance(time.Minute)
		if s = status(0); s.Connected || s.Failures != 1 || s.Streams < 2 {
			t.Errorf("with a stream again, but no response: %+v", s)
		}
		if s = status(1); !s.Connected || !s.InUse || s.Types[eds].Valid != 1 {
			t.Errorf("the second server: %+v", s)
		}
		one.serve(targetOf("svc", 1)...)
		if s = status(0); !s.Connected || !s.Since.Equal(time.Now()) {
			t.Errorf("with a response: %+v", s)
		}
		if s = status(1); s.InUse || s.Types[eds].Valid != 1 || !s.Connected {
			t.Errorf("the second server after that: %+v", s)
		}
		one.hangUp(errors.New("reload"))
		if s = status(0); !s.Connected || s.Failures != 1 || s.Err == nil || !strings.Contains(s.Err.Error(), "reload") {
			t.Errorf("after a stream with responses: %+v", s)
		}
		one.refuse(errRefused)
		advance(time.Hour)
		if s = status(0); s.Connected || s.Failures != 2 {
			t.Errorf("out of reach for an hour: %+v", s)
		}
	})
}

// TestServersUnreachable checks that a server that was never reached is a failure (A78).
func TestServersUnreachable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		cp.refuse(errRefused)
		h.watch("svc")
		advance(time.Hour)
		if s := h.c.Servers()[0]; s.Connected || s.Failures != 1 || s.Since.IsZero() || s.Streams != 0 || s.Err == nil {
			t.Errorf("status = %+v", s)
		}
	})
}

// TestServersCounts checks the counts of messages, resources and requests by type
// (A78's resource_updates_valid and _invalid).
func TestServersCounts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		h.watch("svc")
		cp.send(lds, "1", listenerTo("svc", "r"))
		cp.send(rds, "1", routesTo("r", "a", "b"))
		check := func(what string, want typeStatus) {
			t.Helper()
			got := h.c.Servers()[0].Types[cds]
			want.Bytes, want.Requests = got.Bytes, got.Requests
			if got != want {
				t.Errorf("%s: %+v, want %+v", what, got, want)
			}
		}
		cp.send(cds, "1", clusterTo("a", "a"), clusterTo("b", "b"), clusterTo("unasked", "c"))
		check("two that somebody asked for", typeStatus{Messages: 1, Valid: 2})
		cp.send(cds, "2", clusterTo("a", "a"), clusterTo("b", "b"))
		check("the same again", typeStatus{Messages: 2, Valid: 4})
		cp.send(cds, "3", clusterTo("a", "a"), badCluster("b"))
		check("an invalid one", typeStatus{Messages: 3, Valid: 5, Invalid: 1, NACKs: 1})
		advance(time.Minute)
		cp.respond(cds, &discoveryv3.DiscoveryResponse{VersionInfo: "4", Nonce: "n", Resources: []*anypb.Any{
			wrap(clusterTo("a", "a")), wrap(clusterTo("b", "b")), wrap(clusterTo("a", "a")), {TypeUrl: "nonsense"},
		}})
		check("a double and a nameless one", typeStatus{Messages: 4, Valid: 7, Invalid: 3, NACKs: 2,
			Unread: `resources[2]: there is a second Cluster resource "a" in the response; resources[3]: a resource of type "nonsense" in a response of type "` + cds.URL() + `"`})
		msg := &discoveryv3.DiscoveryResponse{VersionInfo: "5", Nonce: "m", TypeUrl: cds.URL()}
		before := h.c.Servers()[0].Types[cds]
		cp.respond(cds, proto.CloneOf(msg))
		after := h.c.Servers()[0].Types[cds]
		if got := after.Bytes - before.Bytes; got != uint64(proto.Size(msg)) {
			t.Errorf("%d bytes, want %d", got, proto.Size(msg))
		}
		if got := after.Requests; got != uint64(cp.count(cds)) {
			t.Errorf("%d requests, want %d", got, cp.count(cds))
		}
	})
}

// TestReceived checks that a configuration reports when the latest of its resources was received.
// Resources of other targets, and resources that are not yet in use, do not count.
func TestReceived(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		w := h.watch("svc")
		begin := time.Now()
		send := func(after time.Duration, m proto.Message) {
			advance(time.Until(begin.Add(after * time.Second)))
			typ, _ := nameOf(m)
			cp.send(typ, fmt.Sprint(after), m)
		}
		check := func(what string, after time.Duration) {
			t.Helper()
			if got := w.must(t).Received.Sub(begin); got != after*time.Second {
				t.Errorf("%s: received after %v, want %d s", what, got, after)
			}
		}
		send(1, listenerTo("svc", "r"))
		send(2, routesTo("r", "a"))
		send(3, clusterTo("a", "a"))
		send(4, endpointsAt("a", 1))
		check("all", 4)
		advance(time.Second)
		send(7, endpointsAt("a", 2))
		check("endpoints", 7)
		send(8, routesTo("r", "a", "b"))
		check("routes to a cluster that is not there yet", 7)
		send(9, endpointsAt("a", 3))
		check("endpoints while a cluster is waited for", 9)
		// CDS responses have all clusters.
		cp.send(cds, "10", clusterTo("a", "a"), clusterTo("b", "b"))
		advance(time.Second)
		send(11, endpointsAt("b", 1))
		check("the new cluster", 11)
		advance(time.Second)
		cp.send(cds, "12", clusterTo("a", "a"), aggregateOf("b", "a"))
		check("an aggregate of what is there", 12)
		advance(time.Second)
		cp.send(cds, "13", clusterTo("a", "elsewhere"), aggregateOf("b", "a"))
		advance(time.Second)
		cp.send(eds, "14", badEndpoints("a"))
		if w.cluster(t, "a").Leaves[0].ResolutionNote == nil {
			t.Fatal("no note")
		}
		check("a note, while the endpoints of a cluster's new version are waited for", 12)
	})
}

// TestServersByKey: servers of a bootstrap that differ in nothing that may be shown are
// told apart by their keys.
func TestServersByKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tls := func(file string) string {
			return `{"server_uri": "passthrough:///cp", "channel_creds": [{"type": "tls", "config": {"ca_certificate_file": "` + file + `"}}]}`
		}
		h := newClientHarness(t, Options{ConnectFailureAfter: time.Second, DialOptions: []grpc.DialOption{
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return nil, errRefused }),
		}}, []string{tls("a.pem"), tls("b.pem")}, "")
		h.watch("svc")
		advance(time.Minute) // until the client has turned to both
		servers := h.c.Servers()
		if len(servers) != 2 || servers[0].Description != servers[1].Description || servers[0].Key == servers[1].Key || servers[0].Failures == 0 || servers[1].Failures == 0 {
			t.Errorf("servers %+v", servers)
		}
	})
}

// listenerTo returns a Listener that takes its routes from RDS.
func listenerTo(name, routes string) *listenerv3.Listener { return xdstest.Listener(name, routes) }

// routesTo returns a RouteConfiguration with one route to each cluster, the
// first of them for every path.
func routesTo(name string, clusters ...string) *routev3.RouteConfiguration {
	var routes []*routev3.Route
	for i, c := range clusters {
		routes = append(routes, xdstest.Route(strings.Repeat("/x", len(clusters)-1-i), c))
	}
	return xdstest.RouteConfig(name, routes...)
}

// clusterTo returns an EDS cluster.
func clusterTo(name, service string) *clusterv3.Cluster { return xdstest.Cluster(name, service) }

// badCluster returns a Cluster that is not valid.
func badCluster(name string) *clusterv3.Cluster {
	c := clusterTo(name, name)
	c.LrsServer = &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{}}
	return c
}

// aggregateOf returns an aggregate cluster.
func aggregateOf(name string, children ...string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name: name,
		ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
			Name:        "envoy.clusters.aggregate",
			TypedConfig: wrap(&aggregatev3.ClusterConfig{Clusters: children}),
		}},
	}
}

// dnsCluster returns a LOGICAL_DNS cluster.
func dnsCluster(name, host string, port uint32) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_LOGICAL_DNS},
		LoadAssignment: &endpointv3.ClusterLoadAssignment{Endpoints: []*endpointv3.LocalityLbEndpoints{{
			LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
				Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
				}}},
			}}}},
		}}},
	}
}

// endpointsAt returns a ClusterLoadAssignment with one endpoint on each port.
func endpointsAt(service string, ports ...uint16) *endpointv3.ClusterLoadAssignment {
	l := xdstest.Locality{}
	for _, p := range ports {
		l.Endpoints = append(l.Endpoints, xdstest.Endpoint{Addr: netip.MustParseAddrPort(fmt.Sprintf("10.0.0.1:%d", p))})
	}
	return xdstest.Endpoints(service, l)
}

// badEndpoints returns a ClusterLoadAssignment that is not valid: its only
// priority is not the first.
func badEndpoints(service string) *endpointv3.ClusterLoadAssignment {
	e := endpointsAt(service, 1)
	e.Endpoints[0].Priority = 3
	return e
}

// inlineListener returns a Listener that has its routes in itself.
func inlineListener(name string, routes *routev3.RouteConfiguration) *listenerv3.Listener {
	return testplane.InlineListener(name, routes)
}
