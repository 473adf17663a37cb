// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package cookbook

import (
	"fmt"
	"sync"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/xdslb/xdslb/xds/xdstest"
)

var policyRecipes = []recipe{
	{"RoundRobin", "round_robin, by endpoint weight", RoundRobin(), func(w *world) {
		w.update(EndpointWeights())
		w.dial()
		w.wantCounts(25, 75)
	}},
	{"LeastRequest", "least_request", LeastRequest(), func(w *world) {
		w.dial()
		w.wantPolicy("least_request")
		var group sync.WaitGroup
		w.backends[0].SetDelay(time.Minute)
		for w.backends[0].Calls() < 3 {
			group.Go(func() { w.call(method) })
			synctest.Wait()
		}
		w.backends[0].SetDelay(0)
		if n := w.counts(200); n[0] > 40 {
			w.Errorf("200 RPCs are answered by %v, want few by the backend with RPCs in flight", n)
		}
		group.Wait()
	}},
	{"Random", "random", Random(), func(w *world) {
		w.dial()
		w.wantPolicy("random")
		counts := w.counts(2000)
		for i, n := range counts[:4] {
			if n < 400 || n > 600 {
				w.Errorf("backend %d answers %d of 2000 RPCs, want about 500", i, n)
			}
		}
	}},
	{"RingHash", "ring_hash, maglev", RingHash(), func(w *world) { wantHashes(w, "ring_hash") }},
	{"RingHashByHeader", "ring_hash, maglev", RingHashByHeader(), func(w *world) {
		w.dial()
		w.wantPolicy("ring_hash")
		w.wantAffinity()
	}},
	{"RingHashSlowStart", "slow start", RingHashSlowStart(), func(w *world) {
		w.dial()
		w.wantAffinity()
		w.endpoints(w.zone("eu-1", 0, 1, 2, 3, 4))
		users := func() (n int) {
			for user := range 200 {
				if w.call(method, "x-user", fmt.Sprint("user-", user)).backend == 4 {
					n++
				}
			}
			return n
		}
		users() // connects it
		first := users()
		time.Sleep(time.Minute)
		if last := users(); last < 20 || first < 1 || first > last/4 {
			w.Errorf("the new backend has %d users at first, and %d after the window", first, last)
		}
	}},
	{"Maglev", "ring_hash, maglev", Maglev(), func(w *world) { wantHashes(w, "maglev") }},
	{"ClientWRR", "client_side_weighted_round_robin", ClientWRR(), func(w *world) {
		w.endpoints(w.zone("eu-1", 0, 1))
		w.busy[0].Store(90)
		w.busy[1].Store(30)
		w.dial()
		w.wantPolicy("client_wrr")
		w.counts(10)
		time.Sleep(12 * time.Second)
		w.counts(10) // after the blackout period
		time.Sleep(2 * time.Second)
		if n := w.counts(400); n[1] < 295 || n[1] > 305 {
			w.Errorf("400 RPCs are answered by %v, want 100 and 300", n)
		}
	}},
	{"PickFirst", "pick_first", PickFirst(), func(w *world) {
		w.dial()
		w.wantCounts(10)
		w.backends[0].Stop()
		settle()
		w.wantCounts(0, 10)
	}},
	{"WrrLocality", "wrr_locality", WrrLocality(), func(w *world) { wantLocalities(w, Localities()) }},
	{"RandomSubsetting", "random_subsetting", RandomSubsetting(), func(w *world) {
		w.endpoints(w.zone("eu-1", 0, 1, 2, 3, 4, 5))
		w.dial()
		used := 0
		for _, n := range w.counts(60) {
			if n == 20 {
				used++
			}
		}
		if used != 3 {
			w.Errorf("%d endpoints get 20 of 60 RPCs, want 3", used)
		}
	}},
	{"ZoneAware", "zone-aware routing", ZoneAware(), func(w *world) {
		inZones(w)
		w.wantCounts(0, 0, 0, 20, 20, 20)
	}},
	{"Recommended", "xdslb_least_latency", Recommended(), func(w *world) {
		for _, b := range w.backends {
			b.SetDelay(10 * time.Millisecond)
		}
		inZones(w)
		w.wantPolicy("least_latency")
		time.Sleep(2 * time.Minute) // the slow start of the first endpoints
		if n := w.counts(300); n[3]+n[4]+n[5] < 295 {
			w.Errorf("300 RPCs are answered by %v, want those in the zone of the client", n)
		}
		w.backends[5].SetDelay(time.Second)
		if n := w.counts(300); n[5] > 30 {
			w.Errorf("300 RPCs are answered by %v, want few by the slow backend", n)
		}
		w.endpoints(w.zone("eu-1", 0, 1, 2), w.zone("eu-2", 3, 4, 6))
		if n := w.counts(300); n[6] == 0 || n[6] > 60 {
			w.Errorf("300 RPCs are answered by %v, want few by the new backend", n)
		}
	}},
	{"SlowStart", "slow start", SlowStart(), func(w *world) {
		w.endpoints(w.zone("eu-1", 0, 1))
		w.dial()
		time.Sleep(2 * time.Minute)
		w.wantCounts(50, 50)
		w.endpoints(w.zone("eu-1", 0, 1, 2))
		if n := w.counts(300); n[2] == 0 || n[2] > 50 {
			w.Errorf("300 RPCs are answered by %v, want few by the new backend", n)
		}
		time.Sleep(2 * time.Minute)
		if n := w.counts(300); n[2] < 90 {
			w.Errorf("300 RPCs after the slow start are answered by %v, want 100 each", n)
		}
	}},
	{"LeastLatency", "xdslb_least_latency", LeastLatency(), func(w *world) {
		w.backends[0].SetDelay(time.Second)
		w.dial()
		w.wantPolicy("least_latency")
		if n := w.counts(200); n[0] > 40 {
			w.Errorf("200 RPCs are answered by %v, want few by the slow backend", n)
		}
	}},
	{"Prequal", "xdslb_prequal", Prequal(), func(w *world) {
		w.dial()
		w.wantPolicy("prequal")
		for _, b := range w.backends {
			b.SetDelay(10 * time.Millisecond)
		}
		w.counts(40)
		// Three RPCs of another client are in flight at backend 0.
		other, err := grpc.NewClient("passthrough:///"+w.backends[0].Addr().String(), append(w.opts, grpc.WithContextDialer(w.net.Dial))...)
		if err != nil {
			w.Fatal(err)
		}
		defer other.Close()
		w.backends[0].SetDelay(time.Minute)
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() { _ = other.Invoke(w.Context(), method, new(emptypb.Empty), new(emptypb.Empty)) })
		}
		synctest.Wait()
		w.backends[0].SetDelay(10 * time.Millisecond)
		if n := w.counts(200); n[0] > 10 {
			w.Errorf("200 RPCs are answered by %v, want hardly any by the busy backend", n)
		}
		group.Wait()
		if _, leaf := w.explain(); leaf.Probes == nil || !leaf.Probes.Synchronous || leaf.Probes.Sent == 0 || leaf.Probes.Failed > 0 {
			w.Errorf("the probes are %+v", leaf.Probes)
		}
	}},
}

// inZones dials from a client in the second of two zones.
func inZones(w *world) {
	w.Helper()
	w.update(
		xdstest.Endpoints("orders", w.zone("eu-1", 0, 1, 2), w.zone("eu-2", 3, 4, 5)),
		xdstest.Endpoints("web", w.zone("eu-1", 6), w.zone("eu-2", 7))) // the clients' own fleet
	w.cfg.LocalCluster = "web"
	w.inBootstrap(func(doc map[string]any) {
		doc["node"].(map[string]any)["locality"] = map[string]any{"region": "eu", "zone": "eu-2"}
	})
	w.dial()
}

// wantLocalities verifies the shares of two localities of weights 1 and 3, with another resource.
func wantLocalities(w *world, other proto.Message) {
	w.Helper()
	w.update(other)
	w.dial()
	if n := w.counts(1000); n[1] < 650 || n[1] > 850 {
		w.Errorf("1000 RPCs are answered by %v, want about 250 and 750", n)
	}
}

// wantHashes verifies that a policy uses the route's hash_policy.
func wantHashes(w *world, policy string) {
	w.Helper()
	w.update(HashPolicy())
	w.dial()
	w.wantPolicy(policy)
	w.wantAffinity()
}
