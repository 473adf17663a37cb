// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// locality has the endpoints of one zone.
type locality struct {
	region, zone string
	endpoints    []endpoint
}

// endpoint is a pod, or an address that is not a pod's.
type endpoint struct {
	addrs        []netip.AddrPort // at least one
	state        state
	region, zone string
}

// state is the state of an endpoint; the greatest one of several is used.
type state int

const (
	absentState   state = iota
	drainingState       // terminating, but still serving
	healthyState
)

// stateOf applies the rules of EndpointConditions: unset ready means true, unset serving is
// ready, unset terminating means false.
func stateOf(c discoveryv1.EndpointConditions) state {
	ready := orElse(c.Ready, true)
	serving := orElse(c.Serving, ready)
	switch {
	case orElse(c.Terminating, false):
		if ready || serving {
			return drainingState
		}
	case ready:
		return healthyState
	}
	return absentState
}

func orElse[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// servicePort is a port of a service as slices refer to it.
type servicePort struct {
	name string
	// number is the port of endpoints whose slice has no number.
	number int32
	// unlisted is set for a headless service without ports, whose slices have none either.
	unlisted bool
}

// findPort returns the TCP port with a name or number. A headless service need not have ports:
// then a number is a port of its pods.
func findPort(svc *corev1.Service, port string) (servicePort, error) {
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return servicePort{}, fmt.Errorf("service %s/%s has type ExternalName, which has no endpoints", svc.Namespace, svc.Name)
	}
	number, err := strconv.ParseInt(port, 10, 32)
	isNumber := err == nil && validPort(int32(number))
	for _, p := range svc.Spec.Ports {
		if !overTCP(p.Protocol) || p.Name != port && !(isNumber && int64(p.Port) == number) {
			continue
		}
		found := servicePort{name: p.Name, number: p.Port}
		if n := p.TargetPort.IntVal; validPort(n) {
			found.number = n
		}
		return found, nil
	}
	if isNumber && len(svc.Spec.Ports) == 0 && svc.Spec.ClusterIP == corev1.ClusterIPNone {
		return servicePort{number: int32(number), unlisted: true}, nil
	}
	return servicePort{}, fmt.Errorf("service %s/%s has no TCP port %s", svc.Namespace, svc.Name, port)
}

func overTCP(p corev1.Protocol) bool { return p == "" || p == corev1.ProtocolTCP }

func validPort(n int32) bool { return n > 0 && n < 1<<16 }

// in returns the number of the port in a slice.
func (p servicePort) in(slice *discoveryv1.EndpointSlice) (uint16, bool) {
	if p.unlisted {
		return uint16(p.number), len(slice.Ports) == 0
	}
	for _, sp := range slice.Ports {
		if orElse(sp.Name, "") == p.name && overTCP(orElse(sp.Protocol, "")) {
			n := orElse(sp.Port, p.number)
			return uint16(n), validPort(n)
		}
	}
	return 0, false
}

