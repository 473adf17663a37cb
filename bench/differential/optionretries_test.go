// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// retryCases are about retries (A6, A44). Stock leaves the retries of all routes to gRPC; ours
// makes the retries of variant "retry" itself, with the same observable behavior.
var retryCases = []optionCase{
	{name: "RetryCodes", do: func(e *env) {
		for code := range 17 {
			e.retried(fmt.Sprintf("%d,0", code), 0)
			e.retried(fmt.Sprintf("%d", code), 0)
		}
	}},
	{name: "RetryAfterHeaders", do: func(e *env) {
		e.retried("h14,0", 0)
		e.retried("14,h14,0", 0)
		e.retried("14,h8", 0)
	}},
	{name: "RetryMixedCodes", do: func(e *env) {
		for _, script := range []string{"14,5", "14,8,13,0", "14,8,0", "1,4,0", "8,14,2", "14,14,hang"} {
			e.retried(script, 0)
		}
	}},
	{name: "RetryPushback", do: func(e *env) {
		for _, script := range []string{
			"p0:14,0", "p2000:14,0", "p2000:14", "14,p1000:14,0", "p-1:14,0", "14,p-1:14,0", "px:14,0",
			"p99999999999999999999:14,0", "p2000:5,0", "p-1:5,0", "p1000:8,p1000:8,0",
		} {
			e.retried(script, 0)
		}
	}},
	{name: "RetryDeadline", do: func(e *env) {
		for _, script := range []string{"14,hang", "p5000:14,0", "hang,0", "14,14,hang", "p1000:14,p1000:14,0", "p1000:14,hang"} {
			e.retried(script, 2500*time.Millisecond)
		}
	}},
	{name: "RetryWithoutStream", do: func(e *env) {
		// The backend goes away before the second attempt, which gets no stream.
		for _, opts := range [][]grpc.CallOption{nil, {grpc.WaitForReady(true)}} {
			time.AfterFunc(time.Second, func() { e.fleet.setDown(shop+".0", true) })
			up := time.AfterFunc(4*time.Second, func() { e.fleet.setDown(shop+".0", false) })
			e.retried("p2000:14,0", 0, opts...)
			time.Sleep(10 * time.Second)
			up.Stop()
		}
	}},
	{name: "RetryOwnFault", do: func(e *env) {
		e.retried("", 0, grpc.MaxCallSendMsgSize(3))
		e.retried("", 0, grpc.MaxCallRecvMsgSize(3))
		e.retried("", 0, grpc.UseCompressor("nobody-has-this"))
		e.begin("unary", "")
		ctx, id := e.context("")
		err := e.cc.Invoke(ctx, shopMethod, wrapperspb.String("\xff"), new(wrapperspb.StringValue))
		e.noteEnd(id, err)
	}},
	{name: "RetrySentBefore", do: func(e *env) {
		for _, script := range []string{"14,0", "14,14,0", "14", "p1000:14,0", "h14,0", "5"} {
			e.streamed(script, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, func(s grpc.ClientStream) {
				for i := range 5 {
					synctest.Wait() // the failure of an attempt is here
					e.note("sent %d: %v", i, s.SendMsg(&wrapperspb.BytesValue{Value: []byte("hello")}))
				}
				e.note("closed: %v", s.CloseSend())
			})
		}
	}},
	{name: "RetryServerStream", do: func(e *env) {
		for _, script := range []string{"14,0", "14", "h14,0"} {
			e.streamed(script, &grpc.StreamDesc{ServerStreams: true}, func(s grpc.ClientStream) {
				e.note("sent: %v", s.SendMsg(&wrapperspb.BytesValue{Value: []byte("hello")}))
				e.note("closed: %v", s.CloseSend())
				header, err := s.Header()
				e.note("header %s %v", describeOwn(header), err)
			})
		}
	}},
	{name: "RetryCommitted", do: func(e *env) {
		for _, commit := range []func(grpc.ClientStream){
			func(s grpc.ClientStream) { _ = s.Context() },
			func(s grpc.ClientStream) { _ = s.Trailer() },
			func(s grpc.ClientStream) { _ = s.SendMsg(&wrapperspb.BytesValue{Value: make([]byte, 300<<10)}) },
		} {
			e.streamed("14,0", &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, func(s grpc.ClientStream) {
				commit(s)
				synctest.Wait() // the failure is here
				e.note("sent: %v", s.SendMsg(&wrapperspb.BytesValue{Value: []byte("hello")}))
				_ = s.CloseSend()
			})
		}
	}},
	{name: "RetryAbandoned", do: func(e *env) {
		for _, script := range []string{"", "14", "p5000:14", "h14", "hang"} {
			e.begin("stream", script)
			ctx, id := e.context(script)
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			s, err := e.cc.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, shopMethod,
				grpc.OnFinish(func(err error) { e.note("finished: %v", status.Code(err)) }))
			if err == nil {
				e.note("sent: %v", s.SendMsg(&wrapperspb.BytesValue{Value: []byte("hello")}))
			}
			time.Sleep(3 * time.Second)
			cancel()
			e.noteEnd(id, err)
		}
	}},
	{name: "RetryBuffer", do: func(e *env) {
		for _, size := range []int{0, 1, 11, 12, 13, 24, 1 << 20} {
			e.retried("14,0", 0, grpc.MaxRetryRPCBufferSize(size))
		}
	}},
}

