// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"testing"
)

// TestHappyPath follows a target through all four types, and checks which resources each step
// requests (A27-ARCH-3).
func TestHappyPath(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		w := h.watch("svc")
		cp.asked(lds, "svc")
		cp.send(lds, "1", listenerTo("svc", "routes"))
		cp.asked(rds, "routes")
		cp.send(rds, "1", routesTo("routes", "a", "b"))
		cp.asked(cds, "a", "b")
		cp.send(cds, "1", clusterTo("a", "ea"), clusterTo("b", "eb"))
		cp.asked(eds, "ea", "eb")
		cp.send(eds, "1", endpointsAt("ea", 1, 2))
		if w.got().updates+w.got().errs != 0 {
			t.Fatal("the watcher was called before everything was there")
		}
		cp.send(eds, "2", endpointsAt("eb", 3))
		cfg := w.must(t)
		if len(cfg.Routes) != 2 || len(cfg.Clusters) != 2 {
			t.Fatalf("config = %+v, want two routes and two clusters", cfg)
		}
		if a, b := ports(w.cluster(t, "a")), ports(w.cluster(t, "b")); a != "a 1 2" || b != "b 3" {
			t.Errorf("endpoints = %q and %q", a, b)
		}
		if w.got().updates != 1 || w.got().errs != 0 {
			t.Errorf("%d updates and %d errors, want 1 and 0", w.got().updates, w.got().errs)
		}
	})
}
