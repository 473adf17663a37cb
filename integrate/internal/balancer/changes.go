// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"reflect"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// noteLeaf counts the differences between two configurations of a leaf, except for its
// endpoints, which the reconciler counts.
func noteLeaf(c *eventlog.Changes, was, is *picker.Leaf) {
	count := func(n *int, differs bool) {
		if differs {
			*n++
		}
	}
	count(&c.Priorities, len(was.Priorities) != len(is.Priorities))
	count(&c.Policies, was.Policy != is.Policy && !reflect.DeepEqual(was.Policy, is.Policy))
	count(&c.TLS, was.TLS != is.TLS && !reflect.DeepEqual(was.TLS, is.TLS))
	count(&c.Limits, was.MaxRequests != is.MaxRequests || !persistent.SameSlice(was.Drops, is.Drops) && !reflect.DeepEqual(was.Drops, is.Drops))
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

// noteEndpoint counts the differences between two configurations of an endpoint.
func noteEndpoint(c *eventlog.Changes, was, is *picker.Endpoint) {
	if was.Weight != is.Weight {
		c.Weights++
	}
	if was.Health != is.Health {
		c.Health++
	}
}
