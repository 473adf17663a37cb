// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
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

// An optionDifference is something that the sides of an option case do not have in
// common.
type optionDifference struct {
	c              *optionCase
	variant, place string
	notes          [2]rpcNotes // of stock and ours, about the same RPC
}

func (d *optionDifference) String() string {
	return fmt.Sprintf("%s\nstock:\n  %s\nours:\n  %s", d.notes[0].rpc, strings.Join(d.notes[0].lines, "\n  "), strings.Join(d.notes[1].lines, "\n  "))
}

// optionReasons are all differences that are accepted, each with where it is documented.
var optionReasons = []struct {
	text   string
	covers func(d *optionDifference) bool
}{
	{
		"interceptors behind ours are called for each attempt, within the route's timeout, and not for RPCs that a filter ends (DialOptions); in stock once for each RPC",
		func(d *optionDifference) bool {
			return d.place == "behind" && d.c.interceptors != nil && (d.byUs() || slices.Contains([]string{"timeout", "abort"}, d.variant))
		},
	},
	{
		"a stream that uses up its attempts while it sends ends with their status and says how many there were (StreamInterceptor); in stock it ends with UNKNOWN",
		func(d *optionDifference) bool {
			return d.byUs() && strings.HasSuffix(d.notes[1].rpc, `script "14"`) && strings.HasPrefix(d.notes[1].rpc, "stream") && d.attempts(0) == d.attempts(1) &&
				d.c.name == "RetrySentBefore"
		},
	},
	{
		"OnFinish is called when SendMsg finds out that a stream has failed for good (StreamInterceptor), in stock by the next operation",
		func(d *optionDifference) bool {
			return d.byUs() && slices.Contains([]string{"StreamOrders", "RetrySentBefore"}, d.c.name) && slices.Equal(withoutFinish(d.notes[0].lines), withoutFinish(d.notes[1].lines))
		},
	},
	{
		"grpc.WithDisableRetry is not visible to interceptors (DialOptions)",
		func(d *optionDifference) bool {
			return d.c.name == "DisableRetry" && d.byUs() && d.attempts(0) == 1 && d.attempts(1) > 1
		},
	},
	{
		"grpc.WithMaxCallAttempts is obeyed (UnaryInterceptor); stock ignores it for policies from xDS",
		func(d *optionDifference) bool {
			return d.c.name == "MaxCallAttempts" && d.attempts(0) == 3 && d.attempts(1) == 2
		},
	},
}

// withoutFinish returns the notes of a stream without the notes of OnFinish.
func withoutFinish(lines []string) []string {
	lines = slices.DeleteFunc(slices.Clone(lines), func(s string) bool { return strings.HasPrefix(s, "finished: ") })
	for i, line := range lines {
		lines[i] = regexp.MustCompile(`"finished: \w+" ?`).ReplaceAllString(line, "")
		lines[i] = strings.ReplaceAll(lines[i], `" ]`, `"]`)
	}
	return lines
}

// byUs reports whether our interceptors make the RPC's retries.
func (d *optionDifference) byUs() bool {
	return slices.Contains([]string{"retry", "retry by budget", "hedge"}, d.variant)
}

// accepted reports whether there is a reason for the difference.
func (d *optionDifference) accepted() bool {
	for _, r := range optionReasons {
		if r.covers(d) {
			return true
		}
	}
	return false
}

// attempts returns the number of attempts of one side's RPC; 0 if it was not recorded.
func (d *optionDifference) attempts(side int) (n int) {
	for _, line := range d.notes[side].lines {
		if _, rest, ok := strings.Cut(line, " after "); ok {
			_, _ = fmt.Sscanf(rest, "%d attempts", &n)
		}
	}
	return n
}
