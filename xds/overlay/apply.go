// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/zeebo/xxh3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/xdslb/xdslb/xds/resource"
)

// Outcome describes the effect of one patch on one resource.
type Outcome struct {
	Patch   Ref
	Changed bool  // whether the resource differs by it
	Err     error // why the patch was skipped for this resource, or nil
}

// Key identifies the patches that may apply to a resource, whatever else is in their overlay. Equal
// patches of the same resource have the same result. The zero Key means that there are none.
type Key xxh3.Uint128

// Key returns the key of the patches that may apply to a resource. Whether they do is known only
// when the resource is decoded, if it has routes. It does not allocate. A nil Selection has no patches.
func (s *Selection) Key(t resource.Type, name string) (key Key) {
	if s == nil {
		return key
	}
	for i := range s.byKind {
		for _, p := range s.byKind[i] {
			if p.mayMatch(t, name) {
				key = key.with(p.ref.sum)
			}
		}
	}
	return key
}

// with returns the key of the same patches and another one.
func (k Key) with(sum xxh3.Uint128) Key {
	var b [32]byte
	for i, word := range []uint64{k.Hi, k.Lo, sum.Hi, sum.Lo} {
		binary.LittleEndian.PutUint64(b[8*i:], word)
	}
	return Key(xxh3.Hash128(b[:]))
}

// mayMatch reports whether the patch may apply to a resource or to its routes.
func (p *patch) mayMatch(t resource.Type, name string) bool {
	switch t {
	case resource.ListenerType: // routes may be inline, with any name
		return p.kind == listener && p.name.match(name) || p.kind == routeConfiguration || p.kind == route
	case resource.RouteConfigType:
		return p.kind == routeConfiguration && p.name.match(name) || p.kind == route && p.name.mayMatchPrefix(name+"/")
	case resource.ClusterType:
		return p.kind == cluster && p.name.match(name)
	case resource.EndpointsType:
		return p.kind == endpoints && p.name.match(name)
	}
	return false
}

// mayMatchRoutes reports whether routes of a route configuration may have patches.
func (s *Selection) mayMatchRoutes(config string) bool {
	return slices.ContainsFunc(s.byKind[route], func(p *patch) bool { return p.name.mayMatchPrefix(config + "/") })
}

// Result is the result of applying patches to a resource.
type Result struct {
	// Value is the decoded form of the patched resource, and Bytes its encoded form; nil if the
	// patches do not change the resource.
	Value any
	Bytes []byte
	// Outcomes has an element for each patch whose name matches, in order.
	Outcomes []Outcome
}

// Apply applies the patches to an encoded, valid resource. It does not modify value, and Bytes may
// share its memory.
//
// Decode decodes a resource, or returns what is wrong with it. If the patches together make the
// resource invalid, each is applied in turn and skipped if the resource is invalid after it.
func (s *Selection) Apply(t resource.Type, name string, value []byte, decode func(value []byte) (any, error)) Result {
	if s.Key(t, name) == (Key{}) {
		return Result{}
	}
	patched, outcomes := s.apply(t, name, value, func(int) bool { return true })
	if !slices.ContainsFunc(outcomes, func(o outcome) bool { return o.Changed }) {
		return Result{Outcomes: public(outcomes)}
	}
	if decoded, err := decode(patched); err == nil {
		return Result{decoded, patched, public(outcomes)}
	}
	var rejected []int
	var r Result
	for i, o := range outcomes {
		if !o.Changed {
			continue
		}
		next, _ := s.apply(t, name, value, func(position int) bool { return position <= o.position && !slices.Contains(rejected, position) })
		decoded, err := decode(next)
		if err != nil {
			rejected = append(rejected, o.position)
			outcomes[i].Changed, outcomes[i].Err = false, fmt.Errorf("the patched resource is invalid: %w", err)
			continue
		}
		r.Value, r.Bytes = decoded, next
	}
	r.Outcomes = public(outcomes)
	return r
}

// outcome is an Outcome and the position of the patch in the overlay.
type outcome struct {
	Outcome
	position int
}

func public(outcomes []outcome) []Outcome {
	list := make([]Outcome, len(outcomes))
	for i, o := range outcomes {
		list[i] = o.Outcome
	}
	return list
}

