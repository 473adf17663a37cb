// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/internal/xdstls/tlstest"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// accepting is TLS with the roots of the instance "default", to servers with a name.
func accepting(name string) *tlsv3.UpstreamTlsContext {
	common := rootsFrom("default")
	common.GetValidationContext().MatchSubjectAltNames = []*matcherv3.StringMatcher{{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}}}
	return &tlsv3.UpstreamTlsContext{CommonTlsContext: common}
}

// acceptCounter counts connections.
type acceptCounter struct {
	net.Listener
	n *atomic.Int64
}

func (l acceptCounter) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.n.Add(1)
	}
	return conn, err
}

// TestReconnectOnTLSChange (T-SEC-1): RPCs go on, and none fails, while the names that a cluster
// accepts change. A name that the server does not have leaves the connections as they are, and is
// logged once. For a name that the server has, new connections replace the old ones. An RPC that
// began on an old connection ends there.
func TestReconnectOnTLSChange(t *testing.T) {
	ca := tlstest.NewCA(t, "ca")
	var conns atomic.Int64
	backends := xdstest.NewBackends(t, 2, xdstest.BackendOptions{
		Listen: func(addr string) (net.Listener, error) {
			lis, err := net.Listen("tcp", addr)
			return acceptCounter{lis, &conns}, err
		},
		Server: []grpc.ServerOption{grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{ca.Issue(tlstest.Names{DNS: []string{"a.example", "b.example"}}).TLS}}))},
	})
	control := xdstest.New(t, xdstest.Options{})
	publish := func(name string) {
		r := xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})
		upstreamTLS(t, accepting(name))(r.Clusters[0])
		set(t, control, r)
	}
	publish("a.example")
	cc := dialConfig(t, integrate.Config{Bootstrap: withProviders(control.Bootstrap("n"), trusting(t, ca)), Linger: -1, ReconnectOnTLSChange: true},
		grpc.WithTransportCredentials(newCredentials(t)))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := testgrpc.NewTestServiceClient(cc).FullDuplexCall(ctx, grpc.WaitForReady(true))
	kit.Must(t, err)
	var used []string // the client's ends of the connections, by RPC
	until := func(what string, done func() bool) {
		t.Helper()
		for !done() {
			// An RPC that has picked a connection with open streams while that is shut down may
			// hang in gRPC: http2Client.NewStream then waits for a stream quota (1.85).
			var p peer.Peer
			once, cancel := context.WithTimeout(ctx, time.Second)
			err := empty(once, cc, grpc.Peer(&p))
			cancel()
			if ctx.Err() != nil || err != nil && status.Code(err) != codes.DeadlineExceeded {
				t.Fatalf("waiting until %s: %v", what, err)
			}
			if err == nil {
				used = append(used, p.LocalAddr.String())
			}
		}
	}
	until("there are two connections", func() bool { return conns.Load() == 2 })
	lines := func() int { return len(logs.With(target, "other TLS settings", "gone.example", "stays in use")) }
	before := lines() // other tests may have logged the same
	publish("gone.example")
	until("the first attempt has failed", func() bool {
		return lines() > before
	})
	old := slices.Clone(used)
	publish("b.example")
	until("RPCs have left the old connections", func() bool {
		latest := used[max(0, len(used)-20):]
		return !slices.ContainsFunc(latest, func(addr string) bool { return slices.Contains(old, addr) })
	})
	for _, want := range []string{"one", "two"} {
		kit.Must(t, stream.Send(&testgrpc.StreamingOutputCallRequest{Payload: &testgrpc.Payload{Body: []byte(want)}}))
		if res, err := stream.Recv(); err != nil || string(res.GetPayload().GetBody()) != want {
			t.Errorf("the old connection's RPC: %v, %v", res, err)
		}
	}
	if n := lines() - before; n != 1 {
		t.Errorf("%d lines in the log, want 1", n)
	}
	kit.WaitFor(t, "a line that the previous connections are gone", func() bool {
		return len(logs.With(target, "no connections with previous TLS settings of a cluster remain")) > 0
	})
}
