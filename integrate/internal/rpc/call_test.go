// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
	"github.com/xdslb/xdslb/picker"
)

// canary is a table whose route with header x: canary goes to cluster first, and the
// other one, which has a timeout, to second.
func canary(t *testing.T, first, second string) *Table {
	t.Helper()
	limit := time.Minute
	to := func(cluster string) []picker.WeightedCluster {
		return []picker.WeightedCluster{{Name: cluster, Weight: 1}}
	}
	cfg := &picker.Config{
		Routes: []picker.Route{
			{Headers: []picker.HeaderMatch{{Name: "x", String: picker.StringMatch{Kind: picker.MatchExact, Value: "canary"}}}, Clusters: to(first)},
			{Timeout: &limit, Clusters: to(second)},
		},
		Clusters: []*picker.Cluster{{Name: first}, {Name: second}},
	}
	snapshot, err := picker.Build(nil, cfg, make([]picker.ClusterState, 2), picker.Env{Header: metadatautil.OutgoingValues})
	if err != nil {
		t.Fatal(err)
	}
	_, plans := Compile(cfg, false)
	return &Table{Snapshot: snapshot, Config: cfg, Plans: plans}
}

// TestBound: the first pick settles where an RPC goes, by the headers and the
// configuration of that time; all other attempts go there too, unless the cluster is
// gone (A31, D13).
func TestBound(t *testing.T) {
	plain := t.Context()
	tagged := metadata.AppendToOutgoingContext(plain, "x", "canary")
	type pick struct {
		ctx  context.Context
		in   *Table
		want string
	}
	old := canary(t, "a", "b")
	same, swapped, other := canary(t, "a", "b"), canary(t, "b", "a"), canary(t, "c", "d")
	for name, picks := range map[string][]pick{
		"the interceptor's headers":                    {{plain, old, "b"}, {plain, old, "b"}},
		"other headers":                                {{tagged, old, "a"}, {plain, old, "a"}},
		"other headers at a later attempt":             {{plain, old, "b"}, {tagged, old, "b"}},
		"an update before the first pick":              {{plain, swapped, "a"}, {plain, old, "a"}},
		"an update, and other headers":                 {{tagged, swapped, "b"}, {plain, same, "b"}},
		"an update between attempts":                   {{plain, old, "b"}, {plain, swapped, "b"}},
		"an update that takes the cluster away":        {{plain, old, "b"}, {plain, other, "d"}},
		"an update that takes away the headers' one":   {{tagged, old, "a"}, {tagged, other, "c"}, {plain, old, "a"}},
		"an update to the same, and the first headers": {{plain, same, "b"}, {tagged, same, "b"}},
	} {
		ctx, call := Bind(plain, old, "/s/m")
		if call == nil || CallOf(ctx, old, "/s/m") != call || CallOf(ctx, old, "/s/other") != nil {
			t.Fatal("an RPC of a route with a timeout has no Call, or one of another method has it")
		}
		for i, p := range picks {
			_, cluster, outcome := call.Resolve(p.in, p.ctx, "/s/m")
			if outcome != picker.Picked || p.in.Config.Clusters[cluster].Name != p.want {
				t.Errorf("%s: pick %d has cluster %d and outcome %d, want %s", name, i+1, cluster, outcome, p.want)
			}
		}
	}
}
