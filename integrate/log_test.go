// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestLogger: the lines of a channel go to its Logger, with target, node and cluster: RPCs that
// fail, failover and return, failure of the target, each at its level and once in a minute; and so
// do the lines of its XdsClient. A Logger may ask for the status of channels, since no lock is
// held.
func TestLogger(t *testing.T) {
	backends := xdstest.NewBackends(t, 2, xdstest.BackendOptions{})
	backends[0].Stop()
	backends[1].Stop()
	control := xdstest.New(t, xdstest.Options{})
	all := xdstest.BackendEndpoints(backends...)
	r := xdstest.Service(target, xdstest.Locality{Endpoints: all[:1]}, xdstest.Locality{Place: xdstest.Place{Zone: "b"}, Priority: 1, Endpoints: all[1:]})
	set(t, control, r)
	own := &kit.Logs{OnLog: func(string) { integrate.Status() }}
	cc := dialConfig(t, integrate.Config{Bootstrap: control.Bootstrap("node-of-log"), Linger: -1, Logger: slog.New(own)})
	logged := func(texts ...string) {
		t.Helper()
		own.WantOne(t, append(texts, "node=node-of-log")...)
	}
	if _, err := call(t, cc); err == nil {
		t.Fatal("an RPC succeeded without a backend")
	}
	about := []string{"target=xds:///" + target, "cluster=" + target}
	logged(append(about, "WARN xdslb: RPCs of a cluster fail", "error=", "no endpoint of priority 1 is reachable")...)
	logged(append(about, "WARN xdslb: a cluster fails over", "from_priority=0", "to_priority=1")...)
	kit.Must(t, backends[1].Start())
	succeed(t, cc, grpc.WaitForReady(true))
	logged(append(about, "INFO xdslb: RPCs of a cluster recovered")...)
	kit.Must(t, backends[0].Start())
	logged(append(about, "INFO xdslb: a cluster returns to a higher priority", "from_priority=1", "to_priority=0")...)

	good := r.Routes[0].VirtualHosts
	for range 3 {
		r.Routes[0].VirtualHosts = nil
		set(t, control, r)
		kit.WaitFor(t, "an error in the status", func() bool { return statusOf(t, cc).Error != "" })
		r.Routes[0].VirtualHosts = good
		set(t, control, r)
		kit.WaitFor(t, "the end of the error", func() bool { return statusOf(t, cc).Error == "" })
	}
	logged("WARN xdslb: the target cannot be served", "has no virtual host")
	logged("INFO xdslb: the target is served again")
	if found := logs.With("node-of-log"); len(found) > 0 {
		t.Errorf("the process's Logger has lines of the channel: %q", found)
	}
	if n := len(eventsLike(statusOf(t, cc), "TargetFailed")); n != 3 {
		t.Errorf("the journal has %d events of the target's failing, want 3", n)
	}
}

// TestLoggerOfClient: the XdsClient that channels with different Loggers share writes to the first,
// and each other Logger gets a line about that.
func TestLoggerOfClient(t *testing.T) {
	control := xdstest.New(t, xdstest.Options{})
	r := xdstest.Service(target, xdstest.Locality{Endpoints: []xdstest.Endpoint{nobody}})
	r.Routes[0].VirtualHosts = nil
	set(t, control, r)
	var loggers [2]kit.Logs
	for i := range loggers {
		cc := dialConfig(t, integrate.Config{Bootstrap: control.Bootstrap("shared"), Linger: -1, Logger: slog.New(&loggers[i])})
		cc.Connect()
		kit.WaitFor(t, "the error about the virtual host", func() bool { return strings.Contains(statusOf(t, cc).Error, "has no virtual host") })
	}
	if open, _ := control.Streams(); open != 1 {
		t.Errorf("%d streams to the control plane, want 1", open)
	}
	loggers[1].WantOne(t, "is shared")
}

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

// logs captures the process's log while the tests run.
var logs kit.Logs

func init() { slog.SetDefault(slog.New(&logs)) }

// TestIgnoredIsLogged: settings of listener, routes and clusters that are ignored are logged once,
// and shown in status and explanations while they are configured; other updates do not log them
// again, and a configuration without them logs nothing.
func TestIgnoredIsLogged(t *testing.T) {
	backends, control := start(t, 2)
	var logs kit.Logs
	cc := dialConfig(t, integrate.Config{Bootstrap: control.Bootstrap(t.Name()), Linger: -1, Logger: slog.New(&logs)})
	serve := func(asks bool, others int) {
		t.Helper()
		route := previousHosts(retried(testplane.WeightedRoute("", testplane.Weighted{Cluster: "a", Weight: 1}, testplane.Weighted{Cluster: "b", Weight: 1}), 1))
		if asks {
			route.GetRoute().RetryPolicy.RetryPriority = &routev3.RetryPolicy_RetryPriority{Name: "envoy.retry_priorities.previous_priorities"}
		}
		routes := []*routev3.Route{route}
		for i := range others {
			routes = append(routes, xdstest.Route(fmt.Sprintf("/other%d/", i), "a"))
		}
		r := clusters(backends, nil, routes...)
		if asks {
			r.Routes[0].VirtualHosts[0].ResponseHeadersToRemove = []string{"x"}
			r.Clusters[0].OutlierDetection = &clusterv3.OutlierDetection{AlwaysEjectOneHost: wrapperspb.Bool(true)}
			for _, c := range r.Clusters {
				c.CommonLbConfig = &clusterv3.Cluster_CommonLbConfig{ConsistentHashingLbConfig: &clusterv3.Cluster_CommonLbConfig_ConsistentHashingLbConfig{UseHostnameForHashing: true}}
			}
		}
		if asks {
			r.Listeners[0] = xdstest.Listener(target, target, httpFilter(t, "session", sticky(t, "")))
			testplane.Policies(testplane.TypedStruct("pick_first", nil))(r.Clusters[1])
		}
		set(t, control, r)
		cc.Connect()
		kit.WaitFor(t, "the update", func() bool { return statusOf(t, cc).Routes == others+1 })
	}
	for i, asks := range []bool{false, true, true, false, true} {
		serve(asks, i)
		want := []string(nil)
		if asks {
			want = []string{
				"ConsistentHashingLbConfig.use_hostname_for_hashing of 2 clusters", `OutlierDetection.always_eject_one_host of cluster "a"`,
				"VirtualHost.response_headers_to_remove", `retry_priority "envoy.retry_priorities.previous_priorities"`,
				`session affinity with a policy that picks by itself of cluster "b"`,
			}
		}
		// Each is published by itself, soon.
		kit.WaitFor(t, "what the status lists as unsupported", func() bool { return slices.Equal(statusOf(t, cc).Unapplied, want) })
		kit.WaitFor(t, "what the explanation lists as unsupported", func() bool {
			x, err := integrate.Explain(t.Context(), cc, "/s/m")
			return err == nil && slices.Equal(x.NotApplied, want)
		})
	}
	for _, what := range []string{"previous_priorities", "always_eject_one_host", "use_hostname_for_hashing"} {
		logs.WantOne(t, what)
		logs.WantOne(t, what, "supported.md")
	}
}
