// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/resource"
)

// sayTTL sends a resource with a time to live in the variant that is spoken, or a
// heartbeat if m is nil, and reports whether it was accepted.
func (f *fake) sayTTL(typ resource.Type, name string, m proto.Message, ttl time.Duration) bool {
	f.t.Helper()
	r := &discoveryv3.Resource{Name: name, Version: "1", Ttl: durationpb.New(ttl)}
	if m != nil {
		r.Resource = wrap(m)
	} else {
		r.Version = "" // that in force
	}
	nacks := f.Stats(typ.URL()).NACKs
	if d := f.delta(); d != nil {
		d.Respond(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: typ.URL(), Resources: []*discoveryv3.Resource{r}})
	} else {
		f.must().Respond(&discoveryv3.DiscoveryResponse{TypeUrl: typ.URL(), VersionInfo: "1", Resources: []*anypb.Any{wrap(r)}})
	}
	advance(1500 * time.Millisecond) // a NACK may wait for another
	return f.Stats(typ.URL()).NACKs == nacks
}

// TestTTL: a resource with a time to live counts as deleted when that is over, whatever
// the server has for deletions, with the stream or without; heartbeats renew it; sent
// without one it lives on. Both variants.
func TestTTL(t *testing.T) {
	for name, features := range map[string][]string{"sotw": nil, "delta": {deltaFeature}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h, cp, w := serving(t, Options{}, features...)
				keep := h.watch("keep") // another Cluster, that heartbeats do not mention
				cp.serve(targetOf("keep", 1)...)
				keep.must(t)
				// A heartbeat is not all that there is of a type.
				if !cp.sayTTL(cds, "svc", nil, time.Hour) {
					t.Fatal("a heartbeat is rejected")
				}
				if c := keep.cluster(t, "keep"); c.Err != nil || c.Leaves[0].ResolutionNote != nil {
					t.Errorf("cluster %+v", c)
				}
				if !cp.sayTTL(eds, "svc", endpointsAt("svc", 2), 10*time.Second) {
					t.Fatal("rejected")
				}
				updates := w.got().updates
				for range 5 {
					advance(6 * time.Second)
					if !cp.sayTTL(eds, "svc", nil, 10*time.Second) {
						t.Fatal("a heartbeat is rejected")
					}
				}
				if got := w.got(); got.updates != updates || ports(w.cluster(t, "svc")) != "svc 2" {
					t.Errorf("%d updates, %q: a heartbeat is no news", got.updates-updates, ports(w.cluster(t, "svc")))
				}
				if s := statusOf(h.c, eds, "svc"); s.State != Acked || s.Version != "1" {
					t.Errorf("status %+v", s)
				}
				cp.hangUp(errors.New("gone"))
				cp.refuse(errRefused)
				advance(11 * time.Second)
				if c := w.cluster(t, "svc"); ports(c) == "svc 2" || c.Leaves[0].ResolutionNote == nil || !strings.Contains(c.Leaves[0].ResolutionNote.Error(), "time to live of 10s") {
					t.Errorf("cluster %+v after its time", c.Leaves)
				}
				if s := statusOf(h.c, eds, "svc"); s.State != DoesNotExist || s.Version != "" {
					t.Errorf("status %+v", s)
				}
				cp.refuse(nil)
				advance(time.Minute)
				if d := cp.delta(); d != nil {
					if v := d.Requests(eds.URL())[0].InitialResourceVersions; len(v) != 1 {
						t.Errorf("versions %v are claimed", v)
					}
				} else if v := cp.must().Requests(eds.URL())[0].VersionInfo; v != "" {
					t.Errorf("version %q is claimed, though a part of it has expired", v)
				}
				w.serves(t, "svc", "svc 1")

				// Clusters, whose responses are complete in one of the variants.
				if !cp.sayTTL(cds, "svc", clusterTo("svc", "svc"), 10*time.Second) || !cp.sayTTL(cds, "svc", nil, time.Minute) {
					t.Error("rejected")
				}
				cp.sayTTL(cds, "svc", clusterTo("svc", "svc"), 10*time.Second)
				cp.serve(clusterTo("svc", "svc"), endpointsAt("svc", 5))
				kit.Must(t, cp.Resend(cds.URL(), "svc"))
				advance(time.Minute)
				if c := w.cluster(t, "svc"); c.Err != nil || ports(c) != "svc 5" {
					t.Errorf("cluster %+v: sent without a time to live it has none", c)
				}
			})
		})
	}
}

