// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"fmt"
	"time"

	"github.com/xdslb/xdslb/picker"
)

// RouteStatus is a route.
type RouteStatus struct {
	Index int    `json:"index"` // in the virtual host
	Name  string `json:"name,omitempty"`
	Path  string `json:"path"` // such as `begins with "/"`
	// Conditions are those on headers, such as `header "env" is "test"`.
	Conditions       []string        `json:"conditions,omitempty"`
	Fraction         *float64        `json:"fraction,omitempty"`       // of the RPCs that reach it; nil is all
	NotForwarding    bool            `json:"not_forwarding,omitempty"` // its RPCs fail (A36)
	Clusters         []RouteTarget   `json:"clusters,omitempty"`
	Timeout          string          `json:"timeout,omitempty"`
	Retry            *ExplainedRetry `json:"retry,omitempty"`
	Hash             []string        `json:"hash,omitempty"` // hash policies (A42)
	RewriteAuthority bool            `json:"rewrite_authority,omitempty"`
}

// RouteTarget is a cluster that a route leads to.
type RouteTarget struct {
	Cluster string  `json:"cluster"`
	Share   float64 `json:"share"` // of the route's RPCs, by weight
}

// LocalityStatus is a locality of a priority.
type LocalityStatus struct {
	Region  string `json:"region,omitempty"`
	Zone    string `json:"zone,omitempty"`
	SubZone string `json:"sub_zone,omitempty"`
	Weight  uint32 `json:"weight"`
	// Share is what part of the cluster's RPCs it is expected to get.
	Share float64 `json:"share"`
	// Child is the child policy that picks in the locality, and its state, if one does.
	Child     string           `json:"child,omitempty"`
	Endpoints []EndpointStatus `json:"endpoints"`
}

// EndpointStatus is an endpoint. Its Share is for an RPC to the cluster of which nothing is
// known: if the policy hashes, of a random hash.
type EndpointStatus struct {
	ExplainedEndpoint
	Draining bool `json:"draining,omitempty"` // no new RPCs (A27)
	Ejected  bool `json:"ejected,omitempty"`  // as an outlier (A50)
	// OK and FailedRPCs are the RPCs of the channel that have ended at the endpoint since
	// TargetStatus.Watched: with an answer of the server's that is OK, or otherwise.
	OK         uint64 `json:"ok"`
	FailedRPCs uint64 `json:"failed"`
}

// inspectLocked adds each route and endpoint to the status, and has RPCs counted.
func (b *lb) inspectLocked(s *TargetStatus) {
	b.watchCallsLocked()
	s.Watched = b.watch.since
	if b.cfg == nil {
		return
	}
	for i := range b.cfg.Routes {
		s.RouteTable = append(s.RouteTable, routeStatus(i, &b.cfg.Routes[i], b.cfg.MaxStreamDuration))
	}
	p := b.picker.current.Load()
	indexes := map[string]int{}
	if p.Config != nil {
		for i, c := range p.Config.Clusters {
			indexes[c.Name] = i
		}
	}
	x := &explainer{now: b.now(), clock: b.timeAt}
	for i := range s.Clusters {
		c := b.clusters[s.Clusters[i].Name]
		var kernel *picker.ClusterExplanation
		if at, ok := indexes[c.cfg.Name]; ok && p.Snapshot != nil {
			kernel = p.Snapshot.ExplainCluster(context.Background(), -1, int32(at))
		}
		if kernel == nil || kernel.Version != c.state.Version {
			kernel = &picker.ClusterExplanation{} // the next publication knows more
		}
		x.inspect(&s.Clusters[i], c, kernel)
	}
}

// timeAt returns the time of day at a time of the balancer's clock.
func (b *lb) timeAt(at int64) time.Time {
	return b.start.Add(time.Duration(at - 1)).Round(0).UTC()
}

// routeStatus returns a route's status. inherited is the listener's max_stream_duration.
func routeStatus(index int, r *picker.Route, inherited time.Duration) RouteStatus {
	s := RouteStatus{
		Index: index, Name: r.Name, Path: matchText(&r.Path), NotForwarding: len(r.Clusters) == 0,
		Retry: explainRetry(r.Retry), RewriteAuthority: r.AutoHostRewrite,
	}
	if s.Retry != nil {
		s.Retry.Hedged = r.Hedge
	}
	for i := range r.Headers {
		s.Conditions = append(s.Conditions, conditionStatus(&r.Headers[i]))
	}
	if r.Fraction != nil {
		f := float64(*r.Fraction) / 1e6
		s.Fraction = &f
	}
	if r.Timeout != nil {
		inherited = *r.Timeout
	}
	if inherited > 0 {
		s.Timeout = inherited.String()
	}
	for i := range r.Hash {
		s.Hash = append(s.Hash, hashPolicyText(&r.Hash[i]))
	}
	sum := 0.
	for i := range r.Clusters {
		sum += float64(r.Clusters[i].Weight)
	}
	for i := range r.Clusters {
		s.Clusters = append(s.Clusters, RouteTarget{r.Clusters[i].Name, float64(r.Clusters[i].Weight) / sum})
	}
	return s
}

