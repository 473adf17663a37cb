// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/integrate/internal/outgoing"
	"github.com/xdslb/xdslb/picker"
)

// Explain says where an RPC of a method ("/package.Service/Method") would go if it were
// made now with ctx, and why nowhere else: the route that matches and what fails of those
// before, the cluster, the priority, each endpoint with its share or the reason that it is
// out, and what is done for the RPC besides. Headers are those of the outgoing metadata in
// ctx, as the pick sees them; interceptors that would add others are not run.
//
// It changes nothing: nothing is counted, drawn or connected. Where a pick draws, the
// explanation has probabilities. It goes by what picks read; Pending says that changes wait
// to be published, which takes 15 ms at most.
//
// A channel that is idle, that is not ours or that has no configuration is an error. One
// without our interceptors that was never asked for before is found by its service config,
// which changes for a while: see StatusOf. The cost is, for each route that the RPC may take,
// O(endpoints of the priorities in use of its clusters), with the channel's mutex held: RPCs
// go on, updates wait.
func Explain(ctx context.Context, cc *grpc.ClientConn, method string) (*Explanation, error) {
	if err := checkMethod(method); err != nil {
		return nil, err
	}
	r := resolverOf(cc)
	if r == nil {
		return nil, whyNoResolver(cc)
	}
	return r.explain(ctx, method)
}

// explain explains an RPC of the resolver's channel.
func (r *xdsResolver) explain(ctx context.Context, method string) (*Explanation, error) {
	b := r.balancer.Load()
	if b == nil || b.picker.current.Load().Snapshot == nil {
		return nil, r.whyNoConfiguration(b)
	}
	return b.explain(ctx, method)
}

// checkMethod says what is wrong with the name of a method.
func checkMethod(method string) error {
	if !strings.HasPrefix(method, "/") {
		return fmt.Errorf("xdslb: method %q does not begin with a slash: want /package.Service/Method", method)
	}
	return nil
}

// whyNoResolver says why a channel has no resolver of ours.
func whyNoResolver(cc *grpc.ClientConn) error {
	target := cc.CanonicalTarget()
	switch {
	case !strings.HasPrefix(target, "xds:") && !strings.HasPrefix(target, "xdslb:"):
		return fmt.Errorf("xdslb: channel %q has no xDS: its scheme is neither xds nor xdslb", target)
	case cc.GetState() == connectivity.Idle:
		return fmt.Errorf("xdslb: channel %q is idle, so it has no configuration: its Connect, or an RPC, ends that", target)
	case cc.GetState() == connectivity.Shutdown:
		return fmt.Errorf("xdslb: channel %q is closed", target)
	}
	if r := stockResolverOf(cc); r != nil {
		return r.notOurs(target)
	}
	return fmt.Errorf("xdslb: channel %q has the resolver of another package, usually google.golang.org/grpc/xds", target)
}

// whyNoConfiguration says why a channel of ours has no configuration. b may be nil.
func (r *xdsResolver) whyNoConfiguration(b *lb) error {
	if b != nil {
		if err := b.picker.current.Load().Err; err != nil {
			return fmt.Errorf("xdslb: channel %q cannot be served: %w", r.link.Target, err)
		}
	}
	if err := r.waiting(); err != nil {
		return fmt.Errorf("xdslb: channel %q has no configuration yet: %w", r.link.Target, err)
	}
	return fmt.Errorf("xdslb: channel %q has no configuration yet", r.link.Target)
}

// errNoConfiguration is for a configuration that is lost while it is explained.
var errNoConfiguration = errors.New("xdslb: the channel has no configuration any more")

// An Explanation says where an RPC would go, and why nowhere else. It is plain data: see
// Explain. Shares and probabilities are from 0 to 1, addresses are host:port, durations
// are as time.Duration prints them.
type Explanation struct {
	Target  string    `json:"target"`
	Method  string    `json:"method"`
	Time    time.Time `json:"time"`
	Pending bool      `json:"pending,omitempty"` // changes wait to be published
	// Routes are those that were checked, in order; the last one takes all that is left.
	Routes  []ExplainedRoute `json:"routes"`
	NoRoute float64          `json:"no_route"` // probability that no route matches
	// NotApplied is what the configuration asks for and the channel does not do: for lack
	// of interceptors, or because no channel does it.
	NotApplied []string `json:"not_applied,omitempty"`
}

