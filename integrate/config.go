// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"os"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	registry "google.golang.org/grpc/xds/bootstrap"

	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/lbpolicy"
)

// Config says how a channel uses xDS. The zero value is ready to use: the
// bootstrap comes from the environment, everything else has its default. A
// Config is read when it is passed and may be reused.
type Config struct {
	// Bootstrap is the bootstrap JSON (A27). Empty means the file that
	// GRPC_XDS_BOOTSTRAP names, or else the value of
	// GRPC_XDS_BOOTSTRAP_CONFIG.
	Bootstrap []byte
	// FailoverTimeout is how long a priority may take to connect before the
	// next one is tried as well (A56); 0 means 10 s. A priority whose
	// endpoints have all failed is given up at once.
	FailoverTimeout time.Duration
	// RetireAfter is how long the connections of a priority that is not
	// needed any more are kept (A56); 0 means 15 minutes.
	RetireAfter time.Duration
	// OverprovisioningFactor lets a priority whose endpoints have failed in part
	// share the load with the next one, as Envoy does: with a factor of 140,
	// Envoy's default, once more than 28.6 % of its endpoints have. In percent;
	// what is less than 100 counts as 100. 0 is off, as gRPC has it
	// (A27-EDSP-4): a lower priority gets RPCs only if no endpoint of a higher
	// one is reachable. Clusters whose policy is not EDF, round robin or least
	// request are not affected.
	OverprovisioningFactor uint32
	// IgnoreEndpointWeights makes ROUND_ROBIN plain round robin, as A27 has
	// it, instead of EDF by endpoint weight (D2).
	IgnoreEndpointWeights bool
	// HealthCheckService turns on client-side health checking (A17): a
	// connection counts as READY once the backend's health service says that
	// this service is SERVING. The program must import
	// google.golang.org/grpc/health. Empty is off.
	HealthCheckService string
	// Keepalive makes connections to backends notice a peer that is gone
	// without a word, which otherwise takes TCP about 15 minutes. Nil is off,
	// gRPC's default. A Time of 30 s and a Timeout of 5 s, without
	// PermitWithoutStream, suit most; servers must allow it by their
	// enforcement policy. [DialOptions] and [NewClient] only.
	Keepalive *keepalive.ClientParameters
	// Linger is how long the XdsClient stays subscribed after the last channel
	// that used it, so that a channel which leaves idle mode finds its
	// configuration; 0 means 5 s, less than 0 not at all.
	Linger time.Duration
	// ResourceTimeout is how long a control plane that is connected may take to
	// send a resource until the resource counts as missing (A57); 0 means 15 s,
	// or 30 s for servers with the feature resource_timer_is_transient_error
	// (A88). What depends on a missing resource waits for that long: an
	// aggregate cluster, for instance, until the endpoints of its first child
	// count as missing before it makes do with the second (A74).
	ResourceTimeout time.Duration
	// KeepDeleted keeps a Listener or Cluster that the control plane deletes in
	// force until there is another, as A88 has it. The environment variable
	// that A88 names, GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING=true, does so
	// too. Otherwise a deletion counts, as in every gRPC today, unless the
	// bootstrap gives the server the feature ignore_resource_deletion (A53).
	KeepDeleted bool
	// Policies converts the LB policies that clusters ask for (A52). Nil knows
	// xDS's own and, through TypedStruct, every balancer that the program
	// registers with gRPC, to which [EndpointInfoOf] tells what EDS says. A
	// control plane's own messages are taught to it with
	// [lbpolicy.Registry.With]. Channels share an XdsClient if they have the
	// same Registry, so a program wants one.
	Policies *lbpolicy.Registry
	// ControlPlaneDialOptions are added when dialing xDS servers, for
	// instance a proxy's dialer or interceptors.
	ControlPlaneDialOptions []grpc.DialOption
}

func (c Config) withDefaults() *Config {
	if c.FailoverTimeout == 0 {
		c.FailoverTimeout = 10 * time.Second
	}
	if c.RetireAfter == 0 {
		c.RetireAfter = 15 * time.Minute
	}
	if keep, err := strconv.ParseBool(os.Getenv("GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING")); err == nil && keep {
		c.KeepDeleted = true
	}
	if c.OverprovisioningFactor > 0 {
		c.OverprovisioningFactor = max(c.OverprovisioningFactor, 100)
	}
	if c.Linger == 0 {
		c.Linger = 5 * time.Second
	}
	return &c
}

// bootstrap reads the bootstrap. Credentials are those that it knows by itself
// and those of gRPC's registry, where users add their own.
func (c *Config) bootstrap() (*bootstrap.Config, error) {
	p := bootstrap.Parser{
		ChannelCreds: func(name string) bootstrap.ChannelBuilder { return registry.GetChannelCredentials(name) },
		CallCreds:    func(name string) bootstrap.CallBuilder { return registry.GetCallCredentials(name) },
	}
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
// circuits and reports load; see [DialOptions] for what it lacks.
func NewBuilder(cfg Config) (resolver.Builder, error) {
	b := &resolverBuilder{scheme: "xds", opts: cfg.withDefaults()}
	var err error
	if b.bootstrap, err = b.opts.bootstrap(); err != nil {
		return nil, err
	}
	return b, nil
}

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
//   - that an RPC's retries stay on the cluster of its first attempt.
//
// They are for targets of the schemes xds and xdslb, which mean the same, but
// for gRPC: for each RPC of a channel of scheme xds it makes a context that says
// the content type to its own LB policies, which is four allocations.
//
// The options may be used for several channels. The interceptors are behind
// those of options that come before; see [UnaryInterceptor] for other orders.
func DialOptions(cfg Config) ([]grpc.DialOption, error) {
	b, err := NewBuilder(cfg)
	if err != nil {
		return nil, err
	}
	forXDS := b.(*resolverBuilder)
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
// as ever.
func NewClient(target string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	ours, err := DialOptions(Config{})
	if err != nil {
		return nil, err
	}
	return grpc.NewClient(target, append(ours, opts...)...)
}

var _ xds.Watcher = (*lb)(nil)
