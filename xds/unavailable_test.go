// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// farAway is a cluster of an authority whose server is unreachable.
const farAway = "xdstp://two/envoy.config.cluster.v3.Cluster/far"

// withUnreachableAuthority returns a client of a server that can be reached, and of the authority of
// farAway.
func withUnreachableAuthority(t *testing.T, features ...string) (*harness, *fake) {
	t.Helper()
	h := newHarness(t, Options{}, []string{serverDoc("cp", features...)}, `, "authorities": {"two": {"xds_servers": [`+serverDoc("other", features...)+`]}}`)
	h.servers["other"].refuse(errRefused)
	return h, h.servers["cp"]
}

// routesTo checks the clusters of the configuration in use, and that clusters without leaves have
// an error.
func (r *recorder) routesTo(t *testing.T, when string, want ...string) {
	t.Helper()
	var got []string
	for _, c := range r.must(t).Clusters {
		got = append(got, c.Name)
		if len(c.Leaves) == 0 && c.Err == nil {
			t.Errorf("%s: cluster %q has neither endpoints nor an error", when, c.Name)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: routes lead to clusters %q, want %q", when, got, want)
	}
}

// TestRoutesWithUnavailableCluster: routes take effect at once although a cluster of another authority,
// which they name, is unavailable: its error is confined to it (A74). The cluster may be in use with
// the previous routes or not.
func TestRoutesWithUnavailableCluster(t *testing.T) {
	for _, first := range [][]string{{farAway, "a"}, {"a"}} {
		t.Run(fmt.Sprint(len(first)), func(t *testing.T) {
			bothVariants(t, func(t *testing.T, features ...string) {
				h, cp := withUnreachableAuthority(t, features...)
				cp.serve(listenerTo("svc", "svc"), routesTo("svc", first...), clusterTo("a", "a"), endpointsAt("a", 1), clusterTo("b", "b"), endpointsAt("b", 2))
				w := h.watch("svc")
				advance(time.Minute)
				w.routesTo(t, "first", first...)
				w.serves(t, "a", "a 1")
				cp.serve(routesTo("svc", farAway, "b"))
				advance(time.Second)
				w.routesTo(t, "after a traffic shift", farAway, "b")
				w.serves(t, "b", "b 2")
				if err := w.cluster(t, farAway).Err; err == nil || !strings.Contains(err.Error(), "refused") {
					t.Errorf("error %v", err)
				}
				cp.serve(routesTo("svc", farAway, "b", "b")) // the same clusters
				advance(time.Second)
				if n := len(w.must(t).Routes); n != 3 {
					t.Errorf("%d routes, want 3", n)
				}
			})
		})
	}
}

// TestRoutesWithTransientError: the same for a cluster that a server with
// resource_timer_is_transient_error does not send (A88), or that it reports as UNAVAILABLE (xRFC TP3).
func TestRoutesWithTransientError(t *testing.T) {
	for _, feature := range []string{"resource_timer_is_transient_error", "xds_v3"} {
		for _, first := range [][]string{{"none", "a"}, {"a"}} {
			t.Run(fmt.Sprint(feature, len(first)), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					h, cp := only(t, Options{}, feature)
					w := h.watch("svc")
					send := func(version string, routes ...string) {
						cp.send(lds, "1", listenerTo("svc", "svc"))
						cp.send(rds, version, routesTo("svc", routes...))
						resp := &discoveryv3.DiscoveryResponse{VersionInfo: version, Resources: []*anypb.Any{wrap(clusterTo("a", "a")), wrap(clusterTo("b", "b"))}}
						if feature == "xds_v3" {
							resp.ResourceErrors = []*discoveryv3.ResourceError{{ResourceName: &discoveryv3.ResourceName{Name: "none"}, ErrorDetail: &statuspb.Status{Code: int32(codes.Unavailable), Message: "later"}}}
						}
						cp.respond(cds, resp)
						cp.send(eds, "1", endpointsAt("a", 1), endpointsAt("b", 2))
						advance(time.Minute)
					}
					send("1", first...)
					w.routesTo(t, "first", first...)
					send("2", "none", "b")
					w.routesTo(t, "after a traffic shift", "none", "b")
				})
			})
		}
	}
}

