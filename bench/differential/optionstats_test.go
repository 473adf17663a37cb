// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// statsKey is the context key that TagRPC adds.
type statsKey struct{}

// statsHandler records the events of RPCs by the tag of TagRPC: sent data in order, with the
// beginning and the end, and separately received data, which other goroutines handle, sorted.
type statsHandler struct {
	e *env

	mu   sync.Mutex
	rpcs []rpcEvents
}

type rpcEvents struct{ sent, received []string }

func (h *statsHandler) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	nested := ctx.Value(statsKey{}) != nil
	h.rpcs = append(h.rpcs, rpcEvents{sent: []string{fmt.Sprintf("Tag %s, in another %t, fails fast %t", info.FullMethodName, nested, info.FailFast)}})
	return context.WithValue(ctx, statsKey{}, len(h.rpcs)-1)
}

func (h *statsHandler) HandleRPC(ctx context.Context, s stats.RPCStats) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, ok := ctx.Value(statsKey{}).(int)
	if !ok {
		h.e.note("an RPC without tag: %T", s)
		return
	}
	rpc := &h.rpcs[i]
	switch s := s.(type) {
	case *stats.Begin:
		rpc.sent = append(rpc.sent, fmt.Sprintf("Begin(transparent %t, streams %t %t, fails fast %t)", s.IsTransparentRetryAttempt, s.IsClientStream, s.IsServerStream, s.FailFast))
	case *stats.OutHeader:
		rpc.sent = append(rpc.sent, fmt.Sprintf("OutHeader(%s, compression %q, metadata %s, previous attempts %q)", s.FullMethod, s.Compression, describeSent(s.Header), s.Header.Get("grpc-previous-rpc-attempts")))
	case *stats.End:
		rpc.sent = append(rpc.sent, fmt.Sprintf("End(%v, trailer %s)", status.Code(s.Error), describe(s.Trailer)))
	case *stats.OutPayload:
		rpc.sent = append(rpc.sent, fmt.Sprintf("OutPayload(%T of %d bytes, sent as %d)", s.Payload, s.Length, s.WireLength))
	case *stats.InPayload:
		rpc.received = append(rpc.received, fmt.Sprintf("InPayload(%T of %d bytes, received as %d)", s.Payload, s.Length, s.WireLength))
	case *stats.DelayedPickComplete: // depends on the state of connections
	default:
		rpc.received = append(rpc.received, fmt.Sprintf("%T", s))
	}
}

// describeSent returns metadata as text, without the headers that identify the RPC.
func describeSent(md metadata.MD) string {
	own := md.Copy()
	delete(own, idHeader)
	return describe(own)
}

func (h *statsHandler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (h *statsHandler) HandleConn(context.Context, stats.ConnStats)                       {}

// take notes the events so far, and forgets them.
func (h *statsHandler) take() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, rpc := range h.rpcs {
		slices.Sort(rpc.received)
		h.e.note("  sent %v, received %v", rpc.sent, rpc.received)
	}
	h.rpcs = nil
}

// withStats is the handler of a side's channel cc.
func (e *env) withStats() []grpc.DialOption {
	h := &statsHandler{e: e}
	if e.stats == nil {
		e.stats = h
	}
	return []grpc.DialOption{grpc.WithStatsHandler(h)}
}

// statsCases are about stats handlers.
var statsCases = []optionCase{
	{
		name: "StatsHandler",
		dial: (*env).withStats,
		do:   func(e *env) { e.each(func() []grpc.CallOption { return nil }, func() { e.stats.take() }) },
	},
	{
		name: "StatsHandlerCompressor",
		dial: (*env).withStats,
		do: func(e *env) {
			_ = e.unary("14,0", grpc.UseCompressor("gzip"))
			e.stats.take()
		},
	},
	{
		name: "StatsHandlerNested",
		dial: (*env).withStats,
		interceptors: func(e *env) []grpc.DialOption {
			return []grpc.DialOption{grpc.WithChainUnaryInterceptor(around(e.token))}
		},
		do: func(e *env) {
			_ = e.unary("")
			e.stats.take()
		},
	},
}

// dialCases are about other dial options.
var dialCases = []optionCase{
	{name: "DisableRetry", dial: func(*env) []grpc.DialOption { return []grpc.DialOption{grpc.WithDisableRetry()} }, do: (*env).all},
	{name: "MaxCallAttempts", dial: func(*env) []grpc.DialOption { return []grpc.DialOption{grpc.WithMaxCallAttempts(2)} }, do: (*env).all},
	{name: "UserAgent", dial: func(*env) []grpc.DialOption { return []grpc.DialOption{grpc.WithUserAgent("me")} }, do: (*env).all},
	{name: "Authority", dial: func(*env) []grpc.DialOption { return []grpc.DialOption{grpc.WithAuthority("other.example")} }, do: (*env).all},
	{
		name: "DefaultCallOptions",
		dial: func(e *env) []grpc.DialOption {
			return []grpc.DialOption{grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.UseCompressor("gzip"), grpc.OnFinish(func(err error) { e.note("finished: %v", status.Code(err)) }))}
		},
		do: (*env).all,
	},
	{
		name: "DefaultServiceConfig",
		dial: func(*env) []grpc.DialOption {
			return []grpc.DialOption{grpc.WithDefaultServiceConfig(`{"methodConfig":[{"name":[{}],"timeout":"1s"}]}`)}
		},
		do: (*env).all,
	},
	{name: "DisableServiceConfig", dial: func(*env) []grpc.DialOption { return []grpc.DialOption{grpc.WithDisableServiceConfig()} }, do: func(e *env) { _ = e.unary("") }},
	{
		name: "PerRPCCredentialsOfChannel",
		dial: func(e *env) []grpc.DialOption {
			return []grpc.DialOption{grpc.WithPerRPCCredentials(&notedCreds{e: e})}
		},
		do: (*env).all,
	},
}
