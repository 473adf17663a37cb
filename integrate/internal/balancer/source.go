// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"cmp"
	"log/slog"
	"time"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/integrate/internal/methodconfig"
	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
)

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
	ReconnectOnTLSChange  bool
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
