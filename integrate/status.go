// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/integrate/internal/balancer"
	"github.com/xdslb/xdslb/integrate/internal/compare"
	"github.com/xdslb/xdslb/integrate/internal/explain"
	"github.com/xdslb/xdslb/integrate/internal/link"
	"github.com/xdslb/xdslb/integrate/internal/rollout"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/eventlog"
	"github.com/xdslb/xdslb/xds/overlay"
)

// TargetStatus is the status of a channel.
type TargetStatus = report.TargetStatus

// Status returns the status of each channel of the process that is not idle and has a resolver
// of this package, or was handed to google.golang.org/grpc/xds by the environment, in the order
// in which the resolvers were built. It does not connect channels. It takes the mutex of each
// channel for O(endpoints).
func Status() []TargetStatus {
	all := []TargetStatus{}
	for _, c := range Channels() {
		all = append(all, c.Status())
	}
	return all
}

// StatusOf returns the status of a channel. It fails if the channel's resolver belongs to
// another package, unless the environment has handed the channel over. It does not connect an
// idle channel. The status of an idle channel is almost empty: the channel has no resolver yet,
// and may get one of another package. StatusOf takes the channel's mutex for O(endpoints).
//
// The first call for a channel that was not made with [NewClient] or [DialOptions] changes the
// service configs of all such channels of its target for a moment. This affects RPCs only if
// [Config.RetryThrottling] is set: gRPC forgets the failures that it has counted.
func StatusOf(cc *grpc.ClientConn) (TargetStatus, error) {
	state := cc.GetState()
	if r := resolverOf(cc); r != nil {
		return r.status(false), nil
	}
	if r := stockResolverOf(cc); r != nil {
		s := r.status(false)
		s.Connectivity = state.String()
		return s, nil
	}
	bare := TargetStatus{Time: time.Now(), Target: cc.CanonicalTarget(), Connectivity: state.String()}
	switch {
	case !usesXDS(cc.CanonicalTarget()):
		return bare, fmt.Errorf("xdslb: channel %q: %w: the scheme of its target is neither xds nor xdslb", cc.Target(), errNotXDSLB)
	case state == connectivity.Ready || state == connectivity.TransientFailure:
		return bare, fmt.Errorf("xdslb: channel %q: %w: create the channel with integrate.NewClient", cc.Target(), errNotXDSLB)
	}
	return bare, nil
}

var errNotXDSLB = errors.New("the channel does not use the xdslb resolver")

// status returns the status of the resolver's channel, with each route and endpoint if
// detailed is set.
func (r *xdsResolver) status(detailed bool) report.TargetStatus {
	s := report.TargetStatus{
		Time: time.Now(), Channel: r.Channel.Number(), Target: r.Channel.Target, Connectivity: connectivity.Connecting.String(),
		Listener: r.Listener, Authority: r.Authority, Node: r.Node, Rollout: r.rollout,
		EnvironmentErrors: rollout.Problems(),
	}
	var events []eventlog.Event
	if b := r.balancer.Load(); b != nil {
		events = balancer.Status(b, &s, detailed)
	}
	if s.Since.IsZero() {
		if err := r.waiting(); err != nil {
			s.Error = err.Error()
		}
	}
	if t := r.Channel.Current(); t != nil {
		s.Unapplied = explain.NotApplied(t)
	}
	resources := r.resources()
	r.addResources(&s, resources)
	s.StockDifferences = compare.Differences(r.comparison(resources, s.Overlay))
	if detailed {
		s.ShareShifts = compare.Shares(r.config(), &s)
	}
	for _, server := range r.Client.Servers() {
		s.Servers = append(s.Servers, report.ServerStatus{
			URI: server.URI, InUse: server.InUse, Connected: server.Connected, Since: server.Since, Error: explain.ErrorText(server.Err), ErrorTime: server.ErrTime,
			Displaced: server.Displaced, EndsStreams: server.EndsStreams, Rejected: server.Unread(), SourceError: explain.ErrorText(server.SourceErr),
		})
	}
	s.Events = mergeEvents(events, r.view.Events(r.Listener, r.Authority))
	return s
}