// TestAggregateWithUnavailableChild: a new version of an aggregate takes effect without a child that is
// unavailable (A74), which is used once it is available.
func TestAggregateWithUnavailableChild(t *testing.T) {
	bothVariants(t, func(t *testing.T, features ...string) {
		h, cp := withUnreachableAuthority(t, features...)
		cp.serve(listenerTo("svc", "svc"), routesTo("svc", "c"), aggregateOf("c", "a"), clusterTo("a", "a"), endpointsAt("a", 1), clusterTo("b", "b"), endpointsAt("b", 2))
		w := h.watch("svc")
		w.serves(t, "c", "a 1")
		cp.serve(aggregateOf("c", farAway, "b"))
		advance(time.Second)
		w.serves(t, "c", "b 2", "without the child that is unavailable")
		other := h.servers["other"]
		other.serve(clusterTo(farAway, "xdstp://two/envoy.config.endpoint.v3.ClusterLoadAssignment/far"), endpointsAt("xdstp://two/envoy.config.endpoint.v3.ClusterLoadAssignment/far", 3))
		other.refuse(nil)
		advance(5 * time.Minute)
		w.serves(t, "c", farAway+" 3 | b 2", "with the child")
	})
}

// TestClusterWithUnavailableEndpoints: a new version of a cluster does not replace the one in use while
// its endpoints are unavailable, and the note contains the reason.
func TestClusterWithUnavailableEndpoints(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{}, "resource_timer_is_transient_error")
		cp.serve(targetOf("svc", 1)...)
		w := h.watch("svc")
		w.must(t)
		for _, change := range []proto.Message{clusterTo("svc", "none"), clusterTo("svc", "svc")} {
			cp.serve(change)
			advance(time.Minute)
			w.serves(t, "svc", "svc 1")
			note, gone := fmt.Sprint(w.cluster(t, "svc").Leaves[0].ResolutionNote), proto.Equal(change, clusterTo("svc", "none"))
			if gone != strings.Contains(note, `ClusterLoadAssignment resource "none" not found`) || gone != strings.Contains(note, "the previous version of the cluster stays in use") {
				t.Errorf("note %s", note)
			}
		}
	})
}

// TestWaiting checks the error of a target that waits for its configuration: it names the server,
// the resource and the time, and distinguishes a silent server from a server that omits the
// resource, until the resource is found to be missing.
func TestWaiting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{Linger: -1})
		says := func(texts ...string) {
			t.Helper()
			cp.current()
			err := h.c.view().Waiting("typo", "typo")
			for _, text := range texts {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("%v, want a text with %q", err, text)
				}
			}
			if len(texts) == 0 && err != nil {
				t.Errorf("%v, want nothing", err)
			}
		}
		says()
		cp.Hang()
		w := h.watch("typo")
		says(`waiting for Listener resource "typo" for 0s`, "passthrough:///cp", "not connected yet", "node-1")
		advance(2 * time.Second)
		says(`waiting for Listener resource "typo"`, "passthrough:///cp", "not connected after 1s")
		w.cancel()
		cp.refuse(errRefused) // attempts that hang end
		cp.refuse(nil)
		cp.serve(targetOf("other", 1)...)
		other := h.watch("other")
		advance(20 * time.Second)
		other.must(t)
		w = h.watch("typo")
		advance(3 * time.Second)
		says(`waiting for Listener resource "typo"`, "passthrough:///cp", "is connected but has not sent it")
		tooLarge := status.Error(codes.ResourceExhausted, "larger than max")
		for range 20 { // longer than the resource's timer, which restarts with each stream
			cp.hangUp(tooLarge)
			says(", and last failed 0s ago", "larger than max")
			advance(5 * time.Second)
		}
		says("is connected but has not sent it, and last failed ", "larger than max")
		cp.serve(listenerTo("typo", "r"), routesTo("r", "a", "b"))
		advance(time.Second)
		says(`waiting for Cluster resource "a" for 1s`, "and for 1 more")
		advance(15 * time.Second)
		w.must(t) // without the clusters
		says()
		w.cancel()
	})
}
