// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"slices"
	"time"

	"github.com/xdslb/xdslb/integrate/internal/explain"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/picker"
)

// A detail adds the localities and endpoints of a cluster to its status, with the outcome of
// picks and its reason. The balancer's mutex guards all data that it reads.
type detail struct {
	c         *cluster
	kernel    *picker.ClusterExplanation // the outcome of a pick by the published snapshot
	rpc       bool                       // kernel is for a specific RPC: only the priority in use matters
	inSession bool                       // the RPC's session has chosen the endpoint
	now       int64
	// From kernel: the share of each endpoint, and the index of each locality.
	shares map[*endpoint]picker.EndpointShare
	places map[*locality]int
}

func newDetail(c *cluster, kernel *picker.ClusterExplanation, rpc bool) *detail {
	d := &detail{c: c, kernel: kernel, rpc: rpc, now: c.rt.Now(), shares: map[*endpoint]picker.EndpointShare{}, places: map[*locality]int{}}
	index := 0
	for i := range c.state.Localities {
		for _, e := range c.state.Localities[i].Endpoints.(endpoints) {
			d.places[e.loc] = i
			if index < len(kernel.Endpoints) {
				d.shares[e] = kernel.Endpoints[index]
			}
			index++
		}
	}
	return d
}

// fill adds the detail to the cluster's status.
func (d *detail) fill(s *report.ClusterStatus) {
	for i, l := range d.c.leaves {
		if r := d.c.received; l.cfg.Policy.Subset > 0 && r != nil && i < len(r.Leaves) && len(l.cfg.Priorities) > 0 {
			s.NotInSubset = append(s.NotInSubset, explain.NotInSubset(&r.Leaves[i], l.cfg)...)
		}
		leaf := &s.Leaves[i]
		leaf.PolicyText = explain.PolicyText(&l.cfg.Policy)
		for _, u := range l.cfg.Unhealthy {
			leaf.Unhealthy = append(leaf.Unhealthy, report.UnhealthyEndpoint{Address: picker.AddrText(u.Addr), Health: u.Health})
		}
		for k := range leaf.Drops {
			if d.rpc && i == d.c.state.Leaf && k < len(d.kernel.Drops) {
				leaf.Drops[k].Probability = d.kernel.Drops[k]
			}
		}
		for k, p := range l.priorities {
			d.priority(&leaf.Priorities[k], p, s.Zones)
		}
	}
}

func (d *detail) priority(s *report.PriorityStatus, p *priority, zones *report.ZonesStatus) {
	s.Reason = whyUsed(d.c, p, s)
	switch {
	case d.rpc && p != d.c.inUse:
	case d.rpc && d.c.state.Leaf >= 0:
		// The localities of the snapshot, which an update may have replaced already.
		leaf := &d.c.stateCfg.Leaves[d.c.state.Leaf]
		shown := shownPriority{policy: &leaf.Policy, used: true, zones: zones}
		for i := range d.c.state.Localities {
			shown.localities = append(shown.localities, shownLocality{&leaf.Priorities[d.c.state.Priority].Localities[i], d.c.state.Localities[i].Endpoints.(endpoints), i})
		}
		s.Localities = d.localities(&shown)
	default:
		shown := shownPriority{policy: &p.leaf.cfg.Policy, used: s.InUse, zones: zones}
		for i, l := range p.localities {
			at, published := d.places[l]
			if !published {
				at = -1
			}
			shown.localities = append(shown.localities, shownLocality{&p.cfg.Localities[i], l.endpoints, at})
		}
		s.Localities = d.localities(&shown)
	}
}

// shownPriority is a priority whose localities are shown.
type shownPriority struct {
	policy     *picker.Policy
	localities []shownLocality
	used       bool
	zones      *report.ZonesStatus
	reported   int // READY endpoints with a weight from their reports (A58)
}

type shownLocality struct {
	cfg  *picker.Locality
	list endpoints
	at   int // index in the publication; -1 if it is not published
}

