// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// TestMethodConfigs: what routes say about RPCs goes into the service config
// where first match and most specific name agree, and nowhere else (A31, A44).
func TestMethodConfigs(t *testing.T) {
	second, none := time.Second, time.Duration(0)
	prefix := func(p string, timeout *time.Duration) picker.Route {
		return picker.Route{Path: picker.StringMatch{Value: p}, Timeout: timeout}
	}
	exact := func(p string, timeout *time.Duration) picker.Route {
		return picker.Route{Path: picker.StringMatch{Kind: picker.MatchExact, Value: p}, Timeout: timeout}
	}
	byHeader := func(r picker.Route) picker.Route {
		r.Headers = []picker.HeaderMatch{{Name: "x"}}
		return r
	}
	tests := []struct {
		name      string
		routes    []picker.Route
		expressed []bool
		names     []string // "service/method timeout", as the service config has them
	}{
		{"nothing to say", []picker.Route{prefix("", nil)}, []bool{true}, nil},
		{"0 is none", []picker.Route{prefix("", &none)}, []bool{true}, nil},
		{"everything", []picker.Route{prefix("", &second)}, []bool{true}, []string{"/ 1.000000000s"}},
		{"a method, a service, the rest", []picker.Route{exact("/s/m", nil), prefix("/s/", &second), prefix("/", nil)},
			[]bool{true, true, true}, []string{"s/m ", "s/ 1.000000000s", "/ "}},
		{"a service hides its methods", []picker.Route{prefix("/s/", nil), exact("/s/m", &second), prefix("", &second)},
			[]bool{true, true, true}, []string{"s/ ", "/ 1.000000000s"}},
		{"everything hides all", []picker.Route{prefix("", nil), exact("/s/m", &second)}, []bool{true, false}, nil},
		{"a header", []picker.Route{byHeader(prefix("/s/", &second)), prefix("", nil)}, []bool{false, false}, nil},
		{"a header elsewhere", []picker.Route{byHeader(prefix("/s/", &second)), prefix("/t/", &second)},
			[]bool{false, true}, []string{"t/ 1.000000000s"}},
		{"a header that changes nothing", []picker.Route{byHeader(prefix("/s/", &second)), prefix("", &second)},
			[]bool{false, true}, []string{"/ 1.000000000s"}},
		{"part of a service's name", []picker.Route{prefix("/pack", &second), prefix("/other/", &second)},
			[]bool{false, true}, []string{"other/ 1.000000000s"}},
	}
	for _, tt := range tests {
		methods, expressed := methodConfigs(&picker.Config{Routes: tt.routes})
		js := (&Config{}).serviceConfig(methods)
		if !reflect.DeepEqual(expressed, tt.expressed) {
			t.Errorf("%s: expressed %v, want %v", tt.name, expressed, tt.expressed)
		}
		var sc struct {
			MethodConfig []struct {
				Name    []struct{ Service, Method string }
				Timeout string
			}
		}
		if err := json.Unmarshal([]byte(js), &sc); err != nil {
			t.Fatalf("%s: %v in %s", tt.name, err, js)
		}
		var names []string
		for _, m := range sc.MethodConfig {
			names = append(names, m.Name[0].Service+"/"+m.Name[0].Method+" "+m.Timeout)
		}
		if !reflect.DeepEqual(names, tt.names) {
			t.Errorf("%s: method configs %q, want %q", tt.name, names, tt.names)
		}
	}
}

