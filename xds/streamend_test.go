// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"testing"
	"testing/synctest"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestResponseAtEndOfStream: a response counts though the server closes the stream right after
// it, however long it takes to decode.
func TestResponseAtEndOfStream(t *testing.T) {
	resp := &discoveryv3.DiscoveryResponse{TypeUrl: lds.URL(), VersionInfo: "1", Nonce: "1"}
	for i := range 2000 {
		resp.Resources = append(resp.Resources, wrap(xdstest.Listener(fmt.Sprint("other-", i), "r")))
	}
	resp.Resources = append(resp.Resources, wrap(xdstest.Listener("svc", "r")))
	for range 10 {
		bubble(t, func(t *testing.T) {
			h, cp := only(t, Options{})
			h.watch("svc")
			s := cp.must()
			s.Respond(resp)
			s.Close(nil)
			if synctest.Wait(); statusOf(h.c, lds, "svc").State != Acked {
				t.Error("the response was dropped")
			}
		})
	}
}