// TestHeartbeatOfNothing: a heartbeat for a resource that the client does not have is rejected, and
// does not create the resource; in the incremental variant the resource is requested.
func TestHeartbeatOfNothing(t *testing.T) {
	for name, features := range map[string][]string{"sotw": nil, "delta": {deltaFeature}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h, cp := only(t, Options{}, features...)
				w := h.watch("svc")
				if cp.sayTTL(lds, "svc", nil, time.Second) {
					t.Error("accepted")
				}
				if got := w.got(); got.config != nil || got.err != nil {
					t.Errorf("%+v", got)
				}
				if d := cp.delta(); d != nil {
					advance(restTime)
					if n := len(d.Requests(lds.URL())); n != 4 {
						t.Errorf("%d requests, want one, a NACK, and two that unsubscribe and subscribe: %v", n, d.Requests(lds.URL()))
					}
				}
				cp.serve(targetOf("svc", 1)...)
				w.must(t)
				if d := cp.delta(); d != nil {
					nacks := d.Stats(lds.URL()).NACKs
					d.Respond(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: lds.URL(), Resources: []*discoveryv3.Resource{{Name: "svc", Version: "other", Ttl: durationpb.New(time.Second)}}})
					advance(2 * time.Second)
					if d.Stats(lds.URL()).NACKs != nacks+1 {
						t.Error("a heartbeat for another version is accepted")
					}
				}
				if cp.sayTTL(lds, "svc", listenerTo("svc", "svc"), -time.Second) {
					t.Error("a time to live in the past is accepted")
				}
				w.must(t)
			})
		})
	}
}

// TestTTLValues checks the bounds.
func TestTTLValues(t *testing.T) {
	for _, tt := range []struct {
		d    *durationpb.Duration
		want time.Duration
		ok   bool
	}{
		{nil, 0, true},
		{durationpb.New(time.Second), time.Second, true},
		{durationpb.New(1), 1, true},
		{durationpb.New(0), 0, false},
		{durationpb.New(-1), 0, false},
		{&durationpb.Duration{Seconds: 1, Nanos: -1}, 0, false},
		{&durationpb.Duration{Seconds: math.MaxInt64}, 0, false},
		{&durationpb.Duration{Seconds: 300_000_000_000}, math.MaxInt64, true},
	} {
		if got, err := resource.TTL(tt.d); got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%v: %v, %v", tt.d, got, err)
		}
	}
}

// TestTTLFallback: a resource that is not renewed because its server is unreachable counts as
// missing, and the client requests it from the next server (A71, T-XDS-16).
func TestTTLFallback(t *testing.T) {
	for _, typ := range []resource.Type{lds, cds, eds} {
		t.Run(typ.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h, first, second := two(t)
				mortal := map[resource.Type]proto.Message{lds: listenerTo("svc", "svc"), cds: clusterTo("svc", "svc"), eds: endpointsAt("svc", 1)}[typ]
				first.serve(targetOf("svc", 1)...)
				second.serve(targetOf("svc", 2)...)
				w := h.watch("svc")
				w.must(t)
				if !first.sayTTL(typ, "svc", mortal, 10*time.Second) || !first.sayTTL(typ, "svc", nil, 10*time.Second) {
					t.Fatal("rejected")
				}
				first.refuse(errRefused)
				advance(5 * time.Second)
				if n := second.opened(); n != 0 || ports(w.cluster(t, "svc")) != "svc 1" {
					t.Errorf("%d streams to the second server, and nothing is missing", n)
				}
				advance(5 * time.Second)
				w.serves(t, "svc", "svc 2")
				first.refuse(nil)
				advance(10 * time.Minute)
				if got := ports(w.cluster(t, "svc")); got != "svc 1" || second.current() != nil {
					t.Errorf("endpoints %q, want those of the first server", got)
				}
			})
		})
	}
}
