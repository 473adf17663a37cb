// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// This file has the texts that an Explanation, the debug page and the xdslb command share.

// columns is the width of text for terminals.
const columns = 80

// maxListed is how many elements of a list a text has.
const maxListed = 8

// Located is an endpoint with its place in a cluster.
type Located struct {
	*EndpointStatus
	Leaf     *LeafStatus
	Priority *PriorityStatus
	Locality *LocalityStatus
}

// Endpoints iterates over the endpoints of a cluster.
func Endpoints(c *ClusterStatus) iter.Seq[Located] {
	return func(yield func(Located) bool) {
		for i := range c.Leaves {
			leaf := &c.Leaves[i]
			for k := range leaf.Priorities {
				p := &leaf.Priorities[k]
				for n := range p.Localities {
					loc := &p.Localities[n]
					for m := range loc.Endpoints {
						if !yield(Located{&loc.Endpoints[m], leaf, p, loc}) {
							return
						}
					}
				}
			}
		}
	}
}

// Active returns the counts of the active priorities of a cluster.
func Active(c *ClusterStatus) (n EndpointCounts) {
	for i := range c.Leaves {
		for _, p := range c.Leaves[i].Priorities {
			if p.InUse {
				n.Total, n.Ready = n.Total+p.Endpoints.Total, n.Ready+p.Endpoints.Ready
				n.Ejected, n.Failed = n.Ejected+p.Endpoints.Ejected, n.Failed+p.Endpoints.Failed
			}
		}
	}
	return n
}

// Percent formats a share or a probability. Up to rounding errors, only 0 is "0 %" and only 1 is
// "100 %".
func Percent(p float64) string {
	switch {
	case p <= 0:
		return "0 %"
	case p >= 1-1e-9:
		return "100 %"
	case p < .0001:
		return "<0.01 %"
	case p > .9999:
		return ">99.99 %"
	case p < .01:
		return fmt.Sprintf("%.2g %%", 100*p)
	}
	return fmt.Sprintf("%.4g %%", 100*p)
}

// Count formats a number with its noun: "1 endpoint", "12 endpoints".
func Count[N int | uint64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Place returns the name of a locality.
func Place(region, zone, subZone string) string {
	return cmp.Or(strings.TrimRight(region+"/"+zone+"/"+subZone, "/"), "unnamed")
}

// PolicyName returns the name of an LB policy, with an explanation if no configuration uses it.
func PolicyName(name string) string {
	switch name {
	case "edf":
		return "weighted round robin (edf)"
	case "client_wrr":
		return "weighted round robin by reported load (client_wrr)"
	}
	return name
}

// list joins the first elements of a list.
func list(elements []string) string {
	if n := len(elements); n > maxListed {
		return fmt.Sprintf("%s and %d more", strings.Join(elements[:maxListed], ", "), n-maxListed)
	}
	return strings.Join(elements, ", ")
}

// Match returns the conditions of a route.
func Match(r *RouteStatus) string {
	path := "path " + r.Path
	if r.Path == `begins with ""` || r.Path == `begins with "/"` { // all paths begin with a slash
		path = "any path"
	}
	text := list(append([]string{path}, r.Conditions...))
	if r.Fraction != nil {
		text += ", runtime fraction " + Percent(*r.Fraction)
	}
	return text
}

// Destinations returns the clusters of a route with their shares.
func Destinations(r *RouteStatus) string {
	if r.NotForwarding {
		return "none: RPCs fail"
	}
	var clusters []string
	for _, c := range r.Clusters {
		if c.Share < 1 {
			c.Cluster += " " + Percent(c.Share)
		}
		clusters = append(clusters, c.Cluster)
	}
	return list(clusters)
}

// Actions returns how a route handles its RPCs, besides choosing a cluster.
func Actions(r *RouteStatus) (actions []string) {
	add := func(format string, args ...any) { actions = append(actions, fmt.Sprintf(format, args...)) }
	by := ""
	if r.AppliedBy != "" {
		by = " (applied by " + r.AppliedBy + ")"
	}
	if r.Timeout != "" {
		add("timeout %s%s", r.Timeout, by)
	}
	if p := r.Retry; p != nil {
		kind := "retries"
		if p.Hedged {
			kind = "hedging of idempotent unary methods, retries"
		}
		hosts := ""
		if p.OtherHosts || p.Hedged {
			hosts = ", on other endpoints"
		}
		on := p.On
		if p.RetriesTimeouts {
			on = append(slices.Clip(on), "per_try_timeout")
		}
		add("%s on %s: at most %d attempts, backoff %s to %s%s%s", kind, strings.Join(on, ", "), p.MaxAttempts, p.BaseBackoff, p.MaxBackoff, hosts, by)
		switch {
		case p.Hedged:
			add("another attempt is started if one takes %s", p.PerTryTimeout)
		case p.PerTryTimeout != "":
			add("per_try_timeout %s", p.PerTryTimeout)
		}
	}
	if r.Hash != nil {
		add("hash policies: %s", list(r.Hash))
	}
	if r.RequestHeaders != nil {
		add("request headers: %s", list(r.RequestHeaders))
	}
	for i := range r.Clusters {
		if c := &r.Clusters[i]; c.RequestHeaders != nil {
			add("request headers of cluster %q, first: %s", c.Cluster, list(c.RequestHeaders))
		}
	}
	if r.Authority != "" {
		add("authority rewritten to %q", r.Authority)
	}
	if r.RewriteAuthority {
		add("authority rewritten to the hostname of the endpoint")
	}
	if s := r.Session; s != nil && s.Hosts == nil {
		add("session affinity by cookie %q, which the RPC does not have", s.Cookie)
	} else if s != nil {
		add("session affinity by cookie %q: endpoint %s, cluster %q", s.Cookie, strings.Join(s.Hosts, ", "), s.Cluster)
	}
	return actions
}

// Facts returns the names and values of the properties of a leaf besides its endpoints.
func Facts(l *LeafStatus) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		more := true
		facts(l, func(name, format string, args ...any) { more = more && yield(name, fmt.Sprintf(format, args...)) })
	}
}