// An ExplainedRoute is a route. Beyond Mismatch the fields are set only if the RPC may
// take it.
type ExplainedRoute struct {
	Index int    `json:"index"` // in the virtual host
	Name  string `json:"name,omitempty"`
	Path  string `json:"path"`
	// Mismatch is the first condition that fails, and what the RPC has; empty if none does.
	Mismatch    string   `json:"mismatch,omitempty"`
	Fraction    *float64 `json:"fraction,omitempty"` // probability that it takes an RPC that reaches it
	Probability float64  `json:"probability"`        // of the RPC taking this route

	NotForwarding    bool               `json:"not_forwarding,omitempty"` // its RPCs fail (A36)
	Timeout          string             `json:"timeout,omitempty"`
	Retry            *ExplainedRetry    `json:"retry,omitempty"`
	AppliedBy        string             `json:"applied_by,omitempty"` // who sees to timeout and retries
	Hash             []string           `json:"hash,omitempty"`       // hash policies (A42)
	RewriteAuthority bool               `json:"rewrite_authority,omitempty"`
	Session          *ExplainedSession  `json:"session,omitempty"`
	Clusters         []ExplainedCluster `json:"clusters,omitempty"`
}

// An ExplainedRetry is a retry policy (A44).
type ExplainedRetry struct {
	On          []string `json:"on"`
	MaxAttempts int      `json:"max_attempts"`
	BaseBackoff string   `json:"base_backoff"`
	MaxBackoff  string   `json:"max_backoff"`
	OtherHosts  bool     `json:"other_hosts,omitempty"` // attempts avoid endpoints that were tried
	Hedged      bool     `json:"hedged,omitempty"`      // unary RPCs, if their methods are declared safe
}

// An ExplainedSession is the session affinity of a route (A55).
type ExplainedSession struct {
	Cookie string `json:"cookie"`
	// Hosts and Cluster are what the RPC's cookie names, if it has one.
	Hosts   []string `json:"hosts,omitempty"`
	Cluster string   `json:"cluster,omitempty"`
}

// An ExplainedFilter is an HTTP filter for the RPCs of a route to a cluster (A39).
type ExplainedFilter struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	From     string `json:"from"` // whose configuration counts: listener, virtual host, route or cluster
	Disabled bool   `json:"disabled,omitempty"`
	State    string `json:"state,omitempty"` // what admission control or adaptive concurrency is at
}

// UnhealthyEndpoint is an endpoint that EDS calls neither HEALTHY, UNKNOWN nor DRAINING.
type UnhealthyEndpoint struct {
	Address string `json:"address"`
	Health  string `json:"health"` // "UNHEALTHY", "TIMEOUT", "DEGRADED" …
}

// An ExplainedCluster is a cluster that the route may lead to. Picked, Delegated, Waits and
// Fails add up to 1.
type ExplainedCluster struct {
	Name    string  `json:"name"`
	Share   float64 `json:"share"` // of the route's RPCs
	Leaf    string  `json:"leaf,omitempty"`
	Service string  `json:"service,omitempty"` // EDS service name
	Policy  string  `json:"policy,omitempty"`

	Picked    float64 `json:"picked"`    // probability of an endpoint
	Delegated float64 `json:"delegated"` // of a child policy that picks
	Waits     float64 `json:"waits"`
	Fails     float64 `json:"fails"`
	Failure   string  `json:"failure,omitempty"` // why RPCs fail, if they do

	Priorities []ExplainedPriority `json:"priorities,omitempty"` // of all leaves, best first
	Drops      []ExplainedDrop     `json:"drops,omitempty"`      // of what is picked or delegated
	Breaker    *ExplainedBreaker   `json:"breaker,omitempty"`
	Hash       *ExplainedHash      `json:"hash,omitempty"`
	Localities []ExplainedLocality `json:"localities,omitempty"` // of the priority in use
	// Zones says how a locality is chosen, if the policy goes by zones.
	Zones *ZonesStatus `json:"zones,omitempty"`
	// NotInSubset are endpoints that this channel leaves to others (A68).
	NotInSubset []string `json:"not_in_subset,omitempty"`
	// Unhealthy are endpoints that get no RPCs, since EDS marks them so. Draining ones are
	// among those of Localities.
	Unhealthy []UnhealthyEndpoint `json:"unhealthy,omitempty"`
	Filters   []ExplainedFilter   `json:"filters,omitempty"`
	TLS       *ExplainedTLS       `json:"tls,omitempty"`
	// Note is what is wrong with the resources that the cluster is made of.
	Note string `json:"note,omitempty"`
}

