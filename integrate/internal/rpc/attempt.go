// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/picker"
)

// An attempt is one attempt at an RPC that is retried or hedged:
//
//	retries.begin ──▶ gRPC picks and sends ──▶ retries.next or hedgedCall.end ──▶ the RPC's options
//	                  (call.go, Done)                                       (store)
//
// gRPC fills in header, trailer and peer when the attempt ends, unless it never had a stream.
type attempt struct {
	number  int // from 1
	header  metadata.MD
	trailer metadata.MD
	peer    peer.Peer
	budget  *Budget // nil if the attempt does not count as an active retry
	// set for hedged RPCs only
	reply    proto.Message
	err      error
	panicked any                      // the value of a panic
	exited   bool                     // by runtime.Goexit
	picked   atomic.Pointer[upstream] // if the RPC has a session
}

// untouched is the trailer of an attempt that gRPC has not filled in. No trailer has its key.
var untouched = metadata.MD{"": nil}

// options returns the call options of the attempt: the application's, except that the results
// go to the attempt. OnFinish is omitted, since an RPC ends once.
func (a *attempt) options(opts []grpc.CallOption) []grpc.CallOption {
	a.trailer = untouched
	opts = append(slices.DeleteFunc(slices.Clone(opts), perRPC), grpc.Header(&a.header), grpc.Trailer(&a.trailer), grpc.Peer(&a.peer))
	if a.number == 1 {
		return opts
	}
	return withPreviousAttempts(opts, a.number-1)
}

// perRPC reports whether an option is about the RPC, or about the attempt that decides it.
func perRPC(o grpc.CallOption) bool {
	switch o.(type) {
	case grpc.HeaderCallOption, *grpc.HeaderCallOption, grpc.TrailerCallOption, *grpc.TrailerCallOption,
		grpc.PeerCallOption, *grpc.PeerCallOption, grpc.OnFinishCallOption:
		return true
	}
	return false
}

// release releases the attempt's place in the retry budget, if it has one. It is called when the
// attempt is no longer an active retry. It does nothing on a nil attempt.
func (a *attempt) release() {
	if a != nil {
		a.budget.release()
		a.budget = nil
	}
}

// hasStream reports whether the attempt had a stream.
func (a *attempt) hasStream() bool {
	_, not := a.trailer[""]
	return !not
}

// store copies the results of the last attempt that had a stream to the application's options.
// If a is nil, no attempt had a stream and the options stay unchanged, as in gRPC.
func (a *attempt) store(opts []grpc.CallOption) {
	if a == nil || !a.hasStream() {
		return
	}
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.HeaderCallOption:
			*o.HeaderAddr = a.header
		case *grpc.HeaderCallOption:
			*o.HeaderAddr = a.header
		case grpc.TrailerCallOption:
			*o.TrailerAddr = a.trailer
		case *grpc.TrailerCallOption:
			*o.TrailerAddr = a.trailer
		case grpc.PeerCallOption:
			*o.PeerAddr = a.peer
		case *grpc.PeerCallOption:
			*o.PeerAddr = a.peer
		}
	}
}

// ErrHedgeSuperseded is the error of an attempt that was canceled because another attempt has decided the
// RPC.
var ErrHedgeSuperseded = status.Error(codes.Canceled, "xdslb: attempt canceled: another attempt decided the hedged RPC")

// causeOf returns the error of an attempt with this context: ErrHedgeSuperseded or errTryTimeout if
// interceptors canceled it, and otherwise err.
func causeOf(ctx context.Context, err error) error {
	if status.Code(err) == codes.Canceled {
		if cause := context.Cause(ctx); cause == ErrHedgeSuperseded || cause == errTryTimeout {
			return cause
		}
	}
	return err
}

// withCause returns a done that disconnects the attempt's timer, which may be nil, and reports the error
// of causeOf.
func withCause(ctx context.Context, timer *tryTimer, done func(balancer.DoneInfo)) func(balancer.DoneInfo) {
	return func(info balancer.DoneInfo) {
		timer.disconnect()
		info.Err = causeOf(ctx, info.Err)
		done(info)
	}
}

// Result returns the result of an attempt for the statistics of its endpoint. gRPC reports a
// pick whose connection was closed before its use with an empty DoneInfo, and an RPC whose
// connection was closed before its message was sent without the error. An RPC without an answer
// has not succeeded, though. Attempts that lost are neither successes nor failures, as in
// Envoy.
func Result(info *balancer.DoneInfo) picker.CallResult {
	switch {
	case info.Err == ErrHedgeSuperseded:
		return picker.CallCanceled
	case info.Err != nil:
		return picker.CallFailed
	case info.BytesReceived:
		return picker.CallOK
	case info.BytesSent:
		return picker.CallFailed
	}
	return picker.CallNotSent
}

// Tried contains the connections that an RPC's attempts were given. Any number of goroutines
// may use it. The zero value is empty, and must not be copied.
type Tried struct {
	mu    sync.Mutex
	conns []balancer.SubConn
	room  [2]balancer.SubConn // for the first ones
}

// Add adds the connection of a pick.
func (t *Tried) Add(sc balancer.SubConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conns == nil {
		t.conns = t.room[:0]
	}
	t.conns = append(t.conns, sc)
}

// Has reports whether an attempt was given a connection.
func (t *Tried) Has(sc balancer.SubConn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Contains(t.conns, sc)
}

// previousAttemptsKey is the header with the number of previous attempts (A6).
const previousAttemptsKey = "grpc-previous-rpc-attempts"

// attemptCreds add the header to an attempt only. Metadata of the attempt's context would also be
// sent with RPCs that are made with that context, for instance by credentials.
type attemptCreds struct {
	theirs   credentials.PerRPCCredentials // the application's; may be nil
	previous int                           // attempts
}

// withPreviousAttempts adds the header to an attempt's options, which it may change. gRPC uses the
// last option for credentials, which is the application's if it has a type of its own.
func withPreviousAttempts(opts []grpc.CallOption, previous int) []grpc.CallOption {
	c := attemptCreds{previous: previous}
	opts = slices.DeleteFunc(opts, func(o grpc.CallOption) bool {
		switch o := o.(type) {
		case grpc.PerRPCCredsCallOption:
			c.theirs = o.Creds
		case *grpc.PerRPCCredsCallOption:
			c.theirs = o.Creds
		default:
			return false
		}
		return true
	})
	return slices.Insert(opts, 0, grpc.PerRPCCredentials(c))
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (c attemptCreds) GetRequestMetadata(ctx context.Context, uri ...string) (map[string]string, error) {
	headers := map[string]string{previousAttemptsKey: strconv.Itoa(c.previous)}
	if c.theirs == nil {
		return headers, nil
	}
	theirs, err := c.theirs.GetRequestMetadata(ctx, uri...)
	maps.Copy(headers, theirs)
	return headers, err
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (c attemptCreds) RequireTransportSecurity() bool {
	return c.theirs != nil && c.theirs.RequireTransportSecurity()
}
