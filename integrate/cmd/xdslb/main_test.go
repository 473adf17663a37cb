// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/leak"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/debug"
	"github.com/xdslb/xdslb/integrate/internal/statustext"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/xds/eventlog"
	"github.com/xdslb/xdslb/xds/xdstest"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }

// session is a call of the command.
type session struct {
	code        int
	out, errors string
}

// call calls the command as main does.
func call(t testing.TB, args ...string) session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	var errors kit.Logs // which the timer of progress may write to at any time
	e := &env{ctx: ctx, stdout: &out, stderr: &errors, now: time.Now}
	s := session{code: e.run(args)}
	s.out, s.errors = out.String(), errors.String()
	// JSON and resources are as long as they are.
	if all := strings.Join(args, " "); !strings.Contains(all, "json") && len(args) > 0 && args[0] != "dump" {
		for line := range strings.Lines(s.out) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > statustext.Columns && strings.Contains(line[1:], " ") {
				t.Errorf("xdslb %v prints %d columns: %s", args, n, line)
			}
		}
	}
	return s
}

// want calls the command, and checks the exit code and that the output has some texts.
func wantCall(t testing.TB, code int, args []string, texts ...string) session {
	t.Helper()
	s := call(t, args...)
	if s.code != code {
		t.Fatalf("xdslb %v: exit code %d, want %d\n%s%s", args, s.code, code, s.out, s.errors)
	}
	for _, text := range texts {
		if all := s.out + s.errors; !strings.Contains(all, text) && !strings.Contains(strings.Join(strings.Fields(all), " "), text) {
			t.Errorf("xdslb %v lacks %q:\n%s%s", args, text, s.out, s.errors)
		}
	}
	return s
}

const file = "../../testdata/explain.json"

// TestGolden checks the output of commands that need only files.
func TestGolden(t *testing.T) {
	for _, row := range []struct {
		name string
		code int
		args []string
	}{
		{"help", 0, []string{"help"}},
		{"help-explain", 0, []string{"explain", "-h"}},
		{"explain", 1, []string{"explain", "shop", "/shop.Cart/Add", "-f", file, "-H", "x-user=bob", "-down", "10.0.0.1:80"}},
		{"compare", 0, []string{"check", "shop", "-f", "testdata/compare.json"}},
		{"compare-json", 0, []string{"check", "shop", "-f", "testdata/compare.json", "-o", "json"}},
		{"compare-nothing", 0, []string{"check", "-f", "testdata/after.json", "shop", "-overlay", ""}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := wantCall(t, row.code, row.args)
				golden := filepath.Join("testdata", row.name+".golden")
				if *update {
					kit.Must(t, os.WriteFile(golden, []byte(s.out), 0o644))
				}
				text, err := os.ReadFile(golden)
				if err != nil || string(text) != s.out {
					t.Errorf("xdslb %v does not print what %s has (-update writes it; %v):\n%s", row.args, golden, err, s.out)
				}
			})
		})
	}
}

// TestUsage: a wrong call of the command prints the error or the usage, with exit code 2.
func TestUsage(t *testing.T) {
	for _, row := range []struct {
		args []string
		want string
	}{
		{nil, "Exit codes"},
		{[]string{"nothing"}, `unknown command "nothing"`},
		{[]string{"help", "nothing"}, `unknown command "nothing"`},
		{[]string{"explain", "shop"}, "missing argument: METHOD"},
		{[]string{"explain", "shop", "/m", "more"}, `unexpected argument: "more"`},
		{[]string{"explain", "shop", "/m", "-H", "novalue"}, "want k=v"},
		{[]string{"dump", "shop", "-o", "xml"}, "want text or json"},
		{[]string{"explain", "shop", "/m", "-down", "name"}, "-down"},
		{[]string{"check", "-nothing"}, "-nothing"},
		{[]string{"attach", "x", "-interval", "0s"}, "-interval"},
	} {
		wantCall(t, exitUsage, row.args, row.want)
	}
	for _, c := range commands {
		wantCall(t, exitOK, []string{"help", c.name}, "usage: xdslb "+c.name, "Example:", "xdslb "+c.name, "-o format")
	}
}

