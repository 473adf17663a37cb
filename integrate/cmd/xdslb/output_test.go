// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestExplainDrops: RPCs that are dropped are a finding.
func TestExplainDrops(t *testing.T) {
	w := newWorld(t)
	w.change(t, func(r *xdstest.Resources) { testplane.Drop(r.Endpoints[0], "maintenance", 1_000_000) })
	wantCall(t, exitFinding, []string{"explain", "orders", "/a/b", "-b", w.bootstrap}, "100 % are dropped")
}

// TestUnmeasuredLatency: endpoints that no RPC was sent to have no latency, neither in the text nor in
// the JSON.
func TestUnmeasuredLatency(t *testing.T) {
	w := newWorld(t)
	w.change(t, func(r *xdstest.Resources) {
		r.Clusters[0] = xdstest.Cluster("orders", "orders", testplane.Policies(testplane.TypedStruct(integrate.LeastLatency, nil)))
	})
	args := []string{"explain", "orders", "/a/b", "-b", w.bootstrap}
	if s := wantCall(t, exitOK, args, "least_latency", "50 %, READY"); strings.Contains(s.out, " ms") {
		t.Errorf("the explanation has a latency:\n%s", s.out)
	}
	if s := wantCall(t, exitOK, append(args, "-o", "json"), "least_latency"); strings.Contains(s.out, `"latency"`) {
		t.Errorf("the JSON has a latency:\n%s", s.out)
	}
}

// TestExplainRejected: a Cluster that was rejected is called rejected, with the reason, without a file too.
func TestExplainRejected(t *testing.T) {
	w := newWorld(t)
	w.change(t, func(r *xdstest.Resources) { r.Clusters[0].LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED })
	wantCall(t, exitFinding, []string{"explain", "orders", "/a/b", "-b", w.bootstrap}, `Cluster "orders" was rejected (NACKED): `, "lb_policy")
}

// TestHostnames: addresses that are names are accepted with -hostnames, and can be -down.
func TestHostnames(t *testing.T) {
	w := newWorld(t)
	w.change(t, func(r *xdstest.Resources) {
		r.Endpoints[0].Endpoints[0].LbEndpoints[0].GetEndpoint().Address.GetSocketAddress().Address = "a.example"
	})
	args := []string{"explain", "orders", "/a/b", "-b", w.bootstrap}
	name := fmt.Sprintf("a.example:%d", w.backends[0].Addr().Port())
	wantCall(t, exitOK, []string{"dump", "orders", "-b", w.bootstrap}, "unless Config.Resources.AcceptHostnames is set")
	wantCall(t, exitOK, append(args, "-hostnames", "-down", name), name+" 0 %, TRANSIENT_FAILURE", "100 %, READY")
	wantCall(t, exitUsage, append(args, "-down", "a.example"), "want ADDRESS:PORT")
}

// full is a disk that is full after a while.
type full int

func (f *full) Write(p []byte) (int, error) {
	if *f -= full(len(p)); *f < 0 {
		return 0, errors.New("no space left")
	}
	return len(p), nil
}

// TestDiskFull: results that cannot be written completely are reported as an error, in text and in
// JSON.
func TestDiskFull(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"explain", "shop", "/a/b", "-f", file}, {"explain", "shop", "/a/b", "-f", file, "-o", "json"}} {
		var said bytes.Buffer
		room := full(10)
		e := &env{ctx: t.Context(), stdout: &room, stderr: &said, now: time.Now}
		if code := e.run(args); code != exitFinding || !strings.Contains(said.String(), "incomplete results: no space left") {
			t.Errorf("xdslb %v: exit code %d, %q", args, code, said.String())
		}
	}
}

// TestHostileErrors: a server's error text reaches a terminal without control sequences, by every
// command and protocol.
func TestHostileErrors(t *testing.T) {
	const evil = "away \x1b[2J\x1b]0;owned\x07 \u202e\r\u009b31m"
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		return status.Error(codes.PermissionDenied, evil)
	}))
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	go func() { _ = server.Serve(lis) }()
	defer server.Stop()
	page := pageOf(t, http.StatusNotFound, map[string]string{"error": evil})
	boot := saved(t, insecureBootstrap(lis.Addr()))
	for _, args := range [][]string{
		{"check", "-timeout", "1m", "-b", boot},
		{"dump", "orders", "-b", boot, "-timeout", "1m"},
		{"explain", "orders", "/a/b", "-b", boot, "-timeout", "1m"},
		{"attach", page.URL, "-once"},
		{"attach", page.URL, "-count", "1"},
		{"explain", "orders", "/a/b", "-at", page.URL},
	} {
		s := call(t, args...)
		if all := s.out + s.errors; strings.ContainsAny(all, "\x1b\x07\u202e\r\u009b") {
			t.Errorf("xdslb %v prints %q", args, all)
		} else if !strings.Contains(all, "away") {
			t.Errorf("xdslb %v does not report the error: %q", args, all)
		}
	}
}
