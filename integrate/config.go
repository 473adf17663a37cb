// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/integrate/internal/link"
	"github.com/xdslb/xdslb/integrate/internal/perrpc"
	"github.com/xdslb/xdslb/integrate/internal/rollout"
	"github.com/xdslb/xdslb/integrate/internal/xdstls"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/lbpolicy"
)

// Config says how a channel uses xDS. The zero value is ready to use: the
// bootstrap comes from the environment, everything else has its default. A
// Config is read when it is passed and may be reused.
//
// Channels share one XdsClient, with a stream to each control plane and one copy of
// each resource, if they have the same Bootstrap, Linger, ResourceTimeout,
// KeepDeleted, Delta, LocalCluster, ReconnectSpread, MaxHashBytes, Policies and
// ControlPlaneDialOptions. The other fields are each channel's own.
type Config struct {
	// Bootstrap is the bootstrap JSON (A27). Empty means the file that
	// GRPC_XDS_BOOTSTRAP names, or else the value of
	// GRPC_XDS_BOOTSTRAP_CONFIG.
	Bootstrap []byte
	// FailoverTimeout is how long a priority may take to connect before the
	// next one is tried as well (A56); 0 means 10 s. A priority whose
	// endpoints have all failed is given up at once. A short time may connect
	// priorities that are not needed.
	FailoverTimeout time.Duration
	// RetireAfter is how long the connections of a priority that is not
	// needed any more are kept (A56); 0 means 15 minutes. It costs these connections,
	// and saves their handshakes if the priority is needed again.
	RetireAfter time.Duration
	// OverprovisioningFactor lets a priority whose endpoints have failed in part
	// share the load with the next one, as Envoy does: with a factor of 140,
	// Envoy's default, once more than 28.6 % of its endpoints have. In percent;
	// what is less than 100 counts as 100. 0 is off, as gRPC has it
	// (A27-EDSP-4): a lower priority gets RPCs only if no endpoint of a higher
	// one is reachable. Clusters whose policy is not EDF, round robin or least
	// request are not affected.
	OverprovisioningFactor uint32
	// IgnoreEndpointWeights has ROUND_ROBIN and LEAST_REQUEST give all endpoints
	// of a locality the same share, as A27 and A48 have it, and as
	// google.golang.org/grpc/xds does. By default they go by endpoint weight,
	// as in Envoy (D2). It covers least latency too. Hashes go by weight either way (A42).
	// False is the default; true costs nothing.
	IgnoreEndpointWeights bool
	// HealthCheckService turns on client-side health checking (A17): a
	// connection counts as READY once the backend's health service says that
	// this service is SERVING. The program must import
	// google.golang.org/grpc/health. It costs a stream on each connection. Empty,
	// the default, is off.
	HealthCheckService string
	// Keepalive makes connections to backends notice a peer that is gone
	// without a word, which otherwise takes TCP about 15 minutes. Nil is off,
	// gRPC's default. A Time of 30 s and a Timeout of 5 s, without
	// PermitWithoutStream, suit most; servers must allow it by their
	// enforcement policy. It costs a ping for each Time in which a connection with
	// RPCs receives nothing. [DialOptions] and [NewClient] only.
	Keepalive *keepalive.ClientParameters
	// ReconnectOnTLSChange replaces a cluster's connections when the control plane
	// changes its TLS settings: another connection is made by the new settings, and
	// when it is READY the old one is shut down, whose RPCs may finish. By default
	// an update concerns new connections only (A29): a connection that was made in
	// plaintext, or to a server whose name is not accepted any more, stays until
	// it is lost.
	//
	// It costs a handshake for each endpoint of the cluster, all at the same time,
	// and twice the connections until these are done, whenever the control plane
	// likes. If the new settings do not work, the old connection stays in use, which
	// is logged once; so this is no way to cut off a backend. New certificates in
	// the files of a provider are no change of settings. A custom policy
	// that has producers on a connection sees it lost and come back at once.
	//
	// It is for channels with the credentials of [NewCredentials].
	ReconnectOnTLSChange bool
	// Linger is how long the XdsClient stays subscribed after the last channel
	// that used it, so that a channel which leaves idle mode finds its
	// configuration; 0 means 5 s, less than 0 not at all. Meanwhile resources stay in
	// memory, and updates are received.
	Linger time.Duration
	// ResourceTimeout is how long a control plane that is connected may take to
	// send a resource until the resource counts as missing (A57); 0 means 15 s,
	// or 30 s for servers with the feature resource_timer_is_transient_error
	// (A88). What depends on a missing resource waits for that long: an
	// aggregate cluster, for instance, until the endpoints of its first child
	// count as missing before it makes do with the second (A74).
	ResourceTimeout time.Duration
	// ReconnectSpread is over how long XdsClients spread their return to a control
	// plane that ended their streams, at random, so that a very large fleet does not come
	// back within seconds; updates are that late. 0, the default, is no more than a second. An
	// XdsClient that lacks a resource does not wait.
	ReconnectSpread time.Duration
	// KeepDeleted keeps a Listener or Cluster that the control plane deletes in
	// force until there is another, as A88 has it. The environment variable
	// that A88 names, GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING=true, does so
	// too. Otherwise a deletion counts, as in every gRPC today, unless the
	// bootstrap gives the server the feature ignore_resource_deletion (A53). False is
	// the default. With it, what was deleted on purpose gets RPCs for as long as routes
	// lead there.
	KeepDeleted bool
	// Delta has the control planes spoken to in the incremental variant of ADS
	// (DeltaAggregatedResources), in which a change costs what changed. So does the
	// server feature xdslb.delta_ads in the bootstrap, for one server. Whichever
	// variant it begins with, a control plane that answers UNIMPLEMENTED is spoken
	// to in the other, at the cost of a stream. False, the default, is state of the world.
	Delta bool
	// LocalCluster is the name of the EDS resource with the endpoints of the program's
	// own fleet (Envoy's local_cluster_name). Clusters that ask for zone-aware routing
	// (zone_aware_lb_config) keep RPCs in their zone as far as that loads all endpoints
	// alike, for which the zones of the fleet must be known, and this client's own: the
	// locality of the bootstrap's node. While they are not, such clusters are balanced as
	// without it, which is logged once. As with any EDS resource, localities without
	// load_balancing_weight and endpoints that are not healthy do not count. It costs a
	// subscription, and O(endpoints of the fleet) for each change of it. Empty, the
	// default, is off.
	LocalCluster string
	// RetryThrottling stops the retries of a channel most of whose RPCs fail, as
	// retryThrottling of a service config does (A6), which xDS cannot say. The retries
	// that gRPC makes and those of interceptors are throttled each by themselves. The
	// zero value is off.
	RetryThrottling RetryThrottling
	// Idempotent reports whether RPCs of a method, "/package.Service/Method", may be made
	// twice at the same time: only those are hedged, where a route says so. It adds to what
	// the methods' option idempotency_level says. It is called for each such RPC, by any
	// goroutine. Nil adds no method.
	Idempotent func(method string) bool
	// Policies converts the LB policies that clusters ask for (A52). Nil knows
	// xDS's own and, through TypedStruct, every balancer that the program
	// registers with gRPC, to which [EndpointInfoOf] tells what EDS says. A
	// control plane's own messages are taught to it with
	// [lbpolicy.Registry.With]. Channels with different Registries have XdsClients
	// of their own, even if these know the same, so a program wants one Registry.
	Policies *lbpolicy.Registry
	// MaxHashBytes bounds the memory of the hash rings and Maglev tables of one
	// target; 0 means 64 MiB. Where clusters ask for more, the largest of them
	// are made smaller.
	MaxHashBytes uint64
	// Logger has the lines of the channel and of the XdsClient. At ERROR and WARN:
	// invalid resources, servers that cannot be reached or take no load reports,
	// certificate files that cannot be read, targets and clusters that cannot be
	// served, failovers, TLS that cannot be done, and what the channel does not
	// apply. At INFO: what is over again. Lines are constant texts with the
	// attributes target, cluster, resource, server, node and error, as far as they
	// apply. Equal ones are written once in a minute; the next says how many were
	// left out. Whether a target is served, whether RPCs of a cluster fail, and which
	// priority it uses, the last line says truly, up to a minute late if it changes
	// often. Nil is slog.Default() at the time of the line.
	//
	// Channels with different Loggers share an XdsClient all the same: its lines go
	// to the first Logger that is not nil, and those that come with another are told
	// so once. What is logged once in a process goes to the channel that met it.
	Logger *slog.Logger
	// ControlPlaneDialOptions are added when dialing xDS servers, for
	// instance a proxy's dialer or interceptors. Options cannot be compared but
	// by identity: channels that are to share an XdsClient want the same values
	// here, made once, not by a call for each channel.
	ControlPlaneDialOptions []grpc.DialOption
}

