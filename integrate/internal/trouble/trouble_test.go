// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package trouble_test

import (
	"fmt"
	"testing"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/internal/trouble"
)

// TestNotesAreSaidOnce: what is wrong with a resource is said of that, and not once more of each
// cluster whose note has it: be it the cluster's own, or a collection of its endpoints. What no
// resource says is said of the cluster.
func TestNotesAreSaidOnce(t *testing.T) {
	const n = 3000
	s := &integrate.TargetStatus{}
	for i := range n {
		collection, service := fmt.Sprintf("xdstp://a/LbEndpoint/%d/*", i), fmt.Sprint("e", i)
		missing := fmt.Sprintf("xds: LbEndpoint resource %q not found", collection)
		invalid := fmt.Sprintf("ClusterLoadAssignment %q: endpoints: must be", service)
		s.Resources = append(s.Resources, integrate.ResourceStatus{Type: "LbEndpoint", Name: collection, State: "DOES_NOT_EXIST", Error: missing})
		note := missing
		if i%2 == 0 {
			s.Resources = append(s.Resources, integrate.ResourceStatus{Type: "ClusterLoadAssignment", Name: service, State: "NACKED", Error: invalid})
			note = invalid + "; " + missing
		}
		s.Clusters = append(s.Clusters, integrate.ClusterStatus{Leaves: []integrate.LeafStatus{
			{Name: fmt.Sprint("c", i), Service: service, MaxRequests: 1, Note: "[xDS node id: \"n\"]: " + note},
		}})
	}
	s.Clusters[7].Leaves[0].Note = `of its own, and no "resource's"`
	list := trouble.Of(s)
	if want := n + n/2 + 1; len(list) != want || list[0].Text != `Cluster c7: of its own, and no "resource's"` {
		t.Errorf("%d troubles, want %d; the first is %q", len(list), want, list[0].Text)
	}
}
