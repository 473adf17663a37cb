// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/xdslb/xdslb/integrate/internal/balancer"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/integrate/internal/channelmetrics"
	"github.com/xdslb/xdslb/integrate/internal/link"
	"github.com/xdslb/xdslb/integrate/internal/methodconfig"
	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/integrate/internal/offline"
	"github.com/xdslb/xdslb/integrate/internal/rollout"
	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/overlay"
)

// init registers the LB policies, the source of files, and the schemes. grpc-go's xDS package registers scheme xds too,
// and the last one wins, so NewClient and DialOptions pass the resolver to the channel (D11). No
// other package registers scheme xdslb.
func init() {
	balancer.Register()
	offline.RegisterFiles()
	rollout.Register(&resolverBuilder{scheme: "xds", opts: Config{}.withDefaults()})
	resolver.Register(&resolverBuilder{scheme: "xdslb", opts: Config{}.withDefaults()})
}

// resolverBuilder builds the resolver. Without a bootstrap it reads the bootstrap of the environment when
// the channel starts to connect.
type resolverBuilder struct {
	scheme    string
	opts      *Config
	bootstrap *bootstrap.Config
	overlay   *overlay.Source // nil without one
	// failure is the error of the bootstrap or the overlay. Channels that are handed over need
	// neither.
	failure error
	// intercepted reports whether DialOptions made the builder, so that the channels have the
	// interceptors.
	intercepted bool
}

// Scheme implements resolver.Builder.
func (b *resolverBuilder) Scheme() string { return b.scheme }

// XDSLB implements rollout.Ours.
func (b *resolverBuilder) XDSLB() {}

// Build implements resolver.Builder. If the environment selects grpc-go's resolver and that can
// serve the channel, it builds that resolver. If neither can, for example without a bootstrap, the
// channel has a resolver that reports the error, and is in Channels.
func (b *resolverBuilder) Build(target resolver.Target, cc resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error) {
	if v := rollout.Verdict(target, b.opts.Logger); v != nil {
		return b.buildByVerdict(v, target, cc, opts)
	}
	r, err := b.build(nil, target, cc, opts)
	if err != nil {
		return failedResolver(nil, err, target, cc).start(opts), nil
	}
	return r, nil
}

// build builds the resolver of this package: it acquires the XdsClient and names the LB policy
// in a service config. Configurations reach that policy directly, not through gRPC (D7). The
// verdict is nil unless it could not be followed.
func (b *resolverBuilder) build(v *report.RolloutStatus, target resolver.Target, cc resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error) {
	boot, patches := b.bootstrap, b.overlay
	if b.failure != nil {
		return nil, b.failure
	}
	if boot == nil { // registered by init
		if b.scheme == "xdslb" && customBuilders.Load() {
			noteSchemes(b.opts.Logger)
		}
		var err error
		if boot, err = b.opts.bootstrap(); err != nil {
			return nil, fmt.Errorf("%w (target %q has no integrate.Config: make the channel with integrate.DialOptions)", err, target.URL.String())
		}
		if patches, err = b.opts.overlay(); err != nil {
			return nil, err
		}
	}
	listener, err := boot.ListenerName(target.URL.Host, target.Endpoint())
	if err != nil {
		return nil, err
	}
	patches.Refresh()
	r := &xdsResolver{opts: b.opts, overlay: patches, cc: cc, rollout: v, started: make(chan struct{})}
	client := b.opts.acquire(boot)
	r.forget = offline.Remember(client, boot, b.opts.Logger)
	r.view = client.View(patches, target.String()).With(b.opts.targetOptions())
	r.Source = balancer.Source{
		Options:   b.opts.options(),
		Bootstrap: boot,
		Client:    client,
		Listener:  listener,
		Authority: cmp.Or(opts.Authority, target.Endpoint()),
		Node:      boot.Node().GetId(),
		Configure: r.configure,
		Watch:     r.watch,
		StartMetrics: func(b *balancer.Balancer) *metric.Channel {
			return channelmetrics.Start(target.String(), opts.MetricsRecorder, func(to *metric.Channel) { balancer.Counts(b, to) })
		},
	}
	r.Channel = rpc.NewChannel(link.Options{Target: target.URL.String(), Canonical: target.String(), Resolver: r, Update: r.update}, rpc.ChannelOptions{
		Waiting: r.waiting, Intercepted: b.intercepted, Logger: b.opts.Logger, Idempotent: b.opts.Idempotent, Throttle: b.opts.RetryThrottling.throttle(),
	})
	r.Channel.Register() // all fields of r must be set before
	r.configure(nil)
	return r, nil
}

// acquire acquires the XdsClient of the configuration.
func (c *Config) acquire(boot *bootstrap.Config) *xds.Client {
	if c.Resources.Remember != "" {
		xds.KeepBytes()
	}
	return xds.Acquire(boot, c.clientOptions())
}

