// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"context"
	"strings"
)

// A RouteCheck is the result of matching a route with an RPC.
type RouteCheck struct {
	Route int // index in Config.Routes
	// Failed is the first condition that the RPC does not meet, in the order of Condition.
	// Header and Values are set for ConditionHeader: the condition, and the values visible to
	// routes, nil if the RPC lacks the header.
	Failed condition
	Header *HeaderMatch
	Values []string
	// Probability is the probability that the RPC takes this route, and no earlier one.
	Probability float64
}

// condition is a kind of condition of a route.
type condition uint8

// The conditions of a route. The fraction fails only if it is 0.
const (
	ConditionNone condition = iota // all are met
	ConditionPath
	ConditionHeader
	ConditionFraction
)

// ExplainRoutes checks an RPC against the routes in order, up to the first that matches with
// certainty. unmatched is the probability that no route matches. Match draws from the same
// probabilities. O(conditions); calls Env.Header.
func (s *Snapshot) ExplainRoutes(ctx context.Context, method string) (checks []RouteCheck, unmatched float64) {
	unmatched = 1
	for i := range s.routes {
		if unmatched == 0 {
			break
		}
		r := &s.routes[i]
		c := RouteCheck{Route: i}
		fraction := 1.
		if r.Fraction != nil {
			fraction = float64(*r.Fraction) / 1e6
		}
		if c.Header, c.Values = s.failingHeader(ctx, r); c.Header != nil {
			c.Failed = ConditionHeader
		} else if fraction == 0 {
			c.Failed = ConditionFraction
		}
		if !r.Path.matches(method) {
			c = RouteCheck{Route: i, Failed: ConditionPath}
		}
		if c.Failed == ConditionNone {
			c.Probability = unmatched * fraction
			unmatched -= c.Probability
		}
		checks = append(checks, c)
	}
	return checks, unmatched
}

// failingHeader returns the first header condition that an RPC does not meet, and the visible
// values of that header. It returns nil if all conditions are met.
func (s *Snapshot) failingHeader(ctx context.Context, r *Route) (*HeaderMatch, []string) {
	for i := range r.Headers {
		if values := s.visibleHeader(ctx, r.Headers[i].Name); !r.Headers[i].matches(values) {
			return &r.Headers[i], values
		}
	}
	return nil, nil
}

// visibleHeader returns the header values visible to conditions and hash policies: nil for binary
// headers (T-RC-3), and a fixed content type (A28).
func (s *Snapshot) visibleHeader(ctx context.Context, name string) []string {
	switch {
	case strings.HasSuffix(name, "-bin"):
		return nil
	case name == "content-type":
		return contentType
	}
	return s.env.Header(ctx, name)
}

// A ClusterShare is a cluster of a route.
type ClusterShare struct {
	Cluster int32   // index in Config.Clusters
	Share   float64 // of the route's RPCs
}

// ExplainTargets returns the clusters of a route, each once, in configuration order. Their
// shares are those of the compiled table from which Match draws. It is empty for a route that
// does not forward, and for an invalid index.
func (s *Snapshot) ExplainTargets(route int) []ClusterShare {
	if route < 0 || route >= len(s.table.routes) {
		return nil
	}
	to := &s.table.routes[route]
	switch {
	case to.cluster >= 0:
		return []ClusterShare{{to.cluster, 1}}
	case to.cluster == noCluster:
		return nil
	}
	var list []ClusterShare
	at := map[int32]int{} // index in the list by cluster
	for i, share := range to.split.shares(len(to.clusters)) {
		k, listed := at[to.clusters[i]]
		if !listed {
			k, at[to.clusters[i]] = len(list), len(list)
			list = append(list, ClusterShare{Cluster: to.clusters[i]})
		}
		list[k].Share += share
	}
	return list
}
