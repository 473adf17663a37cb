// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"errors"
	"fmt"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/xdslb/xdslb/xds/resource"
)

// Outcome describes the effect of one patch on one resource.
type Outcome struct {
	Patch   int   // index in the document
	Changed bool  // whether the resource differs by it
	Err     error // why the patch was skipped for this resource, or nil
}

// MayMatch reports whether patches apply to a resource, by its name alone. It may report true for a
// resource that none applies to, if it has routes. A nil Selection matches nothing.
func (s *Selection) MayMatch(t resource.Type, name string) bool {
	if s == nil {
		return false
	}
	named := func(k kind) bool {
		return slices.ContainsFunc(s.byKind[k], func(p *patch) bool { return p.name.match(name) })
	}
	switch t {
	case resource.ListenerType:
		return named(listener) || len(s.byKind[routeConfiguration]) > 0 || len(s.byKind[route]) > 0
	case resource.RouteConfigType:
		return named(routeConfiguration) || s.mayMatchRoutes(name)
	case resource.ClusterType:
		return named(cluster)
	case resource.EndpointsType:
		return named(endpoints)
	}
	return false
}

// mayMatchRoutes reports whether routes of a route configuration may have patches.
func (s *Selection) mayMatchRoutes(config string) bool {
	return slices.ContainsFunc(s.byKind[route], func(p *patch) bool { return p.name.mayMatchPrefix(config + "/") })
}

// Apply applies the patches to an encoded resource. It returns value itself if no patch changes
// it, and one Outcome for each patch whose name matches, in order.
//
// Valid reports what is wrong with an encoded resource. If the patches together make the resource
// invalid, each is applied in turn and skipped if the resource is invalid after it. The result
// may be invalid only if value is. Apply does not modify value, and the result may share its memory.
func (s *Selection) Apply(t resource.Type, name string, value []byte, valid func(value []byte) error) ([]byte, []Outcome) {
	if !s.MayMatch(t, name) {
		return value, nil
	}
	patched, outcomes := s.apply(t, name, value, func(int) bool { return true })
	if !slices.ContainsFunc(outcomes, func(o Outcome) bool { return o.Changed }) || valid(patched) == nil {
		return patched, outcomes
	}
	var rejected []int
	current := value
	for i, o := range outcomes {
		if !o.Changed {
			continue
		}
		next, _ := s.apply(t, name, value, func(index int) bool { return index <= o.Patch && !slices.Contains(rejected, index) })
		if err := valid(next); err != nil {
			rejected = append(rejected, o.Patch)
			outcomes[i].Changed, outcomes[i].Err = false, fmt.Errorf("the patched resource is invalid: %w", err)
			continue
		}
		current = next
	}
	return current, outcomes
}

// apply applies the patches whose index use returns true for.
func (s *Selection) apply(t resource.Type, name string, value []byte, use func(index int) bool) ([]byte, []Outcome) {
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
	slices.SortFunc(a.outcomes, func(x, y Outcome) int { return x.Patch - y.Patch })
	return value, a.outcomes
}

// application is the state of applying a selection to a resource.
type application struct {
	s        *Selection
	use      func(index int) bool
	outcomes []Outcome // one for each patch
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
		if !p.name.match(name) || !a.use(p.index) {
			continue
		}
		patched := proto.Clone(m)
		err := p.apply(patched.ProtoReflect())
		changed := err == nil && !proto.Equal(m, patched)
		if changed {
			proto.Reset(m)
			proto.Merge(m, patched)
		}
		a.record(Outcome{p.index, changed, err})
	}
}

// record adds an outcome. A patch of routes has one outcome for all routes of a resource.
func (a *application) record(o Outcome) {
	a.changed = a.changed || o.Changed
	for i := range a.outcomes {
		if old := &a.outcomes[i]; old.Patch == o.Patch {
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
		return errors.New(`changing a transport socket of the control plane requires "allow_security_changes": true`)
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

func hasSecurity(c *clusterv3.Cluster) bool {
	return c.TransportSocket != nil || len(c.TransportSocketMatches) > 0
}

func sameSecurity(a, b *clusterv3.Cluster) bool {
	return proto.Equal(a.TransportSocket, b.TransportSocket) &&
		slices.EqualFunc(a.TransportSocketMatches, b.TransportSocketMatches, func(x, y *clusterv3.Cluster_TransportSocketMatch) bool { return proto.Equal(x, y) })
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

// policyField is the number of ClusterLoadAssignment.policy.
const policyField = 4

// endpoints patches the policy of an encoded ClusterLoadAssignment. The endpoints, of which there
// may be very many, are not decoded.
func (a *application) endpoints(value []byte, name string) ([]byte, error) {
	var rest, policy []byte // all other fields; the policy as a message of its own
	for b := value; len(b) > 0; {
		number, _, n := protowire.ConsumeField(b)
		if n < 0 {
			return value, protowire.ParseError(n)
		}
		if number == policyField {
			policy = append(policy, b[:n]...)
		} else {
			rest = append(rest, b[:n]...)
		}
		b = b[n:]
	}
	patched, err := apply(a, policy, new(endpointv3.ClusterLoadAssignment), func(m *endpointv3.ClusterLoadAssignment) error {
		a.message(m, endpoints, name)
		return nil
	})
	if err != nil || !a.changed {
		return value, err
	}
	return append(rest, patched...), nil
}
