// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"

	"github.com/xdslb/xdslb/integrate/internal/link"
	"github.com/xdslb/xdslb/integrate/internal/methodconfig"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// TestPlanOfEntry: of a cluster that a route names twice, an override of a filter is
// for the RPCs of its own entry, which are as many as that has weight (A39).
func TestPlanOfEntry(t *testing.T) {
	abort := &resource.Fault{Abort: &resource.FaultAbort{Chance: resource.Percentage{PerMillion: 1e6}}}
	off := map[string]any{"fault": resource.FilterOverride{Disabled: true}}
	r := &picker.Route{Clusters: []picker.WeightedCluster{
		{Name: "twice", Weight: 1, Overrides: off}, {Name: "twice", Weight: 3}, {Name: "twice", Overrides: off},
		{Name: "on", Weight: 1},
		{Name: "off", Weight: 1, Overrides: off},
	}}
	cfg := &picker.Config{Routes: []picker.Route{*r}, Filters: []picker.Filter{{Name: "fault", Config: abort}}}
	plans := plansFor(cfg, newFilterPlanner(cfg.Filters), r, true)
	for cluster, want := range map[string]int{"twice": 3000, "on": 4000, "off": 0} {
		got := 0
		for range 4000 {
			got += plans.of(cluster).filters.active
		}
		// The standard deviation of 3000 is 27.
		if within := 170; cluster == "twice" && (got < want-within || got > want+within) || cluster != "twice" && got != want {
			t.Errorf("cluster %q: %d of 4000 RPCs have the filter, want %d", cluster, got, want)
		}
	}
}

// TestPlainRoutes: features of other routes cost an RPC nothing: without a plan it gets no
// Call and allocates nothing, and with one of its own it allocates as much as before and gets
// no other callback at its end. A plan is found by index, without a look-up in a map.
func TestPlainRoutes(t *testing.T) {
	limit := time.Minute
	to := func(cluster string) []picker.WeightedCluster {
		return []picker.WeightedCluster{{Name: cluster, Weight: 1}}
	}
	abort := resource.Fault{Abort: &resource.FaultAbort{}, MaxActive: 1}
	busy := picker.Route{
		Path: picker.StringMatch{Kind: picker.MatchExact, Value: "/s/busy"}, Clusters: to("busy"), Hedge: true,
		Retry:     &picker.RetryPolicy{On: []uint32{14}, MaxAttempts: 3, BaseBackoff: time.Second, MaxBackoff: time.Second, OtherHosts: true},
		Overrides: map[string]any{"f": resource.FilterOverride{Config: &abort}},
	}
	timed := picker.Route{Path: picker.StringMatch{Kind: picker.MatchExact, Value: "/s/timed"}, Headers: []picker.HeaderMatch{{Name: "x", Kind: picker.HeaderPresent}}, Timeout: &limit, Clusters: to("plain")}
	plain := picker.Route{Clusters: to("plain")}
	table := func(routes ...picker.Route) *Table {
		return compiled(t, &picker.Config{
			Routes:   routes,
			Clusters: []*picker.Cluster{{Name: "busy", Leaves: []picker.Leaf{{Name: "busy", Retries: &picker.RetryLimit{Percent: 20}}}}, {Name: "plain"}},
			Filters:  []picker.Filter{{Name: "f", Config: &resource.Fault{}}},
		})
	}
	allocs := func(table *Table, method string) float64 {
		invoker := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil }
		return testing.AllocsPerRun(1000, func() { _ = Unary(context.Background(), table, method, nil, nil, nil, invoker) })
	}
	with, without := table(busy, timed, plain), table(timed, plain)
	if _, call := Bind(t.Context(), with, "/s/busy"); call == nil || !call.plan.hedge || call.plan.filters.active != 1 {
		t.Fatal("the busy route has no plan")
	}
	if with.Plans.routes[2] != nil || with.Plans.routes[1].byCluster != nil {
		t.Errorf("the plain routes have plans %v and %v", with.Plans.routes[2], with.Plans.routes[1].byCluster)
	}
	if n := allocs(with, "/s/plain"); n != 0 {
		t.Errorf("an RPC of a route without a plan allocates %v times", n)
	}
	if n, before := allocs(with, "/s/timed"), allocs(without, "/s/timed"); n != before {
		t.Errorf("an RPC of a route with a timeout allocates %v times, and %v without the other route", n, before)
	}
	_, call := Bind(t.Context(), with, "/s/timed")
	result := balancer.PickResult{Done: func(balancer.DoneInfo) {}}
	if n := testing.AllocsPerRun(1000, func() { call.Picked(context.Background(), "plain", nil, &result) }); n != 0 || call.Tried() != nil || call.Session() != nil {
		t.Errorf("a pick for an RPC of a route with a timeout allocates %v times, or depends on attempts or sessions", n)
	}
	if table(plain).Plans != nil {
		t.Error("a target whose filter is off has plans")
	}
}

