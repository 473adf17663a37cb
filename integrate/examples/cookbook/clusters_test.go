// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package cookbook

import (
	"net/netip"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/internal/xdstls/tlstest"
	"github.com/xdslb/xdslb/xds/xdstest"
)

var clusterRecipes = []recipe{
	{"EDSCluster", "EDS, LOGICAL_DNS, aggregate", EDSCluster(), func(w *world) {
		w.dial()
		w.wantCounts(25, 25, 25, 25)
	}},
	{"LogicalDNS", "EDS, LOGICAL_DNS, aggregate", LogicalDNS(), wantResolved},
	{"StrictDNS", "STRICT_DNS", StrictDNS(), wantResolved},
	{"Aggregate", "EDS, LOGICAL_DNS, aggregate", Aggregate(), func(w *world) {
		w.dial()
		w.wantCounts(0, 0, 0, 0, 10, 10)
		w.backends[4].Stop()
		w.backends[5].Stop()
		settle()
		w.wantCounts(0, 0, 0, 0, 0, 0, 10, 10)
	}},
	{"MaxRequests", "`circuit_breakers`", MaxRequests(), func(w *world) {
		w.dial()
		for _, b := range w.backends {
			b.SetDelay(time.Second)
		}
		if failed := w.together(120); failed != 20 {
			w.Errorf("%d of 120 RPCs fail, want 20", failed)
		}
	}},
	// All RPCs of an outage are retried twice. Retries beyond the limit are suppressed.
	{"RetryBudget", "`circuit_breakers`", RetryBudget(), func(w *world) { wantRetries(w, 1, 50) }},
	{"MaxRetries", "`circuit_breakers`", MaxRetries(), func(w *world) { wantRetries(w, 1, 6) }},
	{"SuccessRate", "`outlier_detection`: success rate", SuccessRate(), func(w *world) {
		w.endpoints(w.zone("eu-1", 0, 1, 2, 3, 4))
		wantEjected(w, 5)
	}},
	{"FailurePercentage", "`outlier_detection`: success rate, failure percentage", FailurePercentage(), func(w *world) { wantEjected(w, 4) }},
	{"ConsecutiveErrors", "`outlier_detection`: `consecutive_5xx`, `consecutive_gateway_failure`", ConsecutiveErrors(), func(w *world) { wantEjected(w, 4) }},
	{"HealthCheck", "`health_checks`", HealthCheck(), func(w *world) {
		w.dial()
		if n := w.counts(100); n[0] > 0 || n[1] == 0 {
			w.Errorf("RPCs are answered by %v, want none by backend 0, which is not healthy", n)
		}
	}},
	{"TLS", "`transport_socket`: TLS", TLS(), func(w *world) {
		ca, roots := tlstest.NewCA(w, "ca"), filepath.Join(w.TempDir(), "roots.pem")
		tlstest.Write(w, roots, ca.PEM)
		for addr, id := range map[string]string{"10.0.1.1:80": "orders", "10.0.1.2:80": "payments"} {
			cert := ca.Issue(tlstest.Names{URIs: []string{"spiffe://shop.example/ns/shop/sa/" + id}})
			listen(w, 0, addr, grpc.Creds(credentials.NewServerTLSFromCert(&cert.TLS)))
		}
		w.inBootstrap(func(doc map[string]any) {
			doc["certificate_providers"] = map[string]any{"default": map[string]any{
				"plugin_name": "file_watcher", "config": map[string]any{"ca_certificate_file": roots},
			}}
		})
		creds, err := integrate.NewCredentials(integrate.CredentialsOptions{Fallback: insecure.NewCredentials()})
		if err != nil {
			w.Fatal(err)
		}
		w.opts = []grpc.DialOption{grpc.WithTransportCredentials(creds)}
		at := func(addr string) xdstest.Locality {
			return xdstest.Locality{Endpoints: []xdstest.Endpoint{{Addr: netip.MustParseAddrPort(addr)}}}
		}
		w.endpoints(at("10.0.1.1:80"))
		w.dial()
		w.wantCounts(10)
		w.endpoints(at("10.0.1.2:80"))
		if a := w.call(method); status.Code(a.err) != codes.Unavailable {
			w.Errorf("an RPC to a server of another identity: %v", a.err)
		}
	}},
	{"LoadReports", "`lrs_server`", LoadReports(), func(w *world) {
		w.dial()
		w.wantCounts(5, 5, 5, 5)
		time.Sleep(2 * time.Second)
		counts := w.control.Loads("orders", "")
		if sum := counts.Total; sum.Issued != 20 || sum.OK != 20 {
			w.Errorf("the control plane gets reports of %+v, want 20 RPCs", sum)
		}
	}},
	{"OlderFields", "`lb_policy` and its messages", OlderFields(), func(w *world) {
		w.update(HashPolicy())
		w.dial()
		w.wantPolicy("ring_hash")
		w.wantAffinity()
	}},
	{"Preferences", "`load_balancing_policy`", Preferences(), func(w *world) {
		w.dial()
		w.wantPolicy("least_request")
	}},
}

// wantResolved verifies that RPCs go to the addresses of localhost.
func wantResolved(w *world) {
	w.Helper()
	w.resources.Endpoints = w.resources.Endpoints[1:]
	for _, addr := range []string{"127.0.0.1:80", "[::1]:80"} {
		listen(w, 0, addr)
	}
	w.update()
	w.dial()
	w.wantCounts(10)
}

// wantRetries verifies how often 100 RPCs that fail at the same time are retried.
func wantRetries(w *world, atLeast, atMost int) {
	w.Helper()
	w.update(Retries())
	w.dial()
	for _, b := range w.backends {
		b.SetDelay(time.Second)
		b.Fail(codes.Unavailable)
	}
	w.together(100)
	if n := w.calls() - 100; n < atLeast || n > atMost {
		w.Errorf("100 RPCs cause %d retries, want %d to %d", n, atLeast, atMost)
	}
}

// wantEjected verifies that backend 0 of n gets no RPCs while it is ejected, and gets RPCs again later.
func wantEjected(w *world, n int) {
	w.Helper()
	w.dial()
	w.backends[0].Fail(codes.Unavailable)
	for range 30 * n {
		w.call(method)
	}
	w.backends[0].Fail(codes.OK)
	time.Sleep(11 * time.Second)
	if got := w.counts(10 * n); got[0] != 0 {
		w.Errorf("RPCs after the ejection are answered by %v", got)
	}
	time.Sleep(time.Minute)
	if got := w.counts(10 * n); got[0] == 0 {
		w.Errorf("RPCs after the end of the ejection are answered by %v", got)
	}
}

// listen serves RPCs as backend i at another address.
func listen(w *world, i int, addr string, opts ...grpc.ServerOption) {
	w.Helper()
	lis, err := w.net.Listen(addr)
	if err != nil {
		w.Fatal(err)
	}
	s := grpc.NewServer(append(opts, grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error { return w.serveStream(i, s) }))...)
	done := make(chan error)
	go func() { done <- s.Serve(lis) }()
	w.Cleanup(func() {
		s.Stop()
		<-done
	})
}

var endpointRecipes = []recipe{
	{"Localities", "localities with weight and priority", Localities(), func(w *world) { wantLocalities(w, WrrLocality()) }},
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
		w.update(HashPolicy(), RingHash())
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
