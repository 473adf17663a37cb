// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/orca"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// method is the arena's unary method, and streaming its streaming method. The need of an RPC is
// looked up by its number, the only content of a request.
const (
	serviceName = "xdslb.arena.Arena"
	method      = "/" + serviceName + "/Do"
	streaming   = "/" + serviceName + "/Stream"
)

// A node is a gRPC server in a world, around a model.
type node struct {
	world *world
	model *Server
	addr  netip.AddrPort

	mu   sync.Mutex // held across start and stop
	grpc *grpc.Server
	done chan struct{}
}

// start starts the server, with its previous address if it had one.
func (n *node) start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.grpc != nil {
		return nil
	}
	lis, err := n.world.net.Listen(n.addr.String())
	if err != nil {
		return err
	}
	if n.addr, err = netip.ParseAddrPort(lis.Addr().String()); err != nil {
		return err
	}
	opts := []grpc.ServerOption{
		grpc.ReadBufferSize(connBuffer), grpc.WriteBufferSize(connBuffer),
		grpc.WaitForHandlers(true),
	}
	if n.world.policy.Reports {
		opts = append(opts, orca.CallMetricsServerOption(nil))
	}
	register := func(grpc.ServiceRegistrar) {}
	if n.world.policy.Server != nil {
		var more []grpc.ServerOption
		more, register = n.world.policy.Server(n.model)
		opts = append(append(opts, grpc.StatsHandler(extras{n.model})), more...)
	}
	n.grpc, n.done = grpc.NewServer(opts...), make(chan struct{})
	n.grpc.RegisterService(&serviceDesc, n)
	register(n.grpc)
	n.model.setDown(false)
	go func(s *grpc.Server, done chan<- struct{}) {
		defer close(done)
		_ = s.Serve(lis) // the error only indicates that it was stopped
	}(n.grpc, n.done)
	return nil
}

// stop stops the server immediately or gracefully.
func (n *node) stop(gracefully bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.grpc == nil {
		return
	}
	if gracefully {
		n.grpc.GracefulStop()
	}
	n.model.setDown(true)
	n.grpc.Stop()
	<-n.done
	n.grpc = nil
}

// serviceDesc is equivalent to the output of protoc-gen-go-grpc.
var serviceDesc = grpc.ServiceDesc{
	ServiceName: serviceName,
	HandlerType: (*doer)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Do", Handler: func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		in := new(wrapperspb.UInt32Value)
		if err := dec(in); err != nil {
			return nil, err
		}
		if interceptor == nil {
			return srv.(doer).do(ctx, in)
		}
		return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: method}, func(ctx context.Context, req any) (any, error) {
			return srv.(doer).do(ctx, req.(*wrapperspb.UInt32Value))
		})
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "Stream", ServerStreams: true, Handler: func(srv any, stream grpc.ServerStream) error {
		return srv.(doer).stream(stream)
	}}},
}

type doer interface {
	do(ctx context.Context, number *wrapperspb.UInt32Value) (*wrapperspb.UInt32Value, error)
	stream(stream grpc.ServerStream) error
}

// do runs the job in the model.
func (n *node) do(ctx context.Context, number *wrapperspb.UInt32Value) (*wrapperspb.UInt32Value, error) {
	if number.Value >= uint32(len(n.world.work)) {
		return nil, status.Errorf(codes.InvalidArgument, "there is no RPC %d", number.Value)
	}
	n.model.visit(n.world.work[number.Value].zone)
	attempt := n.world.calls[number.Value].attempts.Add(1)
	if n.world.fleet.stalls(n.world.seed, number.Value, attempt) && !pause(ctx, n.world.fleet.StallFor) {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	done := make(chan refusal, 1)
	giveUp := n.model.submit(n.world.lookUp(n.model, number.Value), func(r refusal) { done <- r })
	var r refusal
	select {
	case r = <-done:
	case <-ctx.Done():
		giveUp()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if m := orca.CallMetricsRecorderFromContext(ctx); m != nil {
		qps, eps, utilisation := n.model.load()
		m.SetQPS(qps)
		if !n.world.policy.HidesErrors {
			m.SetEPS(eps)
		}
		m.SetApplicationUtilization(utilisation)
	}
	switch r {
	case refusedFull:
		return nil, status.Error(codes.ResourceExhausted, "the queue is full")
	case refusedFailing, refusedDown:
		pause(ctx, n.world.fleet.FailAfter)
		return nil, status.Error(codes.Unavailable, "refused")
	}
	return number, nil
}

// pause waits, and reports whether ctx did not end before.
func pause(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// stalls reports whether an attempt hangs before its server accepts it. It depends only on the
// arguments, so that all policies have the same stalls.
func (f *Fleet) stalls(seed uint64, number uint32, attempt int32) bool {
	return f.Stalls > 0 && rand.New(rand.NewPCG(seed<<8+5, uint64(number)<<8+uint64(attempt))).Float64() < f.Stalls
}

// extras counts messages other than the RPCs of the arena.
type extras struct{ model *Server }

type ownKey struct{}

// TagRPC implements stats.Handler.
func (e extras) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	if info.FullMethodName == method || info.FullMethodName == streaming {
		return ctx
	}
	return context.WithValue(ctx, ownKey{}, true)
}

// HandleRPC implements stats.Handler. A probe is one message in each direction; a stream of
// reports consists of messages to the client.
func (e extras) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if ctx.Value(ownKey{}) == nil {
		return
	}
	switch s.(type) {
	case *stats.InPayload, *stats.OutPayload:
		e.model.count()
	}
}

// TagConn implements stats.Handler.
func (extras) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (extras) HandleConn(context.Context, stats.ConnStats) {}

// startNodes starts a server around each model.
func (w *world) startNodes() error {
	for _, m := range w.models {
		n := &node{world: w, model: m, addr: netip.MustParseAddrPort("127.0.0.1:0")}
		if err := n.start(); err != nil {
			return fmt.Errorf("arena: start server %d: %w", m.Index, err)
		}
		w.nodes = append(w.nodes, n)
	}
	return nil
}

func stopNodes(list []*node) {
	for _, n := range list {
		n.stop(false)
	}
}
