// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/debug"
)

// TestSourcesNamed: the status, Explain, the debug page, check and the metrics name the server, the
// file or the remembered resources that each resource is from.
func TestSourcesNamed(t *testing.T) {
	w := newWorld(t)
	memory := t.TempDir()
	open := func(cfg integrate.Config, metrics *kit.Recorder) *grpc.ClientConn {
		cfg.Linger = -1
		cc, err := cfg.NewClient("xds:///orders", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStatsHandler(metrics))
		kit.Must(t, err)
		t.Cleanup(func() { _ = cc.Close() })
		kit.Must(t, integrate.WaitReady(t.Context(), cc, "/shop.Orders/Get"))
		return cc
	}
	check := func(boot []byte) []string {
		return []string{"check", "-b", saved(t, string(boot)), "orders"}
	}
	online := w.control.Bootstrap("node-1")
	remembering := integrate.Config{Bootstrap: online, Resources: integrate.ResourceOptions{Remember: memory}}
	kit.Must(t, open(remembering, &kit.Recorder{}).Close())
	files, err := filepath.Glob(filepath.Join(memory, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("remembered files %q, %v; want one", files, err)
	}
	t.Chdir(memory)
	name := filepath.Base(files[0])
	local := fmt.Appendf(nil, `{"xds_servers": [{"server_uri": %q}], "node": {"id": "node-1"}}`, "file://"+files[0]) // the formats are the same

	for _, row := range []struct {
		kind, source string
		cfg          integrate.Config
		check        []string
		checked      string // by check
	}{
		{"server", w.control.Addr(), integrate.Config{Bootstrap: online}, check(online), w.control.Addr()},
		{"file", "file://" + files[0], integrate.Config{Bootstrap: local}, check(local), "file://" + files[0]},
		// check reads a remembered file as any other.
		{"remembered", "remembered:" + files[0], remembering, []string{"check", "-f", name, "orders"}, "file " + name},
	} {
		t.Run(row.kind, func(t *testing.T) {
			if row.kind == "remembered" {
				w.control.Stop()
			}
			metrics := &kit.Recorder{}
			cc := open(row.cfg, metrics)
			defer cc.Close()
			status, err := integrate.StatusOf(cc)
			kit.Must(t, err)
			if len(status.Resources) != 4 {
				t.Errorf("%d resources, want 4", len(status.Resources))
			}
			for _, r := range status.Resources {
				if r.Server != row.source {
					t.Errorf("status: %s %s is from %q, want %q", r.Type, r.Name, r.Server, row.source)
				}
			}
			x, err := integrate.Explain(t.Context(), cc, "/shop.Orders/Get")
			kit.Must(t, err)
			resources := "Listener orders, RouteConfiguration orders, Cluster orders, ClusterLoadAssignment orders"
			if text := strings.Join(strings.Fields(x.String()), " "); !strings.Contains(text, "Resources from "+row.source+": "+resources) {
				t.Errorf("Explain lacks the source %q:\n%v", row.source, x)
			}
			wantCall(t, exitOK, row.check, "resources from: "+row.checked)
			page := httptest.NewRecorder()
			debug.Handler().ServeHTTP(page, httptest.NewRequest("GET", fmt.Sprintf("http://localhost/?channel=%d", status.Channel), nil))
			if n := strings.Count(page.Body.String(), " from "+row.source+"\n"); n != 4 {
				t.Errorf("the page names the source %q of %d resources, want 4:\n%s", row.source, n, page.Body)
			}
			if metrics.Sum("xdslb.xds_client.resource_updates_valid", row.source) == 0 {
				t.Errorf("no metric has the server %q", row.source)
			}
		})
	}
}
