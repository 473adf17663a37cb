// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"net/netip"
	"slices"

	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/integrate/internal/channelmetrics"
	"github.com/xdslb/xdslb/integrate/internal/explain"
	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// This file renders the data of a cluster that picks read.

// clusterView is the part of a cluster's data that picks read besides the picker's: the picker
// has the outcomes, clusterView has their gRPC results. It is immutable.
type clusterView struct {
	status     picker.Connectivity
	failed     error                         // for RPCs while no endpoint is reachable; not a status, so that wait-for-ready waits
	rejections *rejections                   // statuses, so that they are final (T-DROP-3); nil while no priority is in use
	results    []result                      // by endpoint index
	hosts      *hosts                        // nil unless sessions or attempts need them
	probers    map[*picker.ProbePool]*prober // nil unless RPCs send probes themselves
	// connectable are the endpoints that an RPC may connect, by endpoint index; nil if
	// endpoints connect by themselves.
	connectable []*endpoint
	// groups are the groups whose children connect the endpoints, by locality index; nil if
	// there are no groups.
	groups []*group
	// authorities and labels are parallel to results. Authorities are nil unless a route rewrites
	// them, and for endpoints without a hostname. Labels are nil unless attempts are labeled.
	authorities []metadata.MD
	labels      []map[string]string
	indexes     map[*endpoint]int32 // of both, if child policies pick; nil if not needed
}

// refresh computes view and state: O(endpoints of the priority in use) after a change of the
// set, else O(1).
func (c *cluster) refresh(version uint64, n needs) {
	failed := c.state.Failed
	c.state = picker.ClusterState{Version: version, Leaf: -1}
	p, status := c.inUse, c.status()
	c.view = clusterView{status: status}
	c.stateCfg = c.cfg
	if status == picker.TransientFailure {
		c.state.Failed = true
		c.view.failed = c.failure()
	}
	if c.state.Failed != failed {
		c.recordFailure()
	}
	if status == picker.Ready || c.mayQueueWhileReady() || p != nil && n.sessions {
		c.renderPriority(p, n)
	}
}

// renderPriority completes view and state with the endpoints of a priority.
func (c *cluster) renderPriority(p *priority, n needs) {
	l := p.leaf
	p.updateWeights()
	p.buildCache()
	c.view.results, c.view.connectable, c.view.groups = p.results, p.connectable, p.groups
	if n.rewrites {
		c.authorities = viewAuthorities(p, c.authorities)
		c.view.authorities = c.authorities
	}
	c.view.addLabels(p)
	c.view.addIndexes(p)
	leaf := c.leafIndex(l)
	if (n.sessions || n.avoidHosts) && !l.delegates() {
		c.view.hosts = viewHosts(p, c.leaves[leaf].priorities, n)
	}
	c.view.rejections = l.rejections()
	c.state.Leaf, c.state.Priority = leaf, p.index
	p.setVersions()
	c.state.Localities = p.state
	c.state.Breaker = l.breaker.Breaker
	c.state.Drops, c.state.Overload = l.dropCounters()
}

func (c *cluster) leafIndex(of *leafState) int {
	return slices.IndexFunc(c.leaves, func(l *leaf) bool { return l.leafState == of })
}

// rendered is called after the cluster has been rendered for a publication.
func (c *cluster) rendered() {
	c.serving, c.ready, c.mayQueue = takesRPCs(c.status()), 0, c.mayQueueWhileReady()
	if c.inUse != nil {
		c.ready = c.inUse.counts[picker.Ready]
	}
}

// recordFailure records that RPCs of the cluster have started to fail, or stopped failing.
func (c *cluster) recordFailure() {
	ev := eventlog.Event{Kind: eventClusterRecovered, Cluster: c.cfg.Name}
	if c.state.Failed {
		ev.Kind, ev.Error = eventClusterFailed, explain.ErrorText(c.view.failed)
	}
	c.rec.record(ev, nil)
}

// retryBudget returns the limit of the cluster's retries; nil means unlimited.
func (c *cluster) retryBudget() *rpc.Budget {
	if c.inUse == nil || c.inUse.leaf.cfg.Retries == nil {
		return nil
	}
	l := c.inUse.leaf
	return &rpc.Budget{Limit: l.cfg.Retries, InFlight: l.breaker.Breaker, Active: &l.breaker.Retries}
}

// failure returns why no endpoint can be picked.
func (c *cluster) failure() error {
	msg, reason := c.failureText()
	more := []string{"cluster", c.cfg.Name}
	if p := c.failing(); p != nil {
		more = append(more, "service", p.leaf.cfg.Service, "priority", fmt.Sprint(p.index))
	}
	return c.id.failure(c.cfg.Name, msg, reason, more...)
}

// failing returns the priority to report if RPCs fail: the one in use, or the last one with
// endpoints if that has none.
func (c *cluster) failing() *priority {
	p := c.inUse
	if p != nil && p.empty() {
		for _, other := range c.priorities {
			if !other.empty() {
				p = other
			}
		}
	}
	return p
}

