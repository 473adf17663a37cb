// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestCollectionOracle: in random histories the configuration is that of an assignment that
// has the same endpoints in itself.
func TestCollectionOracle(t *testing.T) {
	for seed := range uint64(8) {
		bubble(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 2))
			h, cp := collecting(t, Options{}, deltaFeature)
			cp.serve(listenerTo("svc", "svc"), routesTo("svc", "l", "e"), clusterTo("l", "l"), clusterTo("e", "e"), collected("l", "a", "b"))
			all := map[string]map[string]xdstest.Endpoint{"a": {}, "b": {}}
			w := h.watch("svc")
			for step := range 60 {
				for range 1 + rnd.IntN(3) {
					collection, name := []string{"a", "b"}[rnd.IntN(2)], fmt.Sprint("m", rnd.IntN(20))
					full := xdstest.Member("", collection, name)
					if rnd.IntN(3) == 0 {
						delete(all[collection], name)
						cp.Remove(leds.URL(), full)
						continue
					}
					e := xdstest.Endpoint{
						Addr:   netip.MustParseAddrPort(fmt.Sprintf("10.0.%d.%s:%d", collection[0], name[1:], 1+rnd.IntN(2))),
						Weight: rnd.Uint32N(3),
						Health: corev3.HealthStatus(rnd.IntN(4)),
					}
					all[collection][name] = e
					if err := cp.Update(xdstest.Resources{Members: map[string]*endpointv3.LbEndpoint{full: xdstest.LbEndpoint(e)}}); err != nil {
						t.Fatal(err)
					}
				}
				var localities []xdstest.Locality
				for _, collection := range []string{"a", "b"} {
					l := xdstest.Locality{Place: xdstest.Place{Zone: collection}}
					for _, name := range slices.Sorted(maps.Keys(all[collection])) {
						l.Endpoints = append(l.Endpoints, all[collection][name])
					}
					localities = append(localities, l)
				}
				cp.serve(xdstest.Endpoints("e", localities...))
				if rnd.IntN(10) == 0 {
					cp.hangUp(errors.New("bye"))
				}
				advance(time.Minute)
				got, want := &w.cluster(t, "l").Leaves[0], &w.cluster(t, "e").Leaves[0]
				if fmt.Sprint(got.Priorities) != fmt.Sprint(want.Priorities) || len(got.Priorities) != len(want.Priorities) {
					t.Fatalf("seed %d, step %d: priorities\n%v, want\n%v", seed, step, got.Priorities, want.Priorities)
				}
				if !slices.Equal(got.Unhealthy, want.Unhealthy) {
					t.Fatalf("seed %d, step %d: unhealthy are\n%v, want\n%v", seed, step, got.Unhealthy, want.Unhealthy)
				}
			}
		})
	}
}
