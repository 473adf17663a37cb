// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package cookbook

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/integrate"
)

var routeRecipes = []recipe{
	{"Domains", "domains", Domains(), func(w *world) {
		for authority, want := range map[string]string{
			"orders.shop.example": "orders", "eu.canary.example": "orders-canary", "canary.local": "orders-canary", "other": "orders-backup",
		} {
			w.dial(grpc.WithAuthority(authority))
			if r, _ := w.explain(); r.Clusters[0].Cluster != want {
				w.Errorf("authority %s is routed to %s, want %s", authority, r.Clusters[0].Cluster, want)
			}
			wantCluster(w, want, w.call(method))
		}
	}},
	{"Paths", "path: prefix, exact", Paths(), func(w *world) {
		w.dial()
		for path, want := range map[string]string{
			"/shop.Orders/Get": "orders", "/shop.Orders/Cancel": "orders-canary", "/shop.Orders/ListAll": "orders-backup",
			"/shop.Legacy/Get": "orders-backup", "/shop.orders/cancel": "orders",
		} {
			wantCluster(w, want, w.call(path))
		}
	}},
	{"Headers", "headers, runtime fraction", Headers(), func(w *world) {
		w.dial()
		wantCluster(w, "orders-canary", w.call(method, "x-canary", "true"))
		wantCluster(w, "orders", w.call(method, "x-canary", "false"))
		wantCluster(w, "orders", w.call(method))
	}},
	{"Fraction", "headers, runtime fraction", Fraction(), func(w *world) {
		w.dial()
		x, err := integrate.Explain(w.Context(), w.cc, method)
		if err != nil || x.Routes[0].Probability != .1 {
			w.Errorf("%v, probability %v, want 0.1", err, x.Routes[0].Probability)
		}
		if n := w.counts(1000); n[4]+n[5] == 0 || n[4]+n[5] > 300 {
			w.Errorf("1000 RPCs are answered by %v, want about 100 by backends 4 and 5", n)
		}
	}},
	{"WeightedClusters", "cluster, weighted clusters", WeightedClusters(), func(w *world) {
		w.dial()
		if r, _ := w.explain(); len(r.Clusters) != 2 || r.Clusters[0].Share != .75 || r.Clusters[1].Share != .25 {
			w.Errorf("the clusters of the route are %+v", r.Clusters)
		}
		if n := w.counts(1000); n[4]+n[5] < 100 || n[4]+n[5] > 500 {
			w.Errorf("1000 RPCs are answered by %v, want about 250 by backends 4 and 5", n)
		}
	}},
	{"HashPolicy", "`hash_policy`", HashPolicy(), func(w *world) {
		w.update(RingHash())
		w.dial()
		w.wantAffinity()
		channel := w.call(method).backend // without the header
		if n := w.counts(10); n[channel] != 10 {
			w.Errorf("RPCs without the header are answered by %v, want one backend", n)
		}
	}},
	{"Retries", "`retry_policy`", Retries(), func(w *world) {
		w.backends[0].Fail(codes.Unavailable)
		w.backends[1].Fail(codes.Unavailable)
		w.dial()
		if n := w.counts(100); n[2]+n[3] != 100 || w.calls() <= 100 {
			w.Errorf("RPCs are answered by %v in %d attempts", n, w.calls())
		}
	}},
	{"PerTryTimeout", "`per_try_timeout`", PerTryTimeout(), func(w *world) {
		w.backends[0].SetDelay(time.Hour)
		w.dial()
		for range 20 {
			if a := w.call(method); a.err != nil || a.took > 550*time.Millisecond {
				w.Errorf("an RPC took %v (%v), want 0.5 s and a backoff at most", a.took, a.err)
			}
		}
		if w.backends[0].Calls() == 0 {
			w.Error("the slow backend got no RPC")
		}
	}},
	{"Hedging", "`hedge_policy`", Hedging(), func(w *world) {
		w.cfg.Idempotent = func(name string) bool { return name == method }
		w.backends[0].SetDelay(time.Hour)
		w.dial()
		for range 20 {
			if a := w.call(method); a.err != nil || a.took > 100*time.Millisecond {
				w.Errorf("an RPC took %v (%v), want 100 ms at most", a.took, a.err)
			}
		}
		if w.backends[0].Calls() == 0 {
			w.Error("the slow backend got no RPC")
		}
	}},
	{"RouteTimeout", "timeouts of `max_stream_duration`", RouteTimeout(), func(w *world) { wantTimeout(w, 5*time.Second) }},
	{"FilterOverride", "filters overridden", FilterOverride(), func(w *world) {
		w.update(listener(filter("fault", delayed(0))))
		w.dial()
		if a := w.call("/shop.Orders/Cancel"); status.Code(a.err) != codes.ResourceExhausted {
			w.Errorf("the RPC with the fault: %v", a.err)
		}
		wantCluster(w, "orders", w.call(method))
	}},
	{"RequestHeaders", "`request_headers_to_add`", RequestHeaders(), func(w *world) {
		w.dial()
		a := w.call(method, "x-environment", "test", "x-debug", "1")
		if got := fmt.Sprint(a.header["x-environment"], a.header["x-route"], a.header["x-debug"]); a.err != nil || got != "[production] [orders] []" {
			w.Errorf("the headers are %s (%v), want [production] [orders] []", got, a.err)
		}
	}},
	{"AutoHostRewrite", "`auto_host_rewrite`", AutoHostRewrite(), func(w *world) {
		w.update(Hostnames())
		w.trust()
		w.dial()
		if got := w.call(method).header.Get("authority"); len(got) != 1 || got[0] != "orders-1.shop.example" {
			w.Errorf("the authority is %q", got)
		}
	}},
	{"HostRewriteLiteral", "`host_rewrite_literal`", HostRewriteLiteral(), func(w *world) {
		w.trust()
		w.dial()
		if got := w.call(method).header.Get("authority"); len(got) != 1 || got[0] != "orders.shop.example" {
			w.Errorf("the authority is %q", got)
		}
	}},
}

