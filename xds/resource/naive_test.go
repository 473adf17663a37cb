// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/xdslb/xdslb/picker"
)

// naiveEndpoints is the oracle of DecodeEndpoints: the rules, one after the
// other, on the decoded message. With names, addresses can be DNS names. It returns nil if one is broken.
func naiveEndpoints(m *endpointv3.ClusterLoadAssignment, names bool) *Endpoints {
	e := &Endpoints{Name: m.GetClusterName()}
	bad := e.Name == ""
	for _, drop := range m.GetPolicy().GetDropOverloads() {
		parts, ok := map[int32]uint64{0: 100, 1: 10000, 2: 1000000}[int32(drop.GetDropPercentage().GetDenominator())]
		if bad = bad || !ok; ok {
			n := uint64(drop.GetDropPercentage().GetNumerator()) * 1000000 / parts
			e.Drops = append(e.Drops, picker.Drop{Category: drop.GetCategory(), PerMillion: uint32(min(n, 1000000))})
		}
	}
	type key struct {
		priority uint32
		id       picker.LocalityID
	}
	localities, addrs, weights := map[key]bool{}, map[netip.AddrPort]bool{}, map[uint32]uint64{}
	levels := map[uint32][]picker.Locality{}
	for _, lm := range m.GetEndpoints() {
		if lm.GetLoadBalancingWeight().GetValue() == 0 {
			continue
		}
		p, id := lm.GetPriority(), picker.LocalityID{Region: lm.GetLocality().GetRegion(), Zone: lm.GetLocality().GetZone(), SubZone: lm.GetLocality().GetSubZone()}
		bad = bad || lm.GetLocality() == nil || localities[key{p, id}]
		localities[key{p, id}] = true
		weights[p] += uint64(lm.GetLoadBalancingWeight().GetValue())
		loc := picker.Locality{ID: id, Weight: lm.GetLoadBalancingWeight().GetValue()}
		if x := newExtra(lm.GetMetadata()); x != nil {
			loc.Metadata = x.Metadata
		}
		sum := uint64(0)
		list := lm.GetLbEndpoints()
		switch config := lm.GetLbConfig().(type) {
		case *endpointv3.LocalityLbEndpoints_LoadBalancerEndpoints:
			bad = bad || len(list) > 0
			list = config.LoadBalancerEndpoints.GetLbEndpoints()
		case *endpointv3.LocalityLbEndpoints_LedsClusterLocalityConfig:
			bad = true
		}
		var endpoints []picker.Endpoint
		for _, em := range list {
			if h := em.GetHealthStatus(); h != 0 && h != 1 && h != 3 {
				e.Unhealthy = append(e.Unhealthy, naiveUnhealthy(em, names)...)
				continue
			}
			ep, ok := naiveEndpoint(em, addrs, names)
			bad = bad || !ok
			sum += uint64(ep.Weight)
			endpoints = append(endpoints, ep)
		}
		loc.Endpoints = picker.ListOf(endpoints...)
		bad = bad || sum > math.MaxUint32 || weights[p] > math.MaxUint32
		levels[p] = append(levels[p], loc)
	}
	for p := range uint32(len(levels)) {
		bad = bad || levels[p] == nil
		e.Priorities = append(e.Priorities, picker.Priority{Localities: levels[p]})
	}
	if bad {
		return nil
	}
	slices.SortFunc(e.Unhealthy, func(a, b picker.Unhealthy) int { return strings.Compare(a.Health, b.Health) })
	slices.SortStableFunc(e.Unhealthy, func(a, b picker.Unhealthy) int { return a.Addr.Compare(b.Addr) })
	e.Unhealthy = slices.Compact(e.Unhealthy)
	return e
}

// naiveUnhealthy is an endpoint that is left out, if it can be named.
func naiveUnhealthy(m *endpointv3.LbEndpoint, names bool) []picker.Unhealthy {
	addr, ok := naiveAddr(m.GetEndpoint().GetAddress(), names)
	if !ok {
		return nil
	}
	return []picker.Unhealthy{{Addr: addr, Health: m.GetHealthStatus().String()}}
}

var hostname = regexp.MustCompile(`^([[:alnum:]_]([[:alnum:]_-]{0,61}[[:alnum:]_])?\.)*[[:alnum:]_]([[:alnum:]_-]{0,61}[[:alnum:]_])?\.?$`)
var numeric = regexp.MustCompile(`(^|\.)[0-9]+\.?$`)

func naiveAddr(a *corev3.Address, names bool) (addr netip.AddrPort, ok bool) {
	s := a.GetSocketAddress()
	if _, set := s.GetPortSpecifier().(*corev3.SocketAddress_PortValue); !set || s.GetPortValue() > math.MaxUint16 {
		return addr, false
	}
	ip, err := netip.ParseAddr(s.GetAddress())
	if err != nil && names && len(s.GetAddress()) < 255 && hostname.MatchString(s.GetAddress()) && !numeric.MatchString(s.GetAddress()) {
		return netip.AddrPortFrom(netip.MustParseAddr("::%"+s.GetAddress()), uint16(s.GetPortValue())), true
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(s.GetPortValue())), err == nil && ip.Zone() == ""
}

func naiveEndpoint(m *endpointv3.LbEndpoint, seen map[netip.AddrPort]bool, names bool) (e picker.Endpoint, ok bool) {
	e.Weight, ok = 1, true
	if w := m.GetLoadBalancingWeight(); w != nil {
		e.Weight, ok = w.GetValue(), w.GetValue() != 0
	}
	if m.GetHealthStatus() == 3 {
		e.Health = picker.Draining
	}
	if e.Extra = newExtra(m.GetMetadata()); e.Extra == nil {
		e.Extra = &picker.EndpointExtra{}
	}
	e.Extra.Hostname = m.GetEndpoint().GetHostname()
	list := []*endpointv3.Endpoint_AdditionalAddress{{Address: m.GetEndpoint().GetAddress()}}
	for i, a := range append(list, m.GetEndpoint().GetAdditionalAddresses()...) {
		addr, valid := naiveAddr(a.GetAddress(), names)
		ok = ok && valid && !seen[addr]
		if seen[addr] = true; i == 0 {
			e.Addr = addr
		} else {
			e.Extra.Addrs = append(e.Extra.Addrs, addr)
		}
	}
	if x := e.Extra; x.Hostname == "" && x.Addrs == nil && x.Metadata == nil {
		e.Extra = nil
	}
	return e, ok
}