// reasonOf is an error's text, or that there is one, where it is by chance or each side
// has words of its own.
func reasonOf(err error) string {
	text := status.Convert(err).Message()
	for _, part := range []string{"fault injection", "connection error", "context deadline exceeded", "RST_STREAM with error code: CANCEL"} {
		if strings.Contains(text, part) {
			return "not compared"
		}
	}
	return text
}

// streamed opens a stream, passes it to do, and receives until its end.
func (e *env) streamed(script string, desc *grpc.StreamDesc, do func(grpc.ClientStream)) {
	e.begin("stream", script)
	ctx, id := e.context(script)
	finished := grpc.OnFinish(func(err error) { e.note("finished: %v", status.Code(err)) })
	s, err := e.cc.NewStream(ctx, desc, shopMethod, finished)
	if err == nil {
		do(s)
		var m wrapperspb.BytesValue
		for err == nil {
			err = s.RecvMsg(&m)
		}
		e.note("trailer %s", describeOwn(s.Trailer()))
	}
	e.note("%q", reasonOf(err))
	e.noteEnd(id, err)
}

// retried makes a unary RPC and a stream with all options, within a timeout unless that is 0,
// and records the results, times and numbers of attempts.
func (e *env) retried(script string, timeout time.Duration, opts ...grpc.CallOption) {
	for _, kind := range []string{"unary", "stream"} {
		header, trailer, p := metadata.Pairs("x", "before"), metadata.Pairs("x", "before"), peer.Peer{}
		all := append(slices.Clone(opts), grpc.Header(&header), grpc.Trailer(&trailer), grpc.Peer(&p),
			grpc.OnFinish(func(err error) { e.note("finished: %v", status.Code(err)) }))
		e.begin(kind, script)
		ctx, id := e.context(script)
		cancel := context.CancelFunc(func() {})
		if timeout > 0 {
			ctx, cancel = context.WithTimeout(ctx, timeout)
		}
		start := time.Now()
		var err error
		if kind == "unary" {
			err = e.invoke(ctx, id, shopMethod, all...)
		} else {
			err = e.exchange(ctx, 2, nil, all...)
			e.noteEnd(id, err)
		}
		e.note("%q after %v", reasonOf(err), time.Since(start).Round(100*time.Millisecond))
		from := "nobody"
		if p.Addr != nil {
			from = e.fleet.names[p.Addr.String()]
		}
		e.note("header %s trailer %s peer %s", describeOwn(header), describeOwn(trailer), from)
		cancel()
	}
}

// streamCases use streams in every order of operations: each operation starts while earlier
// ones may still wait for the server.
var streamCases = []optionCase{
	{name: "StreamOrders", do: func(e *env) {
		for _, script := range []string{"", earlyHeaders, "5", "14,0", "14,14,14,14", "h14,0"} {
			for _, order := range streamOrders() {
				e.streamInOrder(script, order)
			}
		}
	}},
	{name: "StreamClosed", do: func(e *env) {
		for _, script := range []string{"", earlyHeaders, "hang", "14,hang"} {
			for _, order := range []string{"", "S", "SC"} {
				e.streamAndClose(script, order)
			}
		}
	}},
}

// streamOrders returns orders of operations: up to three of Header, SendMsg, CloseSend and
// RecvMsg, and some with Context and Trailer.
func streamOrders() []string {
	orders := []string{"X", "SX", "XS", "SXR", "RX", "HX", "T", "ST", "STR", "RTS"}
	last := []string{""}
	for range 3 {
		var next []string
		for _, o := range last {
			for _, op := range "HSCR" {
				next = append(next, o+string(op))
			}
		}
		orders, last = append(orders, next...), next
	}
	return orders
}

