// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/integrate/internal/channelmetrics"
	"github.com/xdslb/xdslb/integrate/internal/explain"
	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/integrate/internal/outlier"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// The functions of the look files read the balancer for Status, Explain, WaitReady and
// metrics, and fill plain structs. The balancer's other files do not call them.

// Status adds the balancer's state to the status of its channel, with each route and endpoint
// if detailed is set, and returns the channel's events. O(endpoints).
func Status(b *Balancer, s *report.TargetStatus, detailed bool) []eventlog.Event {
	b.lock()
	defer b.unlock()
	s.Connectivity = b.announced.String()
	s.Pending = b.rt.Waiting()
	if b.fatal != nil {
		s.Error = b.fatal.Error()
	}
	if b.cfg != nil || b.fatal != nil {
		s.Since = b.applied
	}
	if b.cfg != nil {
		s.Received, s.Routes = b.cfg.Received, len(b.cfg.Routes)
	}
	p := b.picker.current.Load()
	indexes := map[string]int{} // of the clusters that are published
	if p.Config != nil && p.Snapshot != nil {
		for i, c := range p.Config.Clusters {
			indexes[c.Name] = i
		}
	}
	if detailed = detailed && !b.rt.Closed(); detailed {
		watchCalls(b)
		s.Watched = b.watch.since
		if b.cfg != nil {
			for i := range b.cfg.Routes {
				s.RouteTable = append(s.RouteTable, explain.Route(i, &b.cfg.Routes[i], b.cfg.MaxStreamDuration))
			}
		}
	}
	for name, c := range b.clusters {
		var routing *picker.LocalityRouting
		kernel := &picker.ClusterExplanation{} // empty if the cluster has not been published yet
		if i, ok := indexes[name]; ok {
			routing = p.Snapshot.LocalityRouting(i)
			if detailed {
				if k := p.Snapshot.ExplainCluster(context.Background(), -1, int32(i)); k.Version == c.state.Version {
					kernel = k
				}
			}
		}
		status := lookCluster(c, routing)
		if detailed {
			newDetail(c, kernel, false).fill(&status)
		}
		s.Clusters = append(s.Clusters, status)
	}
	slices.SortFunc(s.Clusters, func(a, b report.ClusterStatus) int { return strings.Compare(a.Name, b.Name) })
	return b.rec.journal.Events()
}

var ErrNoConfiguration = errors.New("the channel has no configuration")

// Explain explains an RPC of the channel. It fails if the target cannot be served, and with
// ErrNoConfiguration before the first configuration.
func Explain(ctx context.Context, b *Balancer, method string) (*report.Explanation, error) {
	ctx = metadatautil.Detached(ctx)
	for tries := 0; ; tries++ {
		s := b.picker.current.Load()
		if s.Snapshot == nil {
			return nil, cmp.Or(s.Err, ErrNoConfiguration)
		}
		x := explain.NewRPC(ctx, &s.Table, method)
		b.lock()
		// A later publication has different clusters to explain. If publications follow each
		// other quickly, this one is explained as far as the balancer still has its clusters.
		if b.picker.current.Load() != s && tries < 3 {
			b.unlock()
			continue
		}
		x.Pending = b.pending != nil || b.rt.Waiting() || b.cfg != s.Config
		x.Clusters(func(out *report.RouteTarget, session *report.SessionStatus, kernel *picker.ClusterExplanation) bool {
			c := b.clusters[out.Cluster]
			if c == nil || c.state.Version != kernel.Version {
				return false
			}
			lookTarget(c, out, session, kernel)
			return true
		})
		b.unlock()
		return &x.Explanation, nil
	}
}

// lookTarget explains how the cluster handles an RPC.
func lookTarget(c *cluster, out *report.RouteTarget, session *report.SessionStatus, kernel *picker.ClusterExplanation) {
	inSession := session != nil && pickInSession(c, session, kernel)
	failure := c.view.failed
	if failure == nil {
		failure = c.cfg.Err
	}
	if out.Failure == "" && failure != nil && kernel.Fails > 0 {
		out.Failure = failure.Error()
	}
	d := newDetail(c, kernel, true)
	d.inSession = inSession
	status := lookCluster(c, kernel.Routing)
	d.fill(&status)
	out.Status, out.Hash = &status, explain.Hash(kernel.Hash, d.addr)
}