func (c Config) withDefaults() *Config {
	if keep, err := strconv.ParseBool(os.Getenv("GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING")); err == nil && keep {
		c.KeepDeleted = true
	}
	if c.Linger == 0 {
		c.Linger = 5 * time.Second
	}
	return &c
}

// options returns the options of a channel's balancer.
func (c Config) options() *options {
	return options{
		FailoverTimeout:        c.FailoverTimeout,
		RetireAfter:            c.RetireAfter,
		OverprovisioningFactor: c.OverprovisioningFactor,
		IgnoreEndpointWeights:  c.IgnoreEndpointWeights,
		ReconnectOnTLSChange:   c.ReconnectOnTLSChange,
		HealthChecks:           c.HealthCheckService != "",
		Logger:                 c.Logger,
	}.withDefaults()
}

// bootstrap reads the bootstrap.
func (c *Config) bootstrap() (*bootstrap.Config, error) {
	p := xdstls.BootstrapParser()
	if len(c.Bootstrap) == 0 {
		return p.Load()
	}
	return p.Parse("Config.Bootstrap", c.Bootstrap)
}

// NewBuilder returns a resolver for scheme "xds" to be used with
// [grpc.WithResolvers]. It fails if the bootstrap cannot be read or is
// invalid; the error names the source and the JSON path.
//
// A channel that has the resolver only routes, balances, drops, breaks
// circuits and reports load; see [DialOptions] for what it lacks, which is logged
// once if the control plane asks for it. A builder serves one scheme: targets
// "xdslb:///…" need DialOptions, and without them use the bootstrap of the
// environment and the zero Config.
func NewBuilder(cfg Config) (resolver.Builder, error) {
	b, err := newBuilder(cfg)
	if err != nil {
		return nil, err
	}
	customBuilders.Store(true)
	return b, nil
}