// An ExplainedPriority is a priority, and why it is in use or not (A56).
type ExplainedPriority struct {
	Leaf   string  `json:"leaf"`
	Index  int     `json:"index"` // in the leaf
	InUse  bool    `json:"in_use,omitempty"`
	Share  float64 `json:"share,omitempty"` // of the load, where priorities share it
	Reason string  `json:"reason"`
	// Endpoints by state, draining ones apart. Ejected ones count as failed.
	Ready      int `json:"ready"`
	Connecting int `json:"connecting"`
	Idle       int `json:"idle"`
	Failed     int `json:"failed"`
	Draining   int `json:"draining,omitempty"`
	// Left is what is left of the failover time, or of the time that the connections of a
	// retired priority are kept.
	Left string `json:"left,omitempty"`
}

// An ExplainedDrop is a drop category.
type ExplainedDrop struct {
	Category    string  `json:"category"`
	Probability float64 `json:"probability"`
}

// An ExplainedBreaker is the circuit breaker (A32).
type ExplainedBreaker struct {
	InFlight int64  `json:"in_flight"` // of all channels of the process
	Limit    uint32 `json:"limit"`
	Refuses  bool   `json:"refuses,omitempty"`
}

// An ExplainedHash is the hash of the RPC, and the endpoints that it leads to (A42).
type ExplainedHash struct {
	// Hash is hexadecimal; empty if the RPC has none, and any endpoint will do.
	Hash    string               `json:"hash,omitempty"`
	Sources []string             `json:"sources,omitempty"`
	Places  []ExplainedHashPlace `json:"places,omitempty"` // by locality, or one for all
}

// An ExplainedHashPlace is the place of the hash on a ring, or in a Maglev table.
type ExplainedHashPlace struct {
	In       string `json:"in"` // "ring" or "table"
	Position int    `json:"position"`
	Size     int    `json:"size"`
	// Order are the endpoint that the hash belongs to, and those that it falls back to, up
	// to eight.
	Order []string `json:"order"`
}

// An ExplainedLocality is a locality of the priority in use.
type ExplainedLocality struct {
	Region  string  `json:"region,omitempty"`
	Zone    string  `json:"zone,omitempty"`
	SubZone string  `json:"sub_zone,omitempty"`
	Weight  uint32  `json:"weight"`
	Share   float64 `json:"share"` // of the cluster's RPCs
	// Child is the child policy that picks, and its state, if one does.
	Child     string              `json:"child,omitempty"`
	Endpoints []ExplainedEndpoint `json:"endpoints"`
}

// An ExplainedEndpoint is an endpoint of the priority in use.
type ExplainedEndpoint struct {
	Address  string   `json:"address"`
	More     []string `json:"more,omitempty"` // further addresses (A61)
	Hostname string   `json:"hostname,omitempty"`
	Weight   uint32   `json:"weight"` // as configured
	// EffectiveWeight is the one that picks go by; it compares with those of the same
	// locality, or of all if the policy is flat; of hash policies it is that of A113.
	// WeightFrom says where others come from, and SlowStart is the factor in it, if any.
	EffectiveWeight uint32  `json:"effective_weight"`
	WeightFrom      string  `json:"weight_from,omitempty"`
	SlowStart       float64 `json:"slow_start,omitempty"`
	// Share is the probability of being picked, drops and breaker apart; in a sequence, the
	// long-run share. Waits is that of an RPC waiting for the endpoint.
	Share float64 `json:"share"`
	Waits float64 `json:"waits,omitempty"`
	// Out is why the endpoint cannot be picked; empty if it can. ChildTold is why the child
	// policy that picks should not pick it, which it may not have minded yet.
	Out       string    `json:"out,omitempty"`
	ChildTold string    `json:"child_told,omitempty"`
	State     string    `json:"state"`
	Since     time.Time `json:"since,omitzero"` // of State
	Error     string    `json:"error,omitempty"`
	InFlight  int       `json:"in_flight,omitempty"` // if the policy compares it
	Latency   float64   `json:"latency,omitempty"`   // seconds, of late, if the policy goes by it
}