// Locate returns outcomes with their patches as they are in s: equal patches of another overlay may
// have another index. A nil Selection has no patches.
func (s *Selection) Locate(outcomes []Outcome) []Outcome {
	located := slices.Clone(outcomes)
	for i := range located {
		if s == nil {
			break
		}
		for _, p := range slices.Concat(s.byKind[:]...) {
			if p.ref.sum == located[i].Patch.sum {
				located[i].Patch = p.ref
				break
			}
		}
	}
	return located
}

// apply applies the patches whose position use returns true for.
func (s *Selection) apply(t resource.Type, name string, value []byte, use func(position int) bool) ([]byte, []outcome) {
	a := &application{s: s, use: use}
	var err error
	switch t {
	case resource.ListenerType:
		value, err = apply(a, value, new(listenerv3.Listener), func(m *listenerv3.Listener) error { return a.listener(m, name) })
	case resource.RouteConfigType:
		value, err = apply(a, value, new(routev3.RouteConfiguration), func(m *routev3.RouteConfiguration) error {
			a.routeConfiguration(m)
			return nil
		})
	case resource.ClusterType:
		value, err = apply(a, value, new(clusterv3.Cluster), func(m *clusterv3.Cluster) error {
			a.message(m, cluster, name)
			return nil
		})
	case resource.EndpointsType:
		value, err = a.endpoints(value, name)
	}
	if err != nil { // the resource itself is malformed; decoding it reports the details
		return value, nil
	}
	slices.SortFunc(a.outcomes, func(x, y outcome) int { return x.position - y.position })
	return value, a.outcomes
}

// application is the state of applying a selection to a resource.
type application struct {
	s        *Selection
	use      func(position int) bool
	outcomes []outcome // one for each patch
	changed  bool
}

// apply decodes a resource into m, patches it, and encodes it if that changed anything.
func apply[M proto.Message](a *application, value []byte, m M, patch func(M) error) ([]byte, error) {
	if err := resource.Unmarshal(value, m); err != nil {
		return value, err
	}
	if err := patch(m); err != nil || !a.changed {
		return value, err
	}
	return marshal(m)
}

// message applies the patches of a kind to m. Each patch applies as a whole or not at all.
func (a *application) message(m proto.Message, k kind, name string) {
	for _, p := range a.s.byKind[k] {
		if !p.name.match(name) || !a.use(p.position) {
			continue
		}
		patched := proto.Clone(m)
		err := p.apply(patched.ProtoReflect())
		changed := err == nil && !proto.Equal(m, patched)
		if changed {
			proto.Reset(m)
			proto.Merge(m, patched)
		}
		a.record(outcome{Outcome{p.ref, changed, err}, p.position})
	}
}

// record adds an outcome. A patch of routes has one outcome for all routes of a resource.
func (a *application) record(o outcome) {
	a.changed = a.changed || o.Changed
	for i := range a.outcomes {
		if old := &a.outcomes[i]; old.position == o.position {
			old.Changed = old.Changed || o.Changed
			if old.Err == nil {
				old.Err = o.Err
			}
			return
		}
	}
	a.outcomes = append(a.outcomes, o)
}

// apply applies the patch to m. If it fails, m is undefined.
func (p *patch) apply(m protoreflect.Message) error {
	fields, err := objectFields(m.Descriptor(), p.merge)
	if err != nil {
		return err
	}
	var before proto.Message
	if c, ok := m.Interface().(*clusterv3.Cluster); ok && !p.allowSecurity && hasSecurity(c) {
		before = proto.Clone(c)
	}
	g := new(merger)
	for _, f := range fields {
		path := "merge." + string(f.fd.Name())
		switch {
		case p.whenUnset && isSet(m, f.fd):
		case isNull(f.raw):
			m.Clear(f.fd)
		default:
			if err := g.field(m, f.fd, f.raw, path); err != nil {
				return err
			}
		}
	}
	if before != nil && !sameSecurity(before.(*clusterv3.Cluster), m.Interface().(*clusterv3.Cluster)) {
		return errors.New(`changing the transport socket or the type of a cluster with a transport socket requires "allow_security_changes": true`)
	}
	return nil
}