// localities returns the status of the localities.
func (d *detail) localities(p *shownPriority) (all []report.LocalityStatus) {
	for _, l := range p.localities {
		for _, e := range l.list {
			if e.Connectivity == picker.Ready && e.ReportedWeight() > 0 {
				p.reported++
			}
		}
	}
	for i := range p.localities {
		all = append(all, d.locality(p, &p.localities[i]))
	}
	return all
}

func (d *detail) locality(p *shownPriority, l *shownLocality) report.LocalityStatus {
	id := l.cfg.ID
	out := report.LocalityStatus{Region: id.Region, Zone: id.Zone, SubZone: id.SubZone, Weight: l.cfg.Weight, Endpoints: make([]report.EndpointStatus, len(l.list))}
	delegated, passedBy := 0., false
	if l.at >= 0 {
		group := l.at // index of the first locality of the group
		if p.policy.Flat {
			group = 0
		}
		if group < len(d.kernel.Localities) {
			delegated = d.kernel.Localities[group]
		}
		if groups := d.c.view.groups; p.used && group < len(groups) && groups[group] != nil && groups[group].current != nil {
			out.Child = fmt.Sprintf("%s, %s", groups[group].current.name, stateName(groups[group].state))
		}
		passedBy = p.zones != nil && p.zones.InForce && l.at < len(p.zones.Localities) && p.zones.Localities[l.at].Share == 0
	}
	if !p.policy.Flat {
		out.Share = delegated
	}
	// A child in TRANSIENT_FAILURE also gets picks, and may return an endpoint.
	childPicks := p.used && (delegated > 0 || p.policy.Kind.Traits().Delegates && (!d.rpc || d.kernel.Fails > 0))
	for i, e := range l.list {
		out.Endpoints[i] = d.endpoint(p, e, l.cfg.Endpoints.At(i), childPicks, passedBy)
		out.Share += out.Endpoints[i].Share
	}
	return out
}

// addr returns the first address of a published endpoint by its index.
func (d *detail) addr(i int) string {
	if d.c.state.Leaf >= 0 {
		for _, l := range d.c.stateCfg.Leaves[d.c.state.Leaf].Priorities[d.c.state.Priority].Localities {
			if i < l.Endpoints.Len() {
				return picker.AddrText(l.Endpoints.At(i).Addr)
			}
			i -= l.Endpoints.Len()
		}
	}
	return "?"
}

// whyUsed returns why a priority is in use or is not.
func whyUsed(c *cluster, p *priority, s *report.PriorityStatus) string {
	left := explain.Brief(time.Duration(p.deadline - c.rt.Now())) // of its timer
	inUse := slices.Index(c.priorities, c.inUse)
	switch {
	case p == c.inUse && takesRPCs(p.connectivity()):
		return "in use: the first that can serve"
	case p == c.inUse && p.phase == trying:
		return fmt.Sprintf("in use: it has %s to connect before the next priority is tried", left)
	case p == c.inUse && p.connectivity() == picker.Connecting:
		return "in use: no priority can serve, and this is the first that is connecting"
	case p == c.inUse:
		return "in use: no priority can serve, and this is the last"
	case p.empty() && s.Priority < inUse:
		return "no endpoints"
	case p.phase == trying:
		return fmt.Sprintf("connecting, with %s left until it counts as failed; the previous priority serves meanwhile", left)
	case p.phase == failed && p.connectivity() == picker.Connecting:
		return "failed: it did not connect in time, and is still connecting"
	case p.phase == failed:
		return "failed: no endpoint can be reached"
	case p.phase == retired:
		return fmt.Sprintf("not needed; its connections are kept for another %s", left)
	case p.phase == dormant:
		return "not needed: never connected"
	}
	return "not in use"
}

