// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"fmt"
	"strings"
)

// Changes counts how a configuration differs from the previous one. An endpoint that moves
// to another locality or priority is neither added nor removed.
type Changes struct {
	Routes                            bool // of the virtual host, or filters of the listener
	ClustersAdded, ClustersRemoved    int
	EndpointsAdded, EndpointsRemoved  int
	Weights                           int // endpoints with a changed weight
	Health                            int // endpoints that started or stopped draining
	Localities                        int // leaves with changed localities or locality weights
	Priorities, Policies, TLS, Limits int // leaves with changed priorities, policy, TLS, or limits
}

// endpointsOnly reports whether nothing changed above the endpoints.
func (c *Changes) endpointsOnly() bool {
	only := Changes{EndpointsAdded: c.EndpointsAdded, EndpointsRemoved: c.EndpointsRemoved, Weights: c.Weights, Health: c.Health, Localities: c.Localities}
	return *c == only
}

// plus returns the sum of two changes of endpoints only.
func (c *Changes) plus(later *Changes) *Changes {
	return &Changes{
		EndpointsAdded:   c.EndpointsAdded + later.EndpointsAdded,
		EndpointsRemoved: c.EndpointsRemoved + later.EndpointsRemoved,
		Weights:          c.Weights + later.Weights,
		Health:           c.Health + later.Health,
		Localities:       c.Localities + later.Localities,
	}
}

// String returns the changes as a list, such as "routes, +2 -1 endpoints, 3 weights";
// "nothing" if it is empty.
func (c Changes) String() string {
	var list []string
	plusMinus := func(added, removed int, what string) {
		switch {
		case added > 0 && removed > 0:
			list = append(list, fmt.Sprintf("+%d -%d %s", added, removed, what))
		case added > 0:
			list = append(list, fmt.Sprintf("+%d %s", added, what))
		case removed > 0:
			list = append(list, fmt.Sprintf("-%d %s", removed, what))
		}
	}
	if c.Routes {
		list = append(list, "routes")
	}
	plusMinus(c.ClustersAdded, c.ClustersRemoved, "clusters")
	plusMinus(c.EndpointsAdded, c.EndpointsRemoved, "endpoints")
	for _, n := range []struct {
		count int
		what  string
	}{
		{c.Weights, "weights"}, {c.Health, "draining or not"}, {c.Localities, "localities"}, {c.Priorities, "priorities"},
		{c.Policies, "policies"}, {c.TLS, "TLS"}, {c.Limits, "drops or limits"},
	} {
		if n.count > 0 {
			list = append(list, fmt.Sprintf("%d %s", n.count, n.what))
		}
	}
	if list == nil {
		return "nothing"
	}
	return strings.Join(list, ", ")
}
