// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// An Explanation says where an RPC would go, and why nowhere else. It is plain data: see
// Explain. Shares and probabilities are from 0 to 1, addresses are host:port, durations
// are as time.Duration prints them.
type Explanation struct {
	Target  string    `json:"target"`
	Method  string    `json:"method"`
	Time    time.Time `json:"time"`
	Pending bool      `json:"pending,omitempty"` // changes wait to be published
	// Routes are those that were checked, in order; the last one takes all that is left.
	Routes  []RouteStatus `json:"routes"`
	NoRoute float64       `json:"no_route"` // probability that no route matches
	// NotApplied is what the configuration asks for and the channel does not do: for lack
	// of interceptors, or because no channel does it.
	NotApplied []string `json:"not_applied,omitempty"`
}

// SessionStatus is the session affinity of a route (A55).
type SessionStatus struct {
	Cookie string `json:"cookie"`
	// Hosts and Cluster are what the RPC's cookie names, if it has one.
	Hosts   []string `json:"hosts,omitempty"`
	Cluster string   `json:"cluster,omitempty"`
}

// FilterStatus is an HTTP filter for the RPCs of a route to a cluster (A39).
type FilterStatus struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	From     string `json:"from"` // whose configuration counts: listener, virtual host, route or cluster
	Disabled bool   `json:"disabled,omitempty"`
	State    string `json:"state,omitempty"` // what admission control or adaptive concurrency is at
}

// HashStatus is the hash of the RPC, and the endpoints that it leads to (A42).
type HashStatus struct {
	// Hash is hexadecimal; empty if the RPC has none, and any endpoint will do.
	Hash    string      `json:"hash,omitempty"`
	Sources []string    `json:"sources,omitempty"`
	Places  []HashPlace `json:"places,omitempty"` // by locality, or one for all
}

// HashPlace is the place of the hash on a ring, or in a Maglev table.
type HashPlace struct {
	In       string `json:"in"` // "ring" or "table"
	Position int    `json:"position"`
	Size     int    `json:"size"`
	// Order are the endpoint that the hash belongs to, and those that it falls back to, up
	// to eight.
	Order []string `json:"order"`
}

// String returns the explanation as text for people, in lines of 80 columns as far as
// names allow.
func (x *Explanation) String() string {
	var t explanationText
	t.line(0, "%s on %s, %s", x.Method, x.Target, x.Time.UTC().Format(time.RFC3339))
	if x.Pending {
		t.line(0, "Changes wait to be published: picks do not know of them yet.")
	}
	for _, what := range x.NotApplied {
		t.line(0, "NOT APPLIED, since the channel has no interceptors of xdslb: %s", what)
	}
	t.line(0, "Routes")
	for i := range x.Routes {
		t.routeLine(&x.Routes[i])
	}
	if x.NoRoute > 0 {
		t.line(2, "no route: %s of RPCs fail UNAVAILABLE", percent(x.NoRoute))
	}
	for i := range x.Routes {
		if x.Routes[i].Probability > 0 {
			t.route(&x.Routes[i])
		}
	}
	return t.String()
}

// WriteTo writes what String returns.
func (x *Explanation) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, x.String())
	return int64(n), err
}

// explanationText is text that is broken into lines.
type explanationText struct{ strings.Builder }

const columns = 80

// line writes a line with an indent, and goes on with two columns more.
func (t *explanationText) line(indent int, format string, args ...any) {
	column := 0
	for _, word := range strings.Fields(fmt.Sprintf(format, args...)) {
		width := utf8.RuneCountInString(word)
		switch {
		case column == 0:
			t.WriteString(strings.Repeat(" ", indent))
			column = indent
		case column+1+width > columns:
			t.WriteString("\n" + strings.Repeat(" ", indent+2))
			column = indent + 2
		default:
			t.WriteByte(' ')
			column++
		}
		t.WriteString(word)
		column += width
	}
	t.WriteByte('\n')
}

// name is the route's name for people.
func (r *RouteStatus) name() string {
	if r.Name == "" {
		return fmt.Sprintf("route %d", r.Index)
	}
	return fmt.Sprintf("route %d %q", r.Index, r.Name)
}

// routeLine is a route's line in the list of all.
func (t *explanationText) routeLine(r *RouteStatus) {
	switch {
	case r.Mismatch != "":
		t.line(2, "%s: no: %s", r.name(), r.Mismatch)
	case r.Fraction != nil:
		t.line(2, "%s: %s of RPCs (its fraction is %s): path %s", r.name(), percent(r.Probability), percent(*r.Fraction), r.Path)
	default:
		t.line(2, "%s: %s of RPCs: path %s", r.name(), percent(r.Probability), r.Path)
	}
}

