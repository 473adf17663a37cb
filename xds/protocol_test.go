// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/resource"
)

// targetOf returns the resources of a target with one cluster, all of the same
// name.
func targetOf(name string, ports ...uint16) []proto.Message {
	return []proto.Message{listenerTo(name, name), routesTo(name, name), clusterTo(name, name), endpointsAt(name, ports...)}
}

// serving returns a client that has the configuration of target "svc".
func serving(t *testing.T, opts Options, features ...string) (*harness, *fake, *recorder) {
	t.Helper()
	h, cp := only(t, opts, features...)
	cp.serve(targetOf("svc", 1)...)
	w := h.watch("svc")
	w.must(t)
	return h, cp, w
}

// TestAnswer checks the fields of ACK and NACK (T-XDS-1): a NACK repeats the
// version that was last accepted, and both carry the nonce of the response.
func TestAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		h.watch("svc")
		check := func(version, nonce string, nack bool) {
			t.Helper()
			req := cp.last(lds)
			if req.VersionInfo != version || req.ResponseNonce != nonce || (req.ErrorDetail != nil) != nack {
				t.Errorf("request = %v, want version %q, nonce %q, NACK %v", req, version, nonce, nack)
			}
			cp.asked(lds, "svc")
		}
		check("", "", false)
		bad := listenerTo("svc", "r")
		bad.ApiListener.ApiListener = wrap(&discoveryv3.DiscoveryRequest{})
		cp.send(lds, "1", bad)
		check("", "1", true)
		cp.send(lds, "2", listenerTo("svc", "r"))
		check("2", "2", false)
		advance(time.Second) // NACKs are that far apart
		cp.send(lds, "3", bad)
		check("2", "3", true)
		if msg := cp.last(lds).ErrorDetail.Message; !strings.Contains(msg, "svc") {
			t.Errorf("error_detail %q does not name the resource", msg)
		}
		cp.send(lds, "4", listenerTo("svc", "r"))
		check("4", "4", false)
	})
}

// TestNewStream checks the first requests on a new stream (T-XDS-2,
// A27-NODE-1): nonces start over, versions and names do not, and a type without names is not
// mentioned.
func TestNewStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		w := h.watch("svc")
		cp.send(lds, "7", listenerTo("svc", "r"))
		cp.send(rds, "8", routesTo("r", "a", "b"))
		cp.send(cds, "9", clusterTo("a", "a"), clusterTo("b", "b"))
		cp.send(eds, "1", endpointsAt("a", 1), endpointsAt("b", 2))
		w.must(t)
		// The RouteConfiguration gives way to an inline one.
		cp.serve(inlineListener("svc", routesTo("", "a", "b")), clusterTo("a", "a"), clusterTo("b", "b"), endpointsAt("a", 1), endpointsAt("b", 2))
		cp.asked(rds) // T-XDS-3: no names, now that there were some, is none
		w.must(t)

		cp.hangUp(errors.New("going away"))
		advance(2 * time.Second)
		if n := cp.opened(); n != 2 {
			t.Fatalf("%d streams, want 2", n)
		}
		s := cp.must()
		var types []string
		for _, req := range s.Requests("") {
			if req.ResponseNonce == "" {
				types = append(types, fmt.Sprint(req.TypeUrl[strings.LastIndex(req.TypeUrl, ".")+1:], req.ResourceNames, req.VersionInfo))
			}
		}
		want := []string{"Listener[svc]1", "Cluster[a b]1", "ClusterLoadAssignment[a b]1"}
		if !slices.Equal(types, want) {
			t.Errorf("first requests = %q, want %q", types, want)
		}
	})
}

// TestVersionWithoutResources checks that the client does not send the version of resources that
// are not in the cache any more. Otherwise a server that relies on the version would not send them.
func TestVersionWithoutResources(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, w := serving(t, Options{Linger: -1})
		cp.refuse(errRefused)
		w.cancel()
		synctest.Wait()
		w = h.watch("other")
		cp.serve(targetOf("other", 5)...)
		cp.refuse(nil)
		advance(5 * time.Second)
		if req := cp.must().Requests("")[0]; req.VersionInfo != "" {
			t.Errorf("version %q claimed for a resource never received", req.VersionInfo)
		}
		w.must(t)
	})
}

