// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
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
	// The outcome of a patch may depend on those that are rejected.
	var rejected []int
	var r Result
	for _, p := range s.inOrder() {
		if !p.mayMatch(t, name) {
			continue
		}
		patched, outcomes := s.apply(t, name, value, func(position int) bool { return position <= p.position && !slices.Contains(rejected, position) })
		i := slices.IndexFunc(outcomes, func(o outcome) bool { return o.position == p.position })
		if i < 0 {
			continue
		}
		o := outcomes[i].Outcome
		if o.Changed {
			if decoded, err := decode(patched); err == nil {
				r.Value, r.Bytes = decoded, patched
			} else {
				rejected = append(rejected, p.position)
				o.Changed, o.Err = false, fmt.Errorf("the patched resource is invalid: %w", err)
			}
		}
		r.Outcomes = append(r.Outcomes, o)
	}
	return r
}

// inOrder returns the patches in the order of the overlay.
func (s *Selection) inOrder() []*patch {
	return slices.SortedFunc(slices.Values(slices.Concat(s.byKind[:]...)), func(a, b *patch) int { return cmp.Compare(a.position, b.position) })
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
	switch t {
	case resource.ListenerType:
		value = a.listener(value, name)
	case resource.RouteConfigType:
		value, _ = a.routeConfiguration(value)
	case resource.ClusterType:
		value, _ = a.message(value, new(clusterv3.Cluster), cluster, name)
	case resource.EndpointsType: // the endpoints, of which there may be very many, are not decoded
		if patched, changed := a.message(fields(value, policyField), new(endpointv3.ClusterLoadAssignment), endpoints, name); changed {
			value = WithPolicy(value, patched)
		}
	}
	slices.SortFunc(a.outcomes, func(x, y outcome) int { return x.position - y.position })
	return value, a.outcomes
}

// application is the state of applying a selection to a resource.
type application struct {
	s        *Selection
	use      func(position int) bool
	outcomes []outcome // one for each patch
}

// matching returns the patches of a kind that apply to a message with a name.
func (a *application) matching(k kind, name string) (list []*patch) {
	for _, p := range a.s.byKind[k] {
		if a.use(p.position) && p.name.match(name) {
			list = append(list, p)
		}
	}
	return list
}

// message applies the patches of a kind to an encoded message, which is decoded into m. Each patch
// applies as a whole or not at all.
func (a *application) message(value []byte, m proto.Message, k kind, name string) (_ []byte, changed bool) {
	list := a.matching(k, name)
	if len(list) == 0 {
		return value, false
	}
	err := resource.Unmarshal(value, m)
	outcomes := make([]outcome, len(list))
	for i, p := range list {
		o := Outcome{Patch: p.ref, Err: err}
		if err == nil {
			patched := proto.Clone(m)
			o.Err = p.apply(patched.ProtoReflect())
			if o.Changed = o.Err == nil && !proto.Equal(m, patched); o.Changed {
				m, changed = patched, true
			}
		}
		outcomes[i] = outcome{o, p.position}
	}
	if changed {
		patched, err := marshal(m)
		if err == nil {
			value = patched
		}
		for i := range outcomes {
			if o := &outcomes[i]; err != nil && o.Changed {
				changed, o.Changed, o.Err = false, false, err
			}
		}
	}
	for _, o := range outcomes {
		a.record(o)
	}
	return value, changed
}

