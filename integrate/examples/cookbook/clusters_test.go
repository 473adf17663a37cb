// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package cookbook

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

var clusterRecipes = []recipe{
	{"EDSCluster", "EDS, LOGICAL_DNS, aggregate", EDSCluster(), func(w *world) {
		w.dial()
		w.wantCounts(25, 25, 25, 25)
	}},
	{"LogicalDNS", "EDS, LOGICAL_DNS, aggregate", LogicalDNS(), func(w *world) {
		w.resources.Endpoints = w.resources.Endpoints[1:]
		for _, addr := range []string{"127.0.0.1:80", "[::1]:80"} {
			listen(w, 0, addr)
		}
		w.update()
		w.dial()
		w.wantCounts(10)
	}},
	{"StrictDNS", "STRICT_DNS", StrictDNS(), func(w *world) {
		w.resources.Endpoints = w.resources.Endpoints[1:]
		for _, addr := range []string{"127.0.0.1:80", "[::1]:80"} {
			listen(w, 0, addr)
		}
		w.update()
		w.dial()
		w.wantCounts(10)
	}},
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
		roots := filepath.Join(w.TempDir(), "roots.pem")
		certs := listenTLS(w, "10.0.1.1:80", "spiffe://shop.example/ns/shop/sa/orders")
		certs = append(certs, listenTLS(w, "10.0.1.2:80", "spiffe://shop.example/ns/shop/sa/payments")...)
		if err := os.WriteFile(roots, certs, 0o600); err != nil {
			w.Fatal(err)
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
		w.put(HashPolicy())
		w.update()
		w.dial()
		w.wantPolicy("ring_hash")
		w.wantAffinity()
	}},
	{"Preferences", "`load_balancing_policy`", Preferences(), func(w *world) {
		w.dial()
		w.wantPolicy("least_request")
	}},
}

// wantRetries verifies how often 100 RPCs that fail at the same time are retried.
func wantRetries(w *world, atLeast, atMost int) {
	w.Helper()
	w.put(Retries())
	w.update()
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

// listenTLS serves RPCs as backend 0 with a certificate of an identity, and returns the certificate.
func listenTLS(w *world, addr, id string) []byte {
	w.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.Fatal(err)
	}
	uri, err := url.Parse(id)
	if err != nil {
		w.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Now().AddDate(1, 0, 0), URIs: []*url.URL{uri},
		IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		w.Fatal(err)
	}
	listen(w, 0, addr, grpc.Creds(credentials.NewServerTLSFromCert(&tls.Certificate{Certificate: [][]byte{cert}, PrivateKey: key})))
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
}

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
