// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

const leds = resource.LbEndpointType

// collected returns the assignment of a service, with a locality for each collection.
func collected(service string, collections ...string) *endpointv3.ClusterLoadAssignment {
	var localities []xdstest.Locality
	for _, name := range collections {
		localities = append(localities, xdstest.Locality{Place: xdstest.Place{Zone: name}})
	}
	cla := xdstest.Endpoints(service, localities...)
	for i, name := range collections {
		xdstest.FromCollection(cla, i, xdstest.Glob("", name))
	}
	return cla
}

func lbEndpoint(port int) *endpointv3.LbEndpoint {
	return xdstest.LbEndpoint(xdstest.Endpoint{Addr: netip.MustParseAddrPort(fmt.Sprint("10.0.0.1:", port))})
}

// join serves members of a collection, each by the name of its port.
func (f *fake) join(collection string, ports ...int) {
	f.t.Helper()
	members := map[string]*endpointv3.LbEndpoint{}
	for _, p := range ports {
		members[memberAt(collection, p)] = lbEndpoint(p)
	}
	f.members(members)
}

func (f *fake) members(members map[string]*endpointv3.LbEndpoint) {
	f.t.Helper()
	if err := f.Update(xdstest.Resources{Members: members}); err != nil {
		f.t.Fatal(err)
	}
	synctest.Wait()
}

func (f *fake) part(collection string, ports ...int) {
	for _, p := range ports {
		f.Remove(leds.URL(), memberAt(collection, p))
	}
	synctest.Wait()
}

func memberAt(collection string, port int) string {
	return xdstest.Member("", collection, fmt.Sprintf("m%03d", port))
}

// collecting is only, with the authority that the names of collections have.
func collecting(t *testing.T, opts Options, features ...string) (*harness, *fake) {
	t.Helper()
	h := newHarness(t, opts, []string{serverDoc("cp", features...)}, `, "authorities": {"": {}}`)
	return h, h.servers["cp"]
}

// servingCollections returns a client that has target "svc", with the members 1 and 2 of
// collection a and 3 of b.
func servingCollections(t *testing.T, opts Options, features ...string) (*harness, *fake, *recorder) {
	t.Helper()
	h, cp := collecting(t, opts, append(features, deltaFeature)...)
	cp.join("a", 1, 2)
	cp.join("b", 3)
	cp.serve(append(targetOf("svc", 1)[:3], collected("svc", "a", "b"))...)
	w := h.watch("svc")
	if got := ports(w.cluster(t, "svc")); got != "svc 1 2 3" {
		t.Fatalf("endpoints %q", got)
	}
	return h, cp, w
}

// status returns what is known of a resource, the zero value if that is nothing.
func (h *harness) status(name string) ResourceStatus { return h.statusOf(resource.NumTypes, name) }

// statusOf is status for resources of one type, if there is such a type.
func (h *harness) statusOf(typ resource.Type, name string) ResourceStatus {
	synctest.Wait()
	for s := range h.c.Resources() {
		if s.Name == name && (typ == resource.NumTypes || s.Type == typ) {
			return s
		}
	}
	return ResourceStatus{}
}

// TestCollection: members come, change and go, each in a response of its own.
func TestCollection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, w := servingCollections(t, Options{})
		if w.got().updates != 1 {
			t.Errorf("%d updates, want one that has all", w.got().updates)
		}
		steps := []struct {
			what string
			do   func()
			want string
		}{
			{"comes", func() { cp.join("a", 7) }, "svc 1 2 7 3"},
			{"moves", func() { cp.members(map[string]*endpointv3.LbEndpoint{memberAt("a", 1): lbEndpoint(11)}) }, "svc 11 2 7 3"},
			{"goes", func() { cp.part("a", 2) }, "svc 11 7 3"},
			{"is unhealthy", func() {
				m := lbEndpoint(7)
				m.HealthStatus = 2
				cp.members(map[string]*endpointv3.LbEndpoint{memberAt("a", 7): m})
			}, "svc 11 3"},
			{"is healthy", func() { cp.join("a", 7) }, "svc 11 7 3"},
			{"all go", func() { cp.part("b", 3) }, "svc 11 7"},
			{"one comes", func() { cp.join("b", 4) }, "svc 11 7 4"},
			{"the same again", func() { _ = cp.Resend(leds.URL(), memberAt("b", 4)) }, "svc 11 7 4"},
		}
		for i, step := range steps {
			before, updates := cp.mustDelta().Stats(leds.URL()), w.got().updates
			step.do()
			w.serves(t, "svc", step.want, step.what)
			if n := w.got().updates - updates; n != 1 && i < len(steps)-1 {
				t.Errorf("%s: %d updates, want 1", step.what, n)
			}
			if after := cp.mustDelta().Stats(leds.URL()); after.Responses != before.Responses+1 || after.ACKs != before.ACKs+1 {
				t.Errorf("%s: %+v after %+v, want a response and an ACK", step.what, after, before)
			}
		}
		if s := h.status(xdstest.Glob("", "a")); s.State != Acked || !s.Watched || s.Type != leds || s.Members != 2 {
			t.Errorf("collection %+v", s)
		}
		if s := h.status(memberAt("a", 7)); s.State != Acked || s.Version == "" || s.Type != leds {
			t.Errorf("member %+v", s)
		}
	})
}