// record adds an outcome. A patch of routes has one outcome for all routes of a resource.
func (a *application) record(o outcome) {
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
	var before *clusterv3.Cluster
	if c, ok := m.Interface().(*clusterv3.Cluster); ok && !p.allowSecurity {
		before = proto.CloneOf(c)
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
	if before != nil {
		return checkSecurity(before, m.Interface().(*clusterv3.Cluster))
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

// checkSecurity returns an error if a cluster may have another security after a patch: that of its
// transport socket, which may verify the names that load_assignment has (auto_host_sni), or as an
// aggregate cluster that of its children.
func checkSecurity(before, after *clusterv3.Cluster) error {
	secure := before.TransportSocket != nil || len(before.TransportSocketMatches) > 0
	equal := proto.Equal(before.TransportSocket, after.TransportSocket) &&
		slices.EqualFunc(before.TransportSocketMatches, after.TransportSocketMatches, func(x, y *clusterv3.Cluster_TransportSocketMatch) bool { return proto.Equal(x, y) }) &&
		before.GetType() == after.GetType() && proto.Equal(before.GetClusterType(), after.GetClusterType()) && proto.Equal(before.LoadAssignment, after.LoadAssignment)
	switch {
	case secure && !equal:
		return errors.New(`changing the transport socket, the type or the load_assignment of a cluster with a transport socket requires "allow_security_changes": true`)
	case isAggregate(before) && !isAggregate(after):
		return errors.New(`changing the type of an aggregate cluster, which has the security of its children, requires "allow_security_changes": true`)
	}
	return nil
}

// isAggregate reports whether a cluster is an aggregate of others.
func isAggregate(c *clusterv3.Cluster) bool {
	return c.GetClusterType().GetTypedConfig().MessageIs((*aggregatev3.ClusterConfig)(nil))
}

// Numbers of fields.
const (
	nameField = 1 // of a ClusterLoadAssignment, RouteConfiguration and VirtualHost

	policyField     = 4  // of a ClusterLoadAssignment
	hostsField      = 2  // of a RouteConfiguration
	routesField     = 3  // of a VirtualHost
	routeNameField  = 14 // of a Route
	rdsField        = 3  // of the oneof route_specifier of an HttpConnectionManager, like the next ones
	inlineField     = 4
	scopedRoutesNum = 31
)

// listener patches a Listener and the route configuration that it may have inline.
func (a *application) listener(value []byte, name string) []byte {
	value, _ = a.message(value, new(listenerv3.Listener), listener, name)
	m := new(listenerv3.Listener)
	if len(a.s.byKind[routeConfiguration]) == 0 && len(a.s.byKind[route]) == 0 || resource.Unmarshal(value, m) != nil {
		return value // decoding a Listener that is malformed reports it
	}
	inner := m.GetApiListener().GetApiListener()
	if !inner.MessageIs((*hcmv3.HttpConnectionManager)(nil)) {
		return value
	}
	var routes, rest []byte
	inline := false
	each(inner.GetValue(), func(number protowire.Number, field, content []byte) {
		switch number {
		case inlineField: // the encoding of a message in parts is that of the message
			routes, inline = append(routes, content...), true
			return
		case rdsField, scopedRoutesNum: // the last field of a oneof is in force
			routes, inline = nil, false
		}
		rest = append(rest, field...)
	})
	if !inline {
		return value
	}
	routes, changed := a.routeConfiguration(routes)
	if !changed {
		return value
	}
	inner.Value = appendField(rest, inlineField, routes)
	value, _ = marshal(m) // it has been decoded
	return value
}

// routeConfiguration patches an encoded RouteConfiguration and its routes. Like the client, it decodes
// the routes one at a time: a resource may have very many.
func (a *application) routeConfiguration(value []byte) (_ []byte, changed bool) {
	name := text(value, nameField)
	head, hosts := fieldsExcept(value, hostsField), fields(value, hostsField)
	if slices.ContainsFunc(a.matching(routeConfiguration, name), func(p *patch) bool { return slices.Contains(p.fields, "virtual_hosts") }) {
		head, hosts = value, nil
	}
	if head, changed = a.message(head, new(routev3.RouteConfiguration), routeConfiguration, name); changed {
		value = append(head, hosts...)
	}
	if !a.s.mayMatchRoutes(name) {
		return value, changed
	}
	value, routes := rewrite(value, hostsField, func(host []byte) ([]byte, bool) {
		prefix := name + "/" + text(host, nameField) + "/"
		return rewrite(host, routesField, func(r []byte) ([]byte, bool) {
			return a.message(r, new(routev3.Route), route, prefix+text(r, routeNameField))
		})
	})
	return value, changed || routes
}

// WithoutEndpoints returns a copy of an encoded ClusterLoadAssignment with the name and the policy
// only: all that patches apply to. It is O(localities).
func WithoutEndpoints(value []byte) []byte { return fields(value, nameField, policyField) }

// WithPolicy returns an encoded ClusterLoadAssignment with the policy of another one.
func WithPolicy(value, of []byte) []byte {
	return append(fieldsExcept(value, policyField), fields(of, policyField)...)
}

// glob is a pattern in which "*" matches any characters, also none.
type glob string

// match reports whether the whole of s matches. It is O(len(g) + len(s)) and does not allocate.
func (g glob) match(s string) bool {
	part, rest, wild := strings.Cut(string(g), "*")
	if !wild {
		return s == part
	}
	s, ok := strings.CutPrefix(s, part)
	for ok {
		if part, rest, wild = strings.Cut(rest, "*"); !wild {
			return strings.HasSuffix(s, part)
		}
		_, s, ok = strings.Cut(s, part)
	}
	return false
}

// mayMatchPrefix reports whether a string that begins with prefix may match. It may report true
// where none does.
func (g glob) mayMatchPrefix(prefix string) bool {
	literal, _, wild := strings.Cut(string(g), "*")
	if !wild {
		return strings.HasPrefix(literal, prefix)
	}
	n := min(len(literal), len(prefix))
	return literal[:n] == prefix[:n]
}