func facts(l *LeafStatus, add func(name, format string, args ...any)) {
	if l.Service != "" && l.Service != l.Name {
		add("EDS service", "%s", l.Service)
	}
	if l.Note != "" {
		add("note", "%s", l.Note)
	}
	add("policy", "%s", cmp.Or(l.PolicyText, PolicyName(l.Policy)))
	state := ""
	if l.Refuses() {
		state = ", at its limit"
	}
	if l.Rejected > 0 {
		state += fmt.Sprintf(", %s rejected", Count(l.Rejected, "RPC"))
	}
	if l.MaxRequests < math.MaxUint32 {
		add("circuit breaker", "%d of %d RPCs in flight%s", l.InFlight, l.MaxRequests, state)
	} else {
		add("circuit breaker", "no limit%s", state)
	}
	for _, d := range l.Drops[:min(len(l.Drops), maxListed)] {
		dropped := ""
		if d.Dropped > 0 {
			dropped = fmt.Sprintf(", %s so far", Count(d.Dropped, "RPC"))
		}
		add("drops", "%s as %q%s", Percent(cmp.Or(d.Probability, float64(d.PerMillion)/1e6)), d.Category, dropped)
	}
	if l.HealthCheck != nil {
		add("health check", "service %q", *l.HealthCheck)
	}
	switch t := l.TLS; {
	case t == nil:
		add("TLS", "not configured by xDS")
	case t.InForce:
		add("TLS", "%s", t)
	default:
		add("TLS", "NOT IN FORCE, because the channel does not use xDS credentials: %s", t)
	}
	if p := l.Probes; p != nil {
		add("probes", "%d sent, %d failed, %d responses kept, %s not responding", p.Sent, p.Failed, p.Answers, Count(p.Silent, "endpoint"))
	}
	if len(l.Unhealthy) > 0 {
		var unhealthy []string
		for _, u := range l.Unhealthy {
			unhealthy = append(unhealthy, u.Address+" "+u.Health)
		}
		add("unhealthy", "EDS excludes %s: %s", Count(len(unhealthy), "endpoint"), list(unhealthy))
	}
	if l.ConnectionError != "" {
		add("last connection error", "%s", l.ConnectionError)
	}
}

// Zones returns how a cluster chooses a locality.
func Zones(z *ZonesStatus) string {
	if z.InForce {
		return z.Reason
	}
	return "not in force: " + z.Reason
}

// Counts formats the endpoints of a priority by state.
func Counts(n *EndpointCounts) string {
	text := fmt.Sprintf("%d of %d READY", n.Ready, n.Total)
	for _, c := range []struct {
		n    int
		name string
	}{{n.Connecting, "connecting"}, {n.Idle, "idle"}, {n.Failed, "failed"}, {n.Ejected, "ejected"}, {n.Draining, "draining"}, {n.Subset, "not in the subset"}} {
		if c.n > 0 {
			text += fmt.Sprintf(", %d %s", c.n, c.name)
		}
	}
	return text
}

// Condition returns the state of an endpoint: the state of its connection, DRAINING or EJECTED.
func Condition(e *EndpointStatus) string {
	switch {
	case e.Draining:
		return "DRAINING"
	case e.Ejected && e.State == "READY":
		return "EJECTED"
	}
	return e.State
}

// byChild reports whether only a child policy decides whether an endpoint is picked.
func (e *Located) byChild() bool {
	return e.Locality.Child != "" && e.Out == "" && e.Share == 0 && e.Waits == 0
}

// Notes returns the properties of an endpoint besides its condition, weight by EDS and share.
func (e *Located) Notes() (notes []string) {
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if e.Out != "" && e.Out != e.State {
		add("%s", strings.TrimPrefix(strings.TrimPrefix(e.Out, e.State+" "), "draining: "))
	}
	if e.byChild() {
		add("picked by the child policy")
	}
	if e.ChildTold != "" {
		add("reported to the child policy as %s", e.ChildTold)
	}
	if e.Waits > 0 {
		add("%s of RPCs wait for it", Percent(e.Waits))
	}
	if e.WeightFrom != "" {
		add("weight %d (%s)", e.EffectiveWeight, e.WeightFrom)
	}
	if e.SlowStart > 0 {
		add("slow start at %s", Percent(e.SlowStart))
	}
	if e.InFlight > 0 {
		add("%s in flight", Count(e.InFlight, "RPC"))
	}
	if e.Latency > 0 {
		add("latency %.3g ms", 1000*e.Latency)
	}
	if e.Hostname != "" {
		add("hostname %s", e.Hostname)
	}
	if len(e.More) > 0 {
		add("also %s", list(e.More))
	}
	if e.Error != "" {
		add("%s", e.Error)
	}
	return notes
}

// Wrap writes a text after a head, and breaks it into lines that begin with an indent.
func Wrap(w io.Writer, head, indent, text string) {
	line, begun := head, false
	for _, word := range strings.Fields(text) {
		if begun && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > columns {
			fmt.Fprintln(w, line)
			line, begun = indent, false
		}
		if begun {
			line += " "
		}
		line, begun = line+word, true
	}
	fmt.Fprintln(w, strings.TrimRight(line, " "))
}
