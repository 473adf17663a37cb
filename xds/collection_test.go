// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

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
	cp.serve(append(target("svc", 1)[:3], collected("svc", "a", "b"))...)
	w := h.watch("svc")
	if got := ports(w.cluster(t, "svc")); got != "svc 1 2 3" {
		t.Fatalf("endpoints %q", got)
	}
	return h, cp, w
}

// status returns what is known of a resource, the zero value if that is nothing.
func (h *harness) status(name string) ResourceStatus {
	synctest.Wait()
	for s := range h.c.Resources() {
		if s.Name == name {
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
			if got := ports(w.cluster(t, "svc")); got != step.want {
				t.Errorf("%s: endpoints %q, want %q", step.what, got, step.want)
			}
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
		if got := ports(w.cluster(t, "svc")); got != "svc 1 2 6 3" {
			t.Errorf("endpoints %q", got)
		}
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

// TestCollectionReconnect: names and versions go up, and only what has changed comes down.
func TestCollectionReconnect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, cp, w := servingCollections(t, Options{})
		updates := w.got().updates
		cp.hangUp(errors.New("bye"))
		advance(time.Minute)
		reqs := cp.mustDelta().Requests(leds.URL())
		if len(reqs) != 1 || len(reqs[0].InitialResourceVersions) != 3 || len(reqs[0].ResourceNamesSubscribe) != 2 {
			t.Errorf("requests %v, want one with three versions", reqs)
		}
		if n := cp.mustDelta().Stats(leds.URL()).Responses; n != 0 || w.got().updates != updates {
			t.Errorf("%d responses, want none", n)
		}
		cp.refuse(errRefused)
		advance(time.Second)
		cp.part("a", 1)
		cp.join("b", 8)
		cp.refuse(nil)
		advance(time.Minute)
		if got := ports(w.cluster(t, "svc")); got != "svc 2 3 8" {
			t.Errorf("endpoints %q", got)
		}
		if n := cp.mustDelta().Stats(leds.URL()).Responses; n != 1 {
			t.Errorf("%d responses, want one", n)
		}
	})
}

// TestCollectionWaits: an assignment whose collections are not there yet does not replace
// what is in use, and one that never comes counts as empty in the end.
func TestCollectionWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := collecting(t, Options{}, deltaFeature)
		w := h.watch("svc")
		for _, m := range target("svc", 1) {
			typ, _ := nameOf(m)
			cp.mustDelta().Send(typ.URL(), "1", m)
		}
		cp.mustDelta().Send(eds.URL(), "2", collected("svc", "a", "c"))
		synctest.Wait()
		cp.mustDelta().Respond(membersOf("1", "a", 2))
		if got := ports(w.cluster(t, "svc")); got != "svc 1" {
			t.Errorf("endpoints %q, want those from before", got)
		}
		if s := h.status(xdstest.Glob("", "c")); s.State != Requested || !s.Watched {
			t.Errorf("collection %+v, want one that is waited for", s)
		}
		advance(time.Minute)
		note := w.cluster(t, "svc").Leaves[0].ResolutionNote
		if got := ports(w.cluster(t, "svc")); got != "svc 2" || note == nil || !strings.Contains(note.Error(), "not found") {
			t.Errorf("endpoints %q, note %v", got, note)
		}
		if s := h.status(xdstest.Glob("", "c")); s.State != DoesNotExist {
			t.Errorf("collection %+v", s)
		}
		// What is said to be gone leaves what there is, and is no fault of what is empty.
		cp.mustDelta().Remove(leds.URL(), xdstest.Glob("", "a"), xdstest.Glob("", "c"))
		if got := ports(w.cluster(t, "svc")); got != "svc 2" || h.status(xdstest.Glob("", "a")).State != DoesNotExist {
			t.Errorf("endpoints %q", got)
		}
		cp.mustDelta().Respond(membersOf("2", "a", 3))
		cp.mustDelta().Respond(membersOf("2", "c", 4))
		if got := ports(w.cluster(t, "svc")); got != "svc 2 3 4" || w.cluster(t, "svc").Leaves[0].ResolutionNote != nil {
			t.Errorf("endpoints %q", got)
		}
		// Back to endpoints of its own: the collections are left.
		cp.mustDelta().Send(eds.URL(), "3", endpointsAt("svc", 9))
		advance(time.Minute)
		if got := ports(w.cluster(t, "svc")); got != "svc 9" || h.entries() != 4 {
			t.Errorf("endpoints %q, %d entries", got, h.entries())
		}
	})
}

