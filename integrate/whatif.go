// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/integrate/internal/balancer"
	"github.com/xdslb/xdslb/integrate/internal/compare"
	"github.com/xdslb/xdslb/integrate/internal/offline"
	"github.com/xdslb/xdslb/integrate/internal/xdstls"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
)

// WhatIf describes a supposed channel for [ExplainWhatIf] and [InspectWhatIf].
type WhatIf struct {
	// Target is the channel's target, such as "xds:///orders:8080", and Method the RPC's method.
	Target, Method string
	// Authority is the channel's authority, which selects the virtual host; the default is the
	// target's endpoint name.
	Authority string
	// Resources is JSON with the target's resources, in protobuf's mapping: all objects whose
	// "@type" is one of the four resource types, at any depth, so that DiscoveryResponses, dumps
	// by CSDS and plain lists work. Objects in lists named lds, rds, cds and eds, or listeners,
	// routes, clusters and endpoints, may omit the type. Several documents may follow each other.
	Resources []byte
	// States has the states of endpoints by their first address; the default is READY. For a DNS
	// name, picker.NameAddr returns the address.
	States map[netip.AddrPort]connectivity.State
	// Config is the channel's configuration. Only the fields that affect picks are used: Policies,
	// IgnoreEndpointWeights, DefaultMaxRequests, LocalCluster, MaxHashBytes and AcceptHostnames of
	// Resources, the Overlay and XDSLB_OVERLAY, and the Bootstrap, if it is set, for certificate
	// providers, trusted_xds_server and the locality of the node.
	Config Config
}

// ExplainWhatIf explains an RPC by resources from a file, as Explain does for a channel. An
// XdsClient reads the resources and a balancer applies them, without a control plane and
// without connections to backends. Endpoints have been in their states for a long time, have no
// RPCs in flight, and are not ejected. Policies that depend on the channel's id, or on a random
// subset (A68), pick as for some channel. Failover times have expired: the priority in use is
// the first that can serve by States, or the first that is CONNECTING if none can.
//
// A missing or invalid resource has the same effect as from a server that never sent another
// version: an error, or the failure of the cluster that depends on it.
func ExplainWhatIf(ctx context.Context, w WhatIf) (*report.Explanation, error) {
	if err := checkMethod(w.Method); err != nil {
		return nil, err
	}
	s, err := w.simulate()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	x, err := balancer.Explain(ctx, s.Balancer, w.Method)
	if err != nil {
		return nil, err
	}
	x.Target, x.Patched = w.Target, patched(s.patches)
	return x, nil
}

// InspectWhatIf returns the status of a channel by resources from a file, with each route and
// endpoint, as Channel.Inspect does. See ExplainWhatIf; WhatIf.Method is not used.
func InspectWhatIf(w WhatIf) (*report.TargetStatus, error) {
	s, err := w.simulate()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.inspect(w.Target), nil
}

// simulation is a balancer with resources of a file.
type simulation struct {
	*balancer.Simulation
	patches    []report.PatchStatus
	comparison *compare.Input
}

func (s *simulation) inspect(target string) *report.TargetStatus {
	status := s.Inspect(target)
	status.Overlay = s.patches
	status.StockDifferences = compare.Differences(s.comparison)
	status.ShareShifts = compare.Shares(s.Config(), status)
	return status
}

// options returns the channel's options.
func (w *WhatIf) options() *Config {
	return Config{
		Policies: w.Config.Policies, IgnoreEndpointWeights: w.Config.IgnoreEndpointWeights, DefaultMaxRequests: w.Config.DefaultMaxRequests, LocalCluster: w.Config.LocalCluster,
		Resources: ResourceOptions{MaxHashBytes: w.Config.Resources.MaxHashBytes, AcceptHostnames: w.Config.Resources.AcceptHostnames}, Delta: true, Linger: -1, Logger: slog.New(slog.DiscardHandler),
	}.withDefaults()
}

// simulate returns a balancer with the resources of w.
func (w *WhatIf) simulate() (*simulation, error) {
	resources, err := offline.Parse(w.Resources)
	if err != nil {
		return nil, err
	}
	parser := bootstrap.Parser{CertPlugin: func(string, json.RawMessage) error { return nil }}
	var own *bootstrap.Config // the user's; nil if unknown
	if w.Config.Bootstrap != nil {
		if own, err = w.Config.bootstrap(); err != nil {
			return nil, err
		}
		parser = xdstls.BootstrapParser()
	}
	boot, err := parser.Parse("the resources", resources.Bootstrap(w.Config.Bootstrap))
	if err != nil {
		return nil, err
	}
	listener, authority, err := w.names(own)
	if err != nil {
		return nil, err
	}
	source, err := w.Config.overlay()
	if err != nil {
		return nil, err
	}
	opts := w.options()
	opts.ControlPlaneDialOptions = []grpc.DialOption{resources.DialOption()}
	options := opts.clientOptions()
	options.DNS = noDNS{}
	client := xds.Acquire(boot, options)
	defer client.Release()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // in case of a defect
	defer cancel()
	view := client.View(source, w.Target).With(w.options().targetOptions())
	defer view.Watch(listener, authority, keep{})() // until the outcomes of patches are read
	cfg, err := view.Fetch(ctx, listener, authority)
	if err != nil {
		return nil, err
	}
	s, err := balancer.Simulate(cfg, w.options().options(), w.States)
	if err != nil {
		return nil, err
	}
	all := slices.Collect(view.TargetResources(listener, authority))
	list := patches(source, slices.Values(all))
	in := w.Config.comparison(s.Config(), all, source, list)
	in.Bootstrap = own
	return &simulation{s, list, in}, nil
}

// keep is a Watcher that keeps a target subscribed.
type keep struct{}

// Update implements xds.Watcher.
func (keep) Update(*picker.Config) {}

// Error implements xds.Watcher.
func (keep) Error(error) {}

// names returns the names of the listener and of the authority.
func (w *WhatIf) names(boot *bootstrap.Config) (listener, authority string, err error) {
	u, err := url.Parse(w.Target)
	if err != nil {
		return "", "", fmt.Errorf("xdslb: target: %w", err)
	}
	endpoint := resolver.Target{URL: *u}.Endpoint()
	if u.Scheme != "xds" && u.Scheme != "xdslb" {
		return "", "", fmt.Errorf("xdslb: target %q is of neither scheme xds nor xdslb", w.Target)
	}
	listener, authority = endpoint, w.Authority
	if authority == "" {
		authority = endpoint
	}
	if boot != nil {
		listener, err = boot.ListenerName(u.Host, endpoint)
	}
	return listener, authority, err
}

// noDNS is a resolver for LOGICAL_DNS clusters. It resolves no names.
type noDNS struct{}

// Scheme implements resolver.Builder.
func (noDNS) Scheme() string { return "dns" }

// Build implements resolver.Builder.
func (noDNS) Build(resolver.Target, resolver.ClientConn, resolver.BuildOptions) (resolver.Resolver, error) {
	return nil, errors.New("names are not looked up for resources of a file")
}