// TestVersionForNewResource checks that a first request claims no version if something is
// wanted that the server has never sent, though the cache has the rest.
func TestVersionForNewResource(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, _ := serving(t, Options{})
		cp.refuse(errRefused)
		w := h.watch("other")
		cp.serve(targetOf("other", 5)...)
		cp.refuse(nil)
		advance(5 * time.Second)
		w.must(t)
		if req := cp.must().Requests(lds.URL())[0]; req.VersionInfo != "" {
			t.Errorf("version %q claimed for a resource never received", req.VersionInfo)
		}
	})
}

// TestNoWildcard checks that nothing is said on a new stream about a type of
// which no resource is wanted (T-XDS-2): a first request without names asks for
// everything.
func TestNoWildcard(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		cp.serve(inlineListener("svc", routesTo("", "c")), clusterTo("c", "c"), endpointsAt("c", 1))
		h.watch("svc").must(t)
		h.c.mu.Lock()
		defer h.c.mu.Unlock()
		s := h.c.pool.servers[h.c.cfg.Servers[0].Key()]
		s.openedLocked()
		n := 0
		for r, _ := s.requestLocked(nil); r != nil; r, _ = s.requestLocked(nil) {
			req := r.(*discoveryv3.DiscoveryRequest)
			if n++; len(req.ResourceNames) == 0 || req.TypeUrl == rds.URL() {
				t.Errorf("request %v", req)
			}
		}
		if n != 3 {
			t.Errorf("%d requests, want 3", n)
		}
	})
}

// TestRequestsCoalesce checks that names are collected (T-XDS-5): a hundred
// clusters are one request, and each request names them all.
func TestRequestsCoalesce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		w := h.watch("svc")
		var names []string
		var clusters, endpoints []proto.Message
		for i := range 100 {
			names = append(names, fmt.Sprintf("c%02d", i))
			clusters = append(clusters, clusterTo(names[i], names[i]))
			endpoints = append(endpoints, endpointsAt(names[i], uint16(i+1)))
		}
		cp.send(lds, "1", listenerTo("svc", "r"))
		cp.send(rds, "1", routesTo("r", names...))
		cp.asked(cds, names...)
		cp.send(cds, "1", clusters...)
		cp.asked(eds, names...)
		cp.send(eds, "1", endpoints...)
		if n := cp.count(cds); n != 2 {
			t.Errorf("%d CDS requests for 100 clusters, want 2: names and ACK", n)
		}
		if len(w.must(t).Clusters) != 100 || w.got().updates != 1 {
			t.Errorf("%d clusters in %d updates, want 100 in 1", len(w.got().config.Clusters), w.got().updates)
		}
	})
}

// TestSubscriptionRacesWithResponse checks that a name that was requested while a response is on
// its way is requested again by the answer to that response (T-XDS-4): the fake ignores requests
// that do not have its latest nonce.
func TestSubscriptionRacesWithResponse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, _ := serving(t, Options{})
		cp.serve(targetOf("other", 2)...)
		// The response is under way when the second target is watched.
		kit.Must(t, cp.Resend(lds.URL(), "svc"))
		w := h.watch("other")
		w.must(t)
		cp.asked(lds, "other", "svc")
	})
}

// TestUnknownType checks that a response of an unknown type is neither
// acknowledged nor rejected (T-XDS-12), nor one of a type that was never asked
// for.
func TestUnknownType(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		h.watch("svc")
		s := cp.must()
		before := len(s.Requests(""))
		cp.respond(lds, &discoveryv3.DiscoveryResponse{TypeUrl: "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", VersionInfo: "1"})
		cp.send(eds, "1", endpointsAt("svc", 1))
		if got := s.Requests(""); len(got) != before {
			t.Errorf("%d requests in response to resources that were not requested: %v", len(got)-before, got[before:])
		}
		cp.send(lds, "1", listenerTo("svc", "svc"))
		cp.asked(rds, "svc")
	})
}

