// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/xds/resource"
)

const deltaFeature = "xdslb.delta_ads"

// servingDelta is serving with a server of the incremental variant.
func servingDelta(t *testing.T, opts Options, features ...string) (*harness, *fake, *recorder) {
	t.Helper()
	return serving(t, opts, append(features, deltaFeature)...)
}

// lastDelta returns the latest request of a type that changes a subscription.
func (f *fake) lastDelta(url string) *discoveryv3.DeltaDiscoveryRequest {
	f.t.Helper()
	for _, req := range slices.Backward(f.mustDelta().Requests(url)) {
		if len(req.ResourceNamesSubscribe)+len(req.ResourceNamesUnsubscribe) > 0 {
			return req
		}
	}
	return nil
}

// answers returns the ACKs and NACKs of a type on the stream, in order.
func (f *fake) answers(url string) (list []string) {
	f.t.Helper()
	for _, req := range f.mustDelta().Requests(url) {
		if req.ResponseNonce != "" {
			list = append(list, req.ResponseNonce+strings.Repeat(" NACK", min(1, len(req.GetErrorDetail().GetMessage()))))
		}
	}
	return list
}

// TestDeltaRequests: resources are subscribed to once, in one request for many
// names; unneeded ones are unsubscribed from; unchanged ones are not mentioned.
func TestDeltaRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, w := servingDelta(t, Options{Linger: -1})
		w.must(t)
		if s := cp.mustDelta().Requests(""); s[0].GetNode() == nil || s[1].GetNode() != nil {
			t.Errorf("nodes %v, %v; want one in the first request", s[0].GetNode(), s[1].GetNode())
		}
		var names []string
		var more []proto.Message
		for i := range 100 {
			names = append(names, fmt.Sprintf("c%02d", i))
			more = append(more, clusterTo(names[i], "svc"))
		}
		cp.serve(append(more, listenerTo("other", "other"), routesTo("other", names...))...)
		before := len(cp.mustDelta().Requests(cds.URL()))
		other := h.watch("other")
		other.must(t)
		if req := cp.lastDelta(cds.URL()); !slices.Equal(req.ResourceNamesSubscribe, names) || len(req.ResourceNamesUnsubscribe) > 0 {
			t.Errorf("request %v, want one for the clusters that are new", req)
		}
		if n := len(cp.mustDelta().Requests(cds.URL())) - before; n != 2 {
			t.Errorf("%d requests, want one and an ACK", n)
		}
		other.cancel()
		advance(time.Second)
		if req := cp.lastDelta(cds.URL()); !slices.Equal(req.ResourceNamesUnsubscribe, names) || len(req.ResourceNamesSubscribe) > 0 {
			t.Errorf("request %v, want one without the clusters", req)
		}
		if got := cp.mustDelta().Stats(cds.URL()).Names; !slices.Equal(got, []string{"svc"}) {
			t.Errorf("subscribed to %q", got)
		}
		w.must(t)
	})
}

// TestDeltaReconnect: on a new stream the client lists its resources, and the server sends
// only newer ones. Resources with errors are not listed.
func TestDeltaReconnect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, w := servingDelta(t, Options{})
		w.must(t)
		updates := w.got().updates
		cp.hangUp(errors.New("bye"))
		advance(time.Minute)
		for _, typ := range []string{lds.URL(), rds.URL(), cds.URL(), eds.URL()} {
			reqs := cp.mustDelta().Requests(typ)
			if len(reqs) != 1 || len(reqs[0].InitialResourceVersions) != 1 || len(reqs[0].ResourceNamesSubscribe) != 1 {
				t.Errorf("requests %v, want one that claims the version", reqs)
			}
			if n := cp.mustDelta().Stats(typ).Responses; n != 0 {
				t.Errorf("%d responses, want none: nothing has changed", n)
			}
		}
		if w.got().updates != updates {
			t.Error("an update, and nothing has changed")
		}
		// A server that has nothing to say is not out of reach.
		cp.hangUp(errors.New("bye"))
		advance(time.Minute)
		if s := h.c.Servers()[0]; s.Failures != 0 || !s.Connected || s.Streams != 3 {
			t.Errorf("server %+v", s)
		}
		// A change while there is no stream, and an invalid version.
		cp.mustDelta().Send(eds.URL(), "bad", badEndpoints("svc"))
		advance(time.Second)
		cp.hangUp(errors.New("bye"))
		cp.serve(clusterTo("svc", "e2"), endpointsAt("e2", 2))
		advance(time.Minute)
		w.serves(t, "svc", "svc 2")
		if req := cp.mustDelta().Requests(eds.URL())[0]; len(req.InitialResourceVersions) > 0 {
			t.Errorf("request %v claims a version while the latest was invalid", req)
		}
	})
}

