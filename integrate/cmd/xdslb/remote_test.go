// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/csds"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// serveCSDS serves CSDS, and returns the address.
func serveCSDS(t *testing.T, opts ...grpc.ServerOption) string {
	t.Helper()
	server := grpc.NewServer(opts...)
	kit.Must(t, csds.Register(server))
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	go func() { _ = server.Serve(lis) }()
	t.Cleanup(server.Stop)
	return lis.Addr().String()
}

// TestAttachCSDS: a process that has CSDS and no debug page shows its resources with what is
// wrong with them, and the clusters, priorities and endpoints that they make.
func TestAttachCSDS(t *testing.T) {
	w := newWorld(t)
	w.open(t)
	args := []string{"attach", serveCSDS(t), "-csds", "-once", "-interval", "10ms"}
	s := wantCall(t, exitOK, args, "ClusterLoadAssignment ACKED", "xds:///orders", "route 0", "cluster orders", "priority 0: 2 endpoints, 0 draining", "eu/a", "25 %", "75 %")
	if strings.Contains(s.out, "READY") || strings.Contains(s.out, "observed") {
		t.Errorf("CSDS shows no connections, and the view is %s", s.out)
	}
	r := xdstest.Service("orders", xdstest.Locality{Endpoints: []xdstest.Endpoint{{Addr: w.backends[0].Addr(), Health: corev3.HealthStatus_DRAINING}, {Addr: w.backends[1].Addr(), Health: corev3.HealthStatus_UNHEALTHY}}})
	r.Clusters[0] = xdstest.Cluster("orders", "orders", testplane.MaxRequests(7))
	r.Clusters[0].LbPolicy = 99 // an unknown policy
	kit.Must(t, w.control.Update(r))
	for deadline := time.Now().Add(time.Minute); ; {
		s = call(t, args...)
		if text := strings.Join(strings.Fields(s.out), " "); strings.Contains(text, "NACKED") && strings.Contains(text, "lb_policy") && strings.Contains(text, "EDS excludes 1 endpoint: "+w.backends[1].Addr().String()+" UNHEALTHY") && strings.Contains(text, "1 draining") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the view is %s", s.out)
		}
	}
	if s.code != exitFinding {
		t.Errorf("with a rejected resource the exit code is %d", s.code)
	}
}

// TestAttachTLS: the page and CSDS of a process that asks for a certificate, by files.
func TestAttachTLS(t *testing.T) {
	w := newWorld(t)
	w.open(t)
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	until := time.Now().AddDate(1, 0, 0)
	root, rootKey := certificate(t, "root", until, nil, nil, path("root"))
	certificate(t, "other", until, nil, nil, path("other"))
	certificate(t, "server.test", until, root, rootKey, path("server"))
	certificate(t, "client.test", until, root, rootKey, path("client"))
	own, err := tls.LoadX509KeyPair(path("server.pem"), path("server.key"))
	kit.Must(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(root)
	settings := &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots}
	page := httptest.NewUnstartedServer(w.page.Config.Handler)
	page.TLS = settings.Clone()
	page.StartTLS()
	defer page.Close()
	flags := []string{"-once", "-interval", "10ms", "-timeout", "1m", "-ca", path("root.pem"), "-cert", path("client.pem"), "-key", path("client.key"), "-server-name", "server.test"}
	at := strings.TrimPrefix(page.URL, "https://")
	wantCall(t, exitOK, append([]string{"attach", at}, flags...), "xds:///orders READY")
	wantCall(t, exitOK, append([]string{"attach", page.URL}, flags...), "xds:///orders READY")
	wantCall(t, exitOK, append([]string{"explain", "orders", "/a/b", "-at", at}, flags[3:]...), "cluster \"orders\"")
	addr := serveCSDS(t, grpc.Creds(credentials.NewTLS(settings)))
	wantCall(t, exitOK, append([]string{"attach", addr, "-csds"}, flags...), "cluster orders", "ACKED")

	with := func(flag, value string) []string {
		changed := slices.Clone(flags)
		changed[slices.Index(flags, flag)+1] = value
		return changed
	}
	for _, to := range [][]string{{"attach", at}, {"attach", addr, "-csds"}} {
		wantCall(t, exitFinding, append(to, with("-ca", path("other.pem"))...), "certificate")
		wantCall(t, exitFinding, append(to, with("-server-name", "other.test")...), "other.test")
		wantCall(t, exitFinding, append(to, with("-ca", path("root.key"))...), "no certificate in PEM format")
		wantCall(t, exitFinding, append(to, with("-key", path("server.key"))...), "-cert", "private key")
		wantCall(t, exitFinding, append(to, with("-cert", path("nothing"))...), "nothing")
		wantCall(t, exitUsage, append(to, with("-key", "")...), "must be used together")
		wantCall(t, exitFinding, append(to, "-once", "-tls", "-timeout", "1m"), "certificate")
	}
	wantCall(t, exitUsage, append([]string{"attach", w.page.URL}, flags...), "require the scheme https")
}

// certificate writes a certificate and its key to path.pem and path.key.
func certificate(t *testing.T, name string, until time.Time, parent *x509.Certificate, parentKey *ecdsa.PrivateKey, path string) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	kit.Must(t, err)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: until.AddDate(-10, 0, 0), NotAfter: until,
		IsCA: parent == nil, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		DNSNames: []string{name},
	}
	if parent == nil {
		parent, parentKey = cert, key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, parentKey)
	kit.Must(t, err)
	if cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	kit.Must(t, err)
	for file, block := range map[string]*pem.Block{path + ".pem": {Type: "CERTIFICATE", Bytes: der}, path + ".key": {Type: "PRIVATE KEY", Bytes: secret}} {
		kit.Must(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	}
	return cert, key
}

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
			kit.Must(t, err)
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
