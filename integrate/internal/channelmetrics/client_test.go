// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package channelmetrics

import (
	"fmt"
	"net"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestCacheState: a collection need not have a version, which is for debugging only.
func TestCacheState(t *testing.T) {
	for _, updated := range []bool{false, true} {
		r, want := &xds.ResourceStatus{State: xds.Nacked}, "nacked"
		if updated {
			r.Updated, want = time.Now(), "nacked_but_cached"
		}
		if got := cacheState(r.Kind()); got != want {
			t.Errorf("a collection without a version is %s, want %s", got, want)
		}
	}
}

// configs receives the configurations of a target.
type configs chan *picker.Config

func (c configs) Update(cfg *picker.Config) { c <- cfg }
func (c configs) Error(err error)           { panic(err) }

// TestCollectionAge: a collection of endpoints (LEDS) has one age. Its members have none: they
// would be a series each.
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
	boot, err := (bootstrap.Parser{}).Parse("test", fmt.Appendf(nil, `{"node": {"id": %q}, "authorities": {"": {}}, "xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}], "server_features": ["xdslb.delta_ads"]}]}`, t.Name(), lis.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	client := xds.Acquire(boot, xds.Options{Linger: -1})
	defer client.Release()
	updates := make(configs, 16)
	defer client.Watch("orders", "orders", updates)()
	if n := (<-updates).Clusters[0].Leaves[0].Priorities[0].Localities[0].Endpoints.Len(); n != 3 {
		t.Errorf("%d endpoints, want 3", n)
	}
	var names []string
	ageGauges(client, func(_ *metric.Metric, _ int64, labels ...string) { names = append(names, labels[1]) })
	if len(names) != 5 || names[4] != xdstest.Glob("", "orders") {
		t.Errorf("ages of %q, want those of four resources and the collection", names)
	}
}