// TestDeltaRemoved: a resource that the server removes is dropped or kept like a deletion in the
// other variant (A53, A88), and may return; routes and endpoints are always kept. A resource that
// the server reports as nonexistent needs no timer.
func TestDeltaRemoved(t *testing.T) {
	for _, tt := range []struct {
		name, url string
		features  []string
		opts      Options
		lost      bool
	}{
		{"kept (A88)", cds.URL(), nil, Options{}, false},
		{"fail_on_data_errors", cds.URL(), []string{"fail_on_data_errors"}, Options{}, true},
		{"DropDeleted", cds.URL(), nil, Options{TargetOptions: TargetOptions{DropDeleted: true}}, true},
		{"ignore_resource_deletion (A53)", cds.URL(), []string{"ignore_resource_deletion"}, Options{TargetOptions: TargetOptions{DropDeleted: true}}, false},
		{"endpoints", eds.URL(), []string{"fail_on_data_errors"}, Options{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h, cp, w := servingDelta(t, tt.opts, tt.features...)
				cp.Remove(tt.url, "svc")
				advance(time.Second)
				if c := w.cluster(t, "svc"); (c.Err != nil) != tt.lost || !tt.lost && c.Leaves[0].ResolutionNote == nil {
					t.Errorf("cluster %+v; lost is to be %v, and the deletion to be seen", c, tt.lost)
				}
				if s := statusOf(h.c, map[bool]resource.Type{true: eds, false: cds}[tt.url == eds.URL()], "svc"); s.State != DoesNotExist {
					t.Errorf("state %v", s.State)
				}
				if err := cp.Resend(tt.url, "svc"); err == nil {
					t.Error("it is still there")
				}
				cp.serve(clusterTo("svc", "svc"), endpointsAt("svc", 1))
				if c := w.cluster(t, "svc"); c.Err != nil || c.Leaves[0].ResolutionNote != nil {
					t.Errorf("cluster %+v after it is back", c)
				}
			})
		})
	}
	t.Run("never there", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			h, cp := only(t, Options{}, deltaFeature)
			w := h.watch("svc")
			cp.mustDelta().Remove(lds.URL(), "svc")
			w.fails(t, `Listener resource "svc" not found`, "reports that it does not exist")
		})
	})
}