// conditionStatus is a condition on a header, for people.
func conditionStatus(m *picker.HeaderMatch) string {
	text := fmt.Sprintf("header %q ", m.Name)
	wants := matchText(&m.String)
	switch {
	case m.Kind == picker.HeaderPresent && m.Present != m.Invert:
		return text + "is present"
	case m.Kind == picker.HeaderPresent:
		return text + "is absent"
	case m.Kind == picker.HeaderRange:
		wants = fmt.Sprintf("is a number from %d to %d", m.Start, m.End-1)
	}
	if m.Invert {
		return fmt.Sprintf("%sis present, and not: %s", text, wants)
	}
	return text + wants
}

// publishedShares is what the latest publication has of a cluster's endpoints and localities.
type publishedShares struct {
	endpoints  map[*endpoint]picker.EndpointShare
	localities map[*locality]int // position in the publication
}

// sharesOf finds the endpoints of the latest publication in what the kernel says of it.
func (c *cluster) sharesOf(kernel *picker.ClusterExplanation) publishedShares {
	p := publishedShares{map[*endpoint]picker.EndpointShare{}, map[*locality]int{}}
	index := 0
	for i := range c.state.Localities {
		for _, e := range c.state.Localities[i].Endpoints.(endpoints) {
			p.localities[e.loc] = i
			if index < len(kernel.Endpoints) {
				p.endpoints[e] = kernel.Endpoints[index]
			}
			index++
		}
	}
	return p
}

// inspect adds the endpoints to a cluster's status.
func (x *explainer) inspect(s *ClusterStatus, c *cluster, kernel *picker.ClusterExplanation) {
	shares := c.sharesOf(kernel)
	for i, l := range c.leaves {
		leaf := &s.Leaves[i]
		leaf.TLSSettings, leaf.Unhealthy = explainTLS(l.cfg.TLS, c.lb.usesXDS()), unhealthyOf(l.cfg)
		for k, p := range l.priorities {
			status := &leaf.Priorities[k]
			of := &subject{leaf: l.cfg, connectable: p.onDemand(), unused: !status.InUse}
			for n, loc := range p.localities {
				of.add(&p.cfg.Localities[n], loc.endpoints)
			}
			if p == c.inUse && len(c.view.groups) > 0 {
				c.addChildren(of)
			}
			known := of.reported()
			for n := range p.localities {
				status.Localities = append(status.Localities, x.locality(s, of, p, n, &shares, kernel, known))
			}
		}
	}
}

// locality returns the status of the n-th locality of a priority.
func (x *explainer) locality(c *ClusterStatus, s *subject, p *priority, n int, shares *publishedShares, kernel *picker.ClusterExplanation, known int) LocalityStatus {
	loc, of := p.localities[n], &s.localities[n]
	out := LocalityStatus{
		Region: of.cfg.ID.Region, Zone: of.cfg.ID.Zone, SubZone: of.cfg.ID.SubZone, Weight: of.cfg.Weight,
		Child: of.child, Endpoints: make([]EndpointStatus, len(of.endpoints)),
	}
	at, published := shares.localities[loc]
	if k := s.groupOf(at); published && !s.leaf.Policy.Flat && k < len(kernel.Localities) {
		out.Share = kernel.Localities[k]
	}
	s.passedBy = published && c.Zones != nil && c.Zones.InForce && at < len(c.Zones.Localities) && c.Zones.Localities[at].Share == 0
	childPicks := !s.unused && s.leaf.Policy.Kind == picker.PolicyCustom
	for i, e := range loc.endpoints {
		share := shares.endpoints[e]
		out.Share += share.Share
		status := &out.Endpoints[i]
		status.ExplainedEndpoint = x.endpoint(s, &of.endpoints[i], share, childPicks, known)
		status.Draining, status.Ejected = e.Draining, e.Ejected
		if o := e.observers.Load(); o != nil && o.calls != nil {
			status.OK, status.FailedRPCs = o.calls.ok.Load(), o.calls.failed.Load()
		}
	}
	return out
}