// route is what there is to say of a route that the RPC may take.
func (t *explanationText) route(r *RouteStatus) {
	t.line(0, "%s%s", strings.ToUpper(r.name()[:1]), r.name()[1:])
	if r.NotForwarding {
		t.line(2, "does not forward: its RPCs fail UNAVAILABLE")
		return
	}
	if r.Timeout != "" {
		t.line(2, "timeout %s, by %s", r.Timeout, r.AppliedBy)
	}
	if p := r.Retry; p != nil {
		t.line(2, "retries on %s, %d attempts in all, after %s to %s, by %s", strings.Join(p.On, ", "), p.MaxAttempts, p.BaseBackoff, p.MaxBackoff, r.AppliedBy)
		if p.OtherHosts || p.Hedged {
			t.line(2, "further attempts go to other endpoints")
		}
		if p.Hedged {
			t.line(2, "unary RPCs are hedged, if their methods are declared safe")
		}
	}
	if r.Hash != nil {
		t.line(2, "hash policies: %s", strings.Join(r.Hash, "; "))
	}
	if r.RewriteAuthority {
		t.line(2, "the authority is the endpoint's hostname, if it has one")
	}
	if s := r.Session; s != nil && s.Hosts == nil {
		t.line(2, "session affinity by cookie %q, which the RPC lacks", s.Cookie)
	} else if s != nil {
		t.line(2, "session affinity by cookie %q: endpoint %s, cluster %q", s.Cookie, strings.Join(s.Hosts, ", "), s.Cluster)
	}
	for i := range r.Clusters {
		t.cluster(&r.Clusters[i])
	}
}

func (t *explanationText) cluster(to *RouteTarget) {
	t.line(2, "cluster %q: %s of the route", to.Cluster, percent(to.Share))
	var l *LeafStatus
	if to.Status != nil {
		l = to.Status.LeafInUse()
	}
	if l != nil && l.Name != to.Cluster {
		t.line(4, "of the aggregate, %q is in use", l.Name)
	}
	if l != nil && l.Service != "" && l.Service != to.Cluster {
		t.line(4, "EDS service %q", l.Service)
	}
	if l != nil && l.Note != "" {
		t.line(4, "note: %s", l.Note)
	}
	if to.Note != "" {
		t.line(4, "note: %s", to.Note)
	}
	t.outcome(to)
	if l != nil {
		t.line(4, "policy: %s", l.PolicyText)
	}
	if to.Status != nil {
		t.zones(to.Status.Zones)
	}
	for _, f := range to.Filters {
		state := "configured"
		if f.Disabled {
			state = "disabled"
		}
		if f.State != "" {
			state = f.State + ", " + state
		}
		t.line(4, "filter %q, %s by the %s", f.Name, state, f.From)
	}
	if l != nil {
		t.leaf(l)
	}
	t.hash(to.Hash)
	if to.Status != nil {
		t.endpoints(to.Status, l)
	}
}

// leaf is the leaf in use, without its endpoints.
func (t *explanationText) leaf(l *LeafStatus) {
	for _, d := range l.Drops {
		t.line(4, "drops %s of them as %q", percent(d.Probability), d.Category)
	}
	refuses := ""
	if l.Refuses() {
		refuses = ": it refuses the next one"
	}
	t.line(4, "circuit breaker: %d RPCs in flight of %d%s", l.InFlight, l.MaxRequests, refuses)
	t.tls(l.TLS)
}

// endpoints are the priorities of a cluster, and the endpoints of the leaf in use.
func (t *explanationText) endpoints(c *ClusterStatus, inUse *LeafStatus) {
	for i := range c.Leaves {
		for k := range c.Leaves[i].Priorities {
			t.priority(c.Leaves[i].Name, k, &c.Leaves[i].Priorities[k], c.Priority)
		}
	}
	for _, l := range c.Localities() {
		t.locality(l)
	}
	if inUse != nil && len(inUse.Unhealthy) > 0 {
		var list []string
		for _, u := range inUse.Unhealthy {
			list = append(list, u.Address+" "+u.Health)
		}
		t.line(4, "%d endpoints get no RPCs, since EDS says that they are not healthy: %s", len(list), shorten(list, 8))
	}
	if n := len(c.NotInSubset); n > 0 {
		t.line(4, "%d endpoints are not in this channel's subset: %s", n, shorten(c.NotInSubset, 8))
	}
}

// zones says how a locality is chosen.
func (t *explanationText) zones(z *ZonesStatus) {
	switch {
	case z == nil:
	case z.InForce:
		t.line(4, "zones: %s", z.Reason)
	default:
		t.line(4, "zones do not count: %s", z.Reason)
	}
}

