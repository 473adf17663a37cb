// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"fmt"
	"time"

	"github.com/xdslb/xdslb/picker"
)

// endpoint explains an endpoint of the priority in use. childPicks says that a child policy
// may pick it, and known how many endpoints have reported weights.
func (x *explainer) endpoint(s *subject, e *subjectEndpoint, share picker.EndpointShare, childPicks bool, known int) ExplainedEndpoint {
	policy := &s.leaf.Policy
	out := ExplainedEndpoint{
		Address: e.cfg.Addr.String(), Hostname: hostname(e.cfg),
		Weight: e.cfg.Weight, EffectiveWeight: share.Weight, Share: share.Share, Waits: share.Waits,
		State: stateName(e.state.Connectivity), InFlight: e.state.InFlight(), Latency: e.state.Latency().Seconds(),
	}
	if e.cfg.Extra != nil {
		for _, a := range e.cfg.Extra.Addrs {
			out.More = append(out.More, a.String())
		}
	}
	if e.state.StateSince > 0 {
		out.Since = x.clock(e.state.StateSince)
	}
	if e.err != nil {
		out.Error = e.err.Error()
	}
	if share.Weight > 0 && !policy.Hashes() { // A113 makes large numbers of theirs
		out.WeightFrom = weightSource(policy, e.state, known)
		out.SlowStart = x.slowStart(policy, e.state)
	}
	// Others may just be better at the moment, by what endpoints say.
	others := policy.Kind == picker.PolicyPrequal && share.Weight > 0
	if share.Share == 0 && share.Waits == 0 && !others {
		out.Out = x.whyOut(s, e, childPicks)
	}
	switch {
	case !childPicks:
	case e.cfg.Health == picker.Draining:
		out.ChildTold = "draining"
	case e.state.Ejected:
		out.ChildTold = x.ejectionText(e)
	}
	return out
}

// whyOut says why an endpoint cannot be picked; "" if its child policy may.
func (x *explainer) whyOut(s *subject, e *subjectEndpoint, childPicks bool) string {
	policy := &s.leaf.Policy
	since := ""
	if e.state.StateSince > 0 {
		since = fmt.Sprintf(" for %s", brief(time.Duration(x.now-e.state.StateSince)))
	}
	switch {
	case childPicks:
		return ""
	case e.cfg.Health == picker.Draining:
		return "draining: it gets RPCs of its sessions only"
	case e.state.Ejected:
		return x.ejectionText(e)
	case e.unhealthy:
		return "connected, and its health service does not say SERVING" + since
	case e.state.Connectivity == picker.TransientFailure || e.state.Connectivity == picker.Connecting:
		return stateName(e.state.Connectivity) + since
	case s.unused:
		return "its priority is not in use"
	case s.inSession:
		return "the RPC's session is with another endpoint"
	case policy.Kind == picker.PolicyPickFirst:
		return "pick_first has selected another, or none"
	case policy.Hashes():
		return "the RPC belongs to another endpoint"
	case e.state.Connectivity == picker.Idle:
		return "IDLE: others are READY"
	}
	if s.passedBy {
		return "its zone gets no RPCs of this channel"
	}
	return "READY since the latest publication only"
}

// ejectionText says until when an endpoint is ejected: the first sweep after that lets it
// return.
func (x *explainer) ejectionText(e *subjectEndpoint) string {
	if e.until == 0 {
		return "ejected as an outlier"
	}
	return fmt.Sprintf("ejected as an outlier until %s, %s from now, or a little later",
		x.clock(e.until).Format("15:04:05Z"), brief(time.Duration(e.until-x.now)))
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
func (x *explainer) slowStart(p *picker.Policy, e *picker.EndpointState) float64 {
	if p.SlowStart == nil || e.Connectivity != picker.Ready || p.Kind == picker.PolicyPickFirst {
		return 0
	}
	if f := p.SlowStart.Factor(time.Duration(x.now - e.StateSince)); f < 1 {
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

// explainTLS explains a cluster's TLS settings; nil if it has none.
func explainTLS(t *picker.TLS, inForce bool) *ExplainedTLS {
	if t == nil {
		return nil
	}
	e := &ExplainedTLS{InForce: inForce, Roots: certText(t.Roots), Identity: certText(t.Identity), ServerName: t.ServerName}
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