// addResources adds the resources that the target depends on, and the patches of the overlay.
func (r *xdsResolver) addResources(s *report.TargetStatus, resources []xds.ResourceStatus) {
	s.Overlay = patches(r.overlay, slices.Values(resources))
	if err := r.overlay.Err(); err != nil {
		s.OverlayError = err.Error()
	}
	for _, res := range resources {
		out := report.ResourceStatus{
			Type: res.Type.String(), Name: res.Name, State: res.State.String(),
			Version: res.Version, Updated: res.Updated, Server: res.Server, Error: explain.ErrorText(res.Err),
			Refused: res.Rejected.Version, Tried: res.Rejected.Time,
		}
		if !res.Updated.IsZero() {
			out.Age = s.Time.Sub(res.Updated).Seconds()
		}
		for o := range outcomes(&res) {
			if o.Changed {
				out.Patches = append(out.Patches, o.Patch.String())
			}
		}
		s.Resources = append(s.Resources, out)
	}
}

// patches returns the patches of an overlay, and their effect on resources.
func patches(source *overlay.Source, resources iter.Seq[xds.ResourceStatus]) (list []report.PatchStatus) {
	all := source.Overlay().Patches()
	for _, p := range all {
		list = append(list, report.PatchStatus{Patch: p.String(), Resource: p.Resource, Name: p.Name, Target: p.Target})
	}
	for res := range resources {
		name := fmt.Sprintf("%v %s", res.Type, res.Name)
		for o := range outcomes(&res) {
			i := slices.IndexFunc(all, func(p overlay.Patch) bool { return p.Ref == o.Patch })
			if i < 0 {
				continue // the overlay has just changed
			}
			switch p := &list[i]; {
			case o.Err != nil:
				p.Skipped = append(p.Skipped, name+": "+o.Err.Error())
			case o.Changed:
				p.Changed = append(p.Changed, name)
			default:
				p.Unchanged = append(p.Unchanged, name)
			}
		}
	}
	return list
}

// outcomes iterates over the outcomes of patches for a resource of a target.
func outcomes(res *xds.ResourceStatus) iter.Seq[overlay.Outcome] {
	return func(yield func(overlay.Outcome) bool) {
		for _, form := range res.Patched {
			for _, o := range form.Outcomes {
				if !yield(o) {
					return
				}
			}
		}
	}
}

// patched describes the resources that patches have changed.
func patched(patches []report.PatchStatus) (list []string) {
	for i := range patches {
		for _, resource := range patches[i].Changed {
			list = append(list, resource+", by "+patches[i].Patch)
		}
	}
	return list
}

// mergeEvents joins the events of a channel and of its XdsClient by time. The channel's own
// events show which of the configurations that the XdsClient delivered were applied.
func mergeEvents(channel, client []eventlog.Event) []eventlog.Event {
	client = slices.DeleteFunc(client, func(e eventlog.Event) bool {
		return e.Kind == eventlog.ConfigurationDelivered || e.Kind == eventlog.TargetFailed
	})
	all := append(channel, client...)
	slices.SortStableFunc(all, func(a, b eventlog.Event) int { return a.Time.Compare(b.Time) })
	return all
}

// resolverOf returns the resolver of a channel; nil if the channel is idle, or the resolver is
// another package's. It does not connect the channel.
func resolverOf(cc *grpc.ClientConn) *xdsResolver {
	l := link.Of(cc)
	if l == nil {
		return nil
	}
	r, _ := l.Resolver.(*xdsResolver)
	return r
}

// A Channel is a channel of the process that has a resolver of this package, or that the
// environment has handed to google.golang.org/grpc/xds. It is comparable. It is valid until the
// channel goes idle or is closed; its methods then return the last state.
type Channel struct {
	link     *link.Link
	resolver channelResolver
}

// channelResolver is an xdsResolver or a stockResolver.
type channelResolver interface {
	status(detailed bool) report.TargetStatus
	explain(ctx context.Context, method string) (*report.Explanation, error)
}

// Channels returns the channels of the process that are not idle, in the order in which their
// resolvers were built. It does not connect channels.
func Channels() []Channel {
	var all []Channel
	for _, l := range link.All() {
		if r, ok := l.Resolver.(channelResolver); ok {
			all = append(all, Channel{l, r})
		}
	}
	return all
}