// TestCollectionPending: a target that waits for a collection says so.
func TestCollectionPending(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := collecting(t, Options{}, deltaFeature)
		w := h.watch("svc")
		for _, m := range append(target("svc")[:3], collected("svc", "a")) {
			typ, _ := nameOf(m)
			cp.mustDelta().Send(typ.URL(), "1", m)
		}
		synctest.Wait()
		if err := h.c.Waiting("svc", "svc"); err == nil || !strings.Contains(err.Error(), xdstest.Glob("", "a")) {
			t.Errorf("waiting for %v", err)
		}
		names := 0
		for s := range h.c.TargetResources("svc", "svc") {
			if s.Type == leds {
				names++
			}
		}
		if names != 1 || w.got().updates != 0 {
			t.Errorf("%d collections, %d updates", names, w.got().updates)
		}
		cp.mustDelta().Remove(leds.URL(), xdstest.Glob("", "a")) // there is none: it is empty
		if got := ports(w.cluster(t, "svc")); got != "svc" || w.cluster(t, "svc").Leaves[0].ResolutionNote != nil {
			t.Errorf("endpoints %q", got)
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
		if got := ports(w.cluster(t, "svc")); got != "svc 1 2 3 4" || note == nil || !strings.Contains(note.Error(), "1 endpoints of collections are left out") {
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
		if got := ports(w.cluster(t, "svc")); got != "svc 1 2 3 4" {
			t.Errorf("endpoints %q", got)
		}
		if s := cp.mustDelta().Stats(leds.URL()); s.NACKs != 1 || !strings.Contains(s.LastError, "has no name") || !strings.Contains(s.LastError, "ClusterLoadAssignment") {
			t.Errorf("%+v", s)
		}
		heavy := lbEndpoint(9)
		heavy.LoadBalancingWeight = xdstest.LbEndpoint(xdstest.Endpoint{Weight: 1<<32 - 1}).LoadBalancingWeight
		cp.members(map[string]*endpointv3.LbEndpoint{memberAt("a", 9): heavy})
		if got := ports(w.cluster(t, "svc")); got != "svc 1 2 3 4" {
			t.Errorf("endpoints %q", got)
		}
	})
}

// TestCollectionTTL: a member lives as long as the server says.
func TestCollectionTTL(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, cp, w := servingCollections(t, Options{})
		resp := membersOf("9", "a", 1)
		resp.Resources[0].Ttl = durationpb.New(time.Minute)
		cp.mustDelta().Respond(resp)
		advance(50 * time.Second)
		beat := &discoveryv3.Resource{Name: memberAt("a", 1), Ttl: durationpb.New(time.Minute)}
		cp.mustDelta().Respond(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: leds.URL(), Resources: []*discoveryv3.Resource{beat}})
		advance(50 * time.Second)
		if got := ports(w.cluster(t, "svc")); got != "svc 1 2 3" {
			t.Errorf("endpoints %q", got)
		}
		advance(20 * time.Second)
		if got := ports(w.cluster(t, "svc")); got != "svc 2 3" {
			t.Errorf("endpoints %q after the time to live", got)
		}
		cp.mustDelta().Respond(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: leds.URL(), Resources: []*discoveryv3.Resource{beat}})
		if s := cp.mustDelta().Stats(leds.URL()); s.NACKs != 0 {
			synctest.Wait()
		}
		synctest.Wait()
		if s := cp.mustDelta().Stats(leds.URL()); s.NACKs != 1 || !strings.Contains(s.LastError, "a heartbeat without content") {
			t.Errorf("%+v", s)
		}
	})
}

// TestCollectionSotW: a glob collection cannot be had in state of the world. The assignment
// is refused, with the remedy, and what is in use stays.
func TestCollectionSotW(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := collecting(t, Options{})
		cp.serve(target("svc", 1)...)
		w := h.watch("svc")
		w.must(t)
		cp.serve(collected("svc", "a"))
		if got := ports(w.cluster(t, "svc")); got != "svc 1" {
			t.Errorf("endpoints %q", got)
		}
		if _, nacks, detail := cp.counts(eds); nacks != 1 || !strings.Contains(detail, "endpoints[0].leds_cluster_locality_config.leds_collection_name") || !strings.Contains(detail, deltaFeature) {
			t.Errorf("%d NACKs: %s", nacks, detail)
		}
	})
}

// TestCollectionVariant: a server that turns to the other variant and back.
func TestCollectionVariant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, w := servingCollections(t, Options{})
		cp.Serve(true, false)
		advance(time.Minute)
		if got := ports(w.cluster(t, "svc")); got != "svc 1 2 3" {
			t.Errorf("endpoints %q, want those from before", got)
		}
		if s := h.status(xdstest.Glob("", "a")); s.State != Unknown || !strings.Contains(s.Err.Error(), "state of the world") {
			t.Errorf("collection %+v", s)
		}
		cp.Serve(false, true)
		cp.part("a", 1)
		advance(5 * time.Minute)
		if got := ports(w.cluster(t, "svc")); got != "svc 2 3" || h.status(xdstest.Glob("", "a")).State != Acked {
			t.Errorf("endpoints %q, collection %+v", got, h.status(xdstest.Glob("", "a")))
		}
	})
}