// TestTargets checks the errors of targets that no control plane can serve.
func TestTargets(t *testing.T) {
	w := newWorld(t)
	unknown := w.bootstrap + `: $.authorities: authority "unknown" specified in dial target "xds://unknown/x" is not found`
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"dump", "xds://unknown/x"}, "xdslb dump: bootstrap: file " + unknown},
		{[]string{"explain", "dns:///orders", "/m"}, `target "dns:///orders": the scheme is neither xds nor xdslb`},
		{[]string{"check", "dns:///orders"}, `target "dns:///orders": the scheme is neither xds nor xdslb`},
	} {
		wantCall(t, exitFinding, append(row.args, "-b", w.bootstrap), row.want)
	}
}

// TestBrokenFiles: files that are missing, or have no resources, are errors with one prefix.
func TestBrokenFiles(t *testing.T) {
	wantCall(t, exitFinding, []string{"explain", "shop", "/m", "-f", "nothing.json"}, "nothing.json")
	if s := wantCall(t, exitFinding, []string{"explain", "shop", "/m", "-f", saved(t, `{"config": 1}`)}); strings.Count(s.errors, "xdslb") != 1 {
		t.Errorf("the error has the prefix more than once: %s", s.errors)
	}
}

// world is a control plane with a service, and a process with a channel to it.
type world struct {
	control   *xdstest.Server
	backends  []*xdstest.Backend
	bootstrap string // file
	page      *httptest.Server
	cc        *grpc.ClientConn
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{control: xdstest.New(t, xdstest.Options{}), backends: xdstest.NewBackends(t, 2, xdstest.BackendOptions{})}
	weighted := xdstest.BackendEndpoints(w.backends...)
	weighted[1].Weight = 3
	r := xdstest.Service("orders", xdstest.Locality{Place: xdstest.Place{Region: "eu", Zone: "a"}, Endpoints: weighted})
	kit.Must(t, w.control.Set(r))
	w.bootstrap = saved(t, string(w.control.Bootstrap("node-1")))
	mux := http.NewServeMux()
	mux.Handle("/debug/xdslb/", debug.Handler())
	w.page = httptest.NewServer(mux)
	t.Cleanup(w.page.Close)
	return w
}

// change changes the resources of the service.
func (w *world) change(t *testing.T, f func(r *xdstest.Resources)) {
	t.Helper()
	r := xdstest.Service("orders", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(w.backends...)})
	f(&r)
	kit.Must(t, w.control.Update(r))
}

// saved writes a temporary file, and returns its name.
func saved(t testing.TB, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file.json")
	kit.Must(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// insecureBootstrap returns a bootstrap with one server.
func insecureBootstrap(server net.Addr) string {
	return fmt.Sprintf(`{"node": {"id": "node-1"}, "xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}]}]}`, server)
}

// pageOf serves a JSON document as the debug page does.
func pageOf(t testing.TB, code int, document any) *httptest.Server {
	t.Helper()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(document)
	}))
	t.Cleanup(page.Close)
	return page
}

