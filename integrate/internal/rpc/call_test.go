// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
	"github.com/xdslb/xdslb/picker"
)

// canary is a table whose route with header x: canary goes to cluster first, and the
// other one, which has a timeout, to second.
func canary(t *testing.T, first, second string) *Table {
	t.Helper()
	limit := time.Minute
	to := func(cluster string) []picker.WeightedCluster {
		return []picker.WeightedCluster{{Name: cluster, Weight: 1}}
	}
	cfg := &picker.Config{
		Routes: []picker.Route{
			{Headers: []picker.HeaderMatch{{Name: "x", String: picker.StringMatch{Kind: picker.MatchExact, Value: "canary"}}}, Clusters: to(first)},
			{Timeout: &limit, Clusters: to(second)},
		},
		Clusters: []*picker.Cluster{{Name: first}, {Name: second}},
	}
	snapshot, err := picker.Build(nil, cfg, make([]picker.ClusterState, 2), picker.Env{Header: metadatautil.OutgoingValues})
	kit.Must(t, err)
	_, plans := Compile(cfg, false)
	return &Table{Snapshot: snapshot, Config: cfg, Plans: plans}
}

// TestBound: the first pick settles where an RPC goes, by the headers and the
// configuration of that time; all other attempts go there too, unless the cluster is
// gone (A31, D13).
func TestBound(t *testing.T) {
	plain := t.Context()
	tagged := metadata.AppendToOutgoingContext(plain, "x", "canary")
	type pick struct {
		ctx  context.Context
		in   *Table
		want string
	}
	old := canary(t, "a", "b")
	same, swapped, other := canary(t, "a", "b"), canary(t, "b", "a"), canary(t, "c", "d")
	for name, picks := range map[string][]pick{
		"the interceptor's headers":                    {{plain, old, "b"}, {plain, old, "b"}},
		"other headers":                                {{tagged, old, "a"}, {plain, old, "a"}},
		"other headers at a later attempt":             {{plain, old, "b"}, {tagged, old, "b"}},
		"an update before the first pick":              {{plain, swapped, "a"}, {plain, old, "a"}},
		"an update, and other headers":                 {{tagged, swapped, "b"}, {plain, same, "b"}},
		"an update between attempts":                   {{plain, old, "b"}, {plain, swapped, "b"}},
		"an update that takes the cluster away":        {{plain, old, "b"}, {plain, other, "d"}},
		"an update that takes away the headers' one":   {{tagged, old, "a"}, {tagged, other, "c"}, {plain, old, "a"}},
		"an update to the same, and the first headers": {{plain, same, "b"}, {tagged, same, "b"}},
	} {
		ctx, call := Bind(plain, old, "/s/m")
		if call == nil || CallOf(ctx, old, "/s/m") != call || CallOf(ctx, old, "/s/other") != nil {
			t.Fatal("an RPC of a route with a timeout has no Call, or one of another method has it")
		}
		for i, p := range picks {
			_, cluster, outcome := call.Resolve(p.in, p.ctx, "/s/m")
			if outcome != picker.Picked || p.in.Config.Clusters[cluster].Name != p.want {
				t.Errorf("%s: pick %d has cluster %d and outcome %d, want %s", name, i+1, cluster, outcome, p.want)
			}
		}
	}
}

// TestFilterOnFinish: grpc.OnFinish of the application and of a filter are called once for each unary
// RPC, whether or not it may be retried.
func TestFilterOnFinish(t *testing.T) {
	for name, retry := range map[string]*picker.RetryPolicy{"one attempt": nil, "retries": {MaxAttempts: 2}} {
		application, filter := 0, 0
		add := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return invoker(ctx, method, req, reply, cc, append(opts, grpc.OnFinish(func(error) { filter++ }))...)
		}
		table := canary(t, "a", "b")
		plan := table.Plans.routes[1].all
		plan.filters, plan.retry = filterSet{listener: &listenerFilters{list: []interceptor{{unary: add}}}, active: 1}, retry
		err := Unary(t.Context(), table, "/s/m", nil, nil, nil, func(_ context.Context, _ string, _, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
			finish(opts, nil) // as gRPC
			return nil
		}, grpc.OnFinish(func(error) { application++ }))
		if err != nil || application != 1 || filter != 1 {
			t.Errorf("%s: error %v, and OnFinish is called %d times for the application and %d times for the filter, want once each", name, err, application, filter)
		}
	}
}

// TestFailuresStay: an error carries its ErrorInfo for as long as its text is in force,
// however many other clusters fail, and however often their texts change; texts that are
// not in force any more do not stay for ever.
func TestFailuresStay(t *testing.T) {
	l := new(failures)
	note := func(cluster, text string) {
		l.NoteFailure(cluster, text, &errdetails.ErrorInfo{Reason: cluster})
	}
	reason := func(text string) string {
		for _, d := range status.Convert(l.withInfo(status.Error(codes.Unavailable, text))).Details() {
			return d.(*errdetails.ErrorInfo).GetReason()
		}
		return ""
	}
	note("steady", "steady: no such Cluster")
	for i := range 40 {
		note("changing", fmt.Sprintf("changing: port %d refused", i))
		note(fmt.Sprint("other ", i), fmt.Sprintf("other %d: no endpoints", i))
	}
	for text, want := range map[string]string{
		"steady: no such Cluster": "steady", "changing: port 39 refused": "changing", "changing: port 38 refused": "changing",
		"other 0: no endpoints": "other 0", "other 39: no endpoints": "other 39", "changing: port 0 refused": "",
	} {
		if got := reason(text); got != want {
			t.Errorf("the error %q has the reason %q, want %q", text, got, want)
		}
	}
	l.ForgetFailures("steady")
	if got := reason("steady: no such Cluster"); got != "" {
		t.Errorf("the error of a cluster that is gone has the reason %q", got)
	}
}

// TestInfoAfterRetries checks that the error of an RPC has the ErrorInfo of its last attempt, if retries have
// added a text to the error.
func TestInfoAfterRetries(t *testing.T) {
	f := new(failures)
	f.NoteFailure("c", "no endpoint", &errdetails.ErrorInfo{Reason: "r"})
	for _, tt := range []struct {
		err  error
		want codes.Code
		info int
	}{
		{status.Error(codes.Unavailable, "no endpoint"), codes.Unavailable, 1},
		{fmt.Errorf("max retries exhausted: failed after 3 attempts: %w", status.Error(codes.Unavailable, "no endpoint")), codes.Unavailable, 1},
		{fmt.Errorf("max retries exhausted: %w", status.Error(codes.DeadlineExceeded, "latest balancer error: no endpoint")), codes.DeadlineExceeded, 1},
		{fmt.Errorf("max retries exhausted: %w", status.Error(codes.Unavailable, "another text")), codes.Unavailable, 0},
		{fmt.Errorf("max retries exhausted: %w", status.Error(codes.Internal, "no endpoint")), codes.Internal, 0},
	} {
		st := status.Convert(f.withInfo(tt.err))
		if st.Code() != tt.want || len(st.Details()) != tt.info || st.Message() != status.Convert(tt.err).Message() {
			t.Errorf("%v becomes %v with %d details, want %v with the same text and %d", tt.err, st, len(st.Details()), tt.want, tt.info)
		}
	}
}
