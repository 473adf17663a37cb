// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/xdslb/xdslb/integrate/internal/explain"
	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
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
