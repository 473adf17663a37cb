// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package opentelemetry

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestResourceFileFails counts the failures of a resource file that becomes invalid.
func TestResourceFileFails(t *testing.T) {
	w := newWorld(t, 1)
	file := filepath.Join(t.TempDir(), "resources.json")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := xdstest.Service(service, w.locality("a", 0, w.backends...))
	lists := map[string][]json.RawMessage{}
	add := func(list string, m proto.Message) {
		text, err := protojson.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		lists[list] = append(lists[list], text)
	}
	for _, m := range r.Listeners {
		add("lds", m)
	}
	for _, m := range r.Routes {
		add("rds", m)
	}
	for _, m := range r.Clusters {
		add("cds", m)
	}
	for _, m := range r.Endpoints {
		add("eds", m)
	}
	text, err := json.Marshal(lists)
	if err != nil {
		t.Fatal(err)
	}
	write(string(text))
	w.cfg.Bootstrap = fmt.Appendf(nil, `{"xds_servers": [{"server_uri": %q}], "node": {"id": "node"}}`, "file:"+file)
	if err := w.call(w.dial()); err != nil {
		t.Fatal(err)
	}
	w.await("xdslb.xds_client.source_failure", is(0), "grpc.xds.server", "file://"+file)
	write("{")
	w.await("xdslb.xds_client.source_failure", is(1), "grpc.xds.server", "file://"+file)
}

// TestRollbackLosses counts the features with which RPCs would fail in google.golang.org/grpc/xds: here
// a lb_policy that it rejects.
func TestRollbackLosses(t *testing.T) {
	w := newWorld(t, 1)
	r := xdstest.Service(service, w.locality("a", 0, w.backends...))
	r.Clusters[0].LbPolicy = clusterv3.Cluster_MAGLEV
	w.serve(r)
	w.dial()
	w.await("xdslb.client.rollback_losses", is(1), "grpc.target", target)
}