// TestDeltaNACK: an invalid resource is rejected, by the nonce of its response, and the
// others in it count; each response is answered, in order.
func TestDeltaNACK(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, w := servingDelta(t, Options{})
		cp.serve(listenerTo("two", "two"), routesTo("two", "a", "b"), clusterTo("a", "a"), clusterTo("b", "b"), endpointsAt("a", 1), endpointsAt("b", 1))
		two := h.watch("two")
		two.must(t)
		st := cp.mustDelta()
		before := len(cp.answers(eds.URL()))
		n1 := st.Send(eds.URL(), "7", endpointsAt("a", 5), badEndpoints("b"))
		n2 := st.Send(eds.URL(), "8", endpointsAt("svc", 6))
		advance(time.Second)
		if got, want := cp.answers(eds.URL())[before:], []string{n1 + " NACK", n2}; !slices.Equal(got, want) {
			t.Errorf("answers %q, want %q", got, want)
		}
		two.serves(t, "a", "a 5")
		two.serves(t, "b", "b 1")
		w.serves(t, "svc", "svc 6")
		s := statusOf(h.c, eds, "b")
		if s.State != Nacked || s.Rejected.Version != "7" || s.Version == "7" {
			t.Errorf("status %+v", s)
		}
		if s := statusOf(h.c, eds, "a"); s.Version != "7" || s.State != Acked {
			t.Errorf("status %+v, want the version of the resource", s)
		}
		if req := st.Requests(eds.URL()); !strings.Contains(req[len(req)-2].GetErrorDetail().GetMessage(), `"b"`) {
			t.Errorf("NACK %v does not name the resource", req[len(req)-2])
		}
		// Errors of the message itself.
		for _, bad := range []*discoveryv3.DeltaDiscoveryResponse{
			{Resources: []*discoveryv3.Resource{{Name: "svc", Version: "9"}}},
			{Resources: []*discoveryv3.Resource{{Name: "svc", Version: "9", Resource: wrap(clusterTo("svc", "svc"))}}},
			{Resources: []*discoveryv3.Resource{{Name: "svc", Version: "9", Resource: wrap(endpointsAt("other", 1))}}},
			{Resources: []*discoveryv3.Resource{
				{Name: "svc", Version: "9", Resource: wrap(endpointsAt("svc", 6))},
				{Name: "svc", Version: "9", Resource: wrap(endpointsAt("svc", 6))},
			}},
		} {
			bad.TypeUrl = eds.URL()
			nonce := st.Respond(bad)
			advance(time.Second)
			if a := cp.answers(eds.URL()); a[len(a)-1] != nonce+" NACK" {
				t.Errorf("%v\nis answered with %q", bad, a[len(a)-1])
			}
		}
		w.serves(t, "svc", "svc 6")
	})
}

// TestDeltaAliases: a resource serves who asked for one of its other names, and the
// order of an xdstp name's parameters makes no difference.
func TestDeltaAliases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHarness(t, Options{}, []string{serverDoc("cp", deltaFeature)}, `, "authorities": {"": {}}`)
		cp := h.servers["cp"]
		cp.serve(listenerTo("svc", "alias"), clusterTo("c", "xdstp:///envoy.config.endpoint.v3.ClusterLoadAssignment/e?a=1&b=2"))
		w := h.watch("svc")
		st := cp.mustDelta()
		st.Respond(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: rds.URL(), Resources: []*discoveryv3.Resource{
			{Name: "own", Aliases: []string{"alias", "third"}, Version: "1", Resource: wrap(routesTo("own", "c"))},
		}})
		advance(time.Second)
		const turned = "xdstp:///envoy.config.endpoint.v3.ClusterLoadAssignment/e?b=2&a=1"
		st.Respond(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: eds.URL(), Resources: []*discoveryv3.Resource{
			{Name: "xdstp:///envoy.config.endpoint.v3.ClusterLoadAssignment/e?a=1&b=2", Version: "1", Resource: wrap(endpointsAt(turned, 7))},
		}})
		advance(time.Second)
		w.serves(t, "c", "c 7")
		st.Remove(eds.URL(), turned)
		advance(time.Second)
		if note := w.cluster(t, "c").Leaves[0].ResolutionNote; note == nil {
			t.Error("the removal by another form of the name went unnoticed")
		}
		// A resource that was requested by another name may be removed by its own name, or by an
		// alias.
		for i, name := range []string{"own", "alias"} {
			st.Respond(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: rds.URL(), Resources: []*discoveryv3.Resource{
				{Name: "own", Aliases: []string{"alias"}, Version: fmt.Sprint("again", i), Resource: wrap(routesTo("own", "c"))},
			}})
			advance(time.Second)
			if s := statusOf(h.c, rds, "alias"); s.State != Acked {
				t.Errorf("state %v", s.State)
			}
			st.Remove(rds.URL(), name)
			advance(time.Second)
			if s := statusOf(h.c, rds, "alias"); s.State != DoesNotExist {
				t.Errorf("state %v after the removal of %q", s.State, name)
			}
		}
	})
}

