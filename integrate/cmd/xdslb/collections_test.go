// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// collecting starts a control plane that has the endpoints of target "orders" in a collection
// (LEDS), and returns its bootstrap.
func collecting(t *testing.T, backends []*xdstest.Backend) []byte {
	t.Helper()
	_, addr := startCollecting(t, backends)
	return collectingBoot(addr, `"xdslb.delta_ads"`)
}

func collectingBoot(addr net.Addr, features string) []byte {
	return fmt.Appendf(nil, `{"node": {"id": "node-1"}, "authorities": {"": {}}, "xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}], "server_features": [%s]}]}`, addr, features)
}

func startCollecting(t *testing.T, backends []*xdstest.Backend) (*xdstest.Scripted, net.Addr) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	control := xdstest.StartScripted(xdstest.ScriptedOptions{Listener: lis})
	t.Cleanup(control.Stop)
	r := xdstest.Service("orders", xdstest.Locality{Place: xdstest.Place{Region: "eu", Zone: "a"}})
	xdstest.FromCollection(r.Endpoints[0], 0, xdstest.Glob("", "orders"))
	r.Members = map[string]*endpointv3.LbEndpoint{}
	for i, e := range xdstest.BackendEndpoints(backends...) {
		e.Weight = uint32(1 + 2*i)
		r.Members[xdstest.Member("", "orders", fmt.Sprint(i))] = xdstest.LbEndpoint(e)
	}
	if err := control.Set(r); err != nil {
		t.Fatal(err)
	}
	return control, lis.Addr()
}

// TestCollections: all commands know the endpoints of collections (LEDS).
func TestCollections(t *testing.T) {
	backends := xdstest.NewBackends(t, 2, xdstest.BackendOptions{})
	text := collecting(t, backends)
	boot, saved := filepath.Join(t.TempDir(), "bootstrap.json"), filepath.Join(t.TempDir(), "orders.json")
	if err := os.WriteFile(boot, text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GRPC_XDS_BOOTSTRAP", boot)
	dump := wantCall(t, exitOK, []string{"dump", "orders"}, xdstest.Glob("", "orders"), xdstest.Member("", "orders", "1"))
	if err := os.WriteFile(saved, []byte(dump.out), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, from := range [][]string{nil, {"-f", saved}} {
		wantCall(t, exitOK, append([]string{"explain", "orders", "/a/b"}, from...), backends[0].Addr().String()+" 25 %", backends[1].Addr().String()+" 75 %")
		wantCall(t, exitOK, append([]string{"pick", "orders", "-n", "4000"}, from...), "1000 25 %", "3000 75 %")
	}
	changed := filepath.Join(t.TempDir(), "changed.json")
	if err := os.WriteFile(changed, []byte(strings.ReplaceAll(dump.out, backends[1].Addr().String()[10:], "1")), 0o600); err != nil {
		t.Fatal(err)
	}
	wantCall(t, exitFinding, []string{"diff", saved, changed, "-target", "orders"}, "1 kept, 1 closed, 1 opened")

	opts, err := integrate.DialOptions(integrate.Config{Bootstrap: text, Linger: -1})
	if err != nil {
		t.Fatal(err)
	}
	cc, err := grpc.NewClient("xds:///orders", append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	if err := integrate.WaitReady(t.Context(), cc, "/a/b"); err != nil {
		t.Fatal(err)
	}
	wantCall(t, exitOK, []string{"attach", serveCSDS(t), "-csds", "-once", "-interval", "10ms"}, "priority 0: 2 endpoints", "25 %", "75 %")
}

// TestDelta: with -delta, the commands speak incremental ADS, whatever the bootstrap says, and
// check says what a server has.
func TestDelta(t *testing.T) {
	control, addr := startCollecting(t, xdstest.NewBackends(t, 1, xdstest.BackendOptions{}))
	boot := filepath.Join(t.TempDir(), "bootstrap.json")
	if err := os.WriteFile(boot, collectingBoot(addr, ""), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GRPC_XDS_BOOTSTRAP", boot)
	for _, args := range [][]string{
		{"dump", "orders"}, {"explain", "orders", "/a/b"}, {"pick", "orders"}, {"watch", "orders", "-once", "-interval", "10ms"},
	} {
		const remedy = "xdslb.delta_ads"
		if s := call(t, args...); args[0] == "dump" && !strings.Contains(s.out+s.errors, remedy) {
			t.Errorf("xdslb %v without -delta does not say %q: %s", args, remedy, s.out+s.errors)
		}
		if s := call(t, append(args, "-delta")...); s.code != exitOK || strings.Contains(s.out+s.errors, remedy) {
			t.Errorf("xdslb %v -delta: exit code %d\n%s", args, s.code, s.out+s.errors)
		}
	}
	wantCall(t, exitOK, []string{"check", "-timeout", "1m"}, "ADS is available (")
	wantCall(t, exitOK, []string{"check", "-timeout", "1m", "-delta"}, "ADS is available (")
	control.Serve(true, false)
	wantCall(t, exitOK, []string{"check", "-timeout", "1m"}, "ADS is available (")
	wantCall(t, exitFinding, []string{"check", "-timeout", "1m", "-delta"}, "only the state-of-the-world variant")
	control.Serve(false, true)
	wantCall(t, exitOK, []string{"check", "-timeout", "1m"}, "only incremental ADS")
	control.Serve(false, false)
	wantCall(t, exitFinding, []string{"check", "-timeout", "1m"}, "the server does not serve ADS")
}
