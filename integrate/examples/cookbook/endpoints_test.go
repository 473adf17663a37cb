// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package cookbook

var endpointRecipes = []recipe{
	{"Localities", "localities with weight and priority", Localities(), func(w *world) {
		w.put(WrrLocality())
		w.update()
		w.dial()
		if n := w.counts(1000); n[1] < 650 || n[1] > 850 {
			w.Errorf("1000 RPCs are answered by %v, want about 250 and 750", n)
		}
	}},
	{"Priorities", "localities with weight and priority", Priorities(), func(w *world) {
		w.dial()
		w.wantCounts(10)
		w.backends[0].Stop()
		settle()
		w.wantCounts(0, 10)
	}},
	{"EndpointWeights", "endpoint weight", EndpointWeights(), func(w *world) {
		w.dial()
		w.wantCounts(25, 75)
	}},
	{"Draining", "health: HEALTHY", Draining(), func(w *world) {
		w.dial()
		w.wantCounts(0, 10)
	}},
	{"Drops", "`drop_overloads`", Drops(), func(w *world) {
		w.dial()
		failed := 0
		for range 1000 {
			if w.call(method).err != nil {
				failed++
			}
		}
		if failed < 100 || failed > 300 {
			w.Errorf("%d of 1000 RPCs fail, want about 200", failed)
		}
	}},
	{"SeveralAddresses", "`additional_addresses`", SeveralAddresses(), func(w *world) {
		w.dial() // nothing listens at the first address
		w.wantCounts(10)
	}},
	{"HashKeys", "hash key in metadata", HashKeys(), func(w *world) {
		w.put(HashPolicy())
		w.put(RingHash())
		w.update()
		w.dial()
		before := w.call(method, "x-user", "anna").backend
		swapped := HashKeys()
		list := swapped.Endpoints[0].LbEndpoints
		list[0].Metadata, list[1].Metadata = list[1].Metadata, list[0].Metadata
		w.update(swapped)
		if after := w.call(method, "x-user", "anna").backend; after != 1-before {
			w.Errorf("the RPCs of a user go to backend %d and then to %d, want the one with the same key", before, after)
		}
	}},
	{"Hostnames", "", Hostnames(), func(w *world) {
		w.dial()
		w.wantCounts(10)
		if _, leaf := w.explain(); leaf.Priorities[0].Localities[0].Endpoints[0].Hostname != "orders-1.shop.example" {
			w.Error("the endpoint has no hostname")
		}
	}},
}