// customBuilders says that the program has called NewBuilder, and so may expect
// that to serve scheme xdslb too.
var customBuilders atomic.Bool

func newBuilder(cfg Config) (*resolverBuilder, error) {
	noteOtherXDS(cfg.Logger)
	b := &resolverBuilder{scheme: "xds", opts: cfg.withDefaults()}
	err := cfg.RetryThrottling.check()
	if err != nil {
		return nil, err
	}
	if b.bootstrap, err = b.opts.bootstrap(); err != nil && !rollout.Configured() {
		return nil, err
	}
	b.bootstrapErr = err
	return b, nil
}

// noteOtherXDS logs once whose the scheme xds is where it is not ours: the last
// package to register it wins, which is unknown until the program runs (D11).
func noteOtherXDS(logger *slog.Logger) {
	if _, ours := resolver.Get("xds").(*resolverBuilder); !ours && !otherXDSNoted.Swap(true) {
		link.LoggerOr(logger).Info("xdslb: scheme xds is registered by another package, usually google.golang.org/grpc/xds: channels made without "+
			"integrate.NewClient, integrate.DialOptions or integrate.NewBuilder are not xdslb's", "by", fmt.Sprintf("%T", resolver.Get("xds")))
	}
}

var otherXDSNoted atomic.Bool

