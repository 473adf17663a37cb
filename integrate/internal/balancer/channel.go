// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"cmp"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/integrate/internal/methodconfig"
	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/integrate/internal/serial"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
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
	addrs := []resolver.Address{ch.address(cfg.Addr)}
	if multiAddressed(cfg) {
		for _, key := range cfg.Extra.Addrs {
			addrs = append(addrs, ch.address(key))
		}
	}
	return addrs
}

func (ch *channel) address(key netip.AddrPort) resolver.Address {
	if ch.resolved != nil {
		return ch.resolved(key)
	}
	return resolver.Address{Addr: picker.AddrText(key)}
}

// rpcClock returns the clock that times the channel's RPCs. It is made when a policy first
// needs it, and stops by itself after the channel is closed.
func (ch *channel) rpcClock() *picker.Clock {
	if ch.clock == nil {
		ch.clock = picker.NewClock(ch.rt.Now)
	}
	return ch.clock
}

// adaptation derives the configuration of a channel from the one that all channels share.
type adaptation struct {
	*channel
	subsetSeed uint64 // random: selects the endpoints that the channel keeps of a large set (A68)
}

// config adapts a configuration, which all channels share, to this channel: it removes endpoint
// weights if they are to be ignored (D2), sets the default limit of circuit breakers, selects a
// subset of the endpoints if the policy requires it (A68), and removes endpoints that its
// credentials would connect to in plaintext contrary to A29. Unchanged clusters are reused;
// changed holds the indexes of the changed clusters.
func (a *adaptation) config(list *clusterList, cfg *picker.Config, changed []int) *picker.Config {
	clusters, copied := cfg.Clusters, false
	if !persistent.SameSlice(list.own, list.received) {
		clusters, copied = slices.Clone(list.own), true
	}
	for _, i := range changed {
		cc := cfg.Clusters[i]
		if slices.ContainsFunc(cc.Leaves, a.needsOwn) {
			cc = a.cluster(cc)
			if !copied {
				clusters, copied = slices.Clone(clusters), true
			}
		}
		if copied {
			clusters[i] = cc
		}
	}
	if !copied {
		return cfg
	}
	out := *cfg
	out.Clusters = clusters
	return &out
}

// needsOwn reports whether the leaf must be adapted.
func (a *adaptation) needsOwn(l picker.Leaf) bool {
	return a.ignoresWeights(&l) || l.Policy.Subset > 0 || a.refuses(&l) ||
		l.DefaultLimit && l.MaxRequests != a.opts.DefaultMaxRequests
}

// ignoresWeights reports whether the policy of a leaf has to ignore weights that it would use.
func (a *adaptation) ignoresWeights(l *picker.Leaf) bool {
	if !a.opts.IgnoreEndpointWeights {
		return false
	}
	_, weighted := l.Policy.Unweighted()
	return weighted
}

func (a *adaptation) cluster(cc *picker.Cluster) *picker.Cluster {
	out := *cc
	out.Leaves = slices.Clone(cc.Leaves)
	for i := range out.Leaves {
		l := &out.Leaves[i]
		if a.refuses(l) {
			a.refuse(l)
		}
		if a.opts.IgnoreEndpointWeights {
			l.Policy, _ = l.Policy.Unweighted()
		}
		if l.DefaultLimit {
			l.MaxRequests = a.opts.DefaultMaxRequests
		}
		if n := l.Policy.Subset; n > 0 {
			l.Priorities = slices.Clone(l.Priorities)
			for k := range l.Priorities {
				l.Priorities[k] = l.Priorities[k].Subset(int(min(n, math.MaxInt32)), a.subsetSeed)
			}
		}
	}
	return &out
}

// A source connects a channel's balancer with its resolver: the channel's membership in an
// XdsClient, and the names under which the client lists the channel. The resolver fills it in
// and does not change it afterwards.
type Source struct {
	Options   *Options
	Bootstrap *bootstrap.Config
	Client    *xds.Client
	Channel   *rpc.Channel
	Listener  string
	Authority string
	Node      string // its id, by which control planes identify the client

	// Configure passes method configurations to gRPC, in a service config. It is called
	// without the balancer's mutex.
	Configure func([]methodconfig.Config)
	// StartMetrics starts recording the channel's metrics, if it has a recorder.
	StartMetrics func(*Balancer) *metric.Channel
	// Watch starts to pass the target's configurations to the balancer, until stop is called.
	Watch func(*Balancer) (stop func())
}

type sourceKey struct{}

// WithSource returns the attributes that pass a source to a balancer.
func WithSource(s *Source) *attributes.Attributes { return attributes.New(sourceKey{}, s) }

// SourceOf returns the source in a resolver's state; nil if the state is another resolver's.
func SourceOf(s resolver.State) *Source {
	src, _ := s.Attributes.Value(sourceKey{}).(*Source)
	return src
}

// Options are the options of one channel: fields of integrate.Config, which documents them.
type Options struct {
	FailoverTimeout       time.Duration
	RetireAfter           time.Duration
	IgnoreEndpointWeights bool
	DefaultMaxRequests    uint32
	HealthChecks          bool // HealthCheckService is set
	Logger                *slog.Logger
}

// WithDefaults returns the options with the defaults in place of zero values.
func (o Options) WithDefaults() *Options {
	o.FailoverTimeout = cmp.Or(o.FailoverTimeout, 10*time.Second)
	o.DefaultMaxRequests = cmp.Or(o.DefaultMaxRequests, 1024)
	o.RetireAfter = cmp.Or(o.RetireAfter, 15*time.Minute)
	return &o
}
