// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// TestNames checks, for each type, which name is requested (A27-LDS-1, A27-RDS-1, A27-CDS-1,
// A27-EDS-1) and that only a resource of exactly that name is used (A27-LDS-2, A27-LDS-3,
// A27-LDS-4, A27-RDS-2, A27-CDS-2, A27-CDS-3): neither case, nor ports, nor dots are interpreted
// (A27-RES-10), and other resources are skipped, with an ACK.
func TestNames(t *testing.T) {
	withServers(t, 1, Options{}, nil, func(t *testing.T, h *harness, cps []*plane) {
		cp := cps[0]
		const target, routes, cluster, service = "svc.Example:80", "Routes", "Cluster", "Service"
		cp.set(listenerTo("other", "x"))
		w := &recorder{}
		w.cancel = h.c.view().Watch(target, target, w)
		steps := []struct {
			typ  resource.Type
			name string
			make func(name string) proto.Message
		}{
			{lds, target, func(name string) proto.Message { return listenerTo(name, routes) }},
			{rds, routes, func(name string) proto.Message { return routesTo(name, cluster) }},
			{cds, cluster, func(name string) proto.Message { return clusterTo(name, service) }},
			{eds, service, func(name string) proto.Message { return endpointsAt(name, 1) }},
		}
		for _, s := range steps {
			cp.asked(s.typ, s.name)
			for _, near := range []string{strings.ToLower(s.name), strings.ToUpper(s.name), s.name + ".", s.name + ":80", strings.TrimSuffix(s.name, ":80") + ":443"} {
				cp.update(s.make(near))
			}
			if s.typ < eds {
				if got := cp.Stats((s.typ + 1).URL()).Names; len(got) != 0 {
					t.Errorf("%v: another resource than %q was used: it led to %q", s.typ, s.name, got)
				}
			}
			cp.update(s.make(s.name))
		}
		w.serves(t, cluster, cluster+" 1")
		for _, s := range steps {
			if n := cp.Stats(s.typ.URL()).NACKs; n != 0 {
				t.Errorf("%v: %d NACKs", s.typ, n)
			}
		}
	})
}

// TestExtraNames is TestNames with a server that sends resources that were not asked
// for, which go-control-plane does not.
func TestExtraNames(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		w := h.watch("svc")
		for typ, m := range targetOf("svc", 1) {
			cp.send(resource.Type(typ), "1", targetOf("SVC", 2)[typ], m, targetOf("svc.", 3)[typ])
		}
		w.serves(t, "svc", "svc 1")
		if n := h.entries(); n != 4 {
			t.Errorf("%d resources in the cache, want the 4 asked for", n)
		}
	})
}

// TestNameOfAllResources: a name that stands for all resources of a type, or of a collection (xRFC TP1), is
// not requested (T-XDS-2): the server would send resources that no channel wants. Other names may
// contain the character.
func TestNameOfAllResources(t *testing.T) {
	bothVariants(t, func(t *testing.T, features ...string) {
		const clusters = "xdstp://a/envoy.config.cluster.v3.Cluster/*?p=1"
		h := newHarness(t, Options{}, []string{serverDoc("cp", features...)}, `, "authorities": {"a": {}}`)
		cp := h.servers["cp"]
		cp.serve(append(targetOf("a*", 1), listenerTo("svc", "svc"), routesTo("svc", "*", clusters, "a*"))...)
		for _, name := range []string{"*", "xdstp://a/envoy.config.listener.v3.Listener/*", "xdstp://a/envoy.config.listener.v3.Listener/x/*"} {
			h.watch(name).fails(t, fmt.Sprintf("%q stands for all resources", name))
		}
		w := h.watch("svc")
		w.serves(t, "a*", "a* 1")
		for _, name := range []string{"*", clusters} {
			if err := w.cluster(t, name).Err; err == nil || !strings.Contains(err.Error(), "stands for all resources") {
				t.Errorf("cluster %q: error %v", name, err)
			}
		}
		for typ, want := range map[resource.Type]string{lds: "[svc]", cds: "[a*]"} {
			if got := fmt.Sprint(cp.Stats(typ.URL()).Names); got != want {
				t.Errorf("%v: subscribed to %s, want %s", typ, got, want)
			}
		}
	})
}

// TestNamesAlike checks that a cluster which routes name in two ways that mean the
// same is one resource (T-XDS-15), and is found by either name.
func TestNamesAlike(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHarness(t, Options{}, []string{serverDoc("cp")}, `, "authorities": {"a": {}}`)
		const (
			sorted  = "xdstp://a/envoy.config.cluster.v3.Cluster/c?a=1&b=2"
			swapped = "xdstp://a/envoy.config.cluster.v3.Cluster/c?b=2&a=1"
		)
		h.servers["cp"].serve(listenerTo("svc", "r"), routesTo("r", sorted, swapped), listenerTo("other", "o"), routesTo("o", swapped),
			clusterTo(sorted, "e"), endpointsAt("e", 1))
		w, other := h.watch("svc"), h.watch("other")
		for _, got := range []*picker.Cluster{w.cluster(t, sorted), w.cluster(t, swapped), other.cluster(t, swapped)} {
			if got := ports(got); got != sorted+" 1" {
				t.Errorf("endpoints = %q", got)
			}
		}
		h.servers["cp"].asked(cds, sorted)
	})
}

