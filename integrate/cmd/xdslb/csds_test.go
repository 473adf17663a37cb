// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestManyTargets: attach -csds reads the resources of a client once, however many targets
// they make: twice the targets take twice the allocations, not four times as many.
func TestManyTargets(t *testing.T) {
	cost := func(n int) float64 {
		var all xdstest.Resources
		for i := range n {
			all.Add(xdstest.Service(fmt.Sprint("svc", i), xdstest.Locality{Endpoints: []xdstest.Endpoint{{Addr: netip.MustParseAddrPort("10.0.0.1:80")}}}))
		}
		c := &statusv3.ClientConfig{}
		add := func(name string, m proto.Message) {
			a, err := anypb.New(m)
			if err != nil {
				t.Fatal(err)
			}
			c.GenericXdsConfigs = append(c.GenericXdsConfigs, &statusv3.ClientConfig_GenericXdsConfig{TypeUrl: a.GetTypeUrl(), Name: name, XdsConfig: a})
		}
		for i := range n {
			add(all.Listeners[i].GetName(), all.Listeners[i])
			add("", all.Routes[i])
			add("", all.Clusters[i])
			add("", all.Endpoints[i])
		}
		return testing.AllocsPerRun(1, func() {
			list := targetsOf(c, time.Time{})
			if len(list) != n || list[n-1].Error != "" || list[n-1].Clusters[0].Leaves[0].Priorities[0].Endpoints.Total != 1 {
				t.Fatalf("%d targets, and of the last %+v; want %d with an endpoint each", len(list), list[len(list)-1], n)
			}
		})
	}
	if few, many := cost(20), cost(40); many > 2.5*few {
		t.Errorf("40 targets take %.0f allocations, and 20 take %.0f", many, few)
	}
}
