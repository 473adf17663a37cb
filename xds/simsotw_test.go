// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"maps"
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/resource"
)

// sotwWire is the server's side of a stream of the state-of-the-world variant.
type sotwWire struct {
	types  [resource.NumTypes]sotwSim
	nonces int
}

// sotwSim has the subscriptions of a client as the server knows them.
type sotwSim struct {
	asked bool
	names []string
	nonce string
	sent  map[string]int // by version
	// left are names that the client has unsubscribed from, and missing are names that it has
	// subscribed to again, and that the server does not have.
	left, missing map[string]bool
}

func (d *sotwWire) hear(sim *simServer, check *testplane.StreamChecker, r request) {
	req := r.(*discoveryv3.DiscoveryRequest)
	check.Request(req)
	typ, ok := resource.TypeOf(req.TypeUrl)
	if !ok {
		return
	}
	t := &d.types[typ]
	if req.ResponseNonce != t.nonce {
		return // stale
	}
	if t.nonce == "" && !t.asked {
		d.trust(sim, typ, req)
	}
	for name := range t.sent {
		if !slices.Contains(req.ResourceNames, name) {
			delete(t.sent, name)
		}
	}
	if t.nonce != "" && req.ErrorDetail == nil {
		sim.acked[typ] = sotwAcked{req.VersionInfo, req.ResourceNames, maps.Clone(t.sent)}
	}
	t.leave(req.ResourceNames)
	t.asked, t.names = true, req.ResourceNames
	sim.answer(typ)
}

// leave records names that the client unsubscribes from, or subscribes to again.
func (t *sotwSim) leave(names []string) {
	if t.left == nil {
		t.left, t.missing = map[string]bool{}, map[string]bool{}
	}
	for _, name := range t.names {
		if !slices.Contains(names, name) {
			t.left[name] = true
			delete(t.missing, name)
		}
	}
	for _, name := range names {
		if t.left[name] {
			t.missing[name] = true // until answer sends it
			delete(t.left, name)
		}
	}
}

// sotwAcked is a version that a client has acknowledged, the names that it wanted, and the versions
// of the resources that it had.
type sotwAcked struct {
	version string
	names   []string
	sent    map[string]int
}

// trust has the server not send resources that the client claims to have. A server may go by that if
// the client wants the same resources as before (xDS protocol, "ACK and resource type
// instance version").
func (d *sotwWire) trust(sim *simServer, typ resource.Type, req *discoveryv3.DiscoveryRequest) {
	acked := sim.acked[typ]
	if sim.w.trusts && req.VersionInfo != "" && req.VersionInfo == acked.version && slices.Equal(req.ResourceNames, acked.names) {
		d.types[typ].sent = maps.Clone(acked.sent)
	}
}

func (d *sotwWire) asked(typ resource.Type) bool { return len(d.types[typ].names) > 0 }

func (d *sotwWire) answer(sim *simServer, typ resource.Type) proto.Message {
	t := &d.types[typ]
	if !t.asked {
		return nil
	}
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
				delete(t.missing, own)
			}
			sent[own], news = version, news || fresh
		case had && full:
			news = true
		}
	}
	t.sent = sent
	if !news {
		return nil
	}
	return d.enter(sim, typ, list)
}

// partial sends some of the client's resources again: for Listeners and Clusters, all.
func (d *sotwWire) partial(sim *simServer, typ resource.Type, which uint8) proto.Message {
	var list []*anypb.Any
	for i := range worldSize {
		_, had := d.types[typ].sent[sim.w.name(typ, i)]
		if had && (typ == lds || typ == cds || which&(1<<i) != 0) {
			if a := sim.w.resource(typ, i, sim.number); a != nil {
				list = append(list, a)
			}
		}
	}
	return d.enter(sim, typ, list)
}

func (d *sotwWire) enter(sim *simServer, typ resource.Type, list []*anypb.Any) proto.Message {
	d.nonces++
	t := &d.types[typ]
	t.nonce = fmt.Sprint(d.nonces)
	return &discoveryv3.DiscoveryResponse{TypeUrl: typ.URL(), VersionInfo: fmt.Sprint(sim.w.version), Nonce: t.nonce, Resources: list}
}

func (d *sotwWire) note(check *testplane.StreamChecker, msg proto.Message) {
	check.Response(msg.(*discoveryv3.DiscoveryResponse))
}
