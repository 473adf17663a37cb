// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// An Explanation shows where an RPC would go, and why. It is plain data: see Explain. Shares and
// probabilities are between 0 and 1, addresses have the form host:port, and durations the format of
// time.Duration.
type Explanation struct {
	Target  string    `json:"target"`
	Method  string    `json:"method"`
	Time    time.Time `json:"time"`
	Pending bool      `json:"pending,omitempty"` // a later configuration is about to come into force
	// Routes are the checked routes, in order; the last one matches all remaining RPCs.
	Routes  []RouteStatus `json:"routes"`
	NoRoute float64       `json:"no_route"` // probability that no route matches
	// NotApplied lists configured features that the channel does not apply, because they are
	// unsupported or it lacks interceptors.
	NotApplied []string `json:"not_applied,omitempty"`
	// Patched lists the resources of the target that patches of the overlay have changed.
	Patched []string `json:"patched,omitempty"`
	// Sources lists the servers that sent the resources of the target, with the resources: "file:///resources.json:
	// Listener orders, Cluster orders".
	Sources []string `json:"sources,omitempty"`
}

// SessionStatus is the session affinity of a route (A55).
type SessionStatus struct {
	Cookie string `json:"cookie"`
	// Hosts and Cluster are the values of the RPC's cookie, if it has one.
	Hosts   []string `json:"hosts,omitempty"`
	Cluster string   `json:"cluster,omitempty"`
}

// FilterStatus is an HTTP filter for the RPCs of a route to a cluster (A39).
type FilterStatus struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	From     string `json:"from"` // source of the configuration: listener, virtual host, route or cluster
	Disabled bool   `json:"disabled,omitempty"`
}

// HashStatus is the hash of the RPC, and the endpoints that it selects (A42).
type HashStatus struct {
	// Hash is hexadecimal; empty if the RPC has no hash.
	Hash    string      `json:"hash,omitempty"`
	Sources []string    `json:"sources,omitempty"`
	Places  []HashPlace `json:"places,omitempty"` // by locality, or one for all
}

// HashPlace is the position of the hash on a ring or in a Maglev table.
type HashPlace struct {
	In       string `json:"in"` // "ring" or "table"
	Position int    `json:"position"`
	Size     int    `json:"size"`
	// Order is the endpoint of the hash, followed by its fallbacks, up to eight in total.
	Order []string `json:"order"`
}

// String returns the explanation as text, in lines of 80 columns unless a name is longer.
func (x *Explanation) String() string {
	var t explanationText
	t.line(0, "%s on %s, %s", x.Method, x.Target, x.Time.UTC().Format(time.RFC3339))
	if x.Pending {
		t.line(0, "A later configuration is about to come into force.")
	}
	for _, what := range x.NotApplied {
		t.line(0, "NOT APPLIED (unsupported, or the channel lacks xdslb's interceptors): %s", what)
	}
	for _, what := range x.Patched {
		t.line(0, "Changed by the overlay: %s", what)
	}
	for _, what := range x.Sources {
		t.line(0, "Resources from %s", what)
	}
	t.line(0, "Routes")
	for i := range x.Routes {
		t.routeLine(&x.Routes[i])
	}
	if x.NoRoute > 0 {
		t.line(2, "no route: %s of RPCs fail with UNAVAILABLE", Percent(x.NoRoute))
	}
	for i := range x.Routes {
		if x.Routes[i].Probability > 0 {
			t.route(&x.Routes[i])
		}
	}
	return t.String()
}

// WriteTo writes the text that String returns.
func (x *Explanation) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, x.String())
	return int64(n), err
}

// explanationText is text that is broken into lines.
type explanationText struct{ strings.Builder }

// line writes a line with an indent, and its continuation with two columns more.
func (t *explanationText) line(indent int, format string, args ...any) {
	head := strings.Repeat(" ", indent)
	Wrap(t, head, head+"  ", fmt.Sprintf(format, args...))
}

// name returns the index and the name of the route.
func (r *RouteStatus) name() string {
	if r.Name == "" {
		return fmt.Sprintf("route %d", r.Index)
	}
	return fmt.Sprintf("route %d %q", r.Index, r.Name)
}

// routeLine describes a route in the list of routes.
func (t *explanationText) routeLine(r *RouteStatus) {
	if r.Mismatch != "" {
		t.line(2, "%s: no match: %s", r.name(), r.Mismatch)
		return
	}
	t.line(2, "%s: %s of RPCs: %s", r.name(), Percent(r.Probability), Match(r))
}

// route describes a route that the RPC may take.
func (t *explanationText) route(r *RouteStatus) {
	t.line(0, "R%s", r.name()[1:])
	if r.NotForwarding {
		t.line(2, "does not forward: RPCs fail with UNAVAILABLE")
		return
	}
	for _, action := range Actions(r) {
		t.line(2, "%s", action)
	}
	for i := range r.Clusters {
		t.cluster(&r.Clusters[i])
	}
}

