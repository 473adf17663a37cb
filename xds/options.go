// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"cmp"
	"log/slog"
	"reflect"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/lbpolicy"
	"github.com/xdslb/xdslb/xds/resource"
)

// Watcher receives the configuration of a target. Its methods are called one at
// a time, from a goroutine of the Client that holds no lock, so they may
// call any function of this package. During a call, only the
// latest of further configurations is kept, and reading from the servers that sent them is delayed for up to a
// second.
type Watcher interface {
	// Update delivers a complete configuration, which replaces the previous one.
	Update(*picker.Config)
	// Error is called when the target cannot be served, until the next Update. It is not called for
	// a target with a configuration because a control plane is unreachable.
	Error(error)
}

// Options configure a Client and its targets. The zero value is ready to use; package integrate has
// other defaults for Linger and DropDeleted. See Acquire about sharing a Client.
type Options struct {
	// DialOptions are added to the options of the bootstrap for connections to
	// control planes. They must not be modified; see Acquire about sharing a Client.
	DialOptions []grpc.DialOption
	// Policies converts the load balancing policies of clusters (A52); nil
	// means the registry of package lbpolicy.
	Policies *lbpolicy.Registry
	// DNS resolves the names of LOGICAL_DNS and STRICT_DNS clusters; nil means gRPC's "dns".
	DNS resolver.Builder
	// Filter returns HTTP filters in addition to the ones of package resource; see
	// resource.Options. It may be nil.
	Filter func(message string) *resource.FilterType

	// AcceptHostnames accepts DNS names as addresses of endpoints; see resource.Options.
	AcceptHostnames bool

	// Delta requests the incremental variant of ADS for all servers, as the
	// server feature xdslb.delta_ads does for one (see package bootstrap). Servers that
	// do not implement it are used with the other variant.
	Delta bool
	// Linger is how long unused targets and clients are kept up to date, so
	// that a channel that leaves idle mode has a configuration at once. 0 means
	// 30 s; a negative value disables it.
	Linger time.Duration
	// ResourceTimeout is how long a connected server may take to send a
	// resource. 0 means 15 s (A57), or 30 s for servers that have the feature
	// resource_timer_is_transient_error (A88).
	ResourceTimeout time.Duration
	// ConnectFailureAfter is how long a connection may take before it counts as a
	// failure. 0 means 1 s. The attempt goes on. While the process is suspended,
	// at most a tenth of this time passes.
	ConnectFailureAfter time.Duration
	// BackoffBase and BackoffMax bound the backoff between streams; 0 means 1 s
	// and 120 s.
	BackoffBase, BackoffMax time.Duration
	// ReconnectSpread is the time over which a client spreads its reconnection to a server
	// at random, if its cache has all wanted resources. Changes are received that late. A client
	// that lacks a resource does not wait for it. It is for fleets so large
	// that a control plane cannot serve them within seconds. 0 means that
	// the next stream after one that had a response begins within BackoffBase.
	ReconnectSpread time.Duration

	// Logger receives the log: at WARN invalid resources (NACKs), unreachable servers,
	// fallbacks, deletions, and missing resources; at
	// INFO recoveries. Nil means slog.Default(). Repeated lines are written once
	// in a minute. Clients with different Loggers are shared; see Acquire.
	Logger *slog.Logger

	// TargetOptions are for View.With. Acquire ignores them.
	TargetOptions
}

// TargetOptions configure the configuration of a target. The zero value is ready to use.
type TargetOptions struct {
	// LocalCluster is the name of the EDS resource with the endpoints of the local
	// cluster, the fleet of which the client is a member, for zone-aware routing
	// (Envoy's local_cluster_name). It is subscribed to while a cluster in use requires it. It may be
	// empty.
	LocalCluster string
	// DropDeleted makes the deletion of a Listener or Cluster take effect, as in
	// A57, unless the server has the feature ignore_resource_deletion
	// (A53). By default, as in A88, the last version stays in use unless the
	// server has the feature fail_on_data_errors.
	DropDeleted bool
	// MaxHashBytes bounds the memory of the hash rings and Maglev tables of one
	// target; 0 means 64 MiB. If the clusters need more, the largest rings and tables are
	// made smaller.
	MaxHashBytes uint64
}

// withDefaults returns the options with the defaults in place of zero values.
func (o TargetOptions) withDefaults() TargetOptions {
	o.MaxHashBytes = cmp.Or(o.MaxHashBytes, defaultMaxHashBytes)
	return o
}

const defaultMaxHashBytes = 64 << 20

func (o Options) withDefaults() Options {
	o.Linger = cmp.Or(o.Linger, 30*time.Second)
	o.ConnectFailureAfter = cmp.Or(o.ConnectFailureAfter, time.Second)
	o.BackoffBase = cmp.Or(o.BackoffBase, time.Second)
	o.BackoffMax = cmp.Or(o.BackoffMax, 120*time.Second)
	if o.DNS == nil {
		o.DNS = resolver.Get("dns")
	}
	return o
}

// difference returns the name of a field in which the options differ, "" if they can share a
// client.
func (o Options) difference(p Options) string {
	a, b := reflect.ValueOf(o.unshared()), reflect.ValueOf(p.unshared())
	for i := range a.NumField() {
		if !same(a.Field(i), b.Field(i)) {
			return a.Type().Field(i).Name
		}
	}
	return ""
}

// unshared returns the options without those that a shared client combines (see combined) or that
// belong to targets.
func (o Options) unshared() Options {
	o.Delta, o.Linger, o.ResourceTimeout, o.ReconnectSpread = false, 0, 0, 0
	o.Logger, o.TargetOptions = nil, TargetOptions{}
	return o
}

// combined are the options that channels with different values share: a second stream to the
// same servers would cost more than the difference, and agents that accept one stream from each
// client would end the first.
type combined struct {
	delta          bool          // requested by any
	linger         time.Duration // the longest
	spread         time.Duration // the longest ReconnectSpread
	timeout        time.Duration // the longest ResourceTimeout that is not the default
	defaultTimeout bool          // any has the default ResourceTimeout
}

// add combines c with the options of another user of the client, and reports whether they differ.
func (c *combined) add(o *Options) (differs bool) {
	was := *c
	c.delta = c.delta || o.Delta
	c.linger, c.spread = max(c.linger, o.Linger), max(c.spread, o.ReconnectSpread)
	c.timeout, c.defaultTimeout = max(c.timeout, o.ResourceTimeout), c.defaultTimeout || o.ResourceTimeout == 0
	return was != *c || *c != combinedOf(o)
}

func combinedOf(o *Options) combined {
	return combined{o.Delta, o.Linger, o.ReconnectSpread, o.ResourceTimeout, o.ResourceTimeout == 0}
}

// same reports whether two values are known to be equal.
func same(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Func:
		return a.Pointer() == b.Pointer()
	case reflect.Slice:
		for i := range min(a.Len(), b.Len()) {
			if !same(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return a.Len() == b.Len()
	}
	return a.Comparable() && b.Comparable() && a.Equal(b)
}