// failureText returns why no endpoint can be picked, in grpc-go's terms where users may know
// them, and the reason code. O(endpoints).
func (c *cluster) failureText() (msg, reason string) {
	p := c.failing()
	switch {
	case c.cfg.Err != nil:
		return fmt.Sprintf("xdslb: cluster %q: %v", c.cfg.Name, c.cfg.Err), ReasonCluster
	case p == nil:
		reason = ReasonNoEndpoints
		if slices.ContainsFunc(c.cfg.Leaves, func(l picker.Leaf) bool { return c.refuses(&l) }) {
			reason = ReasonTLS
		}
		return fmt.Sprintf("xdslb: cluster %q: no targets to pick from%s", c.cfg.Name, whyEmpty(c.cfg)), reason
	}
	about, reason := p.failureDetails()
	if c.standalone {
		return "no endpoint is reachable" + about, reason
	}
	return fmt.Sprintf("xdslb: cluster %q: %s%s", c.cfg.Name, p.shortfall(), about), reason
}

// whyEmpty returns why the leaves of a cluster have no endpoints.
func whyEmpty(c *picker.Cluster) (msg string) {
	const most = 4 // leaves
	for i := range c.Leaves[:min(len(c.Leaves), most)] {
		l := &c.Leaves[i]
		if l.Name != c.Name {
			msg += fmt.Sprintf("; cluster %q", l.Name)
		}
		msg += whyLeafEmpty(l)
	}
	if n := len(c.Leaves) - most; n > 0 {
		msg += fmt.Sprintf("; and %d more clusters", n)
	}
	return msg
}

// whyLeafEmpty returns why a leaf, or one of its priorities, has no endpoints.
func whyLeafEmpty(l *picker.Leaf) string {
	switch {
	case l.ResolutionNote != nil:
		return fmt.Sprintf("; %v", l.ResolutionNote)
	case len(l.Unhealthy) > 0:
		return fmt.Sprintf("; %d endpoints of EDS resource %q are unhealthy", len(l.Unhealthy), l.Service)
	case l.Service != "":
		return fmt.Sprintf("; EDS resource %q was sent without endpoints", l.Service)
	}
	return ""
}

// publishedView returns the view of a changed cluster as it is published with a snapshot: with the
// error of a cluster that the snapshot cannot pick in, and the probers if RPCs send probes.
func (c *cluster) publishedView(s *picker.Snapshot) *persistent.Item[clusterView] {
	item := &persistent.Item[clusterView]{Value: c.view}
	if err := s.ClusterErr(c.index); err != nil {
		name := c.cfg.Name
		item.Value.failed = c.id.failure(name, fmt.Sprintf("xdslb: cluster %q: %v", name, err), ReasonCluster, "cluster", name)
	}
	if c.asksForEach() {
		item.Value.probers = c.probers
	}
	return item
}

// addLabels adds the labels of a priority, if attempts are labeled: O(endpoints).
func (c *clusterView) addLabels(p *priority) {
	if metric.UpdateLabels == nil {
		return
	}
	c.labels = make([]map[string]string, 0, len(p.results))
	for _, l := range p.localities {
		labels := viewLabels(l)
		for range l.endpoints {
			c.labels = append(c.labels, labels)
		}
	}
}

// addIndexes adds the indexes of endpoints that child policies pick, if picks need them: O(endpoints).
func (c *clusterView) addIndexes(p *priority) {
	if !p.leaf.delegates() || c.authorities == nil && c.labels == nil {
		return
	}
	c.indexes = make(map[*endpoint]int32, len(p.results))
	for e := range p.endpoints {
		c.indexes[e] = int32(len(c.indexes))
	}
}

// buildCache computes results and state if they are out of date: O(endpoints).
func (p *priority) buildCache() {
	if p.state != nil && !p.stale {
		return
	}
	n := p.size()
	p.stale, p.connectable = false, nil
	if p.leaf.onDemand() {
		p.connectable = make([]*endpoint, 0, n)
	}
	p.results = make([]result, 0, n)
	p.state = make([]picker.LocalityState, 0, len(p.localities))
	for _, l := range p.localities {
		for _, e := range l.endpoints {
			p.results = append(p.results, result{e.conn.subConn(), e.done})
			if p.connectable != nil {
				p.connectable = append(p.connectable, e)
			}
		}
		p.state = append(p.state, picker.LocalityState{Load: l.load, Endpoints: l.endpoints})
	}
}

// setVersions sets the versions in the states of the localities.
func (p *priority) setVersions() {
	for i, l := range p.localities {
		p.state[i].Version = l.version
	}
}

