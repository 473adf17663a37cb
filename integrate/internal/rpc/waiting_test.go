// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/internal/link"
	"github.com/xdslb/xdslb/picker"
)

// TestWaitForReadyGetsPlan: an RPC that is wait-for-ready waits through an error of
// the target, and gets what its route asks for once there is a configuration; another
// RPC goes on to its pick, which says what the error is.
func TestWaitForReadyGetsPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, cc := NewChannel(link.Options{}, ChannelOptions{Intercepted: true}), new(grpc.ClientConn)
		defer l.Close()
		l.Bind(cc, 5)
		var current *Table
		start := func(wait bool) (timed func() (passed, limited bool)) {
			var done, deadline bool
			go func() {
				_ = UnaryInterceptor(t.Context(), "/s/m", nil, nil, cc, func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
					_, deadline = ctx.Deadline()
					done = true
					return nil
				}, grpc.WaitForReady(wait))
			}()
			return func() (bool, bool) { synctest.Wait(); return done, deadline }
		}
		publish := func(table *Table) {
			current = table
			l.Publish(func() *Table { return current })
		}
		patient, hasty := start(true), start(false)
		check := func(when string, rpc func() (passed, limited bool), wantPassed, wantLimited bool) {
			t.Helper()
			if passed, limited := rpc(); passed != wantPassed || limited != wantLimited {
				t.Errorf("%s: the RPC passed: %v, with a timeout: %v; want %v, %v", when, passed, limited, wantPassed, wantLimited)
			}
		}
		check("before anything is known", patient, false, false)
		check("before anything is known", hasty, false, false)
		publish(&Table{Err: errors.New("no such target")})
		check("after an error", patient, false, false)
		check("after an error", hasty, true, false)
		publish(limitedTable(t, l))
		check("after a configuration", patient, true, true)
		publish(&Table{Err: errors.New("deleted")})
		again := start(true)
		check("after another error", again, false, false)
		publish(limitedTable(t, l))
		check("after another configuration", again, true, true)
	})
}

// TestWaitKeepsPrevious: an RPC that waits for its first configuration while the channel gets another
// resolver keeps what the previous resolver uses of the client, until the RPC has a configuration.
func TestWaitKeepsPrevious(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := NewChannel(link.Options{}, ChannelOptions{}), NewChannel(link.Options{}, ChannelOptions{})
		defer second.Close()
		cc := new(grpc.ClientConn)
		first.Bind(cc, 5)
		passed, released := false, false
		go func() {
			_ = UnaryInterceptor(t.Context(), "/s/m", nil, nil, cc, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
				passed = true
				return nil
			})
		}()
		synctest.Wait()
		second.Bind(cc, 5)
		first.Close()
		first.AfterWaiting(func() { released = true })
		if synctest.Wait(); passed || released {
			t.Errorf("with another resolver, the RPC passed: %v, and the previous resolver released the client: %v; want neither", passed, released)
		}
		second.Publish(func() *Table { return limitedTable(t, second) })
		if synctest.Wait(); !passed || !released {
			t.Errorf("after a configuration, the RPC passed: %v, and the previous resolver released the client: %v; want both", passed, released)
		}
	})
}

// limitedTable has one route, whose RPCs interceptors give a timeout.
func limitedTable(t *testing.T, l *Channel) *Table {
	t.Helper()
	limit := time.Minute
	cfg := &picker.Config{
		Routes: []picker.Route{{
			Headers: []picker.HeaderMatch{{Name: "x", Kind: picker.HeaderPresent}}, Timeout: &limit,
			Clusters: []picker.WeightedCluster{{Name: "c", Weight: 1}},
		}},
		Clusters: []*picker.Cluster{{Name: "c"}},
	}
	env := picker.Env{Header: func(context.Context, string) []string { return nil }}
	snapshot, err := picker.Build(nil, cfg, make([]picker.ClusterState, 1), env)
	kit.Must(t, err)
	_, plans := Compile(cfg, false)
	return &Table{Snapshot: snapshot, Config: cfg, Plans: plans, Channel: l}
}
