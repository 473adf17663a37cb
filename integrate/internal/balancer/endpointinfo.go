// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"google.golang.org/grpc/experimental/balancer/weight"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/ringhash"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
)

// EndpointInfo is integrate.EndpointInfo, which documents it.
type EndpointInfo struct {
	Locality         picker.LocalityID
	LocalityWeight   uint32          // within the priority; ≥ 1
	LocalityMetadata picker.Metadata // nil for most
	Weight           uint32          // within the locality; ≥ 1
	Hostname         string          // "" for most
	Metadata         picker.Metadata // nil for most
}

type infoKey struct{}

// EndpointInfoOf returns the EndpointInfo of an endpoint, or nil: see package integrate.
func EndpointInfoOf(e resolver.Endpoint) *EndpointInfo {
	info, _ := e.Attributes.Value(infoKey{}).(*EndpointInfo)
	return info
}

// Equal makes attributes comparable. Metadata is compared by identity, which updates preserve
// if the metadata is unchanged.
func (i *EndpointInfo) Equal(other any) bool {
	o, ok := other.(*EndpointInfo)
	return ok && (i == o || i != nil && o != nil &&
		i.Locality == o.Locality && i.LocalityWeight == o.LocalityWeight && i.Weight == o.Weight && i.Hostname == o.Hostname &&
		persistent.SameMap(i.LocalityMetadata, o.LocalityMetadata) && persistent.SameMap(i.Metadata, o.Metadata))
}

// stateOf returns the resolver state of a child: the endpoints of its localities, which are a
// subset of a priority's, without draining endpoints. O(endpoints), in time and allocations.
func stateOf(all, ours []picker.Locality) resolver.State {
	var state resolver.State
	var total uint64
	for i := range all {
		total += uint64(all[i].Weight)
	}
	for i := range ours {
		l := &ours[i]
		for k, share := range l.FlatWeights(total) {
			e := l.Endpoints.At(k)
			if e.Health == picker.Draining {
				continue
			}
			endpoint := endpointOf(l, e, share)
			state.Endpoints = append(state.Endpoints, endpoint)
			for _, a := range endpoint.Addresses {
				a.BalancerAttributes = endpoint.Attributes
				state.Addresses = append(state.Addresses, a)
			}
		}
	}
	return state
}

func endpointOf(l *picker.Locality, e *picker.Endpoint, share uint32) resolver.Endpoint {
	info := &EndpointInfo{Locality: l.ID, LocalityWeight: l.Weight, LocalityMetadata: l.Metadata, Weight: e.Weight}
	var out resolver.Endpoint
	for _, a := range addressesOf(e) {
		out.Addresses = append(out.Addresses, resolver.Address{Addr: a})
	}
	out = weight.Set(out, weight.EndpointInfo{Weight: share})
	if x := e.Extra; x != nil {
		info.Hostname, info.Metadata = x.Hostname, x.Metadata
		out = ringhash.SetHashKey(out, x.HashKey)
	}
	out.Attributes = out.Attributes.WithValue(infoKey{}, info)
	return out
}

// addressesOf returns the addresses of an endpoint, in order.
func addressesOf(e *picker.Endpoint) []string {
	addrs := []string{picker.AddrText(e.Addr)}
	if multiAddressed(e) {
		for _, a := range e.Extra.Addrs {
			addrs = append(addrs, picker.AddrText(a))
		}
	}
	return addrs
}

// multiAddressed reports whether an endpoint has several addresses (A61).
func multiAddressed(e *picker.Endpoint) bool { return e.Extra != nil && len(e.Extra.Addrs) > 0 }
