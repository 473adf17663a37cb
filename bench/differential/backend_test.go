// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// Headers with which a caller passes information about an RPC to backends.
const (
	idHeader     = "x-rpc-id"     // names the RPC in records
	scriptHeader = "x-rpc-script" // behavior of its attempts, see script
)

// earlyHeaders is the script of RPCs that get headers before the backend has a message.
const earlyHeaders = "early"

// An attempt is one call as a backend saw it.
type attempt struct {
	backend string
	method  string
	timeout time.Duration // until the deadline; 0 means no deadline
	md      metadata.MD   // without idHeader and scriptHeader
}

// fleet is all backends: one gRPC server on many addresses, which echoes the message of every
// method and records the called addresses.
type fleet struct {
	server *grpc.Server
	net    *xdstest.Network
	names  map[string]string // by address
	addrs  map[string]netip.AddrPort

	mu       sync.Mutex
	attempts map[string][]attempt // by RPC
}

// newFleet starts backends with the given names.
func newFleet(t testing.TB, n *xdstest.Network, names []string) *fleet {
	f := &fleet{net: n, names: map[string]string{}, addrs: map[string]netip.AddrPort{}, attempts: map[string][]attempt{}}
	f.server = grpc.NewServer(grpc.UnknownServiceHandler(f.handle), grpc.WaitForHandlers(true))
	healthpb.RegisterHealthServer(f.server, health.NewServer())
	var serving sync.WaitGroup
	for _, name := range names {
		lis, err := n.Listen("127.0.0.1:0")
		kit.Must(t, err)
		f.names[lis.Addr().String()] = name
		f.addrs[name] = netip.MustParseAddrPort(lis.Addr().String())
		serving.Go(func() { _ = f.server.Serve(lis) })
	}
	t.Cleanup(func() {
		f.server.Stop()
		serving.Wait()
	})
	return f
}

// setDown makes a backend unreachable, or reachable again.
func (f *fleet) setDown(name string, down bool) { f.net.SetDown(f.addrs[name].String(), down) }

// take returns the attempts of an RPC, in order, and forgets them.
func (f *fleet) take(id string) []attempt {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.attempts[id]
	delete(f.attempts, id)
	return a
}

// handle answers an RPC.
func (f *fleet) handle(_ any, s grpc.ServerStream) error {
	ctx := s.Context()
	a := attempt{}
	if p, ok := peer.FromContext(ctx); ok {
		a.backend = f.names[p.LocalAddr.String()]
	}
	a.method, _ = grpc.MethodFromServerStream(s)
	if d, ok := ctx.Deadline(); ok {
		a.timeout = time.Until(d)
	}
	md, _ := metadata.FromIncomingContext(ctx)
	a.md = md.Copy()
	delete(a.md, idHeader)
	delete(a.md, scriptHeader)
	id := strings.Join(md.Get(idHeader), "")
	f.mu.Lock()
	nth := len(f.attempts[id])
	f.attempts[id] = append(f.attempts[id], a)
	f.mu.Unlock()
	if strings.Join(md.Get(scriptHeader), "") == earlyHeaders {
		if err := s.SendHeader(metadata.Pairs("x-backend", a.backend)); err != nil {
			return err
		}
	}
	// The first message is received first, so that the client's actions before a failure are
	// deterministic.
	var m wrapperspb.BytesValue
	received := s.RecvMsg(&m)
	if err := f.act(ctx, s, md.Get(scriptHeader), nth, a.backend); err != nil {
		return err
	}
	for ; received == nil; received = s.RecvMsg(&m) {
		if err := s.SendMsg(&m); err != nil {
			return err
		}
	}
	if received == io.EOF {
		return nil
	}
	return received
}

// act performs the script for the nth attempt: a comma-separated list of words, the last of
// which applies to all further attempts. A word is a status code (0 lets the RPC succeed),
// "hang" to wait for the end of the RPC, "h" and a code to fail after headers were sent, or
// "p", a number, ":" and a code to fail with a pushback of that many milliseconds.
func (f *fleet) act(ctx context.Context, s grpc.ServerStream, script []string, nth int, backend string) error {
	header := metadata.Pairs("x-backend", backend)
	if len(script) == 0 {
		return s.SendHeader(header)
	}
	words := strings.Split(script[0], ",")
	word := words[min(nth, len(words)-1)]
	fail := func(code string) error {
		n, err := strconv.Atoi(code)
		if err != nil {
			return status.Errorf(codes.Internal, "script %q: %v", script[0], err)
		}
		s.SetTrailer(metadata.Pairs("x-failed-by", backend))
		return status.Error(codes.Code(n), "scripted failure")
	}
	switch {
	case word == earlyHeaders:
		return nil
	case word == "0":
		return s.SendHeader(header)
	case word == "hang":
		<-ctx.Done()
		time.Sleep(time.Millisecond) // otherwise the end of the RPC would be a race
		return status.FromContextError(ctx.Err()).Err()
	case strings.HasPrefix(word, "h"):
		if err := s.SendHeader(header); err != nil {
			return err
		}
		return fail(word[1:])
	case strings.HasPrefix(word, "p"):
		ms, code, _ := strings.Cut(word[1:], ":")
		s.SetTrailer(metadata.Pairs("grpc-retry-pushback-ms", ms))
		return fail(code)
	}
	return fail(word)
}

// describe is metadata as text, without the user agent, which is grpc-go's.
func describe(md metadata.MD) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(md)) {
		if k == "user-agent" || k == "grpc-previous-rpc-attempts" {
			continue // the latter is compared by attempt
		}
		fmt.Fprintf(&b, "%s=%s;", k, strings.Join(md[k], ","))
	}
	return b.String()
}