// isSet reports whether a field of m, or another field of its oneof, is set.
func isSet(m protoreflect.Message, fd protoreflect.FieldDescriptor) bool {
	if oneof := fd.ContainingOneof(); oneof != nil {
		return m.WhichOneof(oneof) != nil
	}
	return m.Has(fd)
}

// hasSecurity reports whether connections to a cluster are secured.
func hasSecurity(c *clusterv3.Cluster) bool {
	return c.TransportSocket != nil || len(c.TransportSocketMatches) > 0
}

// sameSecurity reports whether two versions of a cluster have the same security. The type counts
// since an aggregate cluster has the security of its children.
func sameSecurity(a, b *clusterv3.Cluster) bool {
	return proto.Equal(a.TransportSocket, b.TransportSocket) &&
		slices.EqualFunc(a.TransportSocketMatches, b.TransportSocketMatches, func(x, y *clusterv3.Cluster_TransportSocketMatch) bool { return proto.Equal(x, y) }) &&
		a.GetType() == b.GetType() && proto.Equal(a.GetClusterType(), b.GetClusterType())
}

// listener patches a Listener and the route configuration that it may have inline.
func (a *application) listener(m *listenerv3.Listener, name string) error {
	a.message(m, listener, name)
	inner := m.GetApiListener().GetApiListener()
	if len(a.s.byKind[routeConfiguration]) == 0 && len(a.s.byKind[route]) == 0 || inner == nil {
		return nil
	}
	hcm := new(hcmv3.HttpConnectionManager)
	if !inner.MessageIs(hcm) {
		return nil
	}
	if err := resource.Unmarshal(inner.GetValue(), hcm); err != nil {
		return err
	}
	before := a.changed
	a.changed = false
	if rc := hcm.GetRouteConfig(); rc != nil {
		a.routeConfiguration(rc)
	}
	if a.changed {
		b, err := marshal(hcm)
		if err != nil {
			return err
		}
		inner.Value = b
	}
	a.changed = a.changed || before
	return nil
}

// routeConfiguration patches a RouteConfiguration and its routes.
func (a *application) routeConfiguration(m *routev3.RouteConfiguration) {
	a.message(m, routeConfiguration, m.GetName())
	if !a.s.mayMatchRoutes(m.GetName()) {
		return
	}
	for _, vh := range m.GetVirtualHosts() {
		for _, r := range vh.GetRoutes() {
			a.message(r, route, m.GetName()+"/"+vh.GetName()+"/"+r.GetName())
		}
	}
}

// endpoints patches the policy of an encoded ClusterLoadAssignment. The endpoints, of which there
// may be very many, are not decoded.
func (a *application) endpoints(value []byte, name string) ([]byte, error) {
	patched, err := apply(a, fields(value, policyField), new(endpointv3.ClusterLoadAssignment), func(m *endpointv3.ClusterLoadAssignment) error {
		a.message(m, endpoints, name)
		return nil
	})
	if err != nil || !a.changed {
		return value, err
	}
	return WithPolicy(value, patched), nil
}

// The numbers of ClusterLoadAssignment.cluster_name and policy.
const nameField, policyField = 1, 4

// WithoutEndpoints returns a copy of an encoded ClusterLoadAssignment with the name and the policy
// only: all that patches apply to. It is O(localities).
func WithoutEndpoints(value []byte) []byte { return fields(value, nameField, policyField) }

// WithPolicy returns an encoded ClusterLoadAssignment with the policy of another one.
func WithPolicy(value, of []byte) []byte {
	var rest []byte
	each(value, func(number protowire.Number, field []byte) {
		if number != policyField {
			rest = append(rest, field...)
		}
	})
	return append(rest, fields(of, policyField)...)
}

// fields returns the fields with some numbers, as a message of their own.
func fields(value []byte, numbers ...protowire.Number) []byte {
	kept := []byte{}
	each(value, func(number protowire.Number, field []byte) {
		if slices.Contains(numbers, number) {
			kept = append(kept, field...)
		}
	})
	return kept
}

// each calls f with the fields of an encoded message, including their tags, up to the first malformed one.
func each(value []byte, f func(number protowire.Number, field []byte)) {
	for len(value) > 0 {
		number, _, n := protowire.ConsumeField(value)
		if n < 0 {
			return
		}
		f(number, value[:n])
		value = value[n:]
	}
}
