// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package diagnosis_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/xdslb/xdslb/integrate/internal/diagnosis"
	"github.com/xdslb/xdslb/integrate/report"
)

// TestNotesAreNotRepeated: the error of a resource is listed for the resource only, and not again
// for each cluster whose note contains it, whether the resource is the cluster or its assignment. A
// note that repeats no resource's error is listed for the cluster.
func TestNotesAreNotRepeated(t *testing.T) {
	const n = 3000
	s := &report.TargetStatus{}
	for i := range n {
		cluster, service := fmt.Sprint("c", i), fmt.Sprint("e", i)
		missing := fmt.Sprintf("xdslb: Cluster resource %q not found", cluster)
		invalid := fmt.Sprintf("ClusterLoadAssignment %q: endpoints: must be", service)
		s.Resources = append(s.Resources, report.ResourceStatus{Type: "Cluster", Name: cluster, State: "DOES_NOT_EXIST", Error: missing})
		note := missing
		if i%2 == 0 {
			s.Resources = append(s.Resources, report.ResourceStatus{Type: "ClusterLoadAssignment", Name: service, State: "NACKED", Error: invalid})
			note = invalid + "; " + missing
		}
		s.Clusters = append(s.Clusters, report.ClusterStatus{Leaves: []report.LeafStatus{
			{Name: cluster, Service: service, MaxRequests: 1, Note: "[xDS node id: \"n\"]: " + note},
		}})
	}
	s.Clusters[7].Leaves[0].Note = `of its own, and no "resource's"`
	list := diagnosis.Find(s)
	if want := n + n/2 + 1; len(list) != want || list[0].Text != `Cluster c7: of its own, and no "resource's"` {
		t.Errorf("%d findings, want %d; the first is %q", len(list), want, list[0].Text)
	}
}

// TestOverlay: skipped patches and a file that is not in force are errors; patches that match nothing
// are not.
func TestOverlay(t *testing.T) {
	s := &report.TargetStatus{OverlayError: "xdslb: overlay: file f: no JSON value", Overlay: []report.PatchStatus{
		{Patch: "file f: patches[0]"}, {Patch: "file f: patches[1]", Changed: []string{"Cluster a"}, Skipped: []string{"Cluster b: unsupported"}},
	}}
	list := diagnosis.Find(s)
	if errors, notes := diagnosis.Count(list); errors != 2 || notes != 0 || list[1].Text != "Overlay, file f: patches[1]: skipped for Cluster b: unsupported" {
		t.Errorf("findings %+v", list)
	}
}

// TestCauseOfTarget: a resource or a server whose error is the cause of the target's error is not
// listed again.
func TestCauseOfTarget(t *testing.T) {
	s := &report.TargetStatus{
		Error:     `xdslb: Listener resource "a" not found; xDS server s: connection refused`,
		Resources: []report.ResourceStatus{{Type: "Listener", Name: "a", State: "DOES_NOT_EXIST", Error: `Listener resource "a" not found`}, {Type: "Cluster", Name: "b", State: "NACKED", Error: "bad"}},
		Servers:   []report.ServerStatus{{URI: "s", InUse: true, Error: "connection refused"}, {URI: "t", InUse: true, Error: "timeout"}},
	}
	list := diagnosis.Find(s)
	if errors, notes := diagnosis.Count(list); errors != 3 || notes != 0 {
		t.Errorf("%d errors and %d notes, want 3 and 0: %+v", errors, notes, list)
	}
}

// TestCauseOfCluster: the error of a resource is not listed again if it is the cause of a failing
// cluster's error.
func TestCauseOfCluster(t *testing.T) {
	s := &report.TargetStatus{
		Clusters: []report.ClusterStatus{{
			Name: "a", State: "TRANSIENT_FAILURE", Error: `xdslb: cluster "a": lb_policy: unexpected 99; endpoints: bad port`,
			Leaves: []report.LeafStatus{{Name: "a", Service: "e", MaxRequests: 1}},
		}},
		Resources: []report.ResourceStatus{
			{Type: "Cluster", Name: "a", State: "NACKED", Error: "lb_policy: unexpected 99"}, {Type: "ClusterLoadAssignment", Name: "e", State: "NACKED", Error: "bad port"},
			{Type: "Cluster", Name: "b", State: "NACKED", Version: "1", Error: "lb_policy: unexpected 99"},
		},
	}
	list := diagnosis.Find(s)
	if len(list) != 2 || list[1].Text != "Cluster b is NACKED (version 1 stays in use): lb_policy: unexpected 99" {
		t.Errorf("the findings are %+v", list)
	}
}

// TestDrops checks that drops are a note, and an error if no RPC passes.
func TestDrops(t *testing.T) {
	for perMillion, want := range map[uint32]diagnosis.Finding{
		250_000:   {Text: "Cluster a: 43.75 % of the RPCs are dropped, as the control plane demands."},
		1_000_000: {Error: true, Text: "Cluster a: all RPCs are dropped, as the control plane demands."},
	} {
		drops := []report.DropStatus{{Category: "x", PerMillion: 250_000}, {Category: "y", PerMillion: perMillion}}
		s := &report.TargetStatus{Clusters: []report.ClusterStatus{{Name: "a", State: "READY", Leaves: []report.LeafStatus{{Name: "a", MaxRequests: 1, Drops: drops}}}}}
		if list := diagnosis.Find(s); !slices.Equal(list, []diagnosis.Finding{want}) {
			t.Errorf("the findings are %+v, want %+v", list, want)
		}
	}
}

// TestCauseOfNote checks that a failing cluster whose error has the note of its leaf is one finding.
func TestCauseOfNote(t *testing.T) {
	s := &report.TargetStatus{Clusters: []report.ClusterStatus{{
		Name: "a", State: "TRANSIENT_FAILURE", Error: "no targets to pick from; it demands TLS", Leaves: []report.LeafStatus{{Name: "a", MaxRequests: 1, Note: "it demands TLS"}},
	}}}
	if list := diagnosis.Find(s); len(list) != 1 {
		t.Errorf("the findings are %+v, want one", list)
	}
}

// TestConnecting checks that a server without a stream so far is a note, unless the target's error
// names it.
func TestConnecting(t *testing.T) {
	s := &report.TargetStatus{Error: `waiting for Listener resource "a": xDS server "s" is not connected yet`, Servers: []report.ServerStatus{{URI: "s", InUse: true}, {URI: "t", InUse: true}}}
	if list := diagnosis.Find(s); len(list) != 2 || list[1] != (diagnosis.Finding{Text: "xDS server t is not connected yet."}) {
		t.Errorf("the findings are %+v", list)
	}
}
