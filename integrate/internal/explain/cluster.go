// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"iter"
	"net/netip"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/picker"
)

// PolicyName returns the name of a policy.
func PolicyName(p *picker.Policy) string {
	if p.Custom != nil {
		return p.Custom.Name
	}
	return p.Kind.Traits().Name
}

// PolicyText describes how a policy picks endpoints.
func PolicyText(p *picker.Policy) string {
	text := p.Text()
	if p.Flat {
		text += ", all localities together"
	} else {
		text += " in a locality by weight"
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

// TLS returns the TLS settings of a cluster, or nil. inForce reports whether the channel's
// credentials use them.
func TLS(t *picker.TLS, inForce bool) *report.TLSStatus {
	if t == nil {
		return nil
	}
	e := &report.TLSStatus{InForce: inForce, Roots: certText(t.Roots), Identity: certText(t.Identity), ServerName: t.ServerName}
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

// Zones returns how a cluster chooses a locality; nil if r is nil.
func Zones(r *picker.LocalityRouting) *report.ZonesStatus {
	if r == nil {
		return nil
	}
	s := &report.ZonesStatus{InForce: r.InForce, Reason: r.Reason, Region: r.Own.Region, Zone: r.Own.Zone, SubZone: r.Own.SubZone}
	for _, l := range r.Localities {
		s.Localities = append(s.Localities, report.ZoneStatus{
			Region: l.ID.Region, Zone: l.ID.Zone, SubZone: l.ID.SubZone, Share: l.Share, Endpoints: l.Endpoints, Fleet: l.Fleet,
		})
	}
	return s
}

// LeftOut returns how many endpoints of each priority of a leaf are not in the channel's
// subset (A68). received is the leaf before the subset was chosen.
func LeftOut(received, cfg *picker.Leaf) []int {
	left := make([]int, len(received.Priorities))
	for i := range left {
		left[i] = countEndpoints(received.Priorities, i) - countEndpoints(cfg.Priorities, i)
	}
	return left
}

func countEndpoints(priorities []picker.Priority, i int) (n int) {
	if i < len(priorities) {
		for k := range priorities[i].Localities {
			n += priorities[i].Localities[k].Endpoints.Len()
		}
	}
	return n
}

// NotInSubset returns the addresses of the endpoints that LeftOut counts.
func NotInSubset(received, cfg *picker.Leaf) (list []string) {
	type key struct {
		addr  netip.AddrPort
		extra *picker.EndpointExtra
	}
	kept := map[key]bool{}
	for e := range endpointsOf(cfg) {
		kept[key{e.Addr, e.Extra}] = true
	}
	for e := range endpointsOf(received) {
		if !kept[key{e.Addr, e.Extra}] {
			list = append(list, picker.AddrText(e.Addr))
		}
	}
	return list
}

func endpointsOf(l *picker.Leaf) iter.Seq[*picker.Endpoint] {
	return func(yield func(*picker.Endpoint) bool) {
		for i := range l.Priorities {
			for k := range l.Priorities[i].Localities {
				for _, e := range l.Priorities[i].Localities[k].Endpoints.All() {
					if !yield(e) {
						return
					}
				}
			}
		}
	}
}

// ErrorText returns the text of an error; "" if it is nil.
func ErrorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// WeightSource returns the origin of the weight that picks use. reported is the number of READY
// endpoints with a weight from their reports (A58).
func WeightSource(p *picker.Policy, e *picker.EndpointState, reported int) string {
	switch t := p.Kind.Traits(); {
	case p.EqualWeights():
		return "all equal"
	case t.Connects:
		return "the one selected"
	case t.Reports && reported < 2:
		return "all equal: too few reports"
	case t.Reports && e.ReportedWeight() > 0:
		return "reported"
	case t.Reports:
		return "mean of those reported"
	}
	return "EDS"
}

// Brief formats a duration with about three digits.
func Brief(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// SlowStart returns the factor of slow start in an endpoint's weight, or 0 outside of slow
// start.
func SlowStart(p *picker.Policy, e *picker.EndpointState, now int64) float64 {
	if p.SlowStart == nil || e.Connectivity != picker.Ready || p.Hashes() && !e.Cold {
		return 0
	}
	if f := p.SlowStart.Factor(time.Duration(now - e.StateSince)); f < 1 {
		return f
	}
	return 0
}

// Route returns the status of a route. inherited is the listener's max_stream_duration.
func Route(index int, r *picker.Route, inherited time.Duration) report.RouteStatus {
	s := report.RouteStatus{
		Index: index, Name: r.Name, Path: matchText(&r.Path), NotForwarding: len(r.Clusters) == 0,
		Retry: retryStatus(r.Retry), RewriteAuthority: r.AutoHostRewrite, Authority: r.Authority,
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
		c := &r.Clusters[i]
		s.Clusters = append(s.Clusters, report.RouteTarget{Cluster: c.Name, Share: float64(c.Weight) / sum, RequestHeaders: headerTexts(c.RequestHeaders)})
	}
	for _, m := range r.RequestHeaders {
		s.RequestHeaders = append(s.RequestHeaders, headerTexts(m)...)
	}
	return s
}

// headerTexts describes header mutations, if any, without values, which may be secrets.
func headerTexts(m *picker.HeaderMutations) (texts []string) {
	if m == nil {
		return nil
	}
	for _, name := range m.Remove {
		texts = append(texts, fmt.Sprintf("remove %q", name))
	}
	formats := [...]string{picker.AppendHeader: "append %q", picker.AddHeaderIfAbsent: "add %q if absent", picker.SetHeader: "set %q", picker.ReplaceHeaderIfPresent: "replace %q if present"}
	for i := range m.Add {
		texts = append(texts, fmt.Sprintf(formats[m.Add[i].Action], m.Add[i].Name))
	}
	return texts
}

func hashPolicyText(h *picker.HashPolicy) string {
	text := "channel id"
	if h.Header != "" {
		text = fmt.Sprintf("header %q", h.Header)
	}
	if h.Rewrite != nil {
		text += fmt.Sprintf(" with %q replaced by %q", h.Rewrite, h.Substitution)
	}
	if h.Terminal {
		text += ", terminal"
	}
	return text
}

func retryStatus(p *picker.RetryPolicy) *report.RetryStatus {
	if p == nil {
		return nil
	}
	r := &report.RetryStatus{MaxAttempts: p.MaxAttempts, BaseBackoff: p.BaseBackoff.String(), MaxBackoff: p.MaxBackoff.String(), OtherHosts: p.OtherHosts}
	if p.PerTryTimeout > 0 {
		r.PerTryTimeout, r.RetriesTimeouts = p.PerTryTimeout.String(), p.OnTimeout
	}
	for _, c := range p.On {
		r.On = append(r.On, codes.Code(c).String())
	}
	return r
}

// conditionStatus describes a condition on a header as text.
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

// mismatch returns the condition of a route that an RPC does not meet.
func mismatch(r *picker.Route, c *picker.RouteCheck) string {
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

// matchText describes the strings that a matcher accepts.
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

// headerText describes the values of a header in an RPC, and the values that a route requires.
func headerText(m *picker.HeaderMatch, values []string) string {
	has := fmt.Sprintf("header %q is %q", m.Name, strings.Join(values, ","))
	switch {
	case strings.HasSuffix(m.Name, "-bin"):
		has = fmt.Sprintf("header %q is binary, and routes match no binary headers", m.Name)
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
