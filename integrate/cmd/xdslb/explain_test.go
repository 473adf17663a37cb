// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestExplainDrops: RPCs that are dropped are a finding.
func TestExplainDrops(t *testing.T) {
	w := newWorld(t)
	r := xdstest.Service("orders", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(w.backends...)})
	testplane.Drop(r.Endpoints[0], "maintenance", 1_000_000)
	kit.Must(t, w.control.Update(r))
	wantCall(t, exitFinding, []string{"explain", "orders", "/a/b", "-b", w.bootstrap}, "100 % are dropped")
	wantCall(t, exitFinding, []string{"pick", "orders", "-n", "10", "-b", w.bootstrap}, "100 % of the RPCs are dropped")
}

// TestUnmeasuredLatency: endpoints that no RPC was sent to have no latency, neither in the text nor in
// the JSON.
func TestUnmeasuredLatency(t *testing.T) {
	w := newWorld(t)
	r := xdstest.Service("orders", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(w.backends...)})
	r.Clusters[0] = xdstest.Cluster("orders", "orders", testplane.Policies(testplane.TypedStruct(integrate.LeastLatency, nil)))
	kit.Must(t, w.control.Update(r))
	args := []string{"explain", "orders", "/a/b", "-b", w.bootstrap}
	if s := wantCall(t, exitOK, args, "least_latency", "50 %, READY"); strings.Contains(s.out, " ms") {
		t.Errorf("the explanation has a latency:\n%s", s.out)
	}
	if s := wantCall(t, exitOK, append(args, "-o", "json"), "least_latency"); strings.Contains(s.out, `"latency"`) {
		t.Errorf("the JSON has a latency:\n%s", s.out)
	}
}

// TestExplainRejected: a Cluster that was rejected is called rejected, with the reason, without a file too.
func TestExplainRejected(t *testing.T) {
	w := newWorld(t)
	r := xdstest.Service("orders", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(w.backends...)})
	r.Clusters[0].LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
	kit.Must(t, w.control.Update(r))
	wantCall(t, exitFinding, []string{"explain", "orders", "/a/b", "-b", w.bootstrap}, `Cluster "orders" was rejected (NACKED): `, "lb_policy")
}

// TestHostnames: addresses that are names are accepted with -hostnames, and can be -down.
func TestHostnames(t *testing.T) {
	w := newWorld(t)
	r := xdstest.Service("orders", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(w.backends...)})
	r.Endpoints[0].Endpoints[0].LbEndpoints[0].GetEndpoint().Address.GetSocketAddress().Address = "a.example"
	kit.Must(t, w.control.Update(r))
	args := []string{"explain", "orders", "/a/b", "-b", w.bootstrap}
	name := fmt.Sprintf("a.example:%d", w.backends[0].Addr().Port())
	wantCall(t, exitOK, []string{"dump", "orders", "-b", w.bootstrap}, "unless Config.Resources.AcceptHostnames is set")
	wantCall(t, exitOK, append(args, "-hostnames", "-down", name), name+" 0 %, TRANSIENT_FAILURE", "100 %, READY")
	wantCall(t, exitOK, []string{"pick", "orders", "-n", "10", "-b", w.bootstrap, "-hostnames"}, name)
	wantCall(t, exitUsage, append(args, "-down", "a.example"), "want ADDRESS:PORT")
}
