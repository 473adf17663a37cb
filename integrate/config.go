// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/integrate/internal/balancer"
	"github.com/xdslb/xdslb/integrate/internal/diagnosis"
	"github.com/xdslb/xdslb/integrate/internal/link"
	"github.com/xdslb/xdslb/integrate/internal/offline"
	"github.com/xdslb/xdslb/integrate/internal/rollout"
	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/integrate/internal/xdstls"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/lbpolicy"
	"github.com/xdslb/xdslb/xds/overlay"
)

// Config configures how a channel uses xDS. The zero value is ready to use: the bootstrap comes
// from the environment, and every field has a default. A Config is read when it is passed and
// may be reused.
//
// Channels share one XdsClient, with a stream to each control plane and one copy of each
// resource, if they have the same Bootstrap, Policies, ControlPlaneDialOptions and
// Resources.AcceptHostnames. Of different Lingers, ReconnectSpreads and Resources.Timeouts of such
// channels the longest counts, and Delta if any channel sets it. The other fields are per channel.
type Config struct {
	// Bootstrap is the bootstrap JSON (A27). The default is the file named by
	// GRPC_XDS_BOOTSTRAP, or else the value of GRPC_XDS_BOOTSTRAP_CONFIG. For a roll-back by
	// XDSLB_DISABLE, google.golang.org/grpc/xds needs one of these variables too.
	Bootstrap []byte
	// Overlay is a JSON document with patches of the resources that the control plane sends; see
	// docs/overlay.md. The environment variable XDSLB_OVERLAY names a file with more patches, which
	// are applied after these; it is read again when it changes. Channels with different overlays
	// share their XdsClient.
	Overlay []byte
	// IgnoreOverlayErrors starts channels also if the overlay is invalid or its file cannot be read,
	// without the patches of the invalid part. That is logged as an error and shown in
	// TargetStatus.OverlayError, and the file is used once it is valid. By default the program does
	// not start. A question mark at the end of XDSLB_OVERLAY has the same effect.
	IgnoreOverlayErrors bool
	// FailoverTimeout is how long a priority may take to connect before the next one is tried
	// too (A56); the default is 10 s. A priority whose endpoints have all failed is given up at
	// once. A short time may connect priorities that are not needed.
	FailoverTimeout time.Duration
	// RetireAfter is how long the connections of an unused priority are kept (A56); the default
	// is 15 minutes. If the priority is used again in that time, it needs no handshakes.
	RetireAfter time.Duration
	// IgnoreEndpointWeights gives all endpoints of a locality the same share under ROUND_ROBIN,
	// LEAST_REQUEST and least latency, as A27 and A48 specify and google.golang.org/grpc/xds
	// does. By default endpoint weights are used, as in Envoy. Hash policies use weights either
	// way (A42). XDSLB_IGNORE_ENDPOINT_WEIGHTS=1 in the environment sets it for all channels.
	IgnoreEndpointWeights bool
	// DefaultMaxRequests limits the RPCs in flight to a cluster that the control plane sends
	// without max_requests. The default is 1024 (A32); Envoy and Istio document no such limit.
	// math.MaxUint32 disables it. The channels of the process share the counter of a cluster
	// and EDS service, and each channel compares the counter with its own limit. A channel logs
	// a warning when this limit refuses RPCs.
	DefaultMaxRequests uint32
	// HealthCheckService enables client-side health checking (A17): a connection counts as READY
	// once the backend's health service reports SERVING for this service. The program must
	// import google.golang.org/grpc/health. Each connection then has one more stream. Clusters
	// with a grpc_health_check have a service of their own. The default is off.
	HealthCheckService string
	// Keepalive detects backends that are gone without closing their connections, which takes
	// TCP about 15 minutes otherwise. The default is off, as in gRPC. A Time of 30 s and a
	// Timeout of 5 s, without PermitWithoutStream, suit most programs; the enforcement policy
	// of the servers must allow them. A connection with RPCs that receives nothing for Time
	// sends a ping. A builder of [NewBuilder] cannot set it.
	Keepalive *keepalive.ClientParameters
	// Linger is how long the XdsClient stays subscribed after its last channel is closed or
	// idle, so that a channel which leaves idle mode has its configuration at once. The default
	// is 5 s; a negative value disables lingering. Resources stay in memory for that time, and
	// updates are received.
	Linger time.Duration
	// ReconnectSpread spreads the return of XdsClients to a control plane that ended their
	// streams over this time, at random, so that a very large fleet does not return within
	// seconds. Updates may be that late. The default is at most a second. An XdsClient that
	// lacks a resource reconnects at once.
	ReconnectSpread time.Duration
	// Resources configures how the resources of control planes are received and used.
	Resources ResourceOptions
	// Delta uses the incremental variant of ADS (DeltaAggregatedResources), in which an update
	// contains only the resources that changed. The server feature xdslb.delta_ads in the
	// bootstrap selects it for one server. If a control plane answers UNIMPLEMENTED, the other
	// variant is used after one failed stream. The default is state of the world.
	Delta bool
	// LocalCluster is the name of the EDS resource with the endpoints of the local
	// cluster, the fleet of which the program is a member (Envoy's local_cluster_name).
	// Clusters with zone-aware routing (zone_aware_lb_config) keep RPCs in their zone as far as
	// that loads all endpoints equally. This requires the zones of the local cluster, and the
	// client's zone, which is the locality of the bootstrap's node. As long as these are
	// unknown, such clusters are balanced without zones, which is logged once. As with any EDS resource, localities
	// without load_balancing_weight and unhealthy endpoints do not count. It requires a
	// subscription, and O(endpoints of the local cluster) for each change. The default is off.
	LocalCluster string
	// RetryThrottling suspends the retries of a channel while most of its RPCs fail, as
	// retryThrottling of a service config does (A6); xDS has no such setting. Retries by gRPC
	// and retries by interceptors are throttled separately. The default is off.
	RetryThrottling RetryThrottling
	// Idempotent reports whether an RPC of a method, "/package.Service/Method", may be executed
	// twice at the same time. Only such RPCs are hedged, on routes that ask for hedging. Methods
	// whose option idempotency_level declares them idempotent are hedged as well. It is called
	// for each such RPC, on any goroutine.
	Idempotent func(method string) bool
	// Policies converts the LB policies of clusters (A52). The default knows xDS's own and, by
	// TypedStruct, every balancer in gRPC's registry; [EndpointInfoOf] returns the EDS data for
	// these. [lbpolicy.Registry.With] adds messages of a control plane's own. Channels with
	// different Registries have different XdsClients, so a program should have one Registry.
	Policies *lbpolicy.Registry
	// Logger receives the logs of the channel and of the XdsClient; the default is
	// slog.Default() at the time of the line. ERROR and WARN lines report invalid resources,
	// servers that cannot be reached or reject load reports, certificate files that cannot be
	// read, targets and clusters that cannot be served, failovers, TLS settings that cannot be
	// applied, and unsupported features. INFO lines report recoveries. Lines are constant texts
	// with the attributes target, cluster, resource, server, node and error, as far as they
	// apply. Repeats of a line are suppressed for a minute, and the next one has their number.
	// The latest line about whether a target is served, whether RPCs of a cluster fail, and
	// which priority a cluster uses is always true, with a delay of up to a minute if the state
	// changes often.
	//
	// Channels with different Loggers may share an XdsClient: it logs to the first Logger that
	// is not nil, and the other Loggers get one line about that. Lines that are logged once in a
	// process go to the Logger of the channel where the condition occurred first.
	Logger *slog.Logger
	// ControlPlaneDialOptions are added when xDS servers are dialed, for instance a dialer for a
	// proxy, or interceptors. Options are compared by identity: to share an XdsClient, channels
	// must have the same values, made once.
	ControlPlaneDialOptions []grpc.DialOption
}

