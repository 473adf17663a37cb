// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	lb "github.com/xdslb/xdslb/integrate/internal/balancer"
	"github.com/xdslb/xdslb/integrate/internal/xdstls"
	"github.com/xdslb/xdslb/picker"
)

// This file tests the hostnames of endpoints, which are the authority of RPCs if a route requires
// it (A81) and the server name in TLS handshakes if a cluster requires it (A101).

// secured returns the TLS settings of a version. Every fourth is nil, so that connections are in
// plain text; every other uses the hostnames of endpoints.
func (l *modelLeaf) secured(version int) *picker.TLS {
	if version%4 == 3 {
		return nil
	}
	return &picker.TLS{SystemRoots: true, ServerName: fmt.Sprintf("%s-%d.sni", l.name, version), AutoHostName: version%2 == 1}
}

// rename gives an endpoint another hostname, or none.
func (l *modelLeaf) rename(rng *rand.Rand, n int) { l.hostnames[n] = rng.IntN(4) }

// nameEndpoint fills in its hostname.
func (l *modelLeaf) nameEndpoint(e *picker.Endpoint, n int) {
	version := l.hostnames[n]
	if version == 0 {
		return
	}
	if e.Extra == nil {
		e.Extra = &picker.EndpointExtra{}
	}
	e.Extra.Hostname = fmt.Sprintf("host-%d-%d.sni", l.first+n, version)
}

// authorityFor returns the authority of RPCs to an endpoint, or "" for the channel's.
func (t *history) authorityFor(e *picker.Endpoint) string {
	if t.controlPlane.rewrites == rewriteByEndpoint {
		return hostname(e)
	}
	return t.controlPlane.rewrites
}

const rewriteByEndpoint = "auto_host_rewrite"

// randomRewrite draws the way in which authorities are rewritten.
func randomRewrite(rng *rand.Rand) string {
	return []string{"", "", rewriteByEndpoint, rewriteByEndpoint, "one.test", "two.test"}[rng.IntN(6)]
}

// rewrite sets the rewriting of a route.
func (p *controlPlane) rewrite(r *picker.Route) {
	if r.AutoHostRewrite = p.rewrites == rewriteByEndpoint; !r.AutoHostRewrite {
		r.Authority = p.rewrites
	}
}

// modelCredentials are xDS credentials.
func modelCredentials() credentials.TransportCredentials {
	creds, err := xdstls.NewCredentials(insecure.NewCredentials())
	if err != nil {
		panic(err)
	}
	return creds
}

// handshake begins the handshake of a connection as gRPC does, and checks that it follows the
// current settings: TLS or not, and the server name.
func (t *history) handshake(conn *modelConn) {
	l := t.leafOf(conn.Data.number)
	wire := &helloRecorder{}
	target, ok := xdstls.TargetOf(conn.Data.target)
	if !ok {
		t.Fatalf("the address of %v has no TLS settings", conn)
	}
	_, _, plain, _ := target.Handshake(context.Background(), wire)
	asked := sniPattern.FindString(string(wire.sent))
	c := t.clusterOf(l)
	if _, e := c.find(conn.Data.number); e != nil {
		conn.Data.hostname = hostname(e)
	}
	want := l.secured(l.sentTLS)
	if want != nil && want.AutoHostName && t.creds == nil {
		if plain || asked != "" {
			t.Fatalf("the handshake of %v, whose hostname is unknown, has server name %q, plain text: %v; want no server name and TLS", conn, asked, plain)
		}
		return
	}
	switch {
	case plain != (want == nil):
		t.Fatalf("the handshake of %v is in plain text: %v, want settings %+v", conn, plain, want)
	case want == nil:
	case want.AutoHostName && conn.Data.hostname != "" && asked != conn.Data.hostname:
		t.Fatalf("the handshake of %v has server name %q, want its hostname %q (A101)", conn, asked, conn.Data.hostname)
	case !(want.AutoHostName && conn.Data.hostname != "") && asked != want.ServerName:
		t.Fatalf("the handshake of %v has server name %q, want %q", conn, asked, want.ServerName)
	}
}

// sniPattern matches the server name in a ClientHello.
var sniPattern = regexp.MustCompile(`[a-z][a-z0-9-]*\.sni`)

// helloRecorder is a connection that keeps the bytes written to it, and fails.
type helloRecorder struct {
	net.Conn // nil
	sent     []byte
}

func (f *helloRecorder) Write(b []byte) (int, error) {
	f.sent = slices.Concat(f.sent, b)
	return 0, errors.New("the connection takes no bytes")
}

func (f *helloRecorder) Close() error { return nil }

// TestHostnames (A101): a change of an endpoint's hostname takes effect with the next handshake,
// also of SubConns that exist already. No connection is closed, as no change of TLS settings closes one.
func TestHostnames(t *testing.T) {
	custom := picker.Policy{Kind: picker.PolicyCustom, Custom: &picker.CustomPolicy{Name: string(immediate), Config: []byte(`{}`)}}
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
	cc := newModelChannel(t)
	b, source := newModelBalancer(cc, integrate.Config{}, modelCredentials(), new(loadServers).intercept)
	defer source.Close()
	defer b.Close()
	update := func(tls *picker.TLS, extra *picker.EndpointExtra, zoneName string) {
		p := zone(zoneName, picker.Endpoint{Addr: addr(1), Weight: 1, Extra: extra})
		b.Update(configOf(picker.Leaf{Policy: policy, TLS: tls, Priorities: []picker.Priority{p}}))
		kit.Pass(lb.PublishPause)
	}
	deliverAll := func() {
		for range 5 {
			for _, conn := range cc.Open() {
				for conn.State != connectivity.Ready && conn.Step(true) {
				}
			}
			kit.Pass(lb.PublishPause)
			cc.Deliver()
		}
	}
	serving := func() (conns []*modelConn) {
		for _, conn := range cc.Open() {
			if conn.Data.number == 1 && conn.TakesRPCs() {
				conns = append(conns, conn)
			}
		}
		return conns
	}
	// serverName returns the server name in a handshake of the SubConn, or "" without TLS.
	serverName := func(conn *modelConn) string {
		target, _ := xdstls.TargetOf(conn.Data.target)
		wire := &helloRecorder{}
		_, _, _, _ = target.Handshake(context.Background(), wire)
		return sniPattern.FindString(string(wire.sent))
	}

	update(tls, nil, "0")
	deliverAll()
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
	deliverAll()
	last := serving()
	if len(last) != 1 || last[0] != first[0] {
		t.Fatalf("at the end the connections %v are READY, want %v", last, first[0])
	}
	if n := b.NamedConns(); n != len(cc.Open()) {
		t.Errorf("balancer keeps hostnames of %d connections, want %d", n, len(cc.Open()))
	}
	update(&picker.TLS{SystemRoots: true, AutoHostName: true}, now, moved)
	if got := serverName(last[0]); got != now.Hostname {
		t.Errorf("the next handshake has server name %q, want %q", got, now.Hostname)
	}
}
