// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"errors"
	"iter"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/internal/timing"
	"github.com/xdslb/xdslb/xds/resource"
)

// simServer is a server of a world, and the client's end of the wire to it.
type simServer struct {
	w       *world
	number  int
	cfg     *bootstrap.Server
	checker *testplane.Checker
	delta   bool       // the variant that it implements; see swap
	ending  bool       // the client ends the stream
	s       *server    // the client's; nil while it has no use for this one
	stream  *simStream // nil while there is none
	// acked is the latest version that the client has acknowledged in state of the world.
	acked [resource.NumTypes]sotwAcked
}

// simStream is a stream and the messages in flight on it. Requests arrive in order,
// responses in order by type, as in workers.
type simStream struct {
	check     *testplane.StreamChecker
	wire      simWire
	node      *corev3.Node // until it was sent
	responded bool
	silence   timing.Timer // see stream.watchSilence
	requests  []request
	responses [resource.NumTypes][]proto.Message
}

// simWire is the server's side of a stream, in one of the variants.
type simWire interface {
	// hear records a request, and has the server answer.
	hear(*simServer, *testplane.StreamChecker, request)
	asked(resource.Type) bool
	// answer returns the resources that the client does not have, or nil.
	answer(*simServer, resource.Type) proto.Message
	// partial returns some of the resources that the client has, without a request.
	partial(*simServer, resource.Type, uint8) proto.Message
	// note passes a response to the checker.
	note(*testplane.StreamChecker, proto.Message)
}

func newSimServer(w *world, number int, cfg *bootstrap.Server) *simServer {
	return &simServer{w: w, number: number, cfg: cfg, checker: testplane.NewChecker(nil)}
}

func (sim *simServer) types() iter.Seq[resource.Type] {
	return func(yield func(resource.Type) bool) {
		for typ := range resource.NumTypes {
			if !yield(typ) {
				return
			}
		}
	}
}

// connect opens a stream, if the client wants one and there is none. A client that speaks the
// other variant is told so.
func (sim *simServer) connect() bool {
	if sim.s == nil || sim.stream != nil {
		return false
	}
	c := sim.w.c
	c.mu.Lock()
	_, idle := sim.s.demandLocked()
	wrong := sim.s.variant != sim.variant()
	defer c.unlock()
	if idle {
		return false
	}
	if !sim.w.up(sim.number) {
		sim.s.endedLocked(false, errRefused)
		return true
	}
	if err := status.Error(codes.Unimplemented, "the other variant only"); wrong && !sim.s.switchVariantLocked(err) {
		sim.s.endedLocked(false, err)
		return true
	}
	sim.s.openedLocked()
	sim.s.end = func() { sim.ending = true }
	sim.stream = &simStream{check: sim.checker.Stream(), node: c.node, wire: &sotwWire{}}
	if sim.delta {
		sim.stream.wire = &deltaWire{}
	}
	if sim.w.outages != nil {
		c.startLocked(&sim.stream.silence, c.resourceTimeoutLocked(sim.cfg), sim.s.onResponseTimeoutLocked)
	}
	return true
}

func (sim *simServer) variant() variant {
	if sim.delta {
		return delta{}
	}
	return sotw{}
}

// swap has a server speak the other variant only, from the next stream on.
func (w *world) swap(sim *simServer) {
	sim.end(errors.New("going away"))
	sim.delta = !sim.delta
}

// restart ends the stream if the client wants another one.
func (sim *simServer) restart() {
	if !sim.ending {
		return
	}
	sim.ending = false
	if sim.s != nil && sim.stream != nil {
		sim.stream.responded = true // see session.wasQuietLocked
		sim.end(context.Canceled)
	}
}

// end ends the stream.
func (sim *simServer) end(err error) bool {
	if sim.stream == nil {
		return false
	}
	c := sim.w.c
	c.mu.Lock()
	sim.stream.silence.StopLocked()
	responded := sim.stream.responded || sim.w.outages != nil && sim.s.wasQuietLocked()
	c.unlock()
	sim.stream = nil
	sim.s.ended(context.Background(), responded, err)
	return true
}

// refuse ends the stream, if there is one, and another before it is open.
func (sim *simServer) refuse() bool {
	if sim.s == nil {
		return false
	}
	sim.end(errors.New("going down"))
	sim.s.ended(context.Background(), false, errRefused)
	return true
}

// send has the client send a request, if one is due.
func (sim *simServer) send() bool {
	if sim.stream == nil {
		return false
	}
	c := sim.w.c
	c.mu.Lock()
	defer c.unlock()
	req, fresh := sim.s.requestLocked(sim.stream.node)
	if req == nil {
		return false
	}
	if _, err := proto.Marshal(req); err != nil {
		sim.w.t.Errorf("server %d: a request cannot be encoded, which ends the stream: %v", sim.number, err)
	}
	sim.stream.node = nil
	sim.s.sentLocked(req, fresh)
	sim.stream.requests = append(sim.stream.requests, req)
	return true
}

// hear has the server read a request.
func (sim *simServer) hear() bool {
	st := sim.stream
	if st == nil || len(st.requests) == 0 {
		return false
	}
	req := st.requests[0]
	st.requests = st.requests[1:]
	st.wire.hear(sim, st.check, req)
	return true
}

// answer has the server send the resources that the client does not have, if any.
func (sim *simServer) answer(typ resource.Type) {
	if sim.stream == nil {
		return
	}
	if msg := sim.stream.wire.answer(sim, typ); msg != nil {
		sim.respond(typ, msg)
	}
}

// partial has the server send some of its resources without a request: for
// Listeners and Clusters, all.
func (sim *simServer) partial(typ resource.Type, which uint8) bool {
	if sim.stream == nil || !sim.stream.wire.asked(typ) {
		return false
	}
	sim.respond(typ, sim.stream.wire.partial(sim, typ, which))
	return true
}

func (sim *simServer) respond(typ resource.Type, msg proto.Message) {
	st := sim.stream
	st.wire.note(st.check, msg)
	st.responses[typ] = append(st.responses[typ], msg)
}

// receive has the client handle a response of a type.
func (sim *simServer) receive(typ resource.Type) bool {
	st := sim.stream
	if st == nil || len(st.responses[typ]) == 0 {
		return false
	}
	msg := st.responses[typ][0]
	st.responses[typ] = st.responses[typ][1:]
	if !st.responded {
		st.responded = true
		c := sim.w.c
		c.mu.Lock()
		sim.s.respondedLocked()
		c.unlock()
	}
	r := response{t: &sim.s.types[typ], msg: arrived(msg)}
	r.handle()
	return true
}