// hosts are a cluster's endpoints for RPCs of sessions (A55), and for attempts that avoid
// certain endpoints. Targets without such RPCs have no hosts.
type hosts struct {
	list []host // by endpoint index
	// byAddr are the hosts that sessions may go to, by each of their addresses: all hosts of
	// the list, and READY hosts from other priorities of the leaf (A75). It is nil without
	// sessions.
	byAddr map[netip.AddrPort]*host
}

// A host is an endpoint at the time of the publication.
type host struct {
	*picker.EndpointState
	cfg      *picker.Endpoint
	state    picker.Connectivity
	locality int32
	index    int32        // of the endpoint
	outside  *destination // instead of the index, if the endpoint's priority is not in use
}

// viewHosts returns the hosts of a priority, and with sessions also the hosts of all priorities
// of its leaf: O(endpoints).
func viewHosts(p *priority, all []*priority, n needs) *hosts {
	h := &hosts{list: make([]host, 0, p.size())}
	for k, l := range p.localities {
		for i, e := range l.endpoints {
			state := e.Connectivity
			if e.Ejected {
				state = picker.TransientFailure // A50
			}
			h.list = append(h.list, host{EndpointState: &e.EndpointState, cfg: l.cfg.At(i), state: state, locality: int32(k), index: int32(len(h.list))})
		}
	}
	if !n.sessions {
		return h
	}
	h.byAddr = make(map[netip.AddrPort]*host, len(h.list))
	for i := range h.list {
		h.admitSessions(&h.list[i], p.leaf.cfg.Override)
	}
	used := map[*tally]bool{}
	for _, l := range p.localities {
		used[l.tally] = true
	}
	for _, p := range all {
		if used[&p.tally] || p.leaf.delegates() {
			continue
		}
		for _, l := range p.localities {
			for i, e := range l.endpoints {
				if e.effectiveState() != picker.Ready {
					continue
				}
				to := &destination{result: result{e.conn.subConn(), e.done}, endpoint: l.cfg.At(i), labels: viewLabels(l)}
				if n.rewrites {
					to.authority = authorityOf(l.cfg.At(i), nil)
				}
				h.admitSessions(&host{EndpointState: &e.EndpointState, cfg: l.cfg.At(i), state: picker.Ready, locality: -1, outside: to}, p.leaf.cfg.Override)
			}
		}
	}
	return h
}

// admitSessions adds a host to byAddr if sessions may use endpoints of its health.
func (h *hosts) admitSessions(it *host, allowed picker.OverrideHosts) {
	if draining := it.cfg.Health == picker.Draining; draining && !allowed.Draining || !draining && allowed.NotHealthy {
		return
	}
	h.byAddr[it.cfg.Addr] = it
	if it.cfg.Extra != nil {
		for _, a := range it.cfg.Extra.Addrs {
			h.byAddr[a] = it
		}
	}
}

// find returns the first host that has one of the addresses, or nil. A cluster without sessions has
// no hosts.
func (h *hosts) find(addrs []netip.AddrPort) *host {
	if h == nil {
		return nil
	}
	for _, a := range addrs {
		if it := h.byAddr[a]; it != nil {
			return it
		}
	}
	return nil
}

const authorityKey = ":authority"

// viewAuthorities returns, by endpoint index, the metadata that makes gRPC use an endpoint's
// hostname as the RPC's :authority (A81). The channel's credentials check it, and
// grpc.CallAuthority takes precedence. Metadata of unchanged hostnames is reused. O(endpoints).
func viewAuthorities(p *priority, old []metadata.MD) []metadata.MD {
	all := make([]metadata.MD, 0, len(p.results))
	for _, l := range p.localities {
		for i := range l.endpoints {
			var was metadata.MD
			if k := len(all); k < len(old) {
				was = old[k]
			}
			all = append(all, authorityOf(l.cfg.At(i), was))
		}
	}
	return all
}

// authoritiesOf returns the authorities of routes (A111), or nil if no route has one.
func authoritiesOf(routes []picker.Route) (list []metadata.MD) {
	for i := range routes {
		if routes[i].Authority == "" {
			continue
		}
		if list == nil {
			list = make([]metadata.MD, len(routes))
		}
		list[i] = metadata.MD{authorityKey: {routes[i].Authority}}
	}
	return list
}

// authorityOf returns the metadata for an endpoint, or was if that is the same.
func authorityOf(cfg *picker.Endpoint, was metadata.MD) metadata.MD {
	if cfg.Extra == nil || cfg.Extra.Hostname == "" {
		return nil
	}
	if v := was[authorityKey]; len(v) == 1 && v[0] == cfg.Extra.Hostname {
		return was
	}
	return metadata.MD{authorityKey: {cfg.Extra.Hostname}}
}

// viewLabels returns the labels of attempts to endpoints of a locality, if package attemptlabels is
// linked.
func viewLabels(l *locality) map[string]string {
	if metric.UpdateLabels == nil {
		return nil
	}
	return map[string]string{"grpc.lb.locality": channelmetrics.LocalityName(l.id), "grpc.lb.backend_service": l.leaf.name}
}
