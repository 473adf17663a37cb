// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"crypto/tls"
	"flag"
	"net"
	"slices"
	"sync"
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

// slowToken is a call credential. gRPC calls it after the pick, and before it creates the stream
// on the transport.
type slowToken struct{ called, proceed chan struct{} }

func (s slowToken) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	close(s.called)
	<-s.proceed
	return nil, nil
}

func (slowToken) RequireTransportSecurity() bool { return false }

// TestRemovedAfterPick checks that an RPC does not hang if its endpoint is removed between the
// pick and the creation of the stream, while another stream keeps the connection open.
func TestRemovedAfterPick(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		backends, control := b.backends(2), b.control()
		serve := func(i int) {
			set(t, control, xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends[i])}))
		}
		serve(0)
		cc := b.dial(b.config(control))
		client := testgrpc.NewTestServiceClient(cc)
		stream, err := client.FullDuplexCall(t.Context(), grpc.WaitForReady(true))
		if err == nil {
			err = stream.Send(new(testgrpc.StreamingOutputCallRequest))
		}
		kit.Must(t, err)
		token, result := slowToken{make(chan struct{}), make(chan struct{})}, make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			_, err := client.EmptyCall(ctx, new(testgrpc.Empty), grpc.PerRPCCredentials(token))
			result <- err
		}()
		<-token.called
		serve(1)
		for backends[1].Calls() == 0 { // until the new snapshot is in force
			if _, err := call(t, cc); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		close(token.proceed)
		if err := <-result; err != nil {
			t.Errorf("the RPC that picked the removed endpoint: %v", err)
		}
	})
}

var removals = flag.Int("removals", 10, "how many times TestRemovedUnderLoad replaces the endpoint")

// TestRemovedUnderLoad checks that no RPC hangs or fails while updates replace the endpoint again and
// again under 64 callers, and streams keep the transports of removed endpoints open. It uses TCP and
// real time: the defect depends on how picks and shutdowns interleave.
func TestRemovedUnderLoad(t *testing.T) {
	const callers, openStreams = 64, 100
	control := xdstest.New(t, xdstest.Options{})
	backends := xdstest.NewBackends(t, 2, xdstest.BackendOptions{})
	serve := func(i int) {
		set(t, control, xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends[i])}))
	}
	serve(0)
	cc := dial(t, control.Bootstrap("n"))
	client := testgrpc.NewTestServiceClient(cc)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var rpcs, failed atomic.Int64
	stop := make(chan struct{})
	var running sync.WaitGroup
	for range callers {
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				rpcs.Add(1)
				if _, err := client.EmptyCall(ctx, new(testgrpc.Empty), grpc.WaitForReady(true)); err != nil {
					failed.Add(1)
					t.Errorf("EmptyCall: %v", err)
					return
				}
			}
		})
	}
	var closers [openStreams]context.CancelFunc
	for i := range *removals {
		streamCtx, end := context.WithCancel(ctx)
		if old := closers[i%openStreams]; old != nil {
			old()
		}
		closers[i%openStreams] = end
		stream, err := client.FullDuplexCall(streamCtx, grpc.WaitForReady(true))
		if err == nil {
			err = stream.Send(new(testgrpc.StreamingOutputCallRequest))
		}
		if err != nil {
			t.Errorf("change %d: FullDuplexCall: %v", i, err)
			break
		}
		next := backends[(i+1)%2]
		before := next.Calls()
		serve((i + 1) % 2)
		for next.Calls() == before && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}
	close(stop)
	time.AfterFunc(time.Minute, cancel) // RPCs that hang fail
	running.Wait()
	t.Logf("%d changes, %d RPCs, %d of them failed", *removals, rpcs.Load(), failed.Load())
	for _, end := range closers {
		if end != nil {
			end()
		}
	}
}