// pickInSession changes the explained outcome for an RPC of a session, as pickForSession does.
// It reports whether the session decides.
func pickInSession(c *cluster, session *report.SessionStatus, kernel *picker.ClusterExplanation) bool {
	var addrs []netip.AddrPort
	for _, h := range session.Hosts {
		if addr, ok := picker.ParseAddr(h); ok {
			addrs = append(addrs, addr)
		}
	}
	h := c.view.hosts.find(addrs)
	if h == nil {
		return false
	}
	var e picker.EndpointShare
	switch {
	case h.state == picker.Ready:
		e.Share = 1
	case h.state == picker.Connecting, h.state == picker.Idle && c.view.connectable != nil && h.cfg.Health != picker.Draining:
		e.Waits = 1
	default:
		return false
	}
	shares := make([]picker.EndpointShare, len(kernel.Endpoints))
	if h.outside == nil && int(h.index) < len(shares) {
		e.Weight = kernel.Endpoints[h.index].Weight
		shares[h.index] = e
	}
	kernel.Endpoints, kernel.Localities = shares, nil
	kernel.Picked, kernel.Delegated, kernel.Waits, kernel.Fails = e.Share, 0, e.Waits, 0
	return true
}

// AwaitReady waits until RPCs of the method would be sent, or the balancer is closed. It fails if
// ctx ends before.
func AwaitReady(ctx context.Context, b *Balancer, method string) (closed bool, err error) {
	for {
		published := b.nextPublication()
		if published == nil {
			return true, nil
		}
		if isReady(ctx, b, method) {
			return false, nil
		}
		select {
		case <-published:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// isReady reports whether RPCs of the method would be sent by the latest publication. IDLE
// clusters are connected, as by an RPC.
func isReady(ctx context.Context, b *Balancer, method string) bool {
	s := b.picker.current.Load()
	if s.Snapshot == nil {
		return false
	}
	ok := true
	for cluster := range s.Snapshot.Destinations(ctx, method) {
		if cluster < 0 {
			ok = false
			continue
		}
		switch {
		case s.Snapshot.ClusterErr(int(cluster)) != nil:
			ok = false
		case s.cluster(cluster).status == picker.Idle:
			b.connectIdle(s.Config.Clusters[cluster].Name)
			ok = false
		case s.cluster(cluster).status != picker.Ready:
			ok = false
		}
	}
	return ok
}

// Missing returns why RPCs of the method would not be sent; "" if they would, or if there
// is no configuration yet.
func Missing(ctx context.Context, b *Balancer, method string) string {
	ctx = metadatautil.Detached(ctx)
	b.lock()
	defer b.unlock()
	s := b.picker.current.Load()
	if s.Snapshot == nil {
		return explain.ErrorText(b.fatal)
	}
	var list []string
	for cluster, outcome := range s.Snapshot.Destinations(ctx, method) {
		switch {
		case outcome == picker.NoRoute:
			list = append(list, status.Convert(s.routeErrs.noRoute).Message())
			continue
		case outcome == picker.NotForwarding:
			list = append(list, status.Convert(s.routeErrs.stale).Message())
			continue
		case s.Snapshot.ClusterErr(int(cluster)) != nil:
			list = append(list, s.cluster(cluster).failed.Error())
			continue
		}
		if c := b.clusters[s.Config.Clusters[cluster].Name]; c != nil && c.status() != picker.Ready {
			list = append(list, missingOf(c))
		}
	}
	if list == nil {
		return ""
	}
	return b.id.text(strings.Join(list, "; "))
}

// missingOf returns why the cluster has no endpoint to pick. O(endpoints).
func missingOf(c *cluster) string {
	state := c.status()
	if state == picker.TransientFailure {
		msg, _ := c.failureText()
		return msg
	}
	p := c.inUse
	if p == nil {
		return fmt.Sprintf("xdslb: cluster %q is %s", c.cfg.Name, stateName(state))
	}
	n := p.counts
	msg := fmt.Sprintf("xdslb: cluster %q is %s: of the endpoints of priority %d, %d are connecting, %d idle, %d failed",
		c.cfg.Name, stateName(state), p.index, n[picker.Connecting], n[picker.Idle], n[picker.TransientFailure])
	about, _ := p.failureDetails()
	return msg + about
}

// lookCluster returns the cluster's status. r describes the choice of a locality; it is nil if
// zones are not used.
func lookCluster(c *cluster, r *picker.LocalityRouting) report.ClusterStatus {
	s := report.ClusterStatus{Name: c.cfg.Name, State: stateName(c.status()), Priority: slices.Index(c.priorities, c.inUse)}
	if c.inUse == nil {
		s.Priority = -1
	}
	if c.status() == picker.TransientFailure {
		s.Error, _ = c.failureText()
	}
	s.Zones = explain.Zones(r)
	first := 0
	for i, l := range c.leaves {
		var left []int // endpoints of each priority outside of the channel's subset
		if c.received != nil && c.received != c.cfg && i < len(c.received.Leaves) {
			left = explain.LeftOut(&c.received.Leaves[i], &c.cfg.Leaves[i])
		}
		s.Leaves = append(s.Leaves, lookLeaf(c, l, first, left))
		first += len(l.priorities)
	}
	return s
}

// lookLeaf returns the leaf's status. first is the number of its first priority, and left the
// number of endpoints of each priority outside of the channel's subset.
func lookLeaf(c *cluster, l *leaf, first int, left []int) report.LeafStatus {
	s := report.LeafStatus{
		Name: l.cfg.Name, Service: l.cfg.Service, Policy: explain.PolicyName(&l.cfg.Policy), TLS: explain.TLS(l.cfg.TLS, c.usesXDS()),
		Note: explain.ErrorText(l.cfg.ResolutionNote), ConnectionError: explain.ErrorText(l.lastErr),
		InFlight: l.breaker.InFlight(), MaxRequests: l.cfg.MaxRequests, Rejected: l.load.Overload().Load(),
	}
	if check := l.cfg.HealthCheck; check != nil {
		s.HealthCheck = &check.Service
	}
	if c.inUse != nil && c.inUse.leaf == l.leafState {
		s.Probes = lookProbes(c)
	}
	for _, d := range l.cfg.Drops {
		s.Drops = append(s.Drops, report.DropStatus{Category: d.Category, PerMillion: d.PerMillion, Dropped: l.load.Drop(d.Category).Load()})
	}
	for i, p := range l.priorities {
		ps := lookPriority(p, first+i)
		ps.InUse = p == c.inUse
		if i < len(left) {
			ps.Endpoints.Subset = left[i]
			ps.Endpoints.Total += left[i]
		}
		s.Priorities = append(s.Priorities, ps)
	}
	return s
}

// lookPriority returns the priority's status. O(endpoints).
func lookPriority(p *priority, number int) report.PriorityStatus {
	s := report.PriorityStatus{Priority: number, Phase: p.phase.String(), State: stateName(p.connectivity())}
	for e := range p.endpoints {
		s.Endpoints.Total++
		switch {
		case e.Draining:
			s.Endpoints.Draining++
		case e.Ejected && e.Connectivity == picker.Ready:
			s.Endpoints.Ejected++
		case e.Connectivity == picker.Ready:
			s.Endpoints.Ready++
		case e.Connectivity == picker.Connecting:
			s.Endpoints.Connecting++
		case e.Connectivity == picker.Idle:
			s.Endpoints.Idle++
		default:
			s.Endpoints.Failed++
		}
	}
	return s
}

// lookProbes returns the status of the cluster's probes, or nil if it does not probe.
func lookProbes(c *cluster) *report.ProbeStatus {
	if c.probers == nil {
		return nil
	}
	s := &report.ProbeStatus{Synchronous: c.asksForEach()}
	for _, p := range c.probers {
		answers, silent, hot := p.pool.Stats()
		s.Answers, s.Silent, s.HotAbove = s.Answers+answers, s.Silent+silent, max(s.HotAbove, hot)
		p.mu.Lock()
		s.Sent, s.Failed = s.Sent+p.sent, s.Failed+p.failed
		p.mu.Unlock()
	}
	return s
}

// Counts adds the counters of the channel and of the XdsClient, which is shared, to a channel's
// metrics.
func Counts(b *Balancer, to *metric.Channel) {
	own, shared := to.Count, to.CountShared
	link := b.src.Channel
	budget, throttle := link.RetriesDenied()
	metric.Fold(own, metric.NoRoute, b, "", b.picker.noRoute.Load(), b.rec.target)
	metric.Fold(own, metric.Retries, link, "", link.Retries(), b.rec.target)
	metric.Fold(own, metric.Hedges, link, "", link.Hedges(), b.rec.target)
	metric.Fold(own, metric.RetryRejections, link, "", budget, b.rec.target, "budget")
	metric.Fold(own, metric.RetryRejections, link, "", throttle, b.rec.target, "throttle")
	channelmetrics.FoldClient(shared, b.src.Client, b.rec.target)
	foldClusters(b, to)
}

// foldClusters adds the counters of clusters.
func foldClusters(b *Balancer, to *metric.Channel) {
	b.lock()
	defer b.unlock()
	for name, c := range b.clusters {
		// Events are counted when they occur; these series begin with 0.
		metric.Fold(to.Count, metric.PriorityChanges, c, "", 0, b.rec.target, name, "down")
		metric.Fold(to.Count, metric.PriorityChanges, c, "", 0, b.rec.target, name, "up")
		for _, l := range c.leaves {
			channelmetrics.FoldLoad(to, l.cfg, l.load)
			metric.Fold(to.Count, metric.ConnectionsFailed, c, "", 0, b.rec.target, l.cfg.Name)
			metric.Fold(to.Count, metric.ConnectionsLost, c, "", 0, b.rec.target, l.cfg.Name)
			if l.cfg.Outlier != nil {
				for d := range outlier.NumDetectors {
					metric.Fold(to.Count, metric.EjectionsEnforced, c, "", 0, b.rec.target, d.String())
				}
			}
		}
	}
	for load, cfg := range b.rec.retired {
		channelmetrics.FoldLoad(to, cfg, load)
	}
	clear(b.rec.retired)
}

// Gauges emits the gauges of the channel. O(endpoints).
func Gauges(b *Balancer, emit metric.Emit) {
	target, link := b.rec.target, b.src.Channel
	emit(metric.Channels, 1, target)
	missing := int64(0)
	if len(link.Unapplied(b.picker.table())) > 0 {
		missing = 1
	}
	emit(metric.MissingInterceptors, missing, target)
	b.lock()
	defer b.unlock()
	for name, c := range b.clusters {
		emit(metric.Priority, int64(slices.Index(c.priorities, c.inUse)), target, name)
		endpointGauges(c, target, emit)
	}
}

// stateLabels are the values of the label xdslb.state.
var stateLabels = [...]string{picker.Idle: "idle", picker.Connecting: "connecting", picker.Ready: "ready", picker.TransientFailure: "transient_failure"}

// endpointGauges emits the number of endpoints of the cluster by state, and the number of
// excluded endpoints by reason: O(endpoints).
func endpointGauges(c *cluster, target string, emit metric.Emit) {
	for i, l := range c.leaves {
		var states [len(stateLabels)]int64
		var draining, ejected, unused int64
		for _, p := range l.priorities {
			for e := range p.endpoints {
				states[e.Connectivity]++
				switch {
				case e.Draining:
					draining++
				case e.Ejected:
					ejected++
				case p != c.inUse:
					unused++
				}
			}
		}
		for s, n := range states {
			emit(metric.Endpoints, n, target, l.cfg.Name, stateLabels[s])
		}
		left := 0
		if l.cfg.Policy.Subset > 0 && len(l.cfg.Priorities) > 0 { // otherwise the credentials refuse the leaf
			for _, n := range explain.LeftOut(&c.received.Leaves[i], l.cfg) {
				left += n
			}
		}
		for _, r := range []struct {
			reason string
			n      int64
		}{{"draining", draining}, {"ejected", ejected}, {"priority", unused}, {"subset", int64(left)}} {
			emit(metric.EndpointsExcluded, r.n, target, l.cfg.Name, r.reason)
		}
	}
}
