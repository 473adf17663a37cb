// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// backendHeader is the response header of FullDuplexCall that names the backend.
const backendHeader = "xdstest-backend"

// BackendOptions configures backends. The zero value is ready to use.
type BackendOptions struct {
	// Listen replaces net.Listen on TCP, for in-memory connections. Its argument is the result
	// of Addr, or "127.0.0.1:0" the first time; the listener's address must have the form
	// IP:port.
	Listen func(addr string) (net.Listener, error)
	// Server is passed to grpc.NewServer.
	Server []grpc.ServerOption
	// Register, if not nil, registers services on each server, which Start creates again. Calls,
	// SetDelay and Fail apply to their RPCs, except watches of health and out-of-band load reports.
	Register func(*grpc.Server)
}

// A Backend is a gRPC server with the services of BackendOptions.Register and grpc.testing's
// TestService:
//
//   - EmptyCall returns an empty response, at the minimum cost of an RPC;
//   - UnaryCall returns Addr as the hostname, and the request's payload;
//   - FullDuplexCall echoes the payload of each message, and sends Addr in
//     header xdstest-backend.
//
// A Backend must be made by StartBackends or NewBackends. It is safe for concurrent use.
type Backend struct {
	conns connections
	opts  BackendOptions
	calls atomic.Uint64
	delay atomic.Int64 // in nanoseconds
	code  atomic.Uint32

	mu   sync.Mutex // held across Start and Stop
	port port
	addr netip.AddrPort
	grpc *grpc.Server // nil when stopped
	done chan struct{}
}

// StartBackends returns n backends that accept connections, each on its own address. They run
// until Stop.
func StartBackends(n int, opts BackendOptions) ([]*Backend, error) {
	backends := make([]*Backend, 0, n)
	for range n {
		b := &Backend{opts: opts, addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0)}
		if err := b.Start(); err != nil {
			for _, b := range backends {
				b.Stop()
			}
			return nil, err
		}
		backends = append(backends, b)
	}
	return backends, nil
}

// BackendEndpoints returns the backends as endpoints of a locality.
func BackendEndpoints(backends ...*Backend) []Endpoint {
	endpoints := make([]Endpoint, 0, len(backends))
	for _, b := range backends {
		endpoints = append(endpoints, Endpoint{Addr: b.Addr()})
	}
	return endpoints
}

// Start starts a stopped backend again, on the same address.
func (b *Backend) Start() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.grpc != nil {
		return fmt.Errorf("xdstest: start backend %v: already running", b.addr)
	}
	lis, err := listen(b.opts.Listen, &b.port, b.addr.String())
	if err != nil {
		return fmt.Errorf("xdstest: start backend: %w", err)
	}
	addr, err := netip.ParseAddrPort(lis.Addr().String())
	if err != nil {
		return errors.Join(fmt.Errorf("xdstest: start backend: %w", err), lis.Close())
	}
	b.addr = addr
	name := addr.String()
	b.grpc, b.done = grpc.NewServer(append(b.opts.Server[:len(b.opts.Server):len(b.opts.Server)],
		grpc.WaitForHandlers(true), grpc.StatsHandler(&b.conns),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			if err := b.begin(ctx, info.FullMethod, name); err != nil {
				return nil, err
			}
			return handler(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			if err := b.begin(stream.Context(), info.FullMethod, name); err != nil {
				return err
			}
			return handler(srv, stream)
		}))...), make(chan struct{})
	testgrpc.RegisterTestServiceServer(b.grpc, service{name: name})
	if b.opts.Register != nil {
		b.opts.Register(b.grpc)
	}
	go serve(b.grpc, lis, b.done)
	return nil
}

// Stop closes the listener and all connections, and returns when the handlers have returned. It
// may be called repeatedly.
func (b *Backend) Stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.grpc == nil {
		return
	}
	b.grpc.Stop()
	<-b.done
	b.grpc = nil
}

// Addr returns the address of b, which stays the same after a restart.
func (b *Backend) Addr() netip.AddrPort {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.addr
}

// Calls returns the number of RPCs received so far, including failed ones.
func (b *Backend) Calls() uint64 { return b.calls.Load() }

// SetDelay makes later RPCs take at least d.
func (b *Backend) SetDelay(d time.Duration) { b.delay.Store(int64(d)) }

// Fail makes later RPCs fail with code; codes.OK makes them succeed again.
func (b *Backend) Fail(code codes.Code) { b.code.Store(uint32(code)) }

// begin counts and delays an RPC, and returns the error of Fail. Watches of health and
// out-of-band load reports, which clients start on their own, are exempt.
func (b *Backend) begin(ctx context.Context, method, name string) error {
	if method == "/grpc.health.v1.Health/Watch" || strings.HasPrefix(method, "/xds.service.orca.v3.") {
		return nil
	}
	b.calls.Add(1)
	if d := b.delay.Load(); d > 0 {
		t := time.NewTimer(time.Duration(d))
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	if c := codes.Code(b.code.Load()); c != codes.OK {
		return status.Errorf(c, "backend %s: injected failure", name)
	}
	return nil
}

// service implements TestService.
type service struct {
	testgrpc.UnimplementedTestServiceServer
	name string
}

// EmptyCall implements TestService.
func (service) EmptyCall(context.Context, *testgrpc.Empty) (*testgrpc.Empty, error) {
	return new(testgrpc.Empty), nil
}

// UnaryCall implements TestService.
func (s service) UnaryCall(_ context.Context, req *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	return &testgrpc.SimpleResponse{Payload: req.GetPayload(), Hostname: s.name}, nil
}

// FullDuplexCall implements TestService.
func (s service) FullDuplexCall(stream testgrpc.TestService_FullDuplexCallServer) error {
	if err := stream.SendHeader(metadata.Pairs(backendHeader, s.name)); err != nil {
		return err
	}
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(&testgrpc.StreamingOutputCallResponse{Payload: req.GetPayload()}); err != nil {
			return err
		}
	}
}
