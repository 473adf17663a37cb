// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"fmt"
	"time"

	"github.com/xdslb/xdslb/picker"
)

// endpoint returns the status of an endpoint. childPicks says that a child policy may pick it,
// and passedBy that its locality gets no RPCs, for its zone.
func (d *detail) endpoint(p *shownPriority, e *endpoint, cfg *picker.Endpoint, childPicks, passedBy bool) EndpointStatus {
	share := d.shares[e]
	out := EndpointStatus{
		Address: cfg.Addr.String(), Hostname: hostname(cfg), Draining: e.Draining, Ejected: e.Ejected,
		Weight: cfg.Weight, EffectiveWeight: share.Weight, Share: share.Share, Waits: share.Waits,
		State: stateName(e.Connectivity), Error: errorText(e.lastError()), InFlight: e.InFlight(), Latency: e.Latency().Seconds(),
	}
	if multiAddressed(cfg) {
		out.More = addressesOf(cfg)[1:]
	}
	if e.StateSince > 0 {
		out.Since = d.c.lb.timeAt(e.StateSince)
	}
	if o := e.observers.Load(); o != nil && o.calls != nil {
		out.OK, out.FailedRPCs = o.calls.ok.Load(), o.calls.failed.Load()
	}
	if share.Weight > 0 && !p.policy.Hashes() { // A113 makes large numbers of theirs
		out.WeightFrom = weightSource(p.policy, &e.EndpointState, p.reported)
		out.SlowStart = d.slowStart(p.policy, e)
	}
	// Others may just be better at the moment, by what endpoints say.
	others := p.policy.Kind == picker.PolicyPrequal && share.Weight > 0
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
func (e *endpoint) lastError() error {
	if e.Connectivity != picker.TransientFailure {
		return nil
	}
	l := e.loc.prio.leaf
	if err := l.errs[e]; err != nil {
		return err
	}
	return l.lastErr // the latest of the cluster: child policies tell no more
}

// whyOut returns why an endpoint cannot be picked.
func (d *detail) whyOut(p *shownPriority, e *endpoint, cfg *picker.Endpoint, passedBy bool) string {
	since := ""
	if e.StateSince > 0 {
		since = fmt.Sprintf(" for %s", brief(time.Duration(d.now-e.StateSince)))
	}
	switch {
	case cfg.Health == picker.Draining:
		return "draining: it gets RPCs of its sessions only"
	case e.Ejected:
		return d.ejectionText(e)
	case e.conn != nil && e.conn.state == picker.Ready && e.Connectivity != picker.Ready && e.conn.child == nil && d.c.lb.checksHealth():
		return "connected, and its health service does not say SERVING" + since
	case e.Connectivity == picker.TransientFailure || e.Connectivity == picker.Connecting:
		return stateName(e.Connectivity) + since
	case !p.used:
		return "its priority is not in use"
	case d.inSession:
		return "the RPC's session is with another endpoint"
	case p.policy.Kind == picker.PolicyPickFirst:
		return "pick_first has selected another, or none"
	case p.policy.Hashes():
		return "the RPC belongs to another endpoint"
	case e.Connectivity == picker.Idle:
		return "IDLE: others are READY"
	}
	if passedBy {
		return "its zone gets no RPCs of this channel"
	}
	return "READY since the latest publication only"
}

// ejectionText says until when an endpoint is ejected: the first sweep after that lets it
// return.
func (d *detail) ejectionText(e *endpoint) string {
	cfg := e.loc.prio.leaf.cfg.Outlier
	o := e.observers.Load()
	if cfg == nil || o == nil || o.host == nil || o.host.Until(cfg) == 0 {
		return "ejected as an outlier"
	}
	until := o.host.Until(cfg)
	return fmt.Sprintf("ejected as an outlier until %s, %s from now, or a little later",
		d.c.lb.timeAt(until).Format("15:04:05Z"), brief(time.Duration(until-d.now)))
}

// brief is a duration with three digits or so.
func brief(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// slowStart returns the factor of slow start in an endpoint's weight; 0 if there is none.
func (d *detail) slowStart(p *picker.Policy, e *endpoint) float64 {
	if p.SlowStart == nil || e.Connectivity != picker.Ready || p.Kind == picker.PolicyPickFirst {
		return 0
	}
	if f := p.SlowStart.Factor(time.Duration(d.now - e.StateSince)); f < 1 {
		return f
	}
	return 0
}

// weightSource says where the weight comes from that picks go by.
func weightSource(p *picker.Policy, e *picker.EndpointState, known int) string {
	switch {
	case p.Kind == picker.PolicyRoundRobin, p.Kind == picker.PolicyLeastRequest && p.Least.IgnoreWeights,
		p.Kind == picker.PolicyLeastLatency && p.Latency.IgnoreWeights:
		return "all equal"
	case p.Kind == picker.PolicyPickFirst:
		return "the one selected"
	case p.Kind == picker.PolicyClientWRR && known < 2:
		return "all equal: too few reports"
	case p.Kind == picker.PolicyClientWRR && e.ReportedWeight() > 0:
		return "reported"
	case p.Kind == picker.PolicyClientWRR:
		return "mean of those reported"
	}
	return "EDS"
}

// policyText says how endpoints are picked.
func policyText(p *picker.Policy) string {
	text := [...]string{
		picker.PolicyEDF: "weighted round robin", picker.PolicyRoundRobin: "round robin", picker.PolicyRingHash: "ring_hash",
		picker.PolicyMaglev: "maglev", picker.PolicyLeastRequest: "least_request", picker.PolicyClientWRR: "client_side_weighted_round_robin",
		picker.PolicyPickFirst: "pick_first", picker.PolicyCustom: "custom",
		picker.PolicyLeastLatency: "least_latency", picker.PolicyPrequal: "prequal",
	}[p.Kind]
	switch {
	case p.Kind == picker.PolicyCustom:
		text = fmt.Sprintf("custom policy %q, which picks by itself", p.Custom.Name)
	case p.Kind == picker.PolicyLeastRequest:
		text += fmt.Sprintf(" of %d choices", p.Least.Choices)
	case p.Kind == picker.PolicyLeastLatency:
		text += fmt.Sprintf(" of 2 choices, decay %s", p.Latency.Decay)
	case p.Kind == picker.PolicyPrequal && p.Prequal.Synchronous > 0:
		text += fmt.Sprintf(", each RPC asks %d endpoints", p.Prequal.Synchronous)
	case p.Kind == picker.PolicyPrequal:
		text += ", by what endpoints said"
	case p.Hashes() && p.Ring.BalanceFactor > 0:
		text += fmt.Sprintf(" with bounded loads, %d %%", p.Ring.BalanceFactor)
	}
	if p.Flat {
		text += ", all localities together"
	} else {
		text += " in a locality by weight"
	}
	if p.LoadAware != nil {
		text += " and load"
	}
	if p.ZoneAware != nil {
		text += ", zone-aware"
	}
	if p.Subset > 0 {
		text += fmt.Sprintf(", of a random subset of %d", p.Subset)
	}
	if p.SlowStart != nil {
		text += fmt.Sprintf(", slow start %s", p.SlowStart.Window)
	}
	return text
}

// tlsStatus returns the TLS settings of a cluster; nil if it has none.
func tlsStatus(t *picker.TLS, inForce bool) *TLSStatus {
	if t == nil {
		return nil
	}
	e := &TLSStatus{InForce: inForce, Roots: certText(t.Roots), Identity: certText(t.Identity), ServerName: t.ServerName}
	if t.SystemRoots {
		e.Roots = "the system's"
	}
	if t.AutoHostName {
		e.ServerName = "the endpoint's hostname, else " + fmt.Sprintf("%q", t.ServerName)
	}
	for i := range t.SANs {
		e.SANs = append(e.SANs, matchText(&t.SANs[i]))
	}
	if t.MatchServerName {
		e.SANs = append([]string{"the server name, if one is sent"}, e.SANs...)
	}
	return e
}

func certText(c picker.CertInstance) string {
	if c.Instance == "" {
		return ""
	}
	return fmt.Sprintf("instance %q", c.Instance)
}
