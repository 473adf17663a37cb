// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

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