// TestDeltaRest: a resource that was unsubscribed from rests before it is subscribed to again.
// It stays in use, and an answer to the former is not taken for one to the latter: some servers
// say that the resource is gone. After that such an answer is no less than that.
func TestDeltaRest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, w := servingDelta(t, Options{Linger: -1}, "fail_on_data_errors")
		defer h.watch("keep").cancel()
		subscribed := func() bool { return slices.Contains(cp.mustDelta().Stats(lds.URL()).Names, "svc") }
		again := func() {
			t.Helper()
			w.cancel()
			synctest.Wait()
			w = h.watch("svc")
			w.must(t)
			if subscribed() {
				t.Fatal("subscribed to at once")
			}
		}
		again()
		advance(restTime - 1)
		if subscribed() {
			t.Error("subscribed to before the time is over")
		}
		advance(1)
		if !subscribed() {
			t.Error("not subscribed to when the time is over")
		}
		again()
		cp.mustDelta().Remove(lds.URL(), "svc")
		if synctest.Wait(); !subscribed() {
			t.Error("not subscribed to after the server has answered")
		}
		if got := w.got(); got.errs > 0 {
			t.Errorf("error %v: an answer to the unsubscription counts", got.err)
		}
		// A resource that is removed and sent in one response is there.
		cp.mustDelta().Respond(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: lds.URL(), RemovedResources: []string{"svc"}, Resources: []*discoveryv3.Resource{
			{Name: "svc", Version: "x", Resource: wrap(listenerTo("svc", "svc"))},
		}})
		synctest.Wait()
		w.must(t)
		cp.mustDelta().Remove(lds.URL(), "svc")
		w.fails(t, `"svc"`, "has been removed")
	})
}

// TestSwitch: a server that does not implement a variant is spoken to in the other, at
// once and without a failure, and again when that changes.
func TestSwitch(t *testing.T) {
	for _, tt := range []struct {
		name     string
		features []string
		opts     Options
		only     func(*fake)
		variant  string
	}{
		{"delta by default of the server", nil, Options{}, func(f *fake) { f.Serve(false, true) }, "DeltaAggregatedResources"},
		{"no delta", []string{deltaFeature}, Options{}, func(f *fake) { f.Serve(true, false) }, "StreamAggregatedResources"},
		{"no delta, by Options", nil, Options{Delta: true}, func(f *fake) { f.Serve(true, false) }, "StreamAggregatedResources"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h, cp := only(t, tt.opts, tt.features...)
				tt.only(cp)
				cp.serve(targetOf("svc", 1)...)
				w := h.watch("svc")
				w.must(t)
				s := h.c.Servers()[0]
				if s.Variant != tt.variant || s.Failures != 0 || !s.Connected {
					t.Errorf("server %+v", s)
				}
				// And back.
				if tt.variant == "StreamAggregatedResources" {
					cp.Serve(false, true)
				} else {
					cp.Serve(true, false)
				}
				advance(time.Minute)
				cp.serve(endpointsAt("svc", 2))
				w.serves(t, "svc", "svc 2")
				if s := h.c.Servers()[0]; s.Variant == tt.variant {
					t.Errorf("server %+v", s)
				}
			})
		})
	}
}

// TestNeither: a server that implements neither variant is out of reach, and is not
// asked more often than others that are.
func TestNeither(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		cp.Serve(false, false)
		w := h.watch("svc")
		advance(time.Minute)
		w.fails(t, "this variant of ADS is not served")
		before := cp.opened()
		if before < 4 {
			t.Errorf("%d streams in a minute", before)
		}
		for range 10_000 { // the backoff holds for both variants together
			advance(10 * time.Millisecond)
			n := cp.opened()
			if n > before+1 {
				t.Fatalf("%d streams at once", n-before)
			}
			before = n
		}
	})
}

