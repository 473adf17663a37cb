// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestIgnoredIsLogged: settings of listener, routes and clusters that are ignored are logged once,
// and shown in status and explanations while they are configured; other updates do not log them
// again, and a configuration without them logs nothing.
func TestIgnoredIsLogged(t *testing.T) {
	backends := xdstest.NewBackends(t, 2, xdstest.BackendOptions{})
	control := xdstest.New(t, xdstest.Options{})
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