// TestFractionDrawnOnce: an RPC is drawn between routes once, be it by an interceptor
// or its pick, so that a route gets its fraction whichever of the routes take an
// interceptor; and an RPC of a route that does never goes without (A28, A31).
func TestFractionDrawnOnce(t *testing.T) {
	const n = 20_000
	tenth, limits := uint32(1e5), [2]time.Duration{time.Second, 2 * time.Second}
	for _, limited := range [][2]bool{{true, false}, {false, true}, {true, true}, {false, false}} {
		cfg := configOf(clusterOf("canary", prio(eps(0))), clusterOf("rest", prio(eps(1))))
		cfg.Routes = []picker.Route{
			{Fraction: &tenth, Clusters: []picker.WeightedCluster{{Name: "canary", Weight: 1}}},
			{Clusters: []picker.WeightedCluster{{Name: "rest", Weight: 1}}},
		}
		for i, limited := range limited {
			if limited {
				cfg.Routes[i].Timeout = &limits[i]
			}
		}
		b, cc := newTestLB(t, Config{})
		_, expressed := methodConfigs(cfg)
		b.lock()
		b.apply(cfg, makePlans(cfg, expressed))
		b.unlock()
		cc.conn(t, 0).to(ready)
		cc.conn(t, 1).to(ready)
		b.flush()
		var got [2]int
		s := b.picker.current.Load()
		for range n {
			info := balancer.PickInfo{FullMethodName: "/s/m", Ctx: context.Background()}
			timed := false
			if s.plans != nil {
				if call := s.plan(info.Ctx, info.FullMethodName); call != nil {
					info.Ctx = context.WithValue(info.Ctx, rpcKey{}, call)
					timed = call.plan.timeout > 0
				}
			}
			res, err := b.picker.Pick(info)
			if err != nil {
				t.Fatal(err)
			}
			res.Done(balancer.DoneInfo{BytesReceived: true})
			route := 0
			if res.SubConn.(*fakeConn).addr == addr(1).String() {
				route = 1
			}
			got[route]++
			if timed != limited[route] {
				t.Fatalf("limited %v: an RPC of route %d has a timeout: %v", limited, route, timed)
			}
		}
		if share := float64(got[0]) / n; math.Abs(share-.1) > .015 {
			t.Errorf("limited %v: the first route got %.3f of the RPCs, want .1", limited, share)
		}
	}
}

// TestRetryUnary is A44 and A6: attempts up to the limit, for the codes of the
// policy only, no more after response headers, and as the server pushes back.
func TestRetryUnary(t *testing.T) {
	policy := &picker.RetryPolicy{On: []uint32{uint32(codes.Unavailable)}, MaxAttempts: 4, BaseBackoff: time.Second, MaxBackoff: 2 * time.Second}
	unavailable := status.Error(codes.Unavailable, "x")
	tests := []struct {
		name     string
		errs     []error
		header   bool
		pushback string
		attempts int
		atLeast  time.Duration
		code     codes.Code
	}{
		{name: "success", errs: []error{nil}, attempts: 1},
		{name: "success in the end", errs: []error{unavailable, unavailable, nil}, attempts: 3},
		{name: "limit", errs: []error{unavailable, unavailable, unavailable, unavailable, nil}, attempts: 4, code: codes.Unavailable},
		{name: "another code", errs: []error{status.Error(codes.Internal, "x"), nil}, attempts: 1, code: codes.Internal},
		{name: "headers", errs: []error{unavailable, nil}, header: true, attempts: 1, code: codes.Unavailable},
		{name: "pushback", errs: []error{unavailable, nil}, pushback: "5000", attempts: 2, atLeast: 5 * time.Second},
		{name: "do not retry", errs: []error{unavailable, nil}, pushback: "-1", attempts: 1, code: codes.Unavailable},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			attempts, begin := 0, time.Now()
			err := retryUnary(t.Context(), policy, nil, func(opts []grpc.CallOption) error {
				for _, o := range opts {
					switch o := o.(type) {
					case grpc.HeaderCallOption:
						if tt.header {
							*o.HeaderAddr = metadata.Pairs("k", "v")
						}
					case grpc.TrailerCallOption:
						if tt.pushback != "" {
							*o.TrailerAddr = metadata.Pairs(pushbackKey, tt.pushback)
						}
					}
				}
				attempts++
				return tt.errs[attempts-1]
			})
			if attempts != tt.attempts || status.Code(err) != tt.code {
				t.Errorf("%s: %d attempts and %v, want %d and %v", tt.name, attempts, err, tt.attempts, tt.code)
			}
			if took := time.Since(begin); took < tt.atLeast || took > 7*time.Second {
				t.Errorf("%s: took %v", tt.name, took)
			}
		})
	}
}