// An ExplainedTLS is what a cluster says about TLS (A29).
type ExplainedTLS struct {
	InForce    bool     `json:"in_force"` // the channel's credentials go by it
	Roots      string   `json:"roots"`
	Identity   string   `json:"identity,omitempty"` // instance with the client's certificate
	SANs       []string `json:"sans,omitempty"`     // identities that servers may have; none is any
	ServerName string   `json:"server_name,omitempty"`
}

// explain explains an RPC of the channel.
func (b *lb) explain(ctx context.Context, method string) (*Explanation, error) {
	ctx = withoutUserCode(ctx)
	for tries := 0; ; tries++ {
		s := b.picker.current.Load()
		if s.Snapshot == nil {
			return nil, errNoConfiguration
		}
		x := explainer{ctx: ctx, table: &s.Table, applied: s.Link == nil || s.Link.HasInterceptors()}
		x.begin(method)
		if s.Link != nil {
			x.Target, x.NotApplied = s.Link.Target, append(s.Link.Unapplied(&s.Table), ignored(s.Config)...)
		}
		b.lock()
		// A publication in between is another thing to explain. Where they come thick and
		// fast, this one is explained as far as the balancer still knows its clusters.
		if b.picker.current.Load() != s && tries < 3 {
			b.unlock()
			continue
		}
		x.Pending = b.pending != nil || b.queued > 0 || b.cfg != s.Config
		x.now, x.clock = b.now(), b.timeAt
		x.clusters(func(name string, version uint64) *subject {
			if c := b.clusters[name]; c != nil && c.state.Version == version {
				return c.subject(s.Config)
			}
			return nil
		})
		b.unlock()
		return &x.Explanation, nil
	}
}

// withoutUserCode returns a context with what picks read of ctx, whose methods may be
// anybody's code.
func withoutUserCode(ctx context.Context) context.Context {
	plain := context.Background()
	if hash, ok := requestHash(ctx); ok {
		plain = WithRequestHash(plain, hash)
	}
	seen, ok := metadata.FromOutgoingContext(ctx)
	if !ok {
		return plain
	}
	for name := range seen {
		seen[name] = outgoing.Value(ctx, name) // as picks do
	}
	return metadata.NewOutgoingContext(plain, seen)
}

// conditionText says which condition of a route an RPC does not meet.
func conditionText(r *picker.Route, c *picker.RouteCheck) string {
	switch c.Failed {
	case picker.ConditionPath:
		return fmt.Sprintf("its path %s", matchText(&r.Path))
	case picker.ConditionHeader:
		return headerText(c.Header, c.Values)
	case picker.ConditionFraction:
		return "its fraction is 0"
	}
	return ""
}

// matchText says what a matcher wants.
func matchText(m *picker.StringMatch) string {
	kind := [...]string{picker.MatchPrefix: "begins with", picker.MatchExact: "is", picker.MatchSuffix: "ends with", picker.MatchContains: "contains", picker.MatchRegex: "matches"}[m.Kind]
	value := m.Value
	if m.Kind == picker.MatchRegex {
		value = m.Regex.String()
	}
	text := fmt.Sprintf("%s %q", kind, value)
	if m.IgnoreCase {
		text += " (in any case)"
	}
	return text
}

// headerText says what an RPC has of a header, and what a route wants of it.
func headerText(m *picker.HeaderMatch, values []string) string {
	has := fmt.Sprintf("header %q is %q", m.Name, strings.Join(values, ","))
	switch {
	case strings.HasSuffix(m.Name, "-bin"):
		has = fmt.Sprintf("header %q is binary, which routes do not see", m.Name)
	case values == nil:
		has = fmt.Sprintf("header %q is missing", m.Name)
	}
	wants := "one that "
	if m.Invert {
		wants = "one, but none that "
	}
	switch m.Kind {
	case picker.HeaderString:
		wants += matchText(&m.String)
	case picker.HeaderRange:
		wants += fmt.Sprintf("is a number from %d to %d", m.Start, m.End-1)
	default:
		if wants = "it present"; m.Present == m.Invert {
			wants = "it absent"
		}
	}
	return fmt.Sprintf("%s; the route wants %s", has, wants)
}