// TestCollectionNACK: a member that is invalid leaves its last version and all others in
// force.
func TestCollectionNACK(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, w := servingCollections(t, Options{})
		bad := lbEndpoint(99)
		bad.LoadBalancingWeight = xdstest.LbEndpoint(xdstest.Endpoint{Weight: 1}).LoadBalancingWeight
		bad.LoadBalancingWeight.Value = 0
		cp.members(map[string]*endpointv3.LbEndpoint{memberAt("a", 1): bad, memberAt("a", 5): bad, memberAt("a", 6): lbEndpoint(6)})
		w.serves(t, "svc", "svc 1 2 6 3")
		if s := cp.mustDelta().Stats(leds.URL()); s.NACKs != 1 || !strings.Contains(s.LastError, memberAt("a", 5)+`": load_balancing_weight: must be at least 1`) {
			t.Errorf("%+v", s)
		}
		note := w.cluster(t, "svc").Leaves[0].ResolutionNote
		if note == nil || !strings.Contains(note.Error(), memberAt("a", 1)) || !strings.Contains(note.Error(), "1 other members") {
			t.Errorf("note %v", note)
		}
		if s := h.status(xdstest.Glob("", "a")); s.State != Nacked || s.Rejected.Err == nil {
			t.Errorf("collection %+v", s)
		}
		if s := h.status(memberAt("a", 1)); s.State != Nacked || s.Version == "" || s.Rejected.Version == "" || s.Err == nil {
			t.Errorf("member %+v", s)
		}
		cp.part("a", 5)
		cp.join("a", 1)
		if note := w.cluster(t, "svc").Leaves[0].ResolutionNote; note != nil {
			t.Errorf("note %v when nothing is wrong any more", note)
		}
		if s := h.status(xdstest.Glob("", "a")); s.State != Acked {
			t.Errorf("collection %+v", s)
		}
	})
}

// membersOf is a response with members of a collection.
func membersOf(version, collection string, ports ...int) *discoveryv3.DeltaDiscoveryResponse {
	resp := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: leds.URL()}
	for _, p := range ports {
		resp.Resources = append(resp.Resources, &discoveryv3.Resource{Name: memberAt(collection, p), Version: version, Resource: wrap(lbEndpoint(p))})
	}
	return resp
}

// TestCollectionHostile: what no collection should have in it does no harm.
func TestCollectionHostile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, cp, w := servingCollections(t, Options{})
		cp.join("b", 2, 4) // 2 is in a, too
		note := w.cluster(t, "svc").Leaves[0].ResolutionNote
		if got := ports(w.cluster(t, "svc")); got != "svc 1 2 3 4" || note == nil || !strings.Contains(note.Error(), "1 endpoints of collections ignored") {
			t.Errorf("endpoints %q, note %v", got, note)
		}
		cp.part("a", 2)
		if got := ports(w.cluster(t, "svc")); got != "svc 1 2 3 4" || w.cluster(t, "svc").Leaves[0].ResolutionNote != nil {
			t.Errorf("endpoints %q", got)
		}
		stranger := membersOf("1", "z", 5) // of a collection that nobody asked for
		stranger.Resources = append(stranger.Resources, &discoveryv3.Resource{Name: "m", Version: "1", Resource: wrap(lbEndpoint(6))},
			&discoveryv3.Resource{Version: "1", Resource: wrap(lbEndpoint(6))},
			&discoveryv3.Resource{Name: xdstest.Glob("", "a"), Version: "1", Resource: wrap(lbEndpoint(6))},
			&discoveryv3.Resource{Name: memberAt("a", 8), Version: "1", Resource: wrap(endpointsAt("x", 1))})
		stranger.RemovedResources = []string{"m", memberAt("z", 1), "", xdstest.Glob("", "z"), "a/*"}
		cp.mustDelta().Respond(stranger)
		w.serves(t, "svc", "svc 1 2 3 4")
		if s := cp.mustDelta().Stats(leds.URL()); s.NACKs != 1 || !strings.Contains(s.LastError, "has no name") || !strings.Contains(s.LastError, "ClusterLoadAssignment") {
			t.Errorf("%+v", s)
		}
		heavy := lbEndpoint(9)
		heavy.LoadBalancingWeight = xdstest.LbEndpoint(xdstest.Endpoint{Weight: 1<<32 - 1}).LoadBalancingWeight
		cp.members(map[string]*endpointv3.LbEndpoint{memberAt("a", 9): heavy})
		w.serves(t, "svc", "svc 1 2 3 4")
	})
}