// sliceAddress returns the address of an endpoint. Its further addresses are equivalent by
// definition, and not used.
func sliceAddress(slice *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint) (netip.Addr, bool) {
	if len(e.Addresses) == 0 {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(e.Addresses[0])
	switch {
	case err != nil || a.Zone() != "":
		return a, false
	case slice.AddressType == discoveryv1.AddressTypeIPv4:
		return a, a.Is4()
	case slice.AddressType == discoveryv1.AddressTypeIPv6:
		return a, a.Is6() && !a.Is4In6()
	}
	return a, false
}

// nodeZone returns the region and zone of a node, if they are known.
type nodeZone func(node string) (region, zone string)

// record is one occurrence of an address in a slice.
type record struct {
	addr         netip.AddrPort
	owner        string // the pod
	state        state
	region, zone string
}

// merge returns the endpoints of all slices of a service, independent of their order.
//
// While the control plane of Kubernetes moves endpoints between slices, an address can occur in
// several of them, in different states: the best state is used, and one pod has the address. The
// addresses of a pod, in slices for IPv4 and for IPv6, are one endpoint. If no endpoint is
// ready, terminating endpoints that still serve are used, as by kube-proxy.
//
// O(n log n) for n records.
func merge(svc *corev1.Service, port servicePort, list []*discoveryv1.EndpointSlice, zones nodeZone) []locality {
	records := collect(port, list, zones)
	// One owner for each address: the first record of an address has the best state.
	slices.SortFunc(records, func(a, b record) int {
		return cmp.Or(a.addr.Compare(b.addr), cmp.Compare(b.state, a.state), cmp.Compare(a.owner, b.owner), compareZone(a, b))
	})
	records = slices.CompactFunc(records, func(a, b record) bool { return a.addr == b.addr })
	// One endpoint for each owner; the family of the service's first IP is first.
	v6first := len(svc.Spec.IPFamilies) > 0 && svc.Spec.IPFamilies[0] == corev1.IPv6Protocol
	slices.SortStableFunc(records, func(a, b record) int {
		return cmp.Or(cmp.Compare(a.owner, b.owner), compareFamily(a.addr, b.addr, v6first))
	})
	var all []endpoint
	for i, r := range records {
		if i == 0 || r.owner != records[i-1].owner {
			all = append(all, endpoint{region: r.region, zone: r.zone})
		}
		e := &all[len(all)-1]
		e.addrs = append(e.addrs, r.addr)
		e.state = max(e.state, r.state)
		if e.zone == "" && r.zone != "" {
			e.region, e.zone = r.region, r.zone
		}
	}
	if !slices.ContainsFunc(all, func(e endpoint) bool { return e.state == healthyState }) {
		for i := range all {
			all[i].state = healthyState
		}
	}
	return byLocality(all)
}

// collect returns the records of usable endpoints.
func collect(port servicePort, list []*discoveryv1.EndpointSlice, zones nodeZone) []record {
	var records []record
	for _, slice := range list {
		n, ok := port.in(slice)
		if !ok {
			continue
		}
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			addr, ok := sliceAddress(slice, e)
			st := stateOf(e.Conditions)
			if !ok || st == absentState {
				continue
			}
			r := record{addr: netip.AddrPortFrom(addr, n), state: st, zone: orElse(e.Zone, "")}
			if node := orElse(e.NodeName, ""); node != "" {
				region, zone := zones(node)
				r.region, r.zone = region, cmp.Or(r.zone, zone)
			}
			r.owner = owner(e.TargetRef, r.addr)
			records = append(records, r)
		}
	}
	return records
}

// owner returns a key for the object behind an address.
func owner(ref *corev1.ObjectReference, addr netip.AddrPort) string {
	switch {
	case ref == nil:
		return "address " + addr.String()
	case ref.UID != "":
		return "uid " + string(ref.UID)
	case ref.Name != "":
		return "name " + ref.Kind + "/" + ref.Namespace + "/" + ref.Name
	}
	return "address " + addr.String()
}

// compareZone orders a record with a zone before one without.
func compareZone(a, b record) int {
	if (a.zone == "") != (b.zone == "") {
		return cmp.Compare(b.zone, a.zone)
	}
	return cmp.Or(cmp.Compare(a.zone, b.zone), cmp.Compare(a.region, b.region))
}

func compareFamily(a, b netip.AddrPort, v6first bool) int {
	if a.Addr().Is4() != b.Addr().Is4() && a.Addr().Is4() == v6first {
		return 1
	} else if a.Addr().Is4() != b.Addr().Is4() {
		return -1
	}
	return a.Compare(b)
}

// byLocality returns the localities by region and zone, with the endpoints by address.
func byLocality(all []endpoint) []locality {
	slices.SortFunc(all, func(a, b endpoint) int {
		return cmp.Or(cmp.Compare(a.region, b.region), cmp.Compare(a.zone, b.zone), a.addrs[0].Compare(b.addrs[0]))
	})
	var out []locality
	for _, e := range all {
		if n := len(out); n == 0 || out[n-1].region != e.region || out[n-1].zone != e.zone {
			out = append(out, locality{region: e.region, zone: e.zone})
		}
		l := &out[len(out)-1]
		l.endpoints = append(l.endpoints, e)
	}
	return out
}

func address(a netip.AddrPort) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: a.Addr().String(), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(a.Port())},
	}}}
}
