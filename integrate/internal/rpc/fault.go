// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
	"github.com/xdslb/xdslb/xds/resource"
)

// activeFaults counts the RPCs of the process that have a fault at the moment. max_active_faults
// applies to all of them together (A33).
var activeFaults atomic.Int64

// faultInterceptor returns fault injection as an interceptor. It is empty if no fault is
// configured.
func faultInterceptor(f *resource.Fault) interceptor {
	if f.Delay == nil && f.Abort == nil {
		return interceptor{}
	}
	return interceptor{
		unary: func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			active, err := inject(ctx, f)
			if active {
				defer activeFaults.Add(-1)
			}
			switch err {
			case nil:
				return invoker(ctx, method, req, reply, cc, opts...)
			case errEndedOK:
				return errNoMessage
			default:
				return err
			}
		},
		stream: func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (s grpc.ClientStream, err error) {
			active, err := inject(ctx, f)
			end := func() {}
			if active {
				end = sync.OnceFunc(func() { activeFaults.Add(-1) })
			}
			defer func() {
				if s == nil { // also if the streamer panics
					end()
				}
			}()
			switch err {
			case nil:
				if active {
					opts = append(opts[:len(opts):len(opts)], grpc.OnFinish(func(error) { end() }))
				}
				s, err = streamer(ctx, desc, cc, method, opts...)
			case errEndedOK:
				if desc.ServerStreams {
					end()
					return endStream(ctx, opts), nil
				}
				err = errNoMessage
			}
			return s, err
		},
	}
}

// errEndedOK is the result of a fault that ends the RPC with status OK.
var errEndedOK = errors.New("xdslb: fault injection ended the RPC with status OK")

// errNoMessage replaces errEndedOK where a response message is required. gRPC returns the same code
// for a server that ends such an RPC with OK and without a message.
var errNoMessage = status.Error(codes.Internal, "xdslb: fault injection ended the RPC with status OK, without a response message")

// inject delays and then aborts an RPC, each with its own probability, before anything is sent
// (A33). active reports whether the RPC counts as an active fault until it ends.
func inject(ctx context.Context, f *resource.Fault) (active bool, err error) {
	delay := f.Delay != nil && hit(ctx, f.Delay.Chance, f.Delay.Header, "x-envoy-fault-delay-request-percentage")
	abort := f.Abort != nil && hit(ctx, f.Abort.Chance, f.Abort.Header, "x-envoy-fault-abort-request-percentage")
	var wait time.Duration
	if delay {
		wait, delay = delayTime(ctx, f.Delay)
	}
	var code codes.Code
	if abort {
		code, abort = abortCode(ctx, f.Abort)
	}
	if !delay && !abort {
		return false, nil
	}
	if activeFaults.Add(1) > int64(f.MaxActive) {
		activeFaults.Add(-1)
		return false, nil
	}
	if delay {
		if err := Pause(ctx, wait); err != nil {
			return true, err
		}
	}
	switch {
	case !abort:
		return true, nil
	case code == codes.OK:
		return true, errEndedOK
	default:
		return true, status.Error(code, "xdslb: RPC aborted by fault injection")
	}
}

// hit decides at random whether a fault is injected. Request headers that control the fault may
// lower the probability, but not raise it.
func hit(ctx context.Context, p resource.Percentage, byHeader bool, header string) bool {
	chance := p.PerMillion
	if byHeader {
		if n, ok := headerNumber(ctx, header); ok {
			chance = uint32(min(uint64(chance), n*uint64(p.Unit)))
		}
	}
	return rand.Uint32N(1e6) < chance
}

// delayTime returns the configured delay, or the delay in the RPC's header.
func delayTime(ctx context.Context, d *resource.FaultDelay) (wait time.Duration, ok bool) {
	if !d.Header {
		return d.Fixed, true
	}
	ms, ok := headerNumber(ctx, "x-envoy-fault-delay-request")
	return time.Duration(ms) * time.Millisecond, ok
}

// abortCode returns the configured status code, or the code in the RPC's header.
func abortCode(ctx context.Context, a *resource.FaultAbort) (codes.Code, bool) {
	if !a.Header {
		return codes.Code(a.Code), true
	}
	if n, ok := headerNumber(ctx, "x-envoy-fault-abort-grpc-request"); ok && n <= 16 {
		return codes.Code(n), true
	}
	if n, ok := headerNumber(ctx, "x-envoy-fault-abort-request"); ok && n < 600 {
		code, ok := resource.AbortCode(uint32(n))
		return codes.Code(code), ok
	}
	return 0, false
}

// headerNumber returns the number in a request header. ok is false if the header is absent.
func headerNumber(ctx context.Context, name string) (n uint64, ok bool) {
	values := metadatautil.OutgoingValues(ctx, name)
	if len(values) == 0 {
		return 0, false
	}
	n, err := strconv.ParseUint(values[0], 10, 32)
	return n, err == nil
}

// endedStream is a stream that a fault ended with status OK and no message.
type endedStream struct {
	grpc.ClientStream // nil: all methods are below
	ctx               context.Context
}

// endStream returns an endedStream and calls OnFinish.
func endStream(ctx context.Context, opts []grpc.CallOption) endedStream {
	for _, o := range opts {
		if o, ok := o.(grpc.OnFinishCallOption); ok {
			o.OnFinish(nil)
		}
	}
	return endedStream{ctx: ctx}
}

func (endedStream) Header() (metadata.MD, error) { return nil, nil }
func (endedStream) Trailer() metadata.MD         { return nil }
func (endedStream) CloseSend() error             { return nil }
func (s endedStream) Context() context.Context   { return s.ctx }
func (endedStream) SendMsg(any) error            { return io.EOF }
func (endedStream) RecvMsg(any) error            { return io.EOF }