// DialOptions returns everything that a channel needs: the resolver of
// [NewBuilder], and interceptors for what a resolver cannot do. It fails as
// NewBuilder does.
//
// A channel without the interceptors lacks:
//   - timeouts and retries of routes that match by header, by fraction, by a
//     regular expression or by part of a service's name (the others are in the
//     service config that the resolver gives to gRPC), and any timeouts and
//     retries of RPCs made before the channel had its first configuration;
//   - HTTP filters: fault injection, session affinity, and those of
//     [RegisterHTTPFilter];
//   - that an RPC's retries stay on the cluster of its first attempt;
//   - that an RPC whose deadline comes before the first configuration says what
//     it has waited for.
//
// They are for targets of the schemes xds and xdslb, which mean the same, but
// for gRPC: for each RPC of a channel of scheme xds it makes a context that says
// the content type to its own LB policies, which is four allocations.
//
// The options may be used for several channels, and for one channel once: retries
// and filters would be applied twice. They should come last. gRPC calls
// interceptors in the order of the options. What comes behind ours is called for each
// attempt of our retries, within the route's timeout, and not for an RPC that a filter
// ends. A route's timeout, retries and filters are those of the route that matches
// the headers which the RPC has when it comes to ours. If an interceptor behind ours
// changes headers so that another route matches, the RPC goes where the other route
// says, with what the first one says besides; that is logged once. Options of which
// gRPC takes the last one ([Config.Keepalive]) are ours, too, if they come last.
//
// [grpc.WithDisableRetry] is not for the retries of our interceptors, which cannot see
// it. Retries of either kind are off with
//
//	grpc.WithDefaultCallOptions(grpc.MaxRetryRPCBufferSize(0))
func DialOptions(cfg Config) ([]grpc.DialOption, error) {
	forXDS, err := newBuilder(cfg)
	if err != nil {
		return nil, err
	}
	forXDS.intercepted = true
	forXDSLB := *forXDS
	forXDSLB.scheme = "xdslb"
	opts := []grpc.DialOption{
		grpc.WithResolvers(forXDS, &forXDSLB),
		grpc.WithChainUnaryInterceptor(UnaryInterceptor),
		grpc.WithChainStreamInterceptor(StreamInterceptor),
	}
	if cfg.Keepalive != nil {
		opts = append(opts, grpc.WithKeepaliveParams(*cfg.Keepalive))
	}
	return opts, nil
}

// NewClient is [grpc.NewClient] for targets such as "xds:///service:port",
// with the zero Config. The channel's credentials are the caller's to choose,
// as ever. The caller's interceptors come before ours, so that routes see the
// headers which they add; resolvers of the caller's for the schemes xds and xdslb
// take precedence.
//
// Targets of other schemes, and those without, go to grpc.NewClient as they are;
// they need no bootstrap.
func NewClient(target string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	return newClient(Config{}, target, opts)
}

func newClient(cfg Config, target string, opts []grpc.DialOption) (*grpc.ClientConn, error) {
	if !usesXDS(target) {
		return grpc.NewClient(target, opts...)
	}
	ours, err := DialOptions(cfg)
	if err != nil {
		return nil, err
	}
	return grpc.NewClient(target, append(opts[:len(opts):len(opts)], ours...)...)
}

// usesXDS reports whether gRPC takes a target for one of the schemes that are
// ours: by its scheme if there is a resolver for that, else by the default scheme.
func usesXDS(target string) bool {
	scheme := resolver.GetDefaultScheme()
	if u, err := url.Parse(target); err == nil && resolver.Get(u.Scheme) != nil {
		scheme = u.Scheme
	}
	return scheme == "xds" || scheme == "xdslb"
}

// RetryThrottling is how far retries are throttled (A6): a channel has MaxTokens, of which
// each failure that may be retried takes one, and each success gives TokenRatio back. There
// are no retries while it has half of them or less.
type RetryThrottling struct {
	MaxTokens  float64 `json:"maxTokens"`  // up to 1000; 0 is no throttling
	TokenRatio float64 `json:"tokenRatio"` // above 0; thousandths count
}

// check returns what is wrong.
func (t RetryThrottling) check() error {
	switch {
	case t == RetryThrottling{}:
	case !(t.MaxTokens > 0 && t.MaxTokens <= 1000):
		return fmt.Errorf("xdslb: RetryThrottling.MaxTokens is %v, must be above 0 and at most 1000", t.MaxTokens)
	case !(t.TokenRatio >= .001 && t.TokenRatio <= 1000):
		return fmt.Errorf("xdslb: RetryThrottling.TokenRatio is %v, must be from 0.001 to 1000", t.TokenRatio)
	}
	return nil
}

// throttle returns the Throttle of a new channel, or nil.
func (t RetryThrottling) throttle() *perrpc.Throttle {
	if t.MaxTokens == 0 {
		return nil
	}
	return perrpc.NewThrottle(t.MaxTokens, t.TokenRatio)
}
