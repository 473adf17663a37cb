// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"context"
	"net/netip"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/integrate"
	lb "github.com/xdslb/xdslb/integrate/internal/balancer"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/picker"
)

func init() { lb.SetShutdownDelay(0) }

// defaulted returns the options of a channel, with defaults for those that are not set.
func defaulted(c integrate.Config) *lb.Options {
	return lb.Options{FailoverTimeout: c.FailoverTimeout, RetireAfter: c.RetireAfter}.WithDefaults()
}

// delegates reports whether a policy has balancers of gRPC's registry as children.
func delegates(p *picker.Policy) bool { return p.Kind.Traits().Connects }

func multiAddressed(e *picker.Endpoint) bool { return e.Extra != nil && len(e.Extra.Addrs) > 0 }

func hostname(e *picker.Endpoint) string {
	if e.Extra == nil {
		return ""
	}
	return e.Extra.Hostname
}

// addr returns the address of the endpoint with a number.
func addr(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 80)
}

// member returns an endpoint of weight 1.
func member(n int) picker.Endpoint { return picker.Endpoint{Addr: addr(n), Weight: 1} }

// zone returns a priority of one locality.
func zone(name string, endpoints ...picker.Endpoint) picker.Priority {
	return picker.Priority{Localities: []picker.Locality{{ID: picker.LocalityID{Zone: name}, Weight: 1, Endpoints: picker.ListOf(endpoints...)}}}
}

// configOf returns a configuration that routes all RPCs to a cluster c of one leaf.
func configOf(leaf picker.Leaf) *picker.Config {
	leaf.Name, leaf.Service, leaf.MaxRequests = "c", "c", 1024
	return &picker.Config{
		Routes:   []picker.Route{{Clusters: []picker.WeightedCluster{{Name: "c", Weight: 1}}}},
		Clusters: []*picker.Cluster{{Name: "c", Leaves: []picker.Leaf{leaf}}},
	}
}

// endpointIn returns the status of the endpoint with an address, or nil.
func endpointIn(c *report.RouteTarget, address string) *report.EndpointStatus {
	for _, l := range c.Status.Localities() {
		for k := range l.Endpoints {
			if e := &l.Endpoints[k]; e.Address == address || slices.Contains(e.More, address) {
				return e
			}
		}
	}
	return nil
}

// stateCC is gRPC's side of a resolver.
type stateCC struct {
	resolver.ClientConn // nil: any other method is not expected

	states  []resolver.State
	configs []string
}

func (cc *stateCC) UpdateState(s resolver.State) error {
	cc.states = append(cc.states, s)
	return nil
}

func (cc *stateCC) ParseServiceConfig(text string) *serviceconfig.ParseResult {
	cc.configs = append(cc.configs, text)
	return &serviceconfig.ParseResult{}
}

// silent is a connection to a server that never answers.
type silent struct{ grpc.ClientConnInterface }

func (silent) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	<-ctx.Done()
	return nil, status.FromContextError(ctx.Err()).Err()
}

func (silent) Invoke(ctx context.Context, _ string, _, _ any, _ ...grpc.CallOption) error {
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}