// TestResourceTwice checks that a resource that is there twice is rejected, and
// that the first counts (T-XDS-12).
func TestResourceTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, cp, w := serving(t, Options{})
		cp.send(eds, "2", endpointsAt("svc", 8), endpointsAt("svc", 9))
		if _, nacks, detail := cp.counts(eds); nacks != 1 || !strings.Contains(detail, "second") {
			t.Errorf("%d NACKs, the latest %q; want one that reports a second", nacks, detail)
		}
		w.serves(t, "svc", "svc 8")
	})
}

// TestWrapped checks that resources may come in a discovery.Resource
// (T-XDS-13).
func TestWrapped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		w := h.watch("svc")
		for i, m := range targetOf("svc", 4) {
			_, name := nameOf(m)
			cp.respond(resource.Type(i), &discoveryv3.DiscoveryResponse{VersionInfo: "1",
				Resources: []*anypb.Any{wrap(&discoveryv3.Resource{Name: name, Version: "x", Resource: wrap(m)})}})
		}
		w.serves(t, "svc", "svc 4")
	})
}

// TestExtraResources checks that unrequested resources are skipped,
// whatever is in them (A27-LDS-2, A27-LDS-3).
func TestExtraResources(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		w := h.watch("svc")
		cp.send(lds, "1", listenerTo("SVC", "x"), listenerTo("svc:80", "x"), listenerTo("svc", "svc"), listenerTo("svc.", "x"))
		cp.asked(rds, "svc")
		cp.send(rds, "1", routesTo("svc", "svc"))
		cp.send(cds, "1", badCluster("other"), clusterTo("svc", "svc"))
		if _, nacks, detail := cp.counts(cds); nacks != 0 {
			t.Errorf("a resource that was not requested was rejected: %s", detail)
		}
		cp.send(eds, "1", endpointsAt("svc", 1))
		w.must(t)
	})
}

// TestMixedResponse checks that the valid part of a response is applied while the whole response is
// rejected (A46, T-XDS-9), that the version does not advance, and that a resource that returns to
// its previous content has no error any more.
func TestMixedResponse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		w := h.watch("svc")
		cp.send(lds, "1", listenerTo("svc", "r"))
		cp.send(rds, "1", routesTo("r", "a", "b"))
		cp.send(cds, "1", clusterTo("a", "a"), clusterTo("b", "b"))
		cp.send(eds, "1", endpointsAt("a", 1), endpointsAt("b", 2))
		w.must(t)

		cp.send(eds, "2", endpointsAt("a", 11), badEndpoints("b"))
		if req := cp.last(eds); req.VersionInfo != "1" || req.ErrorDetail == nil || !strings.Contains(req.ErrorDetail.Message, "b") {
			t.Errorf("request = %v, want a NACK with version 1 that names b", req)
		}
		if a, b := w.cluster(t, "a"), w.cluster(t, "b"); ports(a) != "a 11" || ports(b) != "b 2" {
			t.Errorf("endpoints = %q and %q, want the new ones of a and the old ones of b", ports(a), ports(b))
		} else if note := b.Leaves[0].ResolutionNote; note == nil || a.Leaves[0].ResolutionNote != nil {
			t.Errorf("notes = %v and %v, want one for b only", a.Leaves[0].ResolutionNote, note)
		}
		if s := statusOf(h.c, eds, "b"); s.State != Nacked || s.Version != "1" || s.Err == nil {
			t.Errorf("status of b = %+v", s)
		}

		updates := w.got().updates
		advance(time.Second)
		cp.send(eds, "3", badEndpoints("b")) // T-XDS-10: the same error again
		synctest.Wait()
		if w.got().updates != updates {
			t.Error("the same invalid resource was news")
		}
		if _, nacks, _ := cp.counts(eds); nacks != 2 {
			t.Errorf("%d NACKs, want 2", nacks)
		}

		cp.send(eds, "4", endpointsAt("b", 2))
		if note := w.cluster(t, "b").Leaves[0].ResolutionNote; note != nil {
			t.Errorf("note = %v, want none: b has its previous content", note)
		}
		if s := statusOf(h.c, eds, "b"); s.State != Acked || s.Version != "4" {
			t.Errorf("status of b = %+v", s)
		}
		if req := cp.last(eds); req.VersionInfo != "4" || req.ErrorDetail != nil {
			t.Errorf("request = %v, want an ACK of version 4", req)
		}
	})
}

