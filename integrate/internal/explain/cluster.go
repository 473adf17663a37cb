// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"iter"
	"net/netip"
	"time"

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
