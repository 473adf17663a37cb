// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"maps"
	"slices"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

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

// deltaWire is the server's side of a stream of the incremental variant.
type deltaWire struct {
	types  [resource.NumTypes]deltaSim
	nonce  int
	claims bool // the client has claimed versions that it has
}

// deltaKind is the behavior of a server of the incremental variant where the protocol leaves a choice.
type deltaKind uint8

const (
	plain    deltaKind = iota // answers each subscription to resources that it has, and no others
	strict                    // also reports other resources, and unsubscribed ones, as removed
	istio                     // reports only other resources as removed
	goCPlane                  // answers a subscription only to resources that the client lacks by its records
)

// deltaSim has the subscriptions of a client as the server knows them.
type deltaSim struct {
	names map[string]bool
	sent  map[string]string // versions that the client has
	again map[string]bool   // subscribed to, and not answered yet
	left  []string          // unsubscribed from, and not echoed yet
}

func (d *deltaWire) hear(sim *simServer, check *testplane.StreamChecker, r request) {
	req := r.(*discoveryv3.DeltaDiscoveryRequest)
	check.DeltaRequest(req)
	typ, ok := resource.TypeOf(req.TypeUrl)
	if !ok {
		return
	}
	t := &d.types[typ]
	if t.names == nil {
		t.names, t.sent, t.again = map[string]bool{}, map[string]string{}, map[string]bool{}
	}
	for name, version := range req.InitialResourceVersions {
		t.sent[name], d.claims = version, true
	}
	for _, name := range req.ResourceNamesSubscribe {
		t.again[name] = t.again[name] || !t.names[name] || sim.w.kind != goCPlane
		t.names[name] = true
	}
	for _, name := range req.ResourceNamesUnsubscribe {
		delete(t.names, name)
		delete(t.sent, name)
		delete(t.again, name)
		if sim.w.kind == strict {
			t.left = append(t.left, name)
		}
	}
	// Resources that the client claims to have need not be sent.
	for name := range req.InitialResourceVersions {
		delete(t.again, name)
	}
	sim.answer(typ)
}

func (d *deltaWire) asked(typ resource.Type) bool { return len(d.types[typ].names) > 0 }

// answer returns the changed resources, and the removals that world.kind requires.
func (d *deltaWire) answer(sim *simServer, typ resource.Type) proto.Message {
	t := &d.types[typ]
	resp := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typ.URL(), RemovedResources: t.left}
	t.left = nil
	for i := range worldSize {
		name := sim.w.name(typ, i)
		if !t.names[name] {
			continue
		}
		before, had := t.sent[name]
		a := sim.w.resource(typ, i, sim.number)
		version := fmt.Sprint("r", sim.w.set[typ][i])
		switch {
		case a == nil && (had || t.again[name] && (sim.w.kind == strict || sim.w.kind == istio)):
			resp.RemovedResources = append(resp.RemovedResources, name)
			delete(t.sent, name)
		case a != nil && (version != before || t.again[name]):
			resp.Resources = append(resp.Resources, &discoveryv3.Resource{Name: name, Version: version, Resource: a, Ttl: sim.ttl(typ)})
			t.sent[name] = version
		}
		delete(t.again, name)
	}
	if len(resp.Resources)+len(resp.RemovedResources) == 0 {
		return nil
	}
	return d.enter(resp)
}

// ttl is the TTL of the resources of a type, nil if they have none.
func (sim *simServer) ttl(typ resource.Type) *durationpb.Duration {
	if typ != eds || !sim.w.mortal {
		return nil
	}
	return durationpb.New(8 * time.Second)
}

// beats in the argument of partial has it send heartbeats for resources with a TTL.
const beats = 1 << 7

// partial sends some of the client's resources again.
func (d *deltaWire) partial(sim *simServer, typ resource.Type, which uint8) proto.Message {
	t := &d.types[typ]
	resp := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typ.URL()}
	for i := range worldSize {
		name := sim.w.name(typ, i)
		if _, had := t.sent[name]; !had || which&(1<<i) == 0 {
			continue
		}
		if which&beats != 0 && sim.ttl(typ) != nil {
			resp.Resources = append(resp.Resources, &discoveryv3.Resource{Name: name, Ttl: sim.ttl(typ)})
			continue
		}
		if a := sim.w.resource(typ, i, sim.number); a != nil {
			version := fmt.Sprint("r", sim.w.set[typ][i])
			resp.Resources = append(resp.Resources, &discoveryv3.Resource{Name: name, Version: version, Resource: a, Ttl: sim.ttl(typ)})
			t.sent[name] = version
		}
	}
	return d.enter(resp)
}

func (d *deltaWire) enter(resp *discoveryv3.DeltaDiscoveryResponse) proto.Message {
	d.nonce++
	resp.Nonce = fmt.Sprint(d.nonce)
	return resp
}

func (d *deltaWire) note(check *testplane.StreamChecker, msg proto.Message) {
	check.DeltaResponse(msg.(*discoveryv3.DeltaDiscoveryResponse))
}