// TestPlansOfLongPaths: with interceptors, a path of more than two parts gets what its
// route says, and gRPC's service config has nothing else for it (A31, A44).
func TestPlansOfLongPaths(t *testing.T) {
	second, minute := time.Second, time.Minute
	prefix := func(p string, timeout *time.Duration) picker.Route {
		return picker.Route{Path: picker.StringMatch{Value: p}, Timeout: timeout, Clusters: []picker.WeightedCluster{{Name: "c", Weight: 1}}}
	}
	exact := func(p string, timeout *time.Duration) picker.Route {
		r := prefix(p, timeout)
		r.Path.Kind = picker.MatchExact
		return r
	}
	byHeader := func(r picker.Route) picker.Route {
		r.Headers = []picker.HeaderMatch{{Name: "x"}}
		return r
	}
	retried := func(r picker.Route) picker.Route {
		r.Retry = &picker.RetryPolicy{MaxAttempts: 2}
		return r
	}
	for _, tt := range []struct {
		name                   string
		routes                 []picker.Route
		names                  []string // "service/method", as the service config has them
		inServiceConfig, plans []bool   // plans are for long paths
		onlyDeep               bool
	}{
		{"a service", []picker.Route{prefix("/s/", &second)}, []string{"s/"}, []bool{true}, []bool{true}, true},
		{"a service, and nothing for the rest", []picker.Route{prefix("/s/", &second), prefix("", nil)},
			[]string{"s/"}, []bool{true, false}, []bool{true, false}, true},
		{"a service like the rest", []picker.Route{prefix("/s/", &second), prefix("", &second)},
			[]string{"s/", "/"}, []bool{true, true}, []bool{false, false}, false},
		{"a service without timeout", []picker.Route{prefix("/s/", nil), prefix("", &second)},
			nil, []bool{true, false}, []bool{false, false}, false},
		{"methods and the rest", []picker.Route{exact("/s/m", &minute), prefix("", &second)},
			[]string{"s/m", "/"}, []bool{true, true}, []bool{false, false}, false},
		{"services", []picker.Route{prefix("/s/", &second), prefix("/t/", &minute)},
			[]string{"s/", "t/"}, []bool{true, true}, []bool{true, true}, true},
		{"a header of a service with the same retries", []picker.Route{retried(byHeader(prefix("/s/", nil))), retried(prefix("/s/", nil))},
			[]string{"s/"}, []bool{true, true}, []bool{true, true}, false},
		{"a long path before its service", []picker.Route{exact("/s/a/b", &minute), prefix("/s/", &second)},
			[]string{"s/"}, []bool{false, true}, []bool{false, true}, false},
		{"a long prefix with the same retries", []picker.Route{retried(prefix("/s/a/", nil)), retried(prefix("/s/", nil))},
			[]string{"s/"}, []bool{false, true}, []bool{false, true}, false},
	} {
		methods, inServiceConfig, notDeep := methodconfig.Compile(&picker.Config{Routes: tt.routes}, true)
		var names []string
		for _, m := range methods {
			names = append(names, m.Name[0]["service"]+"/"+m.Name[0]["method"])
		}
		if !reflect.DeepEqual(names, tt.names) || !reflect.DeepEqual(inServiceConfig, tt.inServiceConfig) {
			t.Errorf("%s: method configs %q for routes %v, want %q for %v", tt.name, names, inServiceConfig, tt.names, tt.inServiceConfig)
		}
		plans := makePlans(&picker.Config{Routes: tt.routes}, inServiceConfig, notDeep)
		for i, want := range tt.plans {
			if has := plans != nil && plans.deep[int32(i)] != nil; has != want {
				t.Errorf("%s: route %d has a plan of its own for long paths: %t, want %t", tt.name, i, has, want)
			}
		}
		if plans != nil && plans.onlyDeep != tt.onlyDeep {
			t.Errorf("%s: only long paths have plans: %t, want %t", tt.name, plans.onlyDeep, tt.onlyDeep)
		}
	}
}