// ResourceOptions configure how the resources of control planes are received and used.
type ResourceOptions struct {
	// Timeout is how long a connected control plane may take to send a resource before
	// the resource counts as missing (A57). The default is 15 s, or 30 s for servers with the
	// feature resource_timer_is_transient_error (A88). An aggregate cluster, for instance, waits
	// that long for the endpoints of its first child before it uses the second (A74).
	Timeout time.Duration
	// KeepDeleted keeps a Listener or Cluster that the control plane deletes in force until it
	// sends another version, as A88 specifies. The environment variable
	// GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING=true has the same effect. By default a deletion
	// is applied, as in every gRPC today, unless the bootstrap gives the server the feature
	// ignore_resource_deletion (A53). If set, resources that are deleted on purpose get RPCs as
	// long as routes lead to them.
	KeepDeleted bool
	// AcceptHostnames accepts DNS names as addresses of endpoints, as google.golang.org/grpc/xds
	// does. The dialer resolves a name whenever it connects, and there is one connection for all
	// addresses of a name. By default an EDS resource with a name is rejected (A27), and clusters
	// of type LOGICAL_DNS resolve names. Set it for all channels of a program, since channels
	// that differ in it do not share an XdsClient.
	AcceptHostnames bool
	// MaxHashBytes bounds the memory of the hash rings and Maglev tables of one target; the
	// default is 64 MiB. If clusters ask for more, the largest rings and tables are made smaller.
	MaxHashBytes uint64
	// Remember is a directory for the resources in use. They are written there every minute, and when the
	// last channel is closed, to one file for each program name and bootstrap, readable by the owner only.
	// A channel that cannot reach any control plane uses them, if they are at most 24 hours old,
	// until one answers. The log and ServerStatus.SourceError then have their age. The directory
	// must exist. The default is to remember nothing. Channels that differ in it do not share an XdsClient.
	Remember string
}