// TestInject is A33: a delay, then an abort, each with its own chance, headers
// that can only lower it, and a limit of RPCs that suffer at the same time.
func TestInject(t *testing.T) {
	always := resource.Percentage{PerMillion: 1e6, Unit: 1e4}
	abort := &resource.FaultAbort{Chance: always, Code: uint32(codes.Aborted)}
	byHeader := &resource.FaultAbort{Chance: always, Header: true}
	ctxWith := func(kv ...string) context.Context {
		return metadata.AppendToOutgoingContext(context.Background(), kv...)
	}
	tests := []struct {
		name  string
		fault resource.Fault
		ctx   context.Context
		want  error
		took  time.Duration
	}{
		{"abort", resource.Fault{Abort: abort, MaxActive: math.MaxUint32}, ctxWith(), status.Error(codes.Aborted, ""), 0},
		{"never", resource.Fault{Abort: &resource.FaultAbort{Code: 10}, MaxActive: math.MaxUint32}, ctxWith(), nil, 0},
		{"too many", resource.Fault{Abort: abort, MaxActive: 0}, ctxWith(), nil, 0},
		{"delay", resource.Fault{Delay: &resource.FaultDelay{Chance: always, Fixed: time.Second}, MaxActive: 1}, ctxWith(), nil, time.Second},
		{"delay, then abort", resource.Fault{Delay: &resource.FaultDelay{Chance: always, Header: true}, Abort: abort, MaxActive: 1},
			ctxWith("x-envoy-fault-delay-request", "2000"), status.Error(codes.Aborted, ""), 2 * time.Second},
		{"by header", resource.Fault{Abort: byHeader, MaxActive: 1}, ctxWith("x-envoy-fault-abort-grpc-request", "5"), status.Error(codes.NotFound, ""), 0},
		{"by header, OK", resource.Fault{Abort: byHeader, MaxActive: 1}, ctxWith("x-envoy-fault-abort-grpc-request", "0"), errEndedOK, 0},
		{"by HTTP header", resource.Fault{Abort: byHeader, MaxActive: 1}, ctxWith("x-envoy-fault-abort-request", "503"), status.Error(codes.Unavailable, ""), 0},
		{"a bad header", resource.Fault{Abort: byHeader, MaxActive: 1}, ctxWith("x-envoy-fault-abort-request", "x"), nil, 0},
		{"no header", resource.Fault{Delay: &resource.FaultDelay{Chance: always, Header: true}, MaxActive: 1}, ctxWith(), nil, 0},
		{"lowered to never", resource.Fault{Abort: byHeader, MaxActive: 1},
			ctxWith("x-envoy-fault-abort-grpc-request", "5", "x-envoy-fault-abort-request-percentage", "0"), nil, 0},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			suffers, err := inject(tt.ctx, &tt.fault)
			if suffers {
				activeFaults.Add(-1)
			}
			if want := tt.want != nil || tt.took > 0; suffers != want {
				t.Errorf("%s: counts among the active faults: %v, want %v", tt.name, suffers, want)
			}
			if status.Code(err) != status.Code(tt.want) || (err == nil) != (tt.want == nil) {
				t.Errorf("%s: error %v, want %v", tt.name, err, tt.want)
			}
			if took := time.Since(begin); took != tt.took {
				t.Errorf("%s: took %v, want %v", tt.name, took, tt.took)
			}
			if n := activeFaults.Load(); n != 0 {
				t.Errorf("%s: %d active faults are left", tt.name, n)
			}
		})
	}
}