// trust marks the control plane as trusted.
func (w *world) trust() {
	w.inBootstrap(func(doc map[string]any) {
		doc["xds_servers"].([]any)[0].(map[string]any)["server_features"] = []string{"xds_v3", "trusted_xds_server"}
	})
}

// wantCluster verifies that an endpoint of a cluster answered an RPC.
func wantCluster(w *world, cluster string, a answer) {
	w.Helper()
	if a.err != nil || []string{"orders", "orders", "orders-canary", "orders-backup"}[a.backend/2] != cluster {
		w.Errorf("an RPC is answered by backend %d (%v), want one of %s", a.backend, a.err, cluster)
	}
}

// wantTimeout verifies after which time an RPC without a deadline fails.
func wantTimeout(w *world, d time.Duration) {
	w.Helper()
	w.dial()
	for _, b := range w.backends {
		b.SetDelay(time.Hour)
	}
	if a := w.call(method); status.Code(a.err) != codes.DeadlineExceeded || a.took != d {
		w.Errorf("an RPC fails after %v (%v), want DEADLINE_EXCEEDED after %v", a.took, a.err, d)
	}
	settle()
}

var listenerRecipes = []recipe{
	{"InlineRoutes", "routes inline", InlineRoutes(), func(w *world) {
		w.resources.Routes = nil
		w.update()
		w.dial()
		w.wantCounts(25, 25, 25, 25)
	}},
	{"ListenerTimeout", "`max_stream_duration`", ListenerTimeout(), func(w *world) { wantTimeout(w, 10*time.Second) }},
	{"FaultInjection", "router, fault", FaultInjection(), func(w *world) {
		w.dial()
		slow := 0
		for range 500 {
			switch a := w.call(method); {
			case a.err != nil || a.took != 0 && a.took != 2*time.Second:
				w.Fatalf("an RPC took %v (%v)", a.took, a.err)
			case a.took > 0:
				slow++
			}
		}
		if slow == 0 || slow > 200 {
			w.Errorf("%d of 500 RPCs are delayed, want about 50", slow)
		}
	}},
	{"StatefulSession", "stateful session", StatefulSession(), func(w *world) {
		w.dial()
		first := w.call(method)
		cookie, err := http.ParseSetCookie(strings.Join(first.header.Get("set-cookie"), ""))
		if err != nil {
			w.Fatal(err)
		}
		if n := w.counts(20, "cookie", cookie.Name+"="+cookie.Value); n[first.backend] != 20 {
			w.Errorf("RPCs of a session of backend %d are answered by %v", first.backend, n)
		}
		w.wantCounts(5, 5, 5, 5)
	}},
}
