// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// simServer is a server of a world, and the client's end of the wire to it.
type simServer struct {
	w       *world
	number  int
	cfg     *bootstrap.Server
	checker *xdstest.Checker
	s       *server    // the client's; nil while it has no use for this one
	stream  *simStream // nil while there is none
}

// simStream is a stream and what is under way on it. Requests arrive in order,
// responses in order by type, as in workers.
type simStream struct {
	check     *xdstest.StreamChecker
	node      *corev3.Node // until it was sent
	responded bool
	requests  []*discoveryv3.DiscoveryRequest
	responses [resource.NumTypes][]*discoveryv3.DiscoveryResponse
	nonces    int
	types     [resource.NumTypes]simType
}

// simType is what a server knows of a client's wishes.
type simType struct {
	asked bool
	names []string
	nonce string
	sent  map[string]int // by version
}

func newSimServer(w *world, number int, cfg *bootstrap.Server) *simServer {
	return &simServer{w: w, number: number, cfg: cfg, checker: xdstest.NewChecker(nil)}
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

// connect opens a stream, if the client wants one and there is none.
func (sim *simServer) connect() bool {
	if sim.s == nil || sim.stream != nil {
		return false
	}
	c := sim.w.c
	c.mu.Lock()
	defer c.unlock()
	if _, idle := sim.s.demandLocked(); idle {
		return false
	}
	sim.s.openedLocked()
	sim.stream = &simStream{check: sim.checker.Stream(), node: c.node}
	return true
}

// end ends the stream.
func (sim *simServer) end(err error) bool {
	if sim.stream == nil {
		return false
	}
	responded := sim.stream.responded
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
	sim.stream.node = nil
	sim.s.startTimersLocked(fresh)
	sim.stream.requests = append(sim.stream.requests, req.(*discoveryv3.DiscoveryRequest))
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
	st.check.Request(req)
	typ, ok := resource.TypeOf(req.TypeUrl)
	if !ok {
		return true
	}
	t := &st.types[typ]
	if req.ResponseNonce != t.nonce {
		return true // stale
	}
	for name := range t.sent {
		if !slices.Contains(req.ResourceNames, name) {
			delete(t.sent, name)
		}
	}
	t.asked, t.names = true, req.ResourceNames
	sim.answer(typ)
	return true
}

// answer has the server send what the client does not have, if there is any.
func (sim *simServer) answer(typ resource.Type) {
	st := sim.stream
	if st == nil || !st.types[typ].asked {
		return
	}
	t := &st.types[typ]
	full, news := typ == lds || typ == cds, false
	sent := map[string]int{}
	var list []*anypb.Any
	for i := range worldSize {
		own := sim.w.name(typ, i)
		if !slices.Contains(t.names, own) {
			continue
		}
		before, had := t.sent[own]
		a := sim.w.resource(typ, i, sim.number)
		switch {
		case a != nil:
			version := sim.w.set[typ][i]
			fresh := !had || version != before
			if full || fresh {
				list = append(list, a)
			}
			sent[own], news = version, news || fresh
		case had && full:
			news = true
		}
	}
	t.sent = sent
	if news {
		sim.respond(typ, list)
	}
}

// partial has the server send some of what it has, though nobody asked: for
// Listeners and Clusters, all.
func (sim *simServer) partial(typ resource.Type, which uint8) bool {
	if sim.stream == nil || len(sim.stream.types[typ].names) == 0 {
		return false
	}
	var list []*anypb.Any
	for i := range worldSize {
		_, had := sim.stream.types[typ].sent[sim.w.name(typ, i)]
		if had && (typ == lds || typ == cds || which&(1<<i) != 0) {
			if a := sim.w.resource(typ, i, sim.number); a != nil {
				list = append(list, a)
			}
		}
	}
	sim.respond(typ, list)
	return true
}

func (sim *simServer) respond(typ resource.Type, list []*anypb.Any) {
	st := sim.stream
	st.nonces++
	st.types[typ].nonce = fmt.Sprint(st.nonces)
	resp := &discoveryv3.DiscoveryResponse{TypeUrl: typ.URL(), VersionInfo: fmt.Sprint(sim.w.version), Nonce: st.types[typ].nonce, Resources: list}
	st.check.Response(resp)
	st.responses[typ] = append(st.responses[typ], resp)
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
		for a := range sim.s.users {
			a.respondedLocked(sim.s)
		}
		c.unlock()
	}
	r := response{server: sim.s, typ: typ, msg: msg}
	r.handle()
	return true
}
