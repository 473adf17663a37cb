// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"time"

	"github.com/xdslb/xdslb/integrate/internal/explain"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/picker"
)

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
	if share.Weight > 0 && !p.policy.Hashes() { // A113 scales the weights of hash policies to large numbers
		out.WeightFrom = explain.WeightSource(p.policy, &e.EndpointState, p.reported)
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
	if passedBy {
		return "its zone gets no RPCs of this channel"
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
