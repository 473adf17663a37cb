// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// tenant is an interceptor that adds the header used by routes.
func tenant(e *env, name string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		e.note("%s called", name)
		err := invoker(metadata.AppendToOutgoingContext(ctx, "x-tenant", "canary"), method, req, reply, cc, opts...)
		e.note("%s returns %v", name, status.Code(err))
		return err
	}
}

func tenantStream(e *env, name string) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		e.note("%s called", name)
		s, err := streamer(metadata.AppendToOutgoingContext(ctx, "x-tenant", "canary"), desc, cc, method, opts...)
		e.note("%s returns %v", name, status.Code(err))
		return s, err
	}
}

// around makes a unary interceptor that does something before each RPC that is not
// for tokens.
func around(do func(ctx context.Context, cc *grpc.ClientConn)) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if method != tokenMethod {
			do(ctx, cc)
		}
		return invoker(ctx, method, req, reply, cc, opts...)
	}
}

// token makes a nested RPC with an RPC's context.
func (e *env) token(ctx context.Context, cc *grpc.ClientConn) {
	var header metadata.MD
	var in, out wrapperspb.BytesValue
	err := cc.Invoke(ctx, tokenMethod, &in, &out, grpc.Header(&header))
	e.note("nested: %v by %q", status.Code(err), header.Get("x-backend"))
}

// all makes unary RPCs and streams for each script.
func (e *env) all() { e.each(func() []grpc.CallOption { return nil }, func() {}) }

// interceptorCases are about applications' interceptors.
var interceptorCases = []optionCase{
	{
		name: "ChainUnaryInterceptor",
		interceptors: func(e *env) []grpc.DialOption {
			return []grpc.DialOption{grpc.WithChainUnaryInterceptor(tenant(e, "chained")), grpc.WithChainStreamInterceptor(tenantStream(e, "chained"))}
		},
		do: (*env).all,
	},
	{
		name: "UnaryInterceptor",
		interceptors: func(e *env) []grpc.DialOption {
			return []grpc.DialOption{grpc.WithUnaryInterceptor(tenant(e, "only")), grpc.WithStreamInterceptor(tenantStream(e, "only"))}
		},
		do: (*env).all,
	},
	{
		name: "Both",
		interceptors: func(e *env) []grpc.DialOption {
			return []grpc.DialOption{
				grpc.WithUnaryInterceptor(tenant(e, "first")), grpc.WithChainUnaryInterceptor(tenant(e, "second"), tenant(e, "third")),
			}
		},
		do: func(e *env) { _ = e.unary("14,0") },
	},
	{
		name: "OtherMethod",
		interceptors: func(e *env) []grpc.DialOption {
			return []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(ctx context.Context, _ string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				return invoker(ctx, tokenMethod, req, reply, cc, opts...)
			})}
		},
		do: func(e *env) { _ = e.unary("14,0") },
	},
	{
		name: "OtherError",
		interceptors: func(e *env) []grpc.DialOption {
			return []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				if err := invoker(ctx, method, req, reply, cc, opts...); err != nil {
					return errors.New("mine")
				}
				return nil
			})}
		},
		do: func(e *env) { e.note("%v", e.unary("14,14,14,14")) },
	},
	{
		name: "OwnRetries",
		interceptors: func(e *env) []grpc.DialOption {
			return []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				err := invoker(ctx, method, req, reply, cc, opts...)
				if err != nil {
					err = invoker(ctx, method, req, reply, cc, opts...)
				}
				return err
			})}
		},
		do: func(e *env) { _ = e.unary("14,14,14,14,14,14,14,0") },
	},
	{
		name: "AddedOptions",
		interceptors: func(e *env) []grpc.DialOption {
			return []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				var header, trailer metadata.MD
				err := invoker(ctx, method, req, reply, cc, append(opts, grpc.Header(&header), grpc.Trailer(&trailer), grpc.OnFinish(func(err error) { e.note("finished: %v", status.Code(err)) }))...)
				e.note("header %s trailer %s", describeOwn(header), describeOwn(trailer))
				return err
			})}
		},
		do: func(e *env) {
			for _, script := range scripts {
				_ = e.unary(script)
			}
		},
	},
	{
		name: "Nested",
		interceptors: func(e *env) []grpc.DialOption {
			return []grpc.DialOption{grpc.WithChainUnaryInterceptor(around(e.token))}
		},
		do: func(e *env) { _ = e.unary("") },
	},
	{
		name: "NestedElsewhere",
		interceptors: func(e *env) []grpc.DialOption {
			return []grpc.DialOption{grpc.WithChainUnaryInterceptor(around(func(ctx context.Context, _ *grpc.ClientConn) { e.token(ctx, e.other) }))}
		},
		do: func(e *env) { _ = e.unary("") },
	},
	{
		name: "NestedInCredentials",
		do: func(e *env) { // the script is for the credentials' RPCs, too
			_ = e.unary("14,14,14,0", grpc.PerRPCCredentials(&nestingCreds{e}))
			_ = e.stream("14,14,14,0", 2, grpc.PerRPCCredentials(&nestingCreds{e}))
		},
	},
	{
		name: "NestedInStream",
		do: func(e *env) {
			ctx, id := e.context("")
			err := e.exchange(ctx, 2, func(s grpc.ClientStream) { e.token(s.Context(), e.cc); e.token(s.Context(), e.other) })
			e.noteEnd(id, err)
		},
	},
	{
		name: "WrappedStream",
		interceptors: func(e *env) []grpc.DialOption {
			return []grpc.DialOption{grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				s, err := streamer(ctx, desc, cc, method, opts...)
				if err != nil {
					return nil, err
				}
				return &notedStream{s, e}, nil
			})}
		},
		do: func(e *env) { _ = e.stream("", 2); _ = e.stream("5", 2) },
	},
}

// nestingCreds make an RPC for each RPC.
type nestingCreds struct{ e *env }

func (c *nestingCreds) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	c.e.token(ctx, c.e.other)
	return nil, nil
}

func (c *nestingCreds) RequireTransportSecurity() bool { return false }

// notedStream records received messages.
type notedStream struct {
	grpc.ClientStream
	e *env
}

func (s *notedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == io.EOF {
		s.e.note("received the end")
	} else {
		s.e.note("received: %v", status.Code(err))
	}
	return err
}