// statusOf returns the status of a resource.
func statusOf(c *Client, typ resource.Type, name string) ResourceStatus {
	for s := range c.Resources() {
		if s.Type == typ && s.Name == name {
			return s
		}
	}
	return ResourceStatus{}
}

// TestUnchanged checks that identical bytes publish nothing, in a new version
// too (T-XDS-10), and that new watchers of a rejected resource get both the
// data and the error (T-XDS-11).
func TestUnchanged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, w := serving(t, Options{})
		for i, m := range targetOf("svc", 1) {
			cp.send(resource.Type(i), "next", m)
		}
		if w.got().updates != 1 {
			t.Errorf("%d updates, want 1: nothing changed", w.got().updates)
		}
		cp.send(eds, "bad", badEndpoints("svc"))
		cp.serve(listenerTo("second", "svc"))
		second := h.watch("second")
		if leaf := second.cluster(t, "svc").Leaves[0]; leaf.ResolutionNote == nil || len(leaf.Priorities) != 1 {
			t.Errorf("leaf = %+v, want the last version, and a note", leaf)
		}
	})
}

// TestAskedMeanwhile checks that a resource that is requested while a response that has it is being
// decoded is not skipped: the server might not send it again.
func TestAskedMeanwhile(t *testing.T) {
	other := wrap(listenerTo("other", "r"))
	for variant, msg := range map[string]proto.Message{
		"sotw":  &discoveryv3.DiscoveryResponse{TypeUrl: lds.URL(), VersionInfo: "1", Resources: []*anypb.Any{other}},
		"delta": &discoveryv3.DeltaDiscoveryResponse{TypeUrl: lds.URL(), Resources: []*discoveryv3.Resource{{Name: "other", Aliases: []string{"alias"}, Version: "1", Resource: other}}},
	} {
		d := newDirect(t)
		d.speak(variant)
		d.c.mu.Lock()
		d.s.types[lds].sent = true
		d.c.mu.Unlock()
		r := response{t: &d.s.types[lds], msg: arrived(msg)}
		r.split()
		r.compare()
		if len(r.items) > 0 || len(r.unwanted) != 1 {
			t.Fatalf("%s: %d resources to decode and %q skipped, want only a skipped one", variant, len(r.items), r.unwanted)
		}
		d.c.view().Watch("other", "other", &counter{})
		for subscribed := false; !subscribed; {
			d.c.mu.Lock()
			subscribed = d.s.types[lds].subs["other"] != nil
			d.c.mu.Unlock()
		}
		if ok := r.apply(); ok {
			t.Errorf("%s: the resource was passed over", variant)
		}
		r = response{t: &d.s.types[lds], msg: r.msg}
		r.handle()
		if s := statusOf(d.c, lds, "other"); s.State != Acked {
			t.Errorf("%s: status = %+v", variant, s)
		}
	}
}

// TestNamelessResource checks that unreadable resources are rejected without
// taking it for the deletion of something else.
func TestNamelessResource(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, cp, w := serving(t, Options{}, "fail_on_data_errors")
		cp.respond(cds, &discoveryv3.DiscoveryResponse{VersionInfo: "x", Resources: []*anypb.Any{{TypeUrl: cds.URL(), Value: []byte("\xff")}}})
		if _, nacks, _ := cp.counts(cds); nacks != 1 {
			t.Errorf("%d NACKs, want 1", nacks)
		}
		if c := w.cluster(t, "svc"); c.Err != nil {
			t.Errorf("cluster = %+v, want the last version", c)
		}
	})
}