// TestFiltersAreShared checks that routes share the interceptors that they do not override: the memory of
// plans is not a product of filters and routes (T-SEC-2). Each RPC has the interceptors of the most
// specific override (A39).
func TestFiltersAreShared(t *testing.T) {
	const filters, routes, clusters = 300, 1000, 3
	abort := func(code uint32) *resource.Fault {
		return &resource.Fault{Abort: &resource.FaultAbort{Code: code, Chance: resource.Percentage{PerMillion: 1e6}}}
	}
	cfg := &picker.Config{Routes: make([]picker.Route, routes)}
	for i := range filters {
		cfg.Filters = append(cfg.Filters, picker.Filter{Name: fmt.Sprint(i), Config: &resource.Fault{}})
	}
	cfg.Filters[7].Config = abort(7)
	host := map[string]any{"7": resource.FilterOverride{Disabled: true}, "8": resource.FilterOverride{Config: abort(8)}}
	for i := range cfg.Routes {
		r := &cfg.Routes[i]
		r.HostOverrides = host
		r.Overrides = map[string]any{"9": resource.FilterOverride{Config: abort(9)}, "10": resource.FilterOverride{}, "absent": resource.FilterOverride{Config: abort(1)}}
		for k := range clusters {
			r.Clusters = append(r.Clusters, picker.WeightedCluster{Name: fmt.Sprint("c", k), Weight: 1})
		}
		r.Clusters[0].Overrides = map[string]any{"9": resource.FilterOverride{Disabled: true}, "11": resource.FilterOverride{Config: abort(11)}}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	_, plans := Compile(cfg, true)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if size := (after.HeapAlloc - min(before.HeapAlloc, after.HeapAlloc)) / routes; size > 4<<10 {
		t.Errorf("a route takes %d bytes with %d filters", size, filters)
	}
	names := func(p *plan) (unary, streams []string) {
		for f, i := p.filters.nextUnary(0); f != nil; f, i = p.filters.nextUnary(i) {
			unary = append(unary, f.name)
		}
		for f, i := p.filters.nextStream(0); f != nil; f, i = p.filters.nextStream(i) {
			streams = append(streams, f.name)
		}
		return unary, streams
	}
	for cluster, want := range map[string][]string{"c0": {"8", "11"}, "c1": {"8", "9"}} {
		p := plans.routes[5].of(cluster)
		if unary, streams := names(p); !slices.Equal(unary, want) || !slices.Equal(streams, want) || p.filters.active != len(want) {
			t.Errorf("cluster %s: filters %q for unary RPCs and %q for streams, %d of them; want %q", cluster, unary, streams, p.filters.active, want)
		}
	}
	if want := []string{"11", "8", "9"}; !slices.Equal(plans.filters, want) {
		t.Errorf("filters that a channel without interceptors does not apply are %q, want %q", plans.filters, want)
	}
	runtime.KeepAlive(plans)
}

// askingConfig has a route to each of two clusters; the RPCs of those that are named ask.
func askingConfig(asking ...string) *picker.Config {
	cfg := &picker.Config{}
	for _, name := range []string{"a", "b"} {
		leaf := picker.Leaf{Name: name, Policy: picker.Policy{Kind: picker.PolicyPrequal, Prequal: &picker.Prequal{}}}
		for _, n := range asking {
			if n == name {
				leaf.Policy.Prequal = &picker.Prequal{Synchronous: 3}
			}
		}
		cfg.Clusters = append(cfg.Clusters, &picker.Cluster{Name: name, Leaves: []picker.Leaf{leaf}})
		cfg.Routes = append(cfg.Routes, picker.Route{Clusters: []picker.WeightedCluster{{Name: name, Weight: 1}}})
	}
	return cfg
}

func TestSameClusters(t *testing.T) {
	for _, test := range []struct {
		a, b []string
		same bool
	}{
		{nil, nil, true}, {nil, []string{"a"}, false}, {[]string{"b"}, nil, false},
		{[]string{"a"}, []string{"a"}, true}, {[]string{"a"}, []string{"b"}, false},
	} {
		a, b := askingConfig(test.a...), askingConfig(test.b...)
		if got := SameClusters(a, b); got != test.same {
			t.Errorf("SameClusters(%v, %v) = %t", test.a, test.b, got)
		}
		b.Clusters[0].Name, b.Clusters[1].Name = "b", "a"
		if got := SameClusters(a, b); got != (len(test.a)+len(test.b) == 0 || len(test.a) > 0 && len(test.b) > 0 && !test.same) {
			t.Errorf("with exchanged names: SameClusters(%v, %v) = %t", test.a, test.b, got)
		}
	}
	a, b := askingConfig(), askingConfig()
	a.Clusters[0].Leaves[0].Retries = new(picker.RetryLimit)
	if SameClusters(a, b) {
		t.Error("a limit of retries makes no difference")
	}
}

// TestAskingPlans: only routes to clusters whose endpoints are asked need a plan for it.
func TestAskingPlans(t *testing.T) {
	if _, plans := Compile(askingConfig(), false); plans != nil {
		t.Errorf("the asynchronous mode has plans %v", plans)
	}
	_, plans := Compile(askingConfig("b"), false)
	if plans == nil || plans.routes[0] != nil || plans.routes[1] == nil || !plans.routes[1].all.needed() || len(plans.unapplied()) != 1 {
		t.Errorf("plans are %+v", plans)
	}
}

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
	table := compiled(t, cfg)
	table.Channel = l
	return table
}