// endpoint returns the status of an endpoint. childPicks is set if a child policy may pick it,
// and passedBy if its locality gets no RPCs because of its zone.
func (d *detail) endpoint(p *shownPriority, e *endpoint, cfg *picker.Endpoint, childPicks, passedBy bool) report.EndpointStatus {
	share := d.shares[e]
	out := report.EndpointStatus{
		Address: picker.AddrText(cfg.Addr), Hostname: hostname(cfg), Draining: e.Draining, Ejected: e.Ejected,
		Weight: cfg.Weight, EffectiveWeight: share.Weight, Share: share.Share, Waits: share.Waits,
		State: stateName(e.Connectivity), Error: explain.ErrorText(lastError(e)), InFlight: e.InFlight(), Latency: e.Latency().Seconds(),
	}
	if multiAddressed(cfg) {
		out.More = addressesOf(cfg)[1:]
	}
	if e.StateSince > 0 {
		out.Since = d.c.rt.TimeAt(e.StateSince)
	}
	if o := e.observers.Load(); o != nil && o.calls != nil {
		out.OK, out.FailedRPCs = o.calls.ok.Load(), o.calls.failed.Load()
	}
	if share.Weight > 0 {
		if !p.policy.Hashes() { // A113 scales the weights of hash policies to large numbers
			out.WeightFrom = explain.WeightSource(p.policy, &e.EndpointState, p.reported)
		}
		out.SlowStart = explain.SlowStart(p.policy, &e.EndpointState, d.now)
	}
	// Other endpoints may just have less load at the moment, by their reports.
	others := p.policy.Kind.Traits().Probes && share.Weight > 0
	if share.Share == 0 && share.Waits == 0 && !others && !childPicks {
		out.Out = d.whyOut(p, e, cfg, passedBy)
	}
	switch {
	case !childPicks:
	case cfg.Health == picker.Draining:
		out.ChildTold = "draining"
	case e.Ejected:
		out.ChildTold = d.ejectionText(e)
	}
	return out
}

// lastError returns why an endpoint cannot be connected; nil if it can.
func lastError(e *endpoint) error {
	if e.Connectivity != picker.TransientFailure {
		return nil
	}
	l := e.loc.leaf
	if err := l.errs[e]; err != nil {
		return err
	}
	return l.lastErr // the latest of the cluster: child policies report no others
}

// whyOut returns why an endpoint cannot be picked.
func (d *detail) whyOut(p *shownPriority, e *endpoint, cfg *picker.Endpoint, passedBy bool) string {
	since := ""
	if e.StateSince > 0 {
		since = fmt.Sprintf(" for %s", explain.Brief(time.Duration(d.now-e.StateSince)))
	}
	switch {
	case cfg.Health == picker.Draining:
		return "draining: it gets RPCs of its sessions only"
	case e.Ejected:
		return d.ejectionText(e)
	case e.conn != nil && e.conn.state == picker.Ready && e.Connectivity != picker.Ready && e.conn.child == nil && e.loc.leaf.checksHealth():
		return "connected, but its health service does not report SERVING" + since
	case e.Connectivity == picker.TransientFailure || e.Connectivity == picker.Connecting:
		return stateName(e.Connectivity) + since
	case !p.used:
		return "its priority is not in use"
	case d.inSession:
		return "the RPC's session is with another endpoint"
	case selects(p.policy.Kind):
		return "pick_first has selected another endpoint, or none"
	case p.policy.Hashes():
		return "the RPC's hash selects another endpoint"
	case e.Connectivity == picker.Idle:
		return "others are READY"
	}
	if passedBy && p.policy.TimesRPCs() {
		return "its zone gets at most one in 64 RPCs of this channel, which measure it"
	}
	if passedBy {
		return "its zone gets no RPCs of this channel"
	}
	if p.policy.TimesRPCs() {
		return "others are faster, or it was not READY yet when the configuration was last published"
	}
	return "not READY yet when the configuration was last published"
}

// ejectionText returns until when an endpoint is ejected: it returns at the first sweep after
// that time.
func (d *detail) ejectionText(e *endpoint) string {
	cfg := e.loc.leaf.cfg.Outlier
	o := e.observers.Load()
	if cfg == nil || o == nil || o.host == nil || o.host.Until(cfg) == 0 {
		return "ejected as an outlier"
	}
	until := o.host.Until(cfg)
	return fmt.Sprintf("ejected as an outlier until %s, %s from now, or a little later",
		d.c.rt.TimeAt(until).Format("15:04:05Z"), explain.Brief(time.Duration(until-d.now)))
}