// TestAggregateWaits: an aggregate cluster waits for the endpoints of each child until the resource
// timer expires and no longer, and then does without them (A74, A37): late endpoints cannot be told
// from missing ones, and RPCs sent to the second child meanwhile would move to the first a moment
// later.
func TestAggregateWaits(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Second / 2} {
		withServers(t, 1, Options{ResourceTimeout: timeout}, nil, func(t *testing.T, h *harness, cps []*plane) {
			cps[0].set(listenerTo("svc", "r"), routesTo("r", "top"), aggregateOf("top", "first", "second"),
				clusterTo("first", "first"), clusterTo("second", "second"), endpointsAt("second", 2))
			w := h.watch("svc")
			if timeout == 0 {
				timeout = 15 * time.Second
			}
			advance(timeout - time.Millisecond)
			if n := w.got().updates; n != 0 {
				t.Errorf("%d updates before all resources are known", n)
			}
			advance(time.Millisecond)
			top := w.cluster(t, "top")
			if got := ports(top); got != "first | second 2" {
				t.Errorf("leaves = %q", got)
			}
			if top.Leaves[0].ResolutionNote == nil || top.Leaves[1].ResolutionNote != nil {
				t.Errorf("notes %v and %v", top.Leaves[0].ResolutionNote, top.Leaves[1].ResolutionNote)
			}
			cps[0].update(endpointsAt("first", 1))
			w.serves(t, "top", "first 1 | second 2")
		})
	}
}

// TestTargetThatIsNotUTF8: a target such as xds:///orders%FF cannot be requested. It fails with an error
// that names it, and does not affect the other targets of the client.
func TestTargetThatIsNotUTF8(t *testing.T) {
	bothVariants(t, func(t *testing.T, features ...string) {
		h, cp := only(t, Options{}, features...)
		cp.serve(append(targetOf("svc", 1), targetOf("other", 2)...)...)
		w := h.watch("svc")
		w.must(t)
		h.watch("orders\xff").fails(t, `resource name "orders\xff" is not valid UTF-8`)
		h.watch(strings.Repeat("x", maxName+1)).fails(t, "a name of 4097 bytes")
		h.watch(strings.Repeat("\xff", maxName+1)).fails(t, "a name of 4097 bytes")
		cp.serve(targetOf("svc", 7)...)
		w.serves(t, "svc", "svc 7")
		h.watch("other").must(t)
		if open, total := cp.Streams(); open != 1 || total != 1 {
			t.Errorf("%d of %d streams are open, want the first one", open, total)
		}
	})
}

// TestLocalClusterThatIsNotUTF8: the same for TargetOptions.LocalCluster.
func TestLocalClusterThatIsNotUTF8(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, cp, w := zoneServing(t, Options{TargetOptions: TargetOptions{LocalCluster: "fleet\xff"}}, inZoneA)
		advance(time.Minute)
		if o := originOf(t, w); o.Err == nil || !strings.Contains(o.Err.Error(), `"fleet\xff" is not valid UTF-8`) {
			t.Errorf("origin %+v", o)
		}
		if _, total := cp.Streams(); total != 1 {
			t.Errorf("%d streams, want 1", total)
		}
	})
}

// TestNACKIsUTF8: the text of a NACK is cut between characters, so that it can be sent. The limit is
// within a character for two of the three paddings.
func TestNACKIsUTF8(t *testing.T) {
	bothVariants(t, func(t *testing.T, features ...string) {
		for pad := range 3 {
			h, cp, _ := serving(t, Options{}, features...)
			cp.serve(routesWithLongErrors("svc", pad))
			advance(10 * time.Minute)
			if s := cp.Stats(rds.URL()); s.NACKs != 1 || !utf8.ValidString(s.LastError) || len(s.LastError) < maxFaults/2 {
				t.Errorf("%d NACKs, the last of %d bytes", s.NACKs, len(s.LastError))
			}
			if _, total := cp.Streams(); total != 1 {
				t.Errorf("%d streams, want 1; %v", total, h.c.Servers()[0].Err)
			}
			h.watch("svc").serves(t, "svc", "svc 1")
		}
	})
}

// TestNACKOfLongTypeURL: the same for a single error that is longer than the limit.
func TestNACKOfLongTypeURL(t *testing.T) {
	for pad := range 2 {
		bothVariants(t, func(t *testing.T, features ...string) {
			_, cp, w := serving(t, Options{}, features...)
			url := strings.Repeat("x", pad) + strings.Repeat("é", maxFaults)
			if stream := cp.delta(); stream != nil {
				stream.Respond(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: cds.URL(), Resources: []*discoveryv3.Resource{{Name: "svc", Version: "bad", Resource: &anypb.Any{TypeUrl: url}}}})
			} else {
				cp.respond(cds, &discoveryv3.DiscoveryResponse{VersionInfo: "bad", Resources: []*anypb.Any{wrap(clusterTo("svc", "svc")), {TypeUrl: url}}})
			}
			advance(time.Second)
			if s := cp.Stats(cds.URL()); s.NACKs != 1 || !utf8.ValidString(s.LastError) {
				t.Errorf("%d NACKs", s.NACKs)
			}
			cp.serve(endpointsAt("svc", 7))
			w.serves(t, "svc", "svc 7")
			if _, total := cp.Streams(); total != 1 {
				t.Errorf("%d streams, want 1", total)
			}
		})
	}
}

// TestNACKOfBytes: an error that quotes bytes that are not UTF-8 can be sent.
func TestNACKOfBytes(t *testing.T) {
	var f faults
	f.add(errors.New("value \xff"))
	if got := (rejection{fault: f.String()}).status().GetMessage(); got != "value \uFFFD" {
		t.Errorf("text %q", got)
	}
}
