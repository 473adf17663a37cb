// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package csds_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/csds"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestWhileResourcesChange requests the status repeatedly while a control plane changes, breaks
// and removes resources, and targets are added and removed. Every answer must be consistent: a
// version in use comes with the bytes of that version. Changes pause at random, so that other
// operations run in between; there is no other synchronization.
func TestWhileResourcesChange(t *testing.T) {
	for _, delta := range []bool{false, true} {
		t.Run(fmt.Sprint("delta=", delta), func(t *testing.T) { whileResourcesChange(t, delta) })
	}
}

func whileResourcesChange(t *testing.T, delta bool) {
	cp := xdstest.New(t, xdstest.Options{})
	cfg, err := bootstrap.Parser{}.Parse("test", cp.Bootstrap(t.Name()))
	kit.Must(t, err)
	c := xds.Acquire(cfg, xds.Options{Delta: delta, Linger: -1, BackoffBase: time.Millisecond, BackoffMax: 10 * time.Millisecond, ResourceTimeout: 20 * time.Millisecond})
	defer c.Release()
	client := dial(t, csds.NewServer())
	stop := make(chan struct{})
	var tasks sync.WaitGroup
	churn := func(seed uint64, f func(rng *rand.Rand)) {
		tasks.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 7))
			for {
				select {
				case <-stop:
					return
				default:
					f(rng)
				}
			}
		})
	}
	churn(1, func(rng *rand.Rand) { set(t, cp, rng) })
	for seed := range uint64(3) {
		churn(2+seed, func(rng *rand.Rand) {
			name := fmt.Sprint("svc", rng.IntN(4))
			cancel := c.View(nil, "").Watch(name, name, nobody{})
			time.Sleep(time.Duration(rng.IntN(5)) * time.Millisecond)
			c.View(nil, "").Events(name, name)
			c.Servers()
			cancel()
		})
	}
	seen := map[adminv3.ClientResourceStatus]int{}
	rounds := 1000
	if testing.Short() {
		rounds = 200
	}
	// On a busy machine it may take more rounds until enough has happened.
	for begin := time.Now(); rounds > 0 || len(seen) < 3 && time.Since(begin) < 2*time.Minute; rounds-- {
		resp, err := client.FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{})
		kit.Must(t, err)
		for _, c := range resp.Config {
			for _, g := range c.GenericXdsConfigs {
				seen[g.ClientStatus]++
				checkConsistent(t, g)
			}
		}
	}
	close(stop)
	tasks.Wait()
	if len(seen) < 3 {
		t.Errorf("states seen: %v, want more, or the test is too tame", seen)
	}
}

// set replaces the served resources at random.
func set(t *testing.T, cp *xdstest.Server, rng *rand.Rand) {
	var r xdstest.Resources
	for i := range 4 {
		s := xdstest.Service(fmt.Sprint("svc", i), xdstest.Locality{})
		switch rng.IntN(4) {
		case 0:
			s.Endpoints[0].Endpoints[0].Priority = 1 + uint32(rng.IntN(3)) // invalid
		case 1:
			s.Endpoints = []*endpointv3.ClusterLoadAssignment{}
		case 2:
			s.Endpoints[0].Policy = &endpointv3.ClusterLoadAssignment_Policy{OverprovisioningFactor: nil}
		}
		if rng.IntN(5) == 0 {
			s.Listeners = nil
		}
		r.Add(s)
	}
	if err := cp.Set(r); err != nil {
		t.Error(err)
	}
	if rng.IntN(20) == 0 {
		cp.BreakStreams()
	}
	time.Sleep(time.Millisecond)
}

// checkConsistent checks one resource of an answer.
func checkConsistent(t *testing.T, g *statusv3.ClientConfig_GenericXdsConfig) {
	t.Helper()
	inForce := g.VersionInfo != ""
	if inForce != (g.XdsConfig != nil) || inForce != (g.LastUpdated != nil) {
		t.Errorf("half a version: %v", g)
	}
	if g.ClientStatus == adminv3.ClientResourceStatus_ACKED && (!inForce || g.ErrorState != nil) || g.ClientStatus == adminv3.ClientResourceStatus_NACKED && g.ErrorState.GetVersionInfo() == "" {
		t.Errorf("a state that does not fit: %v", g)
	}
	if inForce {
		m, err := g.XdsConfig.UnmarshalNew()
		if err != nil {
			t.Error(err)
			return
		}
		named, ok := m.(interface{ GetName() string })
		if eds, is := m.(*endpointv3.ClusterLoadAssignment); is && eds.ClusterName != g.Name || ok && named.GetName() != g.Name {
			t.Errorf("the bytes are not of %q: %v", g.Name, m)
		}
	}
}