// TestDecodeDoesNotPanic checks the last resort (T-XDS-19).
func TestDecodeDoesNotPanic(t *testing.T) {
	if v, err := decode(resource.EndpointsType, []byte{0xff}, "not even a resource", resource.Options{}); err == nil {
		t.Errorf("decode = %v, want an error", v)
	}
	if v, err := decode(200, nil, nil, resource.Options{}); err == nil {
		t.Errorf("decode = %v, want an error", v)
	}
}

// TestGarbage checks that whatever a server sends is accepted or rejected, and
// leaves the client able to take the next good version.
func TestGarbage(t *testing.T) {
	d := newDirect(t)
	rng := rand.New(rand.NewPCG(6, 7))
	good := targetOf("svc", 1)
	for round := range 300 {
		for typ, m := range good {
			a := wrap(m)
			for range 1 + rng.IntN(4) {
				switch i := rng.IntN(len(a.Value)); rng.IntN(4) {
				case 0:
					a.Value[i] = byte(rng.Uint32())
				case 1:
					a.Value[i] ^= 1 << rng.IntN(8)
				case 2:
					a.Value = slices.Insert(a.Value, i, byte(rng.Uint32()))
				default:
					a.Value = a.Value[:max(1, i)]
				}
			}
			d.respond(resource.Type(typ), "bad", wrap(good[rng.IntN(4)]), a, &anypb.Any{TypeUrl: a.TypeUrl})
		}
		for typ, m := range good {
			d.respond(resource.Type(typ), "good", wrap(m))
		}
		if s := statusOf(d.c, eds, "svc"); s.State != Acked || s.Version != "good" {
			t.Fatalf("round %d: status = %+v", round, s)
		}
	}
	if d.w.updates == 0 {
		t.Error("no update")
	}
}

// TestDetail checks that error_detail is bounded.
func TestDetail(t *testing.T) {
	text := func(n int) string {
		var f faults
		for range n {
			f.add(errors.New(strings.Repeat("x", 100)))
		}
		if cap(f.text) > 4*maxFaults {
			t.Errorf("%d faults take %d bytes", n, cap(f.text))
		}
		return f.String()
	}
	if s := text(5000); len(s) > 9<<10 || !strings.HasSuffix(s, "more") {
		t.Errorf("%d bytes, ending in %q", len(s), s[len(s)-20:])
	}
	if s := text(2); strings.Count(s, "; ") != 1 {
		t.Errorf("detail = %q", s)
	}
}

// TestForgottenMeanwhile: a resource that is forgotten and subscribed to again while a response
// repeats it is in the cache with its bytes, whether or not it was recognized by its place.
func TestForgottenMeanwhile(t *testing.T) {
	old := keepBytes.Swap(true)
	defer keepBytes.Store(old)
	for _, byPlace := range []bool{false, true} {
		d := newDirect(t)
		d.respond(lds, "1", wrap(listenerTo("svc", "r")))
		r := response{t: &d.s.types[lds], msg: arrived(&discoveryv3.DiscoveryResponse{TypeUrl: lds.URL(), VersionInfo: "2", Resources: []*anypb.Any{wrap(listenerTo("svc", "r"))}})}
		if r.split(); !byPlace {
			r.splitResponse = splitOf(r.msg, lds, nil)
		}
		r.compare()
		d.c.mu.Lock()
		d.c.cache.resetLocked(d.s.types[lds].subs["svc"].entry)
		d.c.mu.Unlock()
		if ok := r.apply(); ok == byPlace {
			t.Fatalf("applied: %v, by place: %v", ok, byPlace)
		}
		r.handle()
		if s := statusOf(d.c, lds, "svc"); s.State != Acked || s.Version != "2" || s.Raw == nil {
			t.Errorf("status = %+v", s)
		}
	}
}
