// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"fmt"
	"net"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestCollectionAge: a collection of endpoints (LEDS) has one age, and its members none of their
// own: they would be a series each. It need not have a version, which is for debugging only.
func TestCollectionAge(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	control := xdstest.StartScripted(xdstest.ScriptedOptions{Listener: lis, Report: func(v string) { t.Error(v) }})
	t.Cleanup(control.Stop)
	r := xdstest.Service("orders", xdstest.Locality{})
	xdstest.FromCollection(r.Endpoints[0], 0, xdstest.Glob("", "orders"))
	r.Members = map[string]*endpointv3.LbEndpoint{}
	for i, e := range xdstest.BackendEndpoints(xdstest.NewBackends(t, 3, xdstest.BackendOptions{})...) {
		r.Members[xdstest.Member("", "orders", fmt.Sprint(i))] = xdstest.LbEndpoint(e)
	}
	if err := control.Set(r); err != nil {
		t.Fatal(err)
	}
	boot := fmt.Appendf(nil, `{"node": {"id": %q}, "authorities": {"": {}}, "xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}], "server_features": ["xdslb.delta_ads"]}]}`, t.Name(), lis.Addr())
	opts, err := DialOptions(Config{Bootstrap: boot, Linger: -1})
	if err != nil {
		t.Fatal(err)
	}
	cc, err := grpc.NewClient("xds:///orders", append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	if err := WaitReady(t.Context(), cc, "/a/b"); err != nil {
		t.Fatal(err)
	}
	s, err := StatusOf(cc)
	if err != nil || s.Clusters[0].Leaves[0].Priorities[0].Endpoints.Total != 3 {
		t.Errorf("%+v, %v", s.Clusters, err)
	}
	for _, updated := range []bool{false, true} {
		r, want := &xds.ResourceStatus{State: xds.Nacked}, "nacked"
		if updated {
			r.Updated, want = time.Now(), "nacked_but_cached"
		}
		if got := cacheState(r.Kind()); got != want {
			t.Errorf("a collection without a version is %s, want %s", got, want)
		}
	}
	var names []string
	for _, c := range xds.Clients() {
		if c.NodeID() == t.Name() {
			ageGauges(c, func(_ *metric.Metric, _ int64, labels ...string) { names = append(names, labels[1]) })
		}
	}
	if len(names) != 5 || names[4] != xdstest.Glob("", "orders") {
		t.Errorf("ages of %q, want those of four resources and the collection", names)
	}
}