// Number identifies the channel in the process: TargetStatus.Channel. It is above 0, and changes
// when the channel goes idle.
func (c Channel) Number() int64 { return c.link.Number() }

// Target returns the channel's target.
func (c Channel) Target() string { return c.link.Target }

// Status returns the channel's status, as StatusOf does.
func (c Channel) Status() report.TargetStatus { return c.resolver.status(false) }

// Inspect returns the channel's status with each route and endpoint.
//
// For a minute after the call, the RPCs of the channel are counted by endpoint. This requires
// an atomic addition when an RPC ends, and less than 100 bytes for each endpoint. Inspect takes
// the channel's mutex for O(endpoints), and O(entries) of hash rings and tables: RPCs go on,
// updates wait. For a channel that was handed over, Inspect returns the same as Status.
func (c Channel) Inspect() report.TargetStatus { return c.resolver.status(true) }

// Explain explains an RPC of the channel: see the function Explain.
func (c Channel) Explain(ctx context.Context, method string) (*report.Explanation, error) {
	if err := checkMethod(method); err != nil {
		return nil, err
	}
	return c.resolver.explain(ctx, method)
}

// Explanation is the result of [Explain].
type Explanation = report.Explanation

// Explain returns where an RPC of a method ("/package.Service/Method") would go if it were made now
// with ctx, and why: the route that matches, and the condition that excludes each earlier route;
// the cluster; the priority; each endpoint with its share, or the reason that it is not picked; and
// the timeout, retries and filters. Headers are the outgoing metadata of ctx, as in picks.
// Interceptors are not run.
//
// It changes nothing: it counts, draws and connects nothing. Random decisions appear as
// probabilities. The explanation is of the latest publication; Pending is set if changes wait for
// the next one, for at most 15 ms.
//
// It fails if the channel is idle, has no configuration, or has another package's resolver. The
// first call for a channel may change service configs: see StatusOf. For each
// route that the RPC may take, it costs O(endpoints of the priorities in use of its clusters), with
// the channel's mutex held: RPCs go on, updates wait.
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
func (r *xdsResolver) explain(ctx context.Context, method string) (*report.Explanation, error) {
	if b := r.balancer.Load(); b != nil {
		x, err := balancer.Explain(ctx, b, method)
		switch {
		case err == nil:
			resources := r.resources()
			x.Patched, x.Sources = patched(patches(r.overlay, slices.Values(resources))), explain.Sources(slices.Values(resources))
			return x, nil
		case err != balancer.ErrNoConfiguration:
			return nil, fmt.Errorf("xdslb: channel %q cannot be served: %w", r.Channel.Target, err)
		}
	}
	if err := r.waiting(); err != nil {
		return nil, fmt.Errorf("xdslb: channel %q has no configuration yet: %w", r.Channel.Target, err)
	}
	return nil, fmt.Errorf("xdslb: channel %q has no configuration yet", r.Channel.Target)
}

// checkMethod validates the name of a method.
func checkMethod(method string) error {
	if !strings.HasPrefix(method, "/") {
		return fmt.Errorf("xdslb: method %q does not begin with a slash: want /package.Service/Method", method)
	}
	return nil
}

// whyNoResolver returns why a channel has no resolver of this package.
func whyNoResolver(cc *grpc.ClientConn) error {
	target := cc.CanonicalTarget()
	switch {
	case !strings.HasPrefix(target, "xds:") && !strings.HasPrefix(target, "xdslb:"):
		return fmt.Errorf("xdslb: channel %q has no xDS: its scheme is neither xds nor xdslb", target)
	case cc.GetState() == connectivity.Idle:
		return fmt.Errorf("xdslb: channel %q is idle and has no configuration: call its Connect, or make an RPC", target)
	case cc.GetState() == connectivity.Shutdown:
		return fmt.Errorf("xdslb: channel %q is closed", target)
	}
	if r := stockResolverOf(cc); r != nil {
		return r.unsupportedError(target)
	}
	return fmt.Errorf("xdslb: channel %q has the resolver of another package, usually google.golang.org/grpc/xds", target)
}
