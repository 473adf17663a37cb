// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// incident is the world of a test of log lines: a channel, and a service of two priorities with a
// backend each.
type incident struct {
	t         *testing.T
	control   *xdstest.Server
	backends  []*xdstest.Backend
	resources xdstest.Resources
	cc        *grpc.ClientConn
}

// rpcs makes RPCs for a while, whatever their results.
func (i *incident) rpcs() {
	for range 100 {
		_, _ = call(i.t, i.cc)
		time.Sleep(100 * time.Millisecond)
	}
}

func (i *incident) set() { set(i.t, i.control, i.resources) }

func (i *incident) start(n int) {
	i.t.Helper()
	if err := i.backends[n].Start(); err != nil {
		i.t.Fatal(err)
	}
}

// logIncidents cause and end conditions that are logged, by the message that begins each.
var logIncidents = map[string]struct {
	begins, ends []string // texts of the lines
	prepare      func(i *incident, cfg *integrate.Config)
	begin, end   func(i *incident)
}{
	"xdslb: the target cannot be served": {
		[]string{"has no virtual host"}, nil, nil,
		func(i *incident) {
			hosts := i.resources.Routes[0].VirtualHosts
			i.resources.Routes[0].VirtualHosts = nil
			i.set()
			i.resources.Routes[0].VirtualHosts = hosts
		},
		(*incident).set,
	},
	"xdslb: RPCs of a cluster fail": {
		[]string{"cluster=" + target, "latest connection error"}, []string{"cluster=" + target}, nil,
		func(i *incident) { i.backends[1].Stop(); i.backends[0].Stop() },
		func(i *incident) { i.start(0); i.start(1) },
	},
	"xdslb: a cluster fails over to a lower priority": {
		[]string{"cluster=" + target, "from_priority=0", "to_priority=1", "error=", "latest connection error"}, []string{"cluster=" + target, "to_priority=0"}, nil,
		func(i *incident) { i.backends[0].Stop() },
		func(i *incident) { i.start(0) },
	},
	"xdslb: endpoint ejected as an outlier": {
		[]string{"cluster=" + target, "endpoint=", "detector=failure_percentage", "value=100"}, []string{"cluster=" + target, "endpoint="},
		func(i *incident, _ *integrate.Config) {
			i.resources.Clusters[0].OutlierDetection = &clusterv3.OutlierDetection{
				Interval: durationpb.New(time.Second), BaseEjectionTime: durationpb.New(5 * time.Second), MaxEjectionPercent: wrapperspb.UInt32(100),
				EnforcingSuccessRate: wrapperspb.UInt32(0), EnforcingFailurePercentage: wrapperspb.UInt32(100), FailurePercentageThreshold: wrapperspb.UInt32(50),
				FailurePercentageMinimumHosts: wrapperspb.UInt32(1), FailurePercentageRequestVolume: wrapperspb.UInt32(1),
			}
		},
		func(i *incident) { i.backends[0].Fail(codes.Internal) },
		func(i *incident) { i.backends[0].Fail(codes.OK) },
	},
}

// TestLogPairsOfChannels checks that the log has a line for the beginning and the end of each
// condition of channels that failures.md lists, with the attributes that an operator needs, and one
// more of each if it repeats.
func TestLogPairsOfChannels(t *testing.T) {
	pairs := kit.LogPairs(t, "docs/failures.md", "TestLogPairsOfChannels")
	for message := range logIncidents {
		if _, ok := pairs[message]; !ok {
			t.Errorf("failures.md lacks %q", message)
		}
	}
	for message, pair := range pairs {
		t.Run(message, func(t *testing.T) {
			of, ok := logIncidents[message]
			if !ok {
				t.Fatal("there is no incident for the row of failures.md")
			}
			inBubble(t, func(t *testing.T, b *bubble) {
				i := &incident{t: t, control: b.control(), backends: b.backends(2)}
				all := xdstest.BackendEndpoints(i.backends...)
				i.resources = xdstest.Service(target, xdstest.Locality{Endpoints: all[:1]}, xdstest.Locality{Place: xdstest.Place{Zone: "b"}, Priority: 1, Endpoints: all[1:]})
				cfg := b.config(i.control)
				if of.prepare != nil {
					of.prepare(i, &cfg)
				}
				i.set()
				var book kit.Logs
				cfg.Logger = slog.New(&book)
				i.cc = b.dial(cfg)
				i.rpcs()
				for n := range 2 {
					begun, ended := len(book.With(pair.Begin)), len(book.With(pair.End))
					if begun != n || ended != n {
						t.Fatalf("before incident %d the log has %d and %d lines:\n%s", n, begun, ended, &book)
					}
					of.begin(i)
					i.rpcs()
					if begun, ended := len(book.With(append(of.begins, pair.Begin)...)), len(book.With(pair.End)); begun != n+1 || ended > n && message != "xdslb: endpoint ejected as an outlier" {
						t.Fatalf("during incident %d the log has %d and %d lines:\n%s", n, begun, ended, &book)
					}
					of.end(i)
					i.rpcs()
					time.Sleep(5 * time.Minute)
					synctest.Wait()
					if ended := len(book.With(append(of.ends, pair.End)...)); ended != n+1 {
						t.Fatalf("after incident %d the log has %d lines %q:\n%s", n, ended, pair.End, &book)
					}
				}
			})
		})
	}
}
