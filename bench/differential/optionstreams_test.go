// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

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
