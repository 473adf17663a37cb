// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"net/netip"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/integrate/internal/serial"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
)

// channel is shared by all layers of a channel's balancer. The balancer sets it up before the
// first configuration. Its mutex guards the fields that change later.
type channel struct {
	rt  *serial.Runtime
	out outbox
	rec recorder
	id  identity

	cc        balancer.ClientConn
	buildOpts balancer.BuildOptions // for child policies
	opts      *Options
	// client and bootstrap come from the source; nil without xDS.
	client    *xds.Client
	bootstrap *bootstrap.Config

	standalone bool // without xDS
	simulated  bool // shares no counters with channels, and logs nothing once per process

	// resolved returns the resolver's address for an endpoint's address; nil with xDS.
	resolved func(netip.AddrPort) resolver.Address
	clock    *picker.Clock // for the times of RPCs; nil until one is timed
	watched  bool          // RPCs are counted by endpoint
	// localityVersion is the version of the most recently changed locality.
	localityVersion uint64
}

// checksHealth reports whether connections are READY only once gRPC's health listener reports
// READY. Without xDS the user's service config decides whether health checks are sent to the
// backend.
func (ch *channel) checksHealth() bool { return ch.standalone || ch.opts.HealthChecks }

// addressesOf returns the addresses to connect to for an endpoint, in order.
func (ch *channel) addressesOf(cfg *picker.Endpoint) []resolver.Address {
	n := 1
	if multiAddressed(cfg) {
		n += len(cfg.Extra.Addrs)
	}
	addrs := make([]resolver.Address, n)
	for i := range addrs {
		key := cfg.Addr
		if i > 0 {
			key = cfg.Extra.Addrs[i-1]
		}
		if ch.resolved != nil {
			addrs[i] = ch.resolved(key)
		} else {
			addrs[i] = resolver.Address{Addr: picker.AddrText(key)}
		}
	}
	return addrs
}

// rpcClock returns the clock that times the channel's RPCs. It is made when a policy first
// needs it, and stops by itself after the channel is closed.
func (ch *channel) rpcClock() *picker.Clock {
	if ch.clock == nil {
		ch.clock = picker.NewClock(ch.rt.Now)
	}
	return ch.clock
}
