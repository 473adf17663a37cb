// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// dnsType is the type of entries that hold the addresses of a cluster of type LOGICAL_DNS or STRICT_DNS,
// by dnsNames.String. They are not resources, but are cached, shared and watched in the same way.
const dnsType = resource.NumTypes

// dnsNames are the names of a cluster, and how often they are looked up; 0 for LOGICAL_DNS.
type dnsNames struct {
	targets []string // host:port, sorted
	every   time.Duration
}

// String identifies the names, in keys and in errors.
func (n dnsNames) String() string {
	text := strings.Join(n.targets, " ")
	if n.every > 0 {
		text += " every " + n.every.String()
	}
	return text
}

// addresses are the addresses of the names of a cluster, at least one, by host:port. They are immutable.
type addresses struct{ of map[string][]netip.AddrPort }

// priorities presents the addresses as one endpoint of one nameless locality (A37, A61). Of type
// STRICT_DNS each address is an endpoint, in the place of its name.
func (a *addresses) priorities(c *resource.Cluster) []picker.Priority {
	if c.Strict != nil {
		return a.strict(c.Strict)
	}
	list := a.of[c.DNSTargets[0]]
	return []picker.Priority{{Localities: []picker.Locality{{
		Weight: 1,
		Endpoints: picker.ListOf(picker.Endpoint{
			Addr:   list[0],
			Weight: 1,
			Extra:  &picker.EndpointExtra{Addrs: list[1:], Hostname: c.DNSHost},
		}),
	}}}}
}

// strict replaces the names of endpoints by their addresses. An address of several names is an
// endpoint of the first one.
func (a *addresses) strict(of *resource.Endpoints) []picker.Priority {
	seen := map[netip.AddrPort]struct{}{}
	all := make([]picker.Priority, len(of.Priorities))
	for p := range all {
		for _, l := range of.Priorities[p].Localities {
			var list []picker.Endpoint
			sum := uint64(0)
			for _, e := range l.Endpoints.All() {
				one := *e
				if name := e.Addr.Addr().Zone(); name != "" && (e.Extra == nil || e.Extra.Hostname == "") {
					one.Extra = &picker.EndpointExtra{Hostname: name}
					if e.Extra != nil {
						one.Extra.HashKey, one.Extra.Metadata = e.Extra.HashKey, e.Extra.Metadata
					}
				}
				for _, one.Addr = range a.of[picker.AddrText(e.Addr)] {
					if _, again := seen[one.Addr]; !again {
						seen[one.Addr] = struct{}{}
						list = append(list, one)
						sum += uint64(one.Weight)
					}
				}
			}
			for i := range list { // the sum has to fit uint32
				list[i].Weight = max(1, uint32(uint64(list[i].Weight)/(sum/(math.MaxUint32/2)+1)))
			}
			l.Endpoints = picker.ListOf(list...)
			all[p].Localities = append(all[p].Localities, l)
		}
	}
	return all
}
