// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/xdslb/xdslb/picker"
)

// Changes are what a configuration changed of the one before, counted as it was applied.
// An endpoint that moves to another locality or priority is neither added nor removed.
type Changes struct {
	Routes                            bool // of the virtual host, or the listener's filters
	ClustersAdded, ClustersRemoved    int
	EndpointsAdded, EndpointsRemoved  int
	Weights                           int // endpoints with another weight
	Health                            int // endpoints that began or ceased to drain
	Localities                        int // leaves with other localities, or other weights of these
	Priorities, Policies, TLS, Limits int // leaves with more or fewer priorities, or another policy, TLS, drops or breaker
}

// endpointsOnly reports whether nothing changed above the endpoints.
func (c *Changes) endpointsOnly() bool {
	only := Changes{EndpointsAdded: c.EndpointsAdded, EndpointsRemoved: c.EndpointsRemoved, Weights: c.Weights, Health: c.Health, Localities: c.Localities}
	return *c == only
}

// add adds the changes of a later configuration that changes endpoints only.
func (c *Changes) add(later *Changes) {
	c.EndpointsAdded += later.EndpointsAdded
	c.EndpointsRemoved += later.EndpointsRemoved
	c.Weights += later.Weights
	c.Health += later.Health
	c.Localities += later.Localities
}

// String returns the changes as a list, such as "routes, +2 -1 endpoints, 3 weights";
// "nothing" if there are none.
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

// noteLeaf counts what differs between two configurations of a leaf, but for its
// endpoints, which the reconciler counts.
func (c *Changes) noteLeaf(was, is *picker.Leaf) {
	count := func(n *int, differs bool) {
		if differs {
			*n++
		}
	}
	count(&c.Priorities, len(was.Priorities) != len(is.Priorities))
	count(&c.Policies, was.Policy != is.Policy && !reflect.DeepEqual(was.Policy, is.Policy))
	count(&c.TLS, was.TLS != is.TLS && !reflect.DeepEqual(was.TLS, is.TLS))
	count(&c.Limits, was.MaxRequests != is.MaxRequests || !sameSlice(was.Drops, is.Drops) && !reflect.DeepEqual(was.Drops, is.Drops))
	count(&c.Localities, len(was.Priorities) == len(is.Priorities) && otherLocalities(was.Priorities, is.Priorities))
}

// otherLocalities reports whether priorities differ in localities or their weights:
// O(localities).
func otherLocalities(was, is []picker.Priority) bool {
	for i := range is {
		if len(was[i].Localities) != len(is[i].Localities) {
			return true
		}
		for k := range is[i].Localities {
			if a, b := &was[i].Localities[k], &is[i].Localities[k]; a.ID != b.ID || a.Weight != b.Weight {
				return true
			}
		}
	}
	return false
}

// noteEndpoint counts what differs between two configurations of an endpoint.
func (c *Changes) noteEndpoint(was, is *picker.Endpoint) {
	if was.Weight != is.Weight {
		c.Weights++
	}
	if was.Health != is.Health {
		c.Health++
	}
}
