// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// A world is the resources that the control planes serve, and the states of the backends. Its
// types are simplified xDS types, which can be printed and compared.
type world struct {
	inline        bool          // the routes are in the listener
	maxStream     time.Duration // the listener's max_stream_duration; 0 means no limit
	fault         *fault
	hosts         []host
	clusters      []cluster
	ignoreWeights bool     // Config.IgnoreEndpointWeights (D2)
	gone          []string // resources that are not served: "LDS", "RDS", "CDS name", "EDS name"
	defects       []defect // resources that are served in a version to be rejected
	unreachable   []string // backends
}

type host struct {
	domains []string
	routes  []route
	retry   *retry
	fault   *fault // overrides the listener's
	changes bool   // of request headers, see changedHeaders
}

// Kinds of path and header matches.
const (
	matchPrefix  = "prefix"
	matchExact   = "exact"
	matchRegex   = "regex"
	matchSuffix  = "suffix"
	matchPresent = "present"
	matchRange   = "range" // value is "lo-hi"
	matchContain = "contains"
)

type route struct {
	path       string
	kind       string // of path match: prefix, exact, regex
	ignoreCase bool
	headers    []header
	fraction   fraction
	action     string // one of the actions
	clusters   []weighted
	timeout    *time.Duration // max_stream_duration
	headerMax  *time.Duration // grpc_timeout_header_max
	retry      *retry
	hash       []hashPolicy
	fault      *fault
	changes    bool // of request headers, see changedHeaders
	authority  bool // is rewritten, which an untrusted server cannot do
}

// Actions of routes.
const (
	forward    = "forward"
	nonForward = "non-forwarding"
	direct     = "direct response"
	redirect   = "redirect"
)

type header struct {
	name, kind, value string
	invert            bool
	ignoreCase        bool
}

// fraction is a runtime_fraction; of 0 means none.
type fraction struct{ n, of uint32 }

type weighted struct {
	cluster string
	weight  uint32
	fault   *fault
}

type retry struct {
	on        []string
	n         uint32 // 0 is unset
	base, max time.Duration
	hedge     time.Duration // after which unary RPCs are hedged; 0 is never
	perTry    time.Duration // the time of an attempt; 0 is not limited
}

type hashPolicy struct {
	header    string // empty is the channel's id
	regex     string
	rewritten string
	terminal  bool
}

type fault struct {
	abort, delay fraction
	code         uint32 // gRPC's
	http         uint32 // instead of code, if not 0
	delayBy      time.Duration
	byHeader     bool
}

// Kinds of clusters.
const (
	eds       = "EDS"
	dns       = "LOGICAL_DNS"
	aggregate = "aggregate"
)

// LB policies of clusters.
const (
	roundRobin       = "ROUND_ROBIN"
	leastRequest     = "LEAST_REQUEST"
	ringHash         = "RING_HASH"
	wrrRoundRobin    = "wrr_locality{round_robin}"
	wrrRandom        = "wrr_locality{random, round_robin}" // stock has no random
	wrrLeastRequest  = "wrr_locality{least_request}"
	wrrPickFirst     = "wrr_locality{pick_first}"
	plainRoundRobin  = "round_robin"
	pickFirst        = "pick_first"
	typedRingHash    = "ring_hash"
	clientWeightedRR = "wrr_locality{client_side_weighted_round_robin}"
)

type cluster struct {
	name        string
	kind        string
	children    []string // of an aggregate
	edsName     string   // empty is name
	policy      string
	maxRequests uint32 // 0 is unset
	maxRetries  uint32 // 0 is unset
	loadReports bool
	outlier     bool
	checked     bool // by the health service of backends, which are SERVING
	drops       []drop
	localities  []locality // of EDS; LOGICAL_DNS has the first backend of the cluster's
}

type drop struct {
	category string
	fraction fraction
}

type locality struct {
	name      string
	priority  uint32
	weight    uint32 // 0 is unset
	endpoints []endpoint
}

type endpoint struct {
	backend string
	weight  uint32 // 0 is unset
	health  corev3.HealthStatus
}

// A defect makes a resource one to be rejected.
type defect struct {
	typ     string // "LDS", "RDS", "CDS", "EDS"
	name    string // of the cluster, for CDS and EDS
	kind    string // see defectKinds
	version int    // so that it is new each time
}

// clone returns a copy that shares nothing with w that a change would touch.
func (w *world) clone() *world {
	c := *w
	c.gone, c.defects, c.unreachable = slices.Clone(w.gone), slices.Clone(w.defects), slices.Clone(w.unreachable)
	c.hosts = slices.Clone(w.hosts)
	for i := range c.hosts {
		h := &c.hosts[i]
		h.domains, h.routes = slices.Clone(h.domains), slices.Clone(h.routes)
		for k := range h.routes {
			r := &h.routes[k]
			r.headers, r.clusters, r.hash = slices.Clone(r.headers), slices.Clone(r.clusters), slices.Clone(r.hash)
		}
	}
	c.clusters = slices.Clone(w.clusters)
	for i := range c.clusters {
		cl := &c.clusters[i]
		cl.children, cl.drops, cl.localities = slices.Clone(cl.children), slices.Clone(cl.drops), slices.Clone(cl.localities)
		for k := range cl.localities {
			cl.localities[k].endpoints = slices.Clone(cl.localities[k].endpoints)
		}
	}
	return &c
}

// cluster returns the cluster with a name, or nil.
func (w *world) cluster(name string) *cluster {
	for i := range w.clusters {
		if w.clusters[i].name == name {
			return &w.clusters[i]
		}
	}
	return nil
}

// leaves returns the clusters that an RPC for a cluster can go to.
func (w *world) leaves(name string) []*cluster {
	c := w.cluster(name)
	if c == nil {
		return nil
	}
	if c.kind != aggregate {
		return []*cluster{c}
	}
	var all []*cluster
	for _, child := range c.children {
		all = append(all, w.leaves(child)...)
	}
	return all
}

func (w *world) isGone(resource string) bool { return slices.Contains(w.gone, resource) }