func (t *explanationText) cluster(to *RouteTarget) {
	t.line(2, "cluster %q: %s of the route", to.Cluster, Percent(to.Share))
	var l *LeafStatus
	if to.Status != nil {
		l = to.Status.LeafInUse()
	}
	if l != nil && l.Name != to.Cluster {
		t.line(4, "active leaf of the aggregate: %q", l.Name)
	}
	if to.Note != "" {
		t.line(4, "note: %s", to.Note)
	}
	t.outcome(to)
	for _, f := range to.Filters {
		state := "configured"
		if f.Disabled {
			state = "disabled"
		}
		t.line(4, "filter %q: %s by the %s", f.Name, state, f.From)
	}
	if l != nil {
		for name, value := range Facts(l) {
			t.line(4, "%s: %s", name, value)
		}
	}
	t.hash(to.Hash)
	if c := to.Status; c != nil {
		if c.Zones != nil {
			t.line(4, "zones: %s", Zones(c.Zones))
		}
		t.endpoints(c)
	}
}

// endpoints describes the priorities of a cluster, and the endpoints of the active ones.
func (t *explanationText) endpoints(c *ClusterStatus) {
	for i := range c.Leaves {
		for k := range c.Leaves[i].Priorities {
			t.priority(c.Leaves[i].Name, k, &c.Leaves[i].Priorities[k], c.Priority)
		}
	}
	var locality *LocalityStatus
	for e := range Endpoints(c) {
		if locality != e.Locality {
			locality = e.Locality
			t.locality(locality)
		}
		t.endpoint(&e)
	}
	if n := len(c.NotInSubset); n > 0 {
		t.line(4, "subset: excludes %s: %s", Count(n, "endpoint"), list(c.NotInSubset))
	}
}

// Dropped returns the probability that an RPC to a cluster is dropped. Drops apply to RPCs that get
// an endpoint.
func Dropped(c *RouteTarget) float64 {
	p := 0.
	if c.Status == nil || c.Status.LeafInUse() == nil {
		return 0
	}
	for _, d := range c.Status.LeafInUse().Drops {
		p += d.Probability
	}
	return (c.Picked + c.Delegated) * min(1, p)
}

// outcome describes what happens to the RPCs to a cluster.
func (t *explanationText) outcome(c *RouteTarget) {
	dropped, kept := Dropped(c), 1.
	if dropped > 0 {
		kept = 1 - dropped/(c.Picked+c.Delegated)
	}
	for _, o := range []struct {
		p    float64
		text string
	}{
		{c.Picked * kept, "get an endpoint"}, {c.Delegated * kept, "go to a child policy, which picks the endpoint"}, {dropped, "are dropped"},
		{c.Waits, "wait"}, {c.Fails, "fail with UNAVAILABLE, or wait if they are wait-for-ready"},
	} {
		if o.p > 1e-9 {
			t.line(4, "%s %s", Percent(o.p), o.text)
		}
	}
	if c.Failure != "" {
		t.line(4, "failure: %s", c.Failure)
	}
}

func (t *explanationText) hash(h *HashStatus) {
	switch {
	case h == nil:
	case h.Hash == "":
		t.line(4, "hash: none: the RPC uses a random hash, or any READY endpoint")
	default:
		t.line(4, "hash: %s of %s", h.Hash, strings.Join(h.Sources, ", "))
		for _, p := range h.Places {
			t.line(6, "entry %d of %d of the %s: %s", p.Position, p.Size, p.In, strings.Join(p.Order, ", then "))
		}
	}
}

// priority describes the index-th priority of a leaf; active is the number of the active one.
func (t *explanationText) priority(leaf string, index int, p *PriorityStatus, active int) {
	mark := " "
	if p.Priority == active {
		mark = "*"
	}
	t.line(4, "%s priority %d of %q: %s; %s", mark, index, leaf, p.Reason, Counts(&p.Endpoints))
}

func (t *explanationText) locality(l *LocalityStatus) {
	child := ""
	if l.Child != "" {
		child = "; child policy " + l.Child
	}
	t.line(4, "locality %q, weight %d: %s of the cluster%s", Place(l.Region, l.Zone, l.SubZone), l.Weight, Percent(l.Share), child)
}

func (t *explanationText) endpoint(e *Located) {
	share := ""
	if !e.byChild() {
		share = " " + Percent(e.Share)
	}
	condition, notes := Condition(e.EndpointStatus), e.Notes()
	if strings.HasPrefix(e.Out, e.State+" ") { // such as "CONNECTING for 3s"
		condition, notes = e.Out, notes[1:]
	}
	t.line(6, "%s%s, %s", e.Address, share, strings.Join(append([]string{condition}, notes...), ", "))
}