// An opened stream runs operations, each in a goroutine of its own.
type opened struct {
	grpc.ClientStream
	e      *env
	waits  []rune   // operations that have not returned
	done   []string // results of concurrent operations; unordered
	closed bool
	// retried means that attempts fail after something was sent. In both clients one operation
	// waits for a backoff with a mutex held, and another operation that waits for the mutex
	// would stop virtual time. So operations that wait are omitted until something is sent.
	retried, sent bool
}

// begin begins an operation unless one that must not run at the same time still does.
func (s *opened) begin(op rune) {
	apart := string(op)
	if sends := strings.ContainsRune("SC", op); sends {
		apart, s.sent = "SC", true
	} else if s.retried && !s.sent {
		return
	}
	if slices.ContainsFunc(s.waits, func(o rune) bool { return strings.ContainsRune(apart, o) }) {
		return
	}
	s.waits = append(s.waits, op)
	s.closed = s.closed || op == 'C'
	go func() {
		text := s.do(op)
		s.e.mu.Lock()
		s.waits = slices.DeleteFunc(s.waits, func(o rune) bool { return o == op })
		s.done = append(s.done, fmt.Sprintf("%c: %s", op, text))
		s.e.mu.Unlock()
	}()
	s.settle()
}

// settle waits until no event is pending, including backoffs.
func (s *opened) settle() {
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
	s.e.mu.Lock()
	done, waits := slices.Sorted(slices.Values(s.done)), string(s.waits)
	s.done = nil
	s.e.mu.Unlock()
	s.e.note("%q, waiting: %q", done, waits)
}

// do runs an operation and returns its result.
func (s *opened) do(op rune) string {
	switch op {
	case 'H':
		header, err := s.Header()
		return fmt.Sprint(describeOwn(header), " ", status.Code(err))
	case 'S':
		return fmt.Sprint(errorOf(s.SendMsg(&wrapperspb.BytesValue{Value: []byte("hello")})))
	case 'C':
		return fmt.Sprint(s.CloseSend())
	case 'R':
		return fmt.Sprint(errorOf(s.RecvMsg(new(wrapperspb.BytesValue))))
	case 'T':
		return describeOwn(s.Trailer())
	default: // X
		_, ok := peer.FromContext(s.Context())
		return fmt.Sprint("peer ", ok)
	}
}

// errorOf is an error's text, or that there is one.
func errorOf(err error) string {
	if _, isStatus := status.FromError(err); isStatus && err != nil {
		return fmt.Sprint(status.Code(err), " ", reasonOf(err))
	}
	return fmt.Sprint(err)
}

// open opens a stream, and notes its end.
func (e *env) open(script, order string, opts ...grpc.CallOption) (s *opened, id string) {
	e.begin("stream "+order, script)
	ctx, id := e.context(script)
	s = &opened{e: e, retried: strings.HasPrefix(script, "14")}
	opts = append(opts, grpc.OnFinish(func(err error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		s.done = append(s.done, fmt.Sprint("finished: ", status.Code(err)))
	}))
	stream, err := e.cc.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, shopMethod, opts...)
	if err != nil {
		e.note("not opened: %v", status.Code(err))
		e.noteEnd(id, err)
		return nil, id
	}
	s.ClientStream = stream
	return s, id
}

// streamInOrder runs operations on a stream in an order, and then ends it.
func (e *env) streamInOrder(script, order string) {
	s, id := e.open(script, order)
	if s == nil {
		return
	}
	for _, op := range order {
		s.begin(op)
	}
	if !s.closed {
		s.begin('C')
	}
	s.settle()
	var err error
	for range 5 {
		if err = s.RecvMsg(new(wrapperspb.BytesValue)); err != nil {
			break
		}
	}
	e.note("end: %s, trailer %s", errorOf(err), describeOwn(s.Trailer()))
	s.settle()
	e.noteEnd(id, nil)
}

// streamAndClose runs operations on a stream of a channel of its own, none of which waits, and
// closes the channel. It reads the stream only afterwards.
func (e *env) streamAndClose(script, order string) {
	channel := e.cc
	defer func() { e.cc = channel }()
	e.cc = e.redial()
	if s, id := e.open(script, order); s != nil {
		for _, op := range order {
			s.begin(op)
		}
		s.settle() // else the stream may be closed before or after it reaches the server
		_ = e.cc.Close()
		s.settle()
		e.note("end: %v", status.Code(s.RecvMsg(new(wrapperspb.BytesValue))))
		s.settle()
		e.noteEnd(id, nil)
	}
	_ = e.cc.Close()
}