func (c Config) withDefaults() *Config {
	if keep, err := strconv.ParseBool(os.Getenv("GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING")); err == nil && keep {
		c.Resources.KeepDeleted = true
	}
	if c.Linger == 0 {
		c.Linger = 5 * time.Second
	}
	return &c
}

// options returns the options for the balancer of a channel.
func (c *Config) options() *balancer.Options {
	return balancer.Options{
		FailoverTimeout:       c.FailoverTimeout,
		RetireAfter:           c.RetireAfter,
		IgnoreEndpointWeights: c.IgnoreEndpointWeights || rollout.IgnoresWeights(c.Logger),
		DefaultMaxRequests:    c.DefaultMaxRequests,
		HealthChecks:          c.HealthCheckService != "",
		Logger:                c.Logger,
	}.WithDefaults()
}

// bootstrap reads the bootstrap.
func (c *Config) bootstrap() (*bootstrap.Config, error) {
	p := xdstls.BootstrapParser()
	if dir := c.Resources.Remember; dir != "" {
		dir, err := filepath.Abs(dir)
		if err != nil {
			return nil, fmt.Errorf("xdslb: Config.Resources.Remember: %w", err)
		}
		p.Fallback = offline.Remembered + filepath.Join(dir, filepath.Base(os.Args[0])+"-")
	}
	if len(c.Bootstrap) == 0 {
		c.noteWritable("bootstrap", os.Getenv("GRPC_XDS_BOOTSTRAP"))
		return p.Load()
	}
	return p.Parse("Config.Bootstrap", c.Bootstrap)
}

// overlay opens the overlay; or nil.
func (c *Config) overlay() (*overlay.Source, error) {
	file := os.Getenv("XDSLB_OVERLAY")
	c.noteWritable("overlay", strings.TrimSuffix(file, overlay.Optional))
	if c.IgnoreOverlayErrors && !strings.HasSuffix(file, overlay.Optional) {
		file += overlay.Optional
	}
	return overlay.Open("Config.Overlay", c.Overlay, file, c.Logger)
}

// NewBuilder returns a resolver builder for scheme xds, for [grpc.WithResolvers]. It fails if the
// bootstrap or the overlay cannot be read or is invalid; the error names the source and the JSON path.
//
// A channel with the resolver alone routes, balances, drops, breaks circuits and reports load.
// [DialOptions] lists the features that it lacks; they are logged once if the control plane asks
// for them. A builder serves one scheme: targets "xdslb:///…" need DialOptions, and without them
// use the bootstrap of the environment and the zero Config.
func NewBuilder(cfg Config) (resolver.Builder, error) {
	b, err := newBuilder(cfg)
	if err != nil {
		return nil, err
	}
	customBuilders.Store(true)
	return b, nil
}

// customBuilders reports whether the program has called NewBuilder, and so may expect the builder
// to serve scheme xdslb too.
var customBuilders atomic.Bool

