// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // for the compressor
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// scripts are the results of the RPCs of most cases: success, failure, success after a failure,
// permanent failure, failure after headers, and a timeout.
var scripts = []string{"", "5", "14,0", "14,14,14,14", "h14,0", "hang"}

// each makes a unary RPC and a stream for each of the scripts.
func (e *env) each(opts func() []grpc.CallOption, after func()) {
	for _, script := range scripts {
		for _, kind := range []string{"unary", "stream"} {
			if kind == "unary" {
				_ = e.unary(script, opts()...)
			} else {
				_ = e.stream(script, 2, opts()...)
			}
			after()
		}
	}
}

// callCases are about call options.
var callCases = []optionCase{
	{name: "None", do: func(e *env) {
		e.each(func() []grpc.CallOption { return nil }, func() {})
	}},
	{name: "Header", do: func(e *env) {
		var header metadata.MD
		e.each(func() []grpc.CallOption { header = nil; return []grpc.CallOption{grpc.Header(&header)} },
			func() { e.note("header %s", describeOwn(header)) })
	}},
	{name: "Trailer", do: func(e *env) {
		var trailer metadata.MD
		e.each(func() []grpc.CallOption { trailer = nil; return []grpc.CallOption{grpc.Trailer(&trailer)} },
			func() { e.note("trailer %s", describeOwn(trailer)) })
	}},
	{name: "Peer", do: func(e *env) {
		var p peer.Peer
		e.each(func() []grpc.CallOption { p = peer.Peer{}; return []grpc.CallOption{grpc.Peer(&p)} }, func() {
			if p.Addr == nil {
				e.note("no peer")
			} else {
				e.note("peer %s", e.fleet.names[p.Addr.String()])
			}
		})
	}},
	{name: "OnFinish", do: func(e *env) {
		e.each(func() []grpc.CallOption {
			return []grpc.CallOption{grpc.OnFinish(func(err error) { e.note("finished: %v", status.Code(err)) })}
		}, func() {})
	}},
	{name: "WaitForReady", do: func(e *env) {
		e.fleet.setDown(shop+".0", true)
		for _, wait := range []bool{false, true} {
			e.note("down, waits %t", wait)
			_ = e.unary("", grpc.WaitForReady(wait))
			_ = e.stream("", 1, grpc.WaitForReady(wait))
		}
		var up sync.WaitGroup
		up.Go(func() {
			time.Sleep(time.Second)
			e.fleet.setDown(shop+".0", false)
		})
		e.note("up after a second")
		_ = e.unary("", grpc.WaitForReady(true))
		up.Wait()
	}},
	{name: "MaxCallRecvMsgSize", do: func(e *env) { _ = e.unary("", grpc.MaxCallRecvMsgSize(3)) }},
	{name: "MaxCallSendMsgSize", do: func(e *env) { _ = e.unary("", grpc.MaxCallSendMsgSize(3)) }},
	{name: "PerRPCCredentials", do: func(e *env) {
		for _, script := range scripts {
			_ = e.unary(script, grpc.PerRPCCredentials(&notedCreds{e: e}))
		}
	}},
	{name: "PerRPCCredentialsFail", do: func(e *env) {
		_ = e.unary("", grpc.PerRPCCredentials(&notedCreds{e: e, err: context.Canceled}))
	}},
	{name: "CallContentSubtype", do: func(e *env) { _ = e.unary("14,0", grpc.CallContentSubtype(subtype)) }},
	{name: "ForceCodec", do: func(e *env) { _ = e.unary("14,0", grpc.ForceCodecV2(encoding.GetCodecV2(subtype))) }},
	{name: "UseCompressor", do: func(e *env) { _ = e.unary("14,0", grpc.UseCompressor("gzip")) }},
	{name: "UnknownCompressor", do: func(e *env) { _ = e.unary("", grpc.UseCompressor("nobody-has-this")) }},
	{name: "MaxRetryRPCBufferSize", do: func(e *env) {
		_ = e.unary("14,0", grpc.MaxRetryRPCBufferSize(1))
		_ = e.stream("14,0", 1, grpc.MaxRetryRPCBufferSize(1))
	}},
	{name: "StaticMethod", do: func(e *env) { _ = e.unary("14,0", grpc.StaticMethod()) }},
	{name: "CallAuthority", do: func(e *env) { _ = e.unary("", grpc.CallAuthority("other.example")) }},
	{name: "Deadline", do: func(e *env) {
		_ = e.unary("") // or it would be by chance whether an RPC without time waits for a configuration
		for _, d := range []time.Duration{0, time.Second, 5 * time.Second} {
			ctx, id := e.context("hang")
			ctx, cancel := context.WithTimeout(ctx, d)
			start := time.Now()
			_ = e.invoke(ctx, id, shopMethod)
			e.note("took %v", time.Since(start).Round(10*time.Millisecond))
			cancel()
		}
	}},
	{name: "Cancel", do: func(e *env) {
		ctx, id := e.context("hang")
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Second, cancel)
		_ = e.invoke(ctx, id, shopMethod)
	}},
	{name: "Stream", do: func(e *env) {
		for _, script := range []string{"", "5", "h14"} {
			ctx, id := e.context(script)
			s, err := e.cc.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, shopMethod)
			e.note("opened: %v", status.Code(err))
			if err != nil {
				continue
			}
			var m wrapperspb.BytesValue
			e.note("closed: %v", s.CloseSend())
			header, err := s.Header()
			e.note("header %s %v", describeOwn(header), status.Code(err))
			err = s.RecvMsg(&m)
			e.note("received: %v, trailer %s", status.Code(err), describeOwn(s.Trailer()))
			e.note("again: %v", status.Code(s.RecvMsg(&m)))
			e.note("sent: %t", s.SendMsg(&m) != nil)
			p, ok := peer.FromContext(s.Context())
			e.note("peer in the context: %t %t", ok, p != nil)
			e.noteEnd(id, nil)
		}
	}},
}

// notedCreds are credentials that record when they are requested.
type notedCreds struct {
	e   *env
	err error
}

var _ credentials.PerRPCCredentials = (*notedCreds)(nil)

func (c *notedCreds) GetRequestMetadata(ctx context.Context, uri ...string) (map[string]string, error) {
	info, ok := credentials.RequestInfoFromContext(ctx)
	c.e.note("credentials for %q, %t %s", uri, ok, info.Method)
	return map[string]string{"x-token": "secret"}, c.err
}

func (c *notedCreds) RequireTransportSecurity() bool { return false }

// subtype is the content subtype of a codec that is proto by another name.
const subtype = "differential"

func init() { encoding.RegisterCodecV2(otherCodec{encoding.GetCodecV2(encodingproto.Name)}) }

type otherCodec struct{ encoding.CodecV2 }

func (otherCodec) Name() string { return subtype }
