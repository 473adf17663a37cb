// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
)

var logger = grpclog.Component("xdslb")

// init registers what gRPC finds by name. The stock xDS package registers the
// scheme "xds" too and the last one wins, which is why NewClient and
// DialOptions carry the resolver with them (D11); "xdslb" is ours alone.
func init() {
	balancer.Register(balancerBuilder{})
	for name := range standalonePolicies {
		balancer.Register(standaloneBuilder{name})
	}
	for _, scheme := range []string{"xds", "xdslb"} {
		resolver.Register(&resolverBuilder{scheme: scheme, opts: Config{}.withDefaults()})
	}
}

// resolverBuilder makes the resolver. Without a bootstrap it reads that of
// the environment when the channel starts to connect.
type resolverBuilder struct {
	scheme    string
	opts      *Config
	bootstrap *bootstrap.Config
	// intercepted says that the channels have our interceptors: DialOptions
	// made the builder.
	intercepted bool
}

// Scheme implements resolver.Builder.
func (b *resolverBuilder) Scheme() string { return b.scheme }

// Build implements resolver.Builder: it joins the XdsClient and tells gRPC
// which LB policy to use. Configurations reach that policy directly, not
// through gRPC (D7).
func (b *resolverBuilder) Build(target resolver.Target, cc resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error) {
	boot := b.bootstrap
	if boot == nil {
		var err error
		if boot, err = b.opts.bootstrap(); err != nil {
			return nil, err
		}
	}
	listener, err := boot.ListenerName(target.URL.Host, target.Endpoint())
	if err != nil {
		return nil, fmt.Errorf("xds: target %q: %w", target.URL.String(), err)
	}
	r := &xdsResolver{
		opts:      b.opts,
		cc:        cc,
		bootstrap: boot,
		client: xds.Acquire(boot, xds.Options{
			DialOptions:     b.opts.ControlPlaneDialOptions,
			Filter:          filterType,
			Policies:        b.opts.Policies,
			DropDeleted:     !b.opts.KeepDeleted,
			Linger:          b.opts.Linger,
			ResourceTimeout: b.opts.ResourceTimeout,
		}),
		listener:  listener,
		authority: opts.Authority,
	}
	r.link = newLink(r.tell, b.intercepted)
	if r.authority == "" {
		r.authority = target.Endpoint()
	}
	r.configure(nil)
	return r, nil
}

// xdsResolver is a channel's membership in the XdsClient, and the source of
// its LB policy's configuration.
type xdsResolver struct {
	opts      *Config
	cc        resolver.ClientConn
	bootstrap *bootstrap.Config
	client    *xds.Client
	listener  string
	authority string
	link      *link

	mu      sync.Mutex     // orders what gRPC is told
	methods []methodConfig // of the routes
	told    string         // the service config that gRPC has
}

// configure tells gRPC what routes say about timeouts and retries, as far as it
// can be said in a service config.
func (r *xdsResolver) configure(methods []methodConfig) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.methods = methods
	r.tellLocked()
}

// tell tells gRPC the service config if that has changed.
func (r *xdsResolver) tell() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tellLocked()
}

func (r *xdsResolver) tellLocked() {
	methods := slices.Clip(r.methods)
	if r.link.wanted() {
		methods = append(methods, r.link.methodConfig())
	}
	serviceConfig := r.opts.serviceConfig(methods)
	if serviceConfig == r.told {
		return
	}
	r.told = serviceConfig
	// gRPC asks for another resolution if the LB policy refuses the state,
	// which ours does not.
	_ = r.cc.UpdateState(resolver.State{
		ServiceConfig: r.cc.ParseServiceConfig(serviceConfig),
		Attributes:    attributes.New(sourceKey{}, r),
	})
}

type sourceKey struct{}

func sourceOf(s resolver.State) *xdsResolver {
	r, _ := s.Attributes.Value(sourceKey{}).(*xdsResolver)
	return r
}

// watch starts the target's configuration flowing to b.
func (r *xdsResolver) watch(b *lb) (stop func()) {
	return r.client.Watch(r.listener, r.authority, b)
}

// ResolveNow implements resolver.Resolver. xDS resources are pushed; only the
// names of LOGICAL_DNS clusters can be looked up again.
func (r *xdsResolver) ResolveNow(resolver.ResolveNowOptions) { r.client.ResolveNow() }

// Close implements resolver.Resolver.
func (r *xdsResolver) Close() {
	r.link.close()
	r.client.Release()
}