// TestCollectionServers: what another server of the chain has takes the place of all that
// the one before it had.
func TestCollectionServers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHarness(t, Options{}, []string{serverDoc("cp", deltaFeature), serverDoc("fallback", deltaFeature)}, `, "authorities": {"": {}}`)
		first, second := h.servers["cp"], h.servers["fallback"]
		for i, cp := range []*fake{first, second} {
			cp.join("a", 1, 2+i)
			cp.serve(append(target("svc", 1)[:3], collected("svc", "a"))...)
		}
		first.refuse(errRefused)
		w := h.watch("svc")
		advance(time.Minute)
		if got := ports(w.cluster(t, "svc")); got != "svc 1 3" {
			t.Errorf("endpoints %q, want those of the fallback", got)
		}
		first.refuse(nil)
		advance(5 * time.Minute)
		if got := ports(w.cluster(t, "svc")); got != "svc 1 2" || second.connected() {
			t.Errorf("endpoints %q, want those of the first server", got)
		}
	})
}

// TestCollectionLinger: what nobody wants any more is left, and asked for anew.
func TestCollectionLinger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, w := servingCollections(t, Options{Linger: -1})
		w.cancel()
		advance(time.Second)
		if got := cp.mustDelta().Stats(leds.URL()).Names; len(got) != 0 {
			t.Errorf("subscribed to %q", got)
		}
		cp.part("a", 1)
		w = h.watch("svc")
		if got := ports(w.cluster(t, "svc")); got != "svc 2 3" {
			t.Errorf("endpoints %q", got)
		}
		w.cancel()
		advance(time.Minute)
		if n := h.entries(); n != 0 {
			t.Errorf("%d entries", n)
		}
	})
}

// TestCollectionOracle: in random histories the configuration is that of an assignment that
// has the same endpoints in itself.
func TestCollectionOracle(t *testing.T) {
	for seed := range uint64(8) {
		bubble(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 2))
			h, cp := collecting(t, Options{}, deltaFeature)
			cp.serve(listenerTo("svc", "svc"), routesTo("svc", "l", "e"), clusterTo("l", "l"), clusterTo("e", "e"), collected("l", "a", "b"))
			all := map[string]map[string]xdstest.Endpoint{"a": {}, "b": {}}
			w := h.watch("svc")
			for step := range 60 {
				for range 1 + rnd.IntN(3) {
					collection, name := []string{"a", "b"}[rnd.IntN(2)], fmt.Sprint("m", rnd.IntN(20))
					full := xdstest.Member("", collection, name)
					if rnd.IntN(3) == 0 {
						delete(all[collection], name)
						cp.Remove(leds.URL(), full)
						continue
					}
					e := xdstest.Endpoint{
						Addr:   netip.MustParseAddrPort(fmt.Sprintf("10.0.%d.%s:%d", collection[0], name[1:], 1+rnd.IntN(2))),
						Weight: rnd.Uint32N(3),
						Health: corev3.HealthStatus(rnd.IntN(4)),
					}
					all[collection][name] = e
					if err := cp.Update(xdstest.Resources{Members: map[string]*endpointv3.LbEndpoint{full: xdstest.LbEndpoint(e)}}); err != nil {
						t.Fatal(err)
					}
				}
				var localities []xdstest.Locality
				for _, collection := range []string{"a", "b"} {
					l := xdstest.Locality{Place: xdstest.Place{Zone: collection}}
					for _, name := range slices.Sorted(maps.Keys(all[collection])) {
						l.Endpoints = append(l.Endpoints, all[collection][name])
					}
					localities = append(localities, l)
				}
				cp.serve(xdstest.Endpoints("e", localities...))
				if rnd.IntN(10) == 0 {
					cp.hangUp(errors.New("bye"))
				}
				advance(time.Minute)
				got, want := w.cluster(t, "l").Leaves[0].Priorities, w.cluster(t, "e").Leaves[0].Priorities
				if fmt.Sprint(got) != fmt.Sprint(want) || len(got) != len(want) {
					t.Fatalf("seed %d, step %d: priorities\n%v, want\n%v", seed, step, got, want)
				}
			}
		})
	}
}

// TestAssembleCollections: members in a discovery.v3.Resource are put into assignments.
func TestAssembleCollections(t *testing.T) {
	all := []*anypb.Any{wrap(lbEndpoint(9))} // whose name is not known
	for _, m := range append(target("svc")[:3], collected("svc", "a")) {
		all = append(all, wrap(m))
	}
	c, err := Assemble("svc", "svc", all, nil, Options{})
	if err != nil || ports(c.Clusters[0]) != "svc" || !strings.Contains(fmt.Sprint(c.Clusters[0].Leaves[0].ResolutionNote), "has no members among the resources") {
		t.Errorf("%+v, %v", c, err)
	}
	for _, p := range []int{2, 1} {
		all = append(all, wrap(&discoveryv3.Resource{Name: memberAt("a", p), Resource: wrap(lbEndpoint(p))}))
	}
	c, err = Assemble("svc", "svc", all, nil, Options{})
	if err != nil || ports(c.Clusters[0]) != "svc 1 2" || c.Clusters[0].Leaves[0].ResolutionNote != nil {
		t.Errorf("%+v, %v", c, err)
	}
}