func newBuilder(cfg Config) (*resolverBuilder, error) {
	b := &resolverBuilder{scheme: "xds", opts: cfg.withDefaults()}
	err := cfg.RetryThrottling.check()
	if err != nil {
		return nil, err
	}
	if b.bootstrap, err = b.opts.bootstrap(); err == nil {
		b.overlay, err = b.opts.overlay()
	}
	if err != nil && !rollout.Configured() {
		return nil, err
	}
	b.failure = err
	return b, nil
}

// DialOptions returns all options that a channel needs: the resolver of [NewBuilder], and the
// interceptors. It fails as NewBuilder does.
//
// A channel without the interceptors lacks:
//   - timeouts and retries of routes that match by header, by fraction, by a regular expression
//     or by part of a service's name (the service config contains the settings of other routes),
//     and all timeouts and retries of RPCs that are made before the first configuration;
//   - HTTP filters: fault injection, session affinity, and filters of [RegisterHTTPFilter];
//   - retries on the cluster of the first attempt;
//   - the missing resource in the error of an RPC whose deadline expires before the first
//     configuration.
//
// The options are for targets of the schemes xds and xdslb, which are equivalent. For each RPC
// of a channel of scheme xds, though, gRPC makes a context with the content type for its own LB
// policies, which takes four allocations.
//
// The options may be used for several channels, but only once for each: otherwise retries and
// filters are applied twice. They should come last. gRPC calls interceptors in the order of the
// options, so a later interceptor is called for each attempt of a retried RPC, within the
// timeout of the route, and is not called for RPCs that a filter ends. Timeout, retries and
// filters are those of the route that matches the RPC's headers when it reaches these
// interceptors. If a later interceptor changes headers so that another route matches, that
// route decides only about the cluster, which is logged once. gRPC uses the last of repeated
// options such as [Config.Keepalive].
//
// [grpc.WithDisableRetry] does not disable the retries of the interceptors, which cannot see
// it. This option disables all retries:
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

// NewClient is [Config.NewClient] of the zero Config: the bootstrap comes from the environment.
func NewClient(target string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	return Config{}.NewClient(target, opts...)
}

// NewClient is [grpc.NewClient] with [DialOptions] of the Config, for targets such as
// "xds:///service:port". The caller chooses the credentials. The caller's interceptors come
// first, so that routes see the headers that they add. The caller's resolvers for the schemes xds
// and xdslb take precedence.
//
// Targets of other schemes, and targets without a scheme, are passed to grpc.NewClient unchanged.
// The Config does not apply to them, so they need no bootstrap.
func (c Config) NewClient(target string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	if !usesXDS(target) {
		return grpc.NewClient(target, opts...)
	}
	ours, err := DialOptions(c)
	if err != nil {
		return nil, err
	}
	return grpc.NewClient(target, append(opts[:len(opts):len(opts)], ours...)...)
}

// usesXDS reports whether gRPC resolves a target by scheme xds or xdslb. gRPC uses the default
// scheme for targets whose scheme has no resolver.
func usesXDS(target string) bool {
	scheme := resolver.GetDefaultScheme()
	if u, err := url.Parse(target); err == nil && resolver.Get(u.Scheme) != nil {
		scheme = u.Scheme
	}
	return scheme == "xds" || scheme == "xdslb"
}

// RetryThrottling limits retries (A6): a channel has MaxTokens tokens. Each failure that may be
// retried takes one, and each success returns TokenRatio. There are no retries while the channel
// has half of its tokens or less.
type RetryThrottling struct {
	MaxTokens  float64 `json:"maxTokens"`  // up to 1000; 0 disables throttling
	TokenRatio float64 `json:"tokenRatio"` // above 0; thousandths count
}

// check validates the settings.
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
func (t RetryThrottling) throttle() *rpc.Throttle {
	if t.MaxTokens == 0 {
		return nil
	}
	return rpc.NewThrottle(t.MaxTokens, t.TokenRatio)
}

// writable contains the files that noteWritable has logged.
var writable sync.Map

// noteWritable logs, once for each file, that every user of the machine can change it, and with it where
// RPCs go. The file may be empty.
func (c *Config) noteWritable(what, file string) {
	if file == "" || !diagnosis.WorldWritable(file) {
		return
	}
	if _, noted := writable.LoadOrStore(file, true); !noted {
		link.LoggerOr(c.Logger).Warn("xdslb: every user of the machine can change a file that decides where RPCs go",
			"kind", what, "file", file, "remedy", "remove the permission to write from others: chmod o-w")
	}
}
