// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/internal/rollout"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestLossesAreLogged checks that a channel logs once for its target the features that would lose
// RPCs after a roll-back, also if the feature appears later, with the feature and the remedy; and
// that it logs nothing without such features, or if the program does not link the package to return
// to. bench/rollout verifies the claims against that package.
func TestLossesAreLogged(t *testing.T) {
	const line = "WARN xdslb: a roll-back to google.golang.org/grpc/xds by XDSLB_DISABLE would lose RPCs"
	before := rollout.Earlier
	defer func() { rollout.Earlier = before }()
	for _, tt := range []struct {
		name, target string
		stock        resolver.Builder
		from         time.Duration // when the control plane begins to send MAGLEV; below 0 means never
		want         int
	}{
		{"from the start", "losses.test", brokenStock{}, 0, 1},
		{"later", "later.losses.test", brokenStock{}, 10 * time.Minute, 1},
		{"without losses", "none.losses.test", brokenStock{}, -1, 0},
		{"without stock", "unlinked.losses.test", nil, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rollout.Earlier = tt.stock
			inBubble(t, func(t *testing.T, b *bubble) {
				control, log := b.control(), &kit.Logs{}
				r := xdstest.Service(tt.target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(b.backends(1)...)})
				if tt.from == 0 {
					r.Clusters[0].LbPolicy = clusterv3.Cluster_MAGLEV
				}
				set(t, control, r)
				cfg := b.config(control)
				cfg.Logger = slog.New(log)
				channel := func() {
					cc := b.dialTo(cfg, tt.target)
					if _, err := call(t, cc); err != nil {
						t.Fatal(err)
					}
					if s, err := integrate.StatusOf(cc); err != nil || (len(s.StockDifferences) > 0 && s.StockDifferences[0].LosesRPCs) != (tt.from == 0) {
						t.Errorf("the status has %+v (%v)", s.StockDifferences, err)
					}
				}
				channel()
				channel()
				time.Sleep(time.Minute)
				for range 2 {
					if tt.from > 0 {
						time.Sleep(tt.from)
						r.Clusters[0].LbPolicy = clusterv3.Cluster_MAGLEV
					}
					r.Routes[0].VirtualHosts[0].Routes[0].Name += "x" // another configuration
					set(t, control, r)
					time.Sleep(2 * time.Minute)
				}
				if found := log.With(line, "target=xds:///"+tt.target, "Cluster "+tt.target+": lb_policy: MAGLEV", "remedy=have the control plane"); len(found) != tt.want || len(log.With("would lose RPCs")) != tt.want {
					t.Errorf("%d lines, want %d:\n%s", len(found), tt.want, log)
				}
			})
		})
	}
}

// TestLossesAsTheyComeIntoUse checks that each feature with which a roll-back would lose RPCs is logged
// when the control plane begins to send it, also if another one is in use already, and that the metric has
// their number until they are gone.
func TestLossesAsTheyComeIntoUse(t *testing.T) {
	const name, line = "losses-later.test", "WARN xdslb: a roll-back to google.golang.org/grpc/xds by XDSLB_DISABLE would lose RPCs"
	before := rollout.Earlier
	defer func() { rollout.Earlier = before }()
	rollout.Earlier = brokenStock{}
	inBubble(t, func(t *testing.T, b *bubble) {
		control, log, metrics := b.control(), &kit.Logs{}, &kit.Recorder{}
		r := xdstest.Service(name, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(b.backends(1)...)})
		cfg := b.config(control)
		cfg.Logger = slog.New(log)
		expect := func(when string, features float64, lines ...string) {
			t.Helper()
			set(t, control, r)
			time.Sleep(2 * time.Minute)
			if got := metrics.Sum("xdslb.client.rollback_losses", "xds:///"+name); got != features {
				t.Errorf("%s: the metric is %v, want %v", when, got, features)
			}
			found := log.With(line)
			if len(found) != len(lines) {
				t.Fatalf("%s: %d lines, want %d: %s", when, len(found), len(lines), log)
			}
			for i, want := range lines {
				if !strings.Contains(found[i], want) {
					t.Errorf("%s: line %s, want %q", when, found[i], want)
				}
			}
		}
		set(t, control, r)
		cc := b.dialTo(cfg, name, grpc.WithStatsHandler(metrics))
		if _, err := call(t, cc); err != nil {
			t.Fatal(err)
		}
		expect("without such features", 0)
		r.Clusters[0].LbPolicy = clusterv3.Cluster_MAGLEV
		expect("MAGLEV", 1, "features=a Cluster that grpc-go rejects")
		r.Listeners[0] = xdstest.Listener(name, name, httpFilter(t, "session", sticky(t, "")))
		expect("a session filter too", 2, "Cluster", "features=a Listener that grpc-go rejects")
		r.Clusters[0].LbPolicy = clusterv3.Cluster_ROUND_ROBIN
		expect("without MAGLEV", 1, "Cluster", "Listener")
	})
}
