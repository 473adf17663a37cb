// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"slices"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/picker"
)

// strictDNS returns the endpoints of a STRICT_DNS cluster, with the names to look up as their addresses,
// all names, and how often to look them up. The rules are those of a ClusterLoadAssignment of EDS, except that a
// locality needs neither an ID nor a weight, and an endpoint has one address.
func (d *decoder) strictDNS(m *clusterv3.Cluster, p *path) (*Endpoints, []string, time.Duration) {
	every := 5 * time.Second // Envoy's default
	if m.GetDnsRefreshRate() != nil {
		every = max(time.Second, p.dot("dns_refresh_rate").duration(m.GetDnsRefreshRate()))
	}
	p = p.dot("load_assignment")
	in := m.GetLoadAssignment()
	if in == nil {
		p.fail("must be set")
		return nil, nil, 0
	}
	in.ClusterName = m.GetName()
	for i, l := range in.GetEndpoints() {
		if l.GetLocality() == nil {
			l.Locality = new(corev3.Locality)
		}
		if l.GetLoadBalancingWeight() == nil {
			l.LoadBalancingWeight = wrapperspb.UInt32(1)
		}
		for j, e := range l.GetLbEndpoints() {
			p := p.dot("endpoints").at(i).dot("lb_endpoints").at(j).dot("endpoint")
			if name := e.GetEndpoint().GetAddress().GetSocketAddress().GetResolverName(); name != "" {
				p.dot("address").dot("socket_address").dot("resolver_name").refuse(name, "must be empty")
			}
			if n := len(e.GetEndpoint().GetAdditionalAddresses()); n > 0 {
				p.dot("additional_addresses").refuse(n, "must be empty")
			}
		}
	}
	value, err := proto.Marshal(in)
	if err != nil {
		p.fail(err.Error())
		return nil, nil, 0
	}
	inner := newEndpointsDecoder(value, nil, d.stopper, true)
	e, ok := inner.decode()
	d.stopped = d.stopped || inner.stopped
	for _, err := range inner.errors {
		if !d.full() {
			d.errors = append(d.errors, fieldError{Path: strings.TrimSuffix(p.String()+"."+err.Path, "."), Value: err.Value, Rule: err.Rule})
		}
	}
	if !ok || e == nil || len(inner.errors) > 0 {
		return nil, nil, 0
	}
	e.wire = nil // there is no next version
	var names []string
	for _, priority := range e.Priorities {
		for _, l := range priority.Localities {
			for _, e := range l.Endpoints.All() {
				names = append(names, picker.AddrText(e.Addr))
			}
		}
	}
	if len(names) == 0 {
		p.dot("endpoints").fail("must have an endpoint that may receive RPCs")
	}
	slices.Sort(names)
	return e, slices.Compact(names), every
}