// TestDeltaForgets: once a server confirms that unsubscribed resources are removed, nothing is kept of them.
func TestDeltaForgets(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, w := servingDelta(t, Options{Linger: -1})
		keep := h.watch("keep")
		defer keep.cancel()
		before := h.entries()
		w.cancel()
		advance(time.Second)
		if n := h.entries(); n != before {
			t.Errorf("%d entries, want %d: entries without watchers are kept for a while", n, before)
		}
		for _, typ := range []resource.Type{lds, rds, cds, eds} {
			cp.mustDelta().Remove(typ.URL(), "svc")
		}
		advance(time.Second)
		if n := h.entries(); n != before-4 {
			t.Errorf("%d entries of %d", n, before)
		}
	})
}

// TestDeltaLacking: a resource that did not come and is wanted again, before a request
// unsubscribes from it, is fetched once more and waited for: go-control-plane answers a
// subscription only after it was unsubscribed from.
func TestDeltaLacking(t *testing.T) {
	d := newDirect(t)
	d.speak("delta")
	d.requests()
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	sub := d.s.types[lds].subs["svc"]
	d.c.cache.failLocked(sub.entry, failure{state: DoesNotExist, err: errRefused})
	d.s.types[lds].changedLocked("svc")
	if req, _ := d.s.requestLocked(nil); req != nil {
		t.Errorf("request %v for a resource that does not exist", req)
	}
	d.c.cache.resetLocked(sub.entry) // see watchLocked
	d.s.types[lds].changedLocked("svc")
	first, _ := d.s.requestLocked(nil)
	clear(d.s.types[lds].protocol.(*deltaType).left) // it has rested
	d.s.types[lds].changedLocked("svc")
	second, awaited := d.s.requestLocked(nil)
	if req, _ := first.(*discoveryv3.DeltaDiscoveryRequest); !slices.Equal(req.GetResourceNamesUnsubscribe(), []string{"svc"}) || len(req.GetResourceNamesSubscribe()) > 0 {
		t.Errorf("first request %v, want one that unsubscribes", req)
	}
	if req, _ := second.(*discoveryv3.DeltaDiscoveryRequest); !slices.Equal(req.GetResourceNamesSubscribe(), []string{"svc"}) || len(awaited) != 1 || awaited[0] != sub {
		t.Errorf("second request %v, waiting for %v; want one that subscribes", req, awaited)
	}
}

// TestDeltaUnread: answers do not pile up for a server that does not read them; the remaining
// answers are the latest ones, in order.
func TestDeltaUnread(t *testing.T) {
	d := newDirect(t)
	d.speak("delta")
	d.requests()
	const n = 3 * maxAnswers
	for i := range n {
		r := response{t: &d.s.types[lds], msg: arrived(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: lds.URL(), Nonce: fmt.Sprint(i)})}
		r.handle()
	}
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	for i := n - maxAnswers; i < n; i++ {
		req, _ := d.s.requestLocked(nil)
		if req == nil || req.(*discoveryv3.DeltaDiscoveryRequest).ResponseNonce != fmt.Sprint(i) {
			t.Fatalf("request %v, want the answer to response %d", req, i)
		}
	}
	if req, _ := d.s.requestLocked(nil); req != nil {
		t.Errorf("request %v", req)
	}
}

// TestDeltaCounts: the counts of a server, by type, are right in the incremental variant.
func TestDeltaCounts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, _ := servingDelta(t, Options{})
		before := h.c.Servers()[0].Types[eds]
		if before.Messages != 1 || before.Valid != 1 || before.Invalid != 0 || before.Requests != 2 || before.NACKs != 0 {
			t.Errorf("counts %+v after a subscription and an ACK", before)
		}
		resp := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: eds.URL(), Nonce: "n", Resources: []*discoveryv3.Resource{
			{Name: "svc", Version: "bad", Resource: wrap(badEndpoints("svc"))},
		}}
		cp.mustDelta().Respond(resp)
		advance(time.Second)
		got := h.c.Servers()[0].Types[eds]
		if got.Messages != 2 || got.Bytes-before.Bytes != uint64(proto.Size(resp)) || got.Valid != 1 || got.Invalid != 1 || got.Requests != 3 || got.NACKs != 1 {
			t.Errorf("counts %+v, before %+v", got, before)
		}
	})
}