// outcome says what becomes of the RPCs to a cluster.
func (t *explanationText) outcome(c *RouteTarget) {
	for _, o := range []struct {
		p    float64
		text string
	}{{c.Picked, "get an endpoint"}, {c.Delegated, "go to a child policy, which picks"}, {c.Waits, "wait"}, {c.Fails, "fail UNAVAILABLE, or wait if they are wait-for-ready"}} {
		if o.p > 0 {
			t.line(4, "%s %s", percent(o.p), o.text)
		}
	}
	if c.Failure != "" {
		t.line(4, "failure: %s", c.Failure)
	}
}

func (t *explanationText) tls(s *TLSStatus) {
	switch {
	case s == nil:
	case !s.InForce:
		t.line(4, "TLS (NOT IN FORCE: the channel's credentials do not go by xDS): %v", s)
	default:
		t.line(4, "TLS: %v", s)
	}
}

func (t *explanationText) hash(h *HashStatus) {
	switch {
	case h == nil:
	case h.Hash == "":
		t.line(4, "the RPC has no hash: a random one, or any READY endpoint, will do")
	default:
		t.line(4, "hash %s of %s", h.Hash, strings.Join(h.Sources, ", "))
		for _, p := range h.Places {
			t.line(6, "entry %d of %d of the %s: %s", p.Position, p.Size, p.In, strings.Join(p.Order, ", then "))
		}
	}
}

// priority is the index-th priority of a leaf; inUse is the number of the one in use.
func (t *explanationText) priority(leaf string, index int, p *PriorityStatus, inUse int) {
	mark, share, counts := " ", "", ""
	if p.Priority == inUse || p.Share > 0 {
		mark = "*"
	}
	n := &p.Endpoints
	for _, c := range []struct {
		n    int
		name string
	}{{n.Ready, "ready"}, {n.Connecting, "connecting"}, {n.Idle, "idle"}, {n.Failed + n.Ejected, "failed"}, {n.Draining, "draining"}} {
		if c.n > 0 {
			counts += fmt.Sprintf(", %d %s", c.n, c.name)
		}
	}
	if p.Share > 0 {
		share = fmt.Sprintf(" takes %s,", percent(p.Share))
	}
	t.line(4, "%s priority %d of %q:%s %s%s", mark, index, leaf, share, p.Reason, counts)
}

func (t *explanationText) locality(l *LocalityStatus) {
	share := percent(l.Share) + " of the cluster"
	if l.Child != "" {
		if slices.ContainsFunc(l.Endpoints, func(e EndpointStatus) bool { return e.Out == "" && e.Share == 0 && e.Waits == 0 }) {
			share = "as the child policy picks"
		}
		share += "; child policy " + l.Child
	}
	t.line(4, "locality %q, weight %d: %s", strings.TrimRight(l.Region+"/"+l.Zone+"/"+l.SubZone, "/"), l.Weight, share)
	for i := range l.Endpoints {
		t.endpoint(&l.Endpoints[i])
	}
}

func (t *explanationText) endpoint(e *EndpointStatus) {
	text := e.Address
	if e.More != nil {
		text += " (also " + strings.Join(e.More, ", ") + ")"
	}
	switch {
	case e.Out != "":
		text += " out: " + e.Out
	case e.Waits > 0 && e.Share > 0:
		text += fmt.Sprintf(" %s, and %s wait for it", percent(e.Share), percent(e.Waits))
	case e.Waits > 0:
		text += fmt.Sprintf(" %s wait for it", percent(e.Waits))
	case e.Share > 0:
		text += " " + percent(e.Share)
	default:
		text += " if the child policy picks it"
		if e.ChildTold != "" {
			text += ", which was told that it is " + e.ChildTold
		}
	}
	if !strings.HasPrefix(e.Out, e.State) {
		text += ", " + e.State
	}
	if e.WeightFrom != "" {
		text += fmt.Sprintf(", weight %d (%s)", e.EffectiveWeight, e.WeightFrom)
	}
	if e.SlowStart > 0 {
		text += fmt.Sprintf(", slow start at %s", percent(e.SlowStart))
	}
	if e.InFlight > 0 {
		text += fmt.Sprintf(", %d in flight", e.InFlight)
	}
	if e.Latency > 0 {
		text += fmt.Sprintf(", latency %.3g ms", 1000*e.Latency)
	}
	if e.Error != "" {
		text += ": " + e.Error
	}
	t.line(6, "%s", text)
}

// shorten joins the first n of a list.
func shorten(list []string, n int) string {
	if len(list) <= n {
		return strings.Join(list, ", ")
	}
	return strings.Join(list[:n], ", ") + ", ..."
}

// percent is a probability in percent. Only 0 is 0 %, and only 1 is 100 %.
func percent(p float64) string {
	switch {
	case p > 0 && p < 0.00001:
		return "below 0.001 %"
	case p < 1 && p > 0.9999:
		return "above 99.99 %"
	}
	return fmt.Sprintf("%.4g %%", 100*p)
}
