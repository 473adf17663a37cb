// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	lb "github.com/xdslb/xdslb/integrate/internal/balancer"
	"github.com/xdslb/xdslb/integrate/internal/xdstls"
	"github.com/xdslb/xdslb/picker"
)

// TestHostnames (A101): a change of an endpoint's hostname takes effect with the next handshake,
// also of SubConns that were made before it. It touches no connection unless the cluster's
// settings have auto_host_sni. Then the connection is replaced, and serves until its
// replacement is READY.
func TestHostnames(t *testing.T) {
	custom := picker.Policy{Kind: picker.PolicyCustom, Custom: &picker.CustomPolicy{Name: string(prompt), Config: []byte(`{}`)}}
	for _, policy := range []picker.Policy{{}, custom} {
		for _, tls := range []*picker.TLS{nil, {SystemRoots: true, ServerName: "server.sni"}, {SystemRoots: true, AutoHostName: true}} {
			for _, tt := range []struct {
				name    string
				now     picker.EndpointExtra
				another bool // the endpoint is in another locality
				after   picker.Policy
			}{
				{"another hostname", picker.EndpointExtra{Hostname: "other.sni"}, false, policy},
				{"another policy", picker.EndpointExtra{Hostname: "other.sni"}, false, picker.Policy{}},
				{"another address", picker.EndpointExtra{Hostname: "other.sni", Addrs: []netip.AddrPort{addr(2)}}, false, policy},
				{"another locality", picker.EndpointExtra{Hostname: "other.sni"}, true, policy},
			} {
				if tt.now.Addrs != nil && policy.Kind != picker.PolicyCustom || tt.another && policy.Kind == picker.PolicyCustom {
					continue // another endpoint, or another group, which has a connection of its own
				}
				t.Run(fmt.Sprintf("%v, %+v, %s", policy.Kind, tls, tt.name), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { testHostname(t, policy, tt.after, tls, &tt.now, tt.another) })
				})
			}
		}
	}
}

func testHostname(t *testing.T, policy, after picker.Policy, tls *picker.TLS, now *picker.EndpointExtra, another bool) {
	cc := &modelChannel{}
	b, source := newModelBalancer(cc, integrate.Config{}, modelCredentials(), new(loadServers).intercept)
	defer source.Close()
	defer b.Close()
	update := func(tls *picker.TLS, extra *picker.EndpointExtra, zoneName string) {
		p := zone(zoneName, picker.Endpoint{Addr: addr(1), Weight: 1, Extra: extra})
		b.Update(configOf(picker.Leaf{Policy: policy, TLS: tls, Priorities: []picker.Priority{p}}))
		kit.Pass(lb.PublishPause)
	}
	settle := func() {
		for range 5 {
			for _, conn := range cc.open() {
				for conn.state != connectivity.Ready && conn.step(true) {
				}
			}
			kit.Pass(lb.PublishPause)
			cc.deliver()
		}
	}
	serving := func() (conns []*modelConn) {
		for _, conn := range cc.open() {
			if conn.number == 1 && conn.takesRPCs() {
				conns = append(conns, conn)
			}
		}
		return conns
	}
	// asks returns the name that a handshake of the SubConn asks for; empty without TLS.
	asks := func(conn *modelConn) string {
		target, _ := xdstls.TargetOf(conn.target)
		wire := &firstFlight{}
		_, _, _, _ = target.Handshake(context.Background(), wire)
		return sniIn.FindString(string(wire.sent))
	}

	update(tls, nil, "0")
	settle()
	first := serving()
	if len(first) != 1 {
		t.Fatalf("%d connections are READY, want 1", len(first))
	}
	policy = after
	moved := "0"
	if another {
		moved = "1"
	}
	update(tls, now, moved)
	if got := serving(); len(got) != 1 || got[0] != first[0] {
		t.Fatalf("after the update the connections %v are READY, want %v", got, first[0])
	}
	settle()
	replaced := tls != nil && tls.AutoHostName
	last := serving()
	if len(last) != 1 || (last[0] != first[0]) != replaced {
		t.Fatalf("in the end the connections %v are READY; %v is to be replaced: %v", last, first[0], replaced)
	}
	if n := b.NamedConns(); n != len(cc.open()) {
		t.Errorf("there are hostnames of %d connections, want %d", n, len(cc.open()))
	}
	update(&picker.TLS{SystemRoots: true, AutoHostName: true}, now, moved)
	if got := asks(last[0]); got != now.Hostname {
		t.Errorf("the next handshake asks for %q, want %q", got, now.Hostname)
	}
}