// clientOptions returns the options of the XdsClient and its target.
func (c *Config) clientOptions() xds.Options {
	return xds.Options{
		DialOptions:     c.ControlPlaneDialOptions,
		Filter:          rpc.FilterType,
		Policies:        c.Policies,
		Delta:           c.Delta,
		Linger:          c.Linger,
		ResourceTimeout: c.Resources.Timeout,
		AcceptHostnames: c.Resources.AcceptHostnames,
		ReconnectSpread: c.ReconnectSpread,
		Logger:          c.Logger,
		TargetOptions:   c.targetOptions(),
	}
}

// targetOptions returns the options of the target.
func (c *Config) targetOptions() xds.TargetOptions {
	return xds.TargetOptions{LocalCluster: c.LocalCluster, DropDeleted: !c.Resources.KeepDeleted, MaxHashBytes: c.Resources.MaxHashBytes}
}

var schemesNoted atomic.Bool

// noteSchemes logs once that a resolver of NewBuilder does not serve scheme xdslb.
func noteSchemes(logger *slog.Logger) {
	if schemesNoted.Swap(true) {
		return
	}
	link.LoggerOr(logger).Warn("xdslb: a channel of scheme xdslb uses the bootstrap of the environment and the zero Config, and the program has called integrate.NewBuilder: " +
		"its builder serves scheme xds only. Use integrate.DialOptions, which serve both, or targets of scheme xds.")
}

// xdsResolver is a channel's resolver, and the source of its LB policy's configurations.
type xdsResolver struct {
	balancer.Source
	opts     *Config
	overlay  *overlay.Source // nil without one
	forget   func()          // ends the use of offline.Remember
	view     xds.View        // of the client, with the overlay
	cc       resolver.ClientConn
	rollout  *report.RolloutStatus             // the verdict that could not be followed, or nil
	losses   atomic.Int64                      // features with which a roll-back would lose RPCs, as compared last
	balancer atomic.Pointer[balancer.Balancer] // nil until gRPC has made it
	started  chan struct{}                     // closed once balancer is set, or the resolver is closed
	starting sync.Once                         // closes started

	mu      sync.Mutex            // orders service configs
	methods []methodconfig.Config // the timeouts and retries of routes
	sent    string                // the latest service config
}

// configure sends gRPC a service config with the timeouts and retries of methods.
func (r *xdsResolver) configure(methods []methodconfig.Config) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.methods = methods
	r.send()
}

// update sends the service config again if the entry of the link has changed.
func (r *xdsResolver) update() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.send()
}

// send sends the service config unless it is the latest. The caller holds mu.
func (r *xdsResolver) send() {
	serviceConfig := r.opts.serviceConfig(r.Channel.Append(r.methods))
	if serviceConfig == r.sent {
		return
	}
	r.sent = serviceConfig
	// gRPC calls ResolveNow if the LB policy rejects the state, which this one never does.
	_ = r.cc.UpdateState(resolver.State{
		ServiceConfig: r.cc.ParseServiceConfig(serviceConfig),
		Attributes:    balancer.WithSource(&r.Source),
	})
}

// serviceConfig returns the service config of a channel: the LB policy, the service for health
// checks, and the method configurations.
func (c *Config) serviceConfig(methods []methodconfig.Config) string {
	sc := map[string]any{"loadBalancingConfig": []any{map[string]any{balancer.PolicyName: struct{}{}}}, "methodConfig": methods}
	if c.HealthCheckService != "" {
		sc["healthCheckConfig"] = map[string]any{"serviceName": c.HealthCheckService}
	}
	if c.RetryThrottling.MaxTokens > 0 {
		sc["retryThrottling"] = c.RetryThrottling
	}
	js, err := json.Marshal(sc)
	if err != nil {
		link.LoggerOr(c.Logger).Error("xdslb: service config", "error", err) // strings and numbers always encode
	}
	return string(js)
}

// waiting returns a description of the missing parts of the target's first configuration.
func (r *xdsResolver) waiting() error { return r.view.Waiting(r.Listener, r.Authority) }

// watch starts to pass the target's configurations to b.
func (r *xdsResolver) watch(b *balancer.Balancer) (stop func()) {
	r.balancer.Store(b)
	r.start()
	w := &comparing{Balancer: b, resolver: r}
	unwatch := r.view.Watch(r.Listener, r.Authority, w)
	return func() {
		unwatch()
		w.close()
	}
}

// start wakes the goroutines that wait for the LB policy.
func (r *xdsResolver) start() {
	r.starting.Do(func() {
		if r.started != nil { // it may be in tests
			close(r.started)
		}
	})
}

// ResolveNow implements resolver.Resolver. xDS resources are pushed; only the names of LOGICAL_DNS
// clusters are looked up again.
func (r *xdsResolver) ResolveNow(resolver.ResolveNowOptions) { r.Client.ResolveNow() }

// Close implements resolver.Resolver.
func (r *xdsResolver) Close() {
	r.Channel.Close()
	r.start()
	r.forget()
	r.Channel.AfterWaiting(r.Client.Release)
}