// open opens the process's channel.
func (w *world) open(t *testing.T) {
	t.Helper()
	opts, err := integrate.DialOptions(integrate.Config{Bootstrap: w.control.Bootstrap("node-1"), Linger: -1})
	kit.Must(t, err)
	if w.cc, err = grpc.NewClient("xds:///orders", append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.cc.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := testgrpc.NewTestServiceClient(w.cc).EmptyCall(ctx, &testgrpc.Empty{}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
}

// TestOverlay: check validates the overlay and shows the effect of its patches, and explain applies them to
// resources of a file too.
func TestOverlay(t *testing.T) {
	w := newWorld(t)
	t.Setenv("GRPC_XDS_BOOTSTRAP", w.bootstrap)
	file := filepath.Join(t.TempDir(), "overlay.json")
	write := func(patches string) {
		t.Helper()
		kit.Must(t, os.WriteFile(file, []byte(`{"patches": [`+patches+`]}`), 0o600))
	}
	write(`{"resource": "cluster", "name": "orders", "merge": {"lb_policy": 3, "lbPolicy": 4}}`)
	wantCall(t, exitFinding, []string{"check", "-offline", "-overlay", file}, "FAIL overlay: xdslb: overlay: file "+file, "patches[0].merge.lb_policy: set twice")
	wantCall(t, exitFinding, []string{"check", "-offline", "-overlay", file + ".missing"}, "FAIL overlay: ")
	write(`{"resource": "cluster", "name": "orders", "merge": {"circuit_breakers": {"thresholds": [{"max_requests": 9}]}}},
		{"resource": "cluster", "name": "orders", "merge": {"lb_policy": "CLUSTER_PROVIDED"}}, {"resource": "route", "name": "nothing", "merge": {"match": {}}}`)
	dump := wantCall(t, exitOK, []string{"dump", "orders"})
	t.Setenv("XDSLB_OVERLAY", file)
	wantCall(t, exitOK, []string{"check", "-offline"}, "ok   overlay: "+file+", patches: 3")
	wantCall(t, exitOK, []string{"explain", "orders", "/shop.Cart/Add", "-f", saved(t, dump.out)}, "0 of 9 RPCs in flight", "Changed by the overlay: Cluster orders, by file "+file+": patches[0]")
	wantCall(t, exitFinding, []string{"check", "orders"}, "ok   target xds:///orders: clusters: 1", "ok   patches[0]: changes Cluster orders",
		"FAIL patches[1]: skipped for Cluster orders: ", "info patches[2]: matches no resource")
	write(`{"resource": "cluster", "name": "orders", "merge": {"circuit_breakers": {"thresholds": [{"max_requests": 9}]}}},
		{"resource": "cluster", "name": "orders", "target": "xds:///other", "merge": {"lb_policy": "CLUSTER_PROVIDED"}}`)
	t.Setenv("XDSLB_OVERLAY", "")
	wantCall(t, exitOK, []string{"check", "orders", "-overlay", file}, "patches[0]: changes Cluster orders", "info patches[1]: matches no resource")
	wantCall(t, exitFinding, []string{"check", "nothing", "-timeout", "300ms"}, "FAIL target xds:///nothing: ")
	wantCall(t, exitUsage, []string{"check", "orders", "-offline"})
}

// TestControlPlane: check, dump and explain by a control plane.
func TestControlPlane(t *testing.T) {
	w := newWorld(t)
	wantCall(t, exitOK, []string{"check", "-timeout", "1m", "-b", w.bootstrap}, "ok   bootstrap: file", `node "node-1"`, "ok   xDS server "+w.control.Addr())
	t.Setenv("GRPC_XDS_BOOTSTRAP", w.bootstrap)
	dump := wantCall(t, exitOK, []string{"dump", "orders"}, `"ACKED"`, "ClusterLoadAssignment", "node-1")
	asked := wantCall(t, exitOK, []string{"explain", "orders", "/shop.Cart/Add"}, `cluster "orders": 100 % of the route`, "25 %", "75 %")
	read := wantCall(t, exitOK, []string{"explain", "orders", "/shop.Cart/Add", "-f", saved(t, dump.out)})
	if a, b := afterFirstLine(asked.out), afterFirstLine(read.out); a != b {
		t.Errorf("by the control plane:\n%s\nby its dump:\n%s", a, b)
	}

	s := wantCall(t, exitFinding, []string{"dump", "nothing", "-timeout", "300ms"})
	if !strings.Contains(s.out, "nothing") || !strings.Contains(s.errors, `Listener resource "nothing"`) {
		t.Errorf("dump does not print the resources and the missing one: %+v", s)
	}
	w.control.Stop()
	wantCall(t, exitFinding, []string{"check", "-timeout", "1m"}, "FAIL xDS server "+w.control.Addr(), "refused")
	wantCall(t, exitFinding, []string{"explain", "orders", "/m", "-timeout", "1m"}, "refused")
	wantCall(t, exitOK, []string{"check", "-offline"})
	t.Setenv("GRPC_XDS_BOOTSTRAP", "")
	wantCall(t, exitFinding, []string{"check"}, "no bootstrap")
	t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", `{"xds_servers": [{"server_uri": "a", "channel_creds": [{"type": "insecure"}], "server_features": ["xdslb.delta"]}], "node": {"id": "n"}}`)
	wantCall(t, exitFinding, []string{"check", "-offline"}, "warn bootstrap: $.xds_servers[0].server_features[0] is unknown and ignored")
	t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", "{")
	wantCall(t, exitFinding, []string{"check"}, "FAIL bootstrap", "GRPC_XDS_BOOTSTRAP_CONFIG")
}

func afterFirstLine(s string) string {
	_, rest, _ := strings.Cut(s, "\n")
	return rest
}

// TestHostileNames: text from a process does not reach a terminal as control sequences.
func TestHostileNames(t *testing.T) {
	d := debug.Document{Channels: []report.TargetStatus{{
		Target: "a\x1b[2Jb", Connectivity: "\x1b[2J", Error: "x\x1b]0;y\x07", Stock: "\x1b", Rollout: &report.RolloutStatus{Variable: "\x1b", Forward: "\x1b"}, RouteTable: []report.RouteStatus{{Path: "\x1bc", Clusters: []report.RouteTarget{{Cluster: "\x1bc", Share: 1}}}},
		Clusters: []report.ClusterStatus{{Name: "\x1b[1m\u202e\u009b", Error: "\x1b", Leaves: []report.LeafStatus{{Name: "\x1b", MaxRequests: 1, Priorities: []report.PriorityStatus{{
			Localities: []report.LocalityStatus{{Region: "\x1b", Endpoints: []report.EndpointStatus{{Address: "\x1b", Out: "\x1b", State: "READY"}}}},
		}}}}}},
		Events:    []eventlog.Event{{Kind: "\x1b", Cluster: "\x1b", Error: "\x1b\n\x1b", Time: time.Unix(1, 0)}},
		Resources: []report.ResourceStatus{{Name: "\x1b", Error: "\x1b"}},
	}}}
	page := pageOf(t, http.StatusOK, &d)
	for _, args := range [][]string{{"-once", "-interval", "10ms"}, {"-count", "2", "-interval", "10ms"}} {
		s := call(t, append([]string{"attach", page.URL}, args...)...)
		if text := s.out + s.errors; strings.ContainsAny(text, "\x1b\x07\u202e") || !strings.Contains(text, `\x1b`) {
			t.Errorf("attach %v prints %q", args, text)
		}
	}
	s := call(t, "attach", page.URL, "-once", "-interval", "10ms", "-o", "json")
	if text := s.out + s.errors; strings.ContainsAny(text, "\x1b\x07\u202e\u009b") || !strings.Contains(text, `\u202e`) || !strings.Contains(text, `\u009b`) {
		t.Errorf("attach -o json prints %q", text)
	}
}

// TestVersion: the version of gRPC and Go, as text and as JSON.
func TestVersion(t *testing.T) {
	for _, arg := range []string{"version", "-version", "--version"} {
		wantCall(t, exitOK, []string{arg}, "xdslb ", "grpc "+grpc.Version, "go1.")
	}
	wantCall(t, exitOK, []string{"version", "-o", "json"}, `"grpc": "`+grpc.Version+`"`)
	wantCall(t, exitOK, []string{"help", "-h"}, "Exit codes")
}

// TestNoLog: commands with a client of their own print problems once, without log lines in between.
func TestNoLog(t *testing.T) {
	w := newWorld(t)
	w.change(t, func(r *xdstest.Resources) { r.Clusters[0].LbPolicy = 99 }) // invalid
	var logged bytes.Buffer
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	wantCall(t, exitOK, []string{"dump", "orders", "-b", w.bootstrap}, "NACKED")
	if text := logged.String(); strings.Contains(text, "lbPolicy") {
		t.Errorf("the log has %s", text)
	}
}
