// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// The environment variables with the paths of Istio's programs.
const pilotVariable, agentVariable = "ISTIO_PILOT", "ISTIO_AGENT"

// TestIstio runs all scenarios with both variants of ADS, and prints a table of the results.
func TestIstio(t *testing.T) {
	for _, name := range []string{pilotVariable, agentVariable} {
		if os.Getenv(name) == "" {
			t.Skipf("%s is not set: bench/istio/README.md describes how to build Istio's programs", name)
		}
	}
	var rows table
	t.Cleanup(func() { t.Logf("results:\n%s", &rows) })
	for _, s := range []struct {
		name string
		run  func(t *testing.T, delta bool) result
	}{
		{"targets", twoTargets},
		{"update", update},
		{"restart", restart},
		{"tls", mutualTLS},
		{"overlay", overlayPlain},
		{"overlaytls", overlayTLS},
		{"server", stockServer},
		{"partial", partial},
		{"direct", direct},
	} {
		for _, delta := range []bool{false, true} {
			variant := map[bool]string{false: "sotw", true: "delta"}[delta]
			t.Run(s.name+"/"+variant, func(t *testing.T) { rows.add(s.name, variant, s.run(t, delta)) })
		}
	}
	t.Run("stock", func(t *testing.T) { rows.add("stock", "sotw", stockClients(t)) })
}

// A result is one row of the table.
type result struct {
	counts counts
	note   string
}

// A table has the results of all scenarios.
type table struct{ text strings.Builder }

func (r *table) add(name, variant string, res result) {
	fmt.Fprintf(&r.text, "| %s | %s | %d | %d | %s |\n", name, variant, res.counts.ok+res.counts.failed, res.counts.failed, res.note)
}

func (r *table) String() string {
	return "| scenario | ADS | RPCs | failed | |\n|---|---|---:|---:|---|\n" + r.text.String()
}

func rounded(d time.Duration) string { return d.Round(time.Millisecond).String() }

func newLogger(h slog.Handler) *slog.Logger { return slog.New(h) }

// dial returns a channel to a service that is ready for RPCs.
func dial(t testing.TB, cfg integrate.Config, name string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	cc, err := cfg.NewClient(target(name), append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, opts...)...)
	kit.Must(t, err)
	t.Cleanup(func() { _ = cc.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	kit.Must(t, integrate.WaitReady(ctx, cc, "/grpc.testing.TestService/UnaryCall"))
	return cc
}

// total ends the RPCs of several channels, and returns the sum of their results. No RPC may have failed.
func total(t testing.TB, all ...*traffic) (sum counts) {
	t.Helper()
	for _, f := range all {
		c := f.end()
		sum.ok += c.ok
		sum.failed += c.failed
		if c.failed > 0 {
			t.Errorf("%s: %d of %d RPCs failed: %v", f.name, c.failed, c.ok+c.failed, c.err)
		}
	}
	return sum
}

// twoTargets: all RPCs to two targets succeed behind the agent, which accepts one stream.
func twoTargets(t *testing.T, delta bool) result {
	m, first, second := twoServices(t, delta)
	first.more(500)
	second.more(500)
	n := m.overlapping()
	if n > 0 {
		t.Errorf("the agent closed %d streams because another one was opened, want 0", n)
	}
	return result{total(t, first, second), fmt.Sprintf("%d overlapping streams", n)}
}

// twoServices starts a mesh with two services, orders and prices, and RPCs to both.
func twoServices(t *testing.T, delta bool) (*mesh, *traffic, *traffic) {
	t.Helper()
	m := newMesh(t)
	backends := xdstest.NewBackends(t, 2, xdstest.BackendOptions{})
	m.service("orders", "orders", backends[0])
	m.service("prices", "prices", backends[1])
	m.startPilot()
	m.startAgent()
	cfg := m.config(delta)
	return m, send(t, "orders", dial(t, cfg, "orders")), send(t, "prices", dial(t, cfg, "prices"))
}

// update: endpoints and then weights change while RPCs run.
func update(t *testing.T, delta bool) result {
	m, first, second := twoServices(t, delta)
	backends := xdstest.NewBackends(t, 2, xdstest.BackendOptions{})
	m.service("orders", "orders", backends[0])
	endpoints := first.reaches(backends[0])
	m.service("canary", "orders", backends[1])
	m.route("orders", "canary", 100)
	weights := first.reaches(backends[1])
	second.more(100)
	return result{total(t, first, second), fmt.Sprintf("endpoints after %s, weights after %s", rounded(endpoints), rounded(weights))}
}

// restart: the agent and then the control plane are killed and started again while RPCs run, and
// updates arrive afterwards.
func restart(t *testing.T, delta bool) result {
	m, first, second := twoServices(t, delta)
	backends := xdstest.NewBackends(t, 2, xdstest.BackendOptions{})
	m.agent.kill()
	second.more(100)
	m.service("orders", "orders", backends[0])
	m.startAgent()
	agent := first.reaches(backends[0])
	m.killPilot()
	second.more(100)
	m.service("orders", "orders", backends[1])
	m.startPilot()
	pilot := first.reaches(backends[1])
	return result{total(t, first, second), fmt.Sprintf("update %s after the agent's start, %s after the control plane's", rounded(agent), rounded(pilot))}
}
