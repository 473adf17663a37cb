// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/internal/link"
	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
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
	return compiled(t, cfg)
}

// compiled returns the table of a configuration.
func compiled(t *testing.T, cfg *picker.Config) *Table {
	t.Helper()
	snapshot, err := picker.Build(nil, cfg, make([]picker.ClusterState, len(cfg.Clusters)), picker.Env{Header: metadatautil.OutgoingValues})
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
			active, err := inject(tt.ctx, &tt.fault)
			if active {
				activeFaults.Add(-1)
			}
			if want := tt.want != nil || tt.took > 0; active != want {
				t.Errorf("%s: counts among the active faults: %v, want %v", tt.name, active, want)
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

// TestAbortOK: an abort with status OK is the end of a stream of responses, of which OnFinish is called once, and an
// error where there has to be one response, since there is none.
func TestAbortOK(t *testing.T) {
	f := faultInterceptor(&resource.Fault{Abort: &resource.FaultAbort{Chance: resource.Percentage{PerMillion: 1e6, Unit: 1e4}}, MaxActive: 1})
	if err := f.unary(t.Context(), "/s/m", nil, nil, nil, nil); status.Code(err) != codes.Internal {
		t.Errorf("a unary RPC ends with %v, want INTERNAL", err)
	}
	if _, err := f.stream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, nil, "/s/m", nil); status.Code(err) != codes.Internal {
		t.Errorf("a stream of requests ends with %v, want INTERNAL", err)
	}
	var ends []error
	s, err := f.stream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, nil, "/s/m", nil, grpc.OnFinish(func(err error) { ends = append(ends, err) }))
	kit.Must(t, err)
	if err := s.RecvMsg(nil); err != io.EOF || !slices.Equal(ends, []error{nil}) {
		t.Errorf("a stream of responses ends with %v, and OnFinish got %v; want EOF, and nil once", err, ends)
	}
	if n := activeFaults.Load(); n != 0 {
		t.Errorf("%d active faults are left", n)
	}
}

// This file tests panics in code of the application that runs within attempts, such as credentials, codecs
// and later interceptors. Servers recover them.

// recovered returns the value that f panics with, or nil.
func recovered(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}

// budgetedCall returns a Call whose cluster allows three active retries, and the number of these.
func budgetedCall(t *testing.T) (*Call, *atomic.Int64) {
	ch := NewChannel(link.Options{}, ChannelOptions{Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(ch.Close)
	_, active := limitRetries(ch, &picker.RetryLimit{Min: 3})
	call := settledCall(ch)
	call.matched.name = "c"
	return call, active
}

// TestPanicReleasesRetry checks that a retry that panics does not remain active.
func TestPanicReleasesRetry(t *testing.T) {
	policy := &picker.RetryPolicy{On: []uint32{uint32(codes.Unavailable)}, MaxAttempts: 3, BaseBackoff: 1, MaxBackoff: 1}
	unavailable := status.Error(codes.Unavailable, "x")
	attempts := 0
	// attempt fails at first, and then panics.
	attempt := func() error {
		if attempts++; attempts == 2 {
			panic("application")
		}
		return unavailable
	}
	creates := func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
		return nil, attempt()
	}
	replays := func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
		return &failingStream{ctx: ctx, send: attempt}, nil
	}
	for name, rpc := range map[string]func(ctx context.Context, call *Call){
		"unary": func(ctx context.Context, call *Call) {
			invoker := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return attempt() }
			_ = unaryRPC{call: call, invoker: invoker, ctx: ctx, req: new(emptypb.Empty)}.retry()
		},
		"creation of a stream": func(ctx context.Context, call *Call) {
			_, _ = streamRPC{call, creates, ctx, bothWays, nil, "/s/m", nil}.retry()
		},
		"message of a stream": func(ctx context.Context, call *Call) {
			s, err := streamRPC{call, replays, ctx, bothWays, nil, "/s/m", nil}.retry()
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { // the stream can be used
				_ = s.Context()
			}()
			attempts = -1
			_ = s.SendMsg(new(emptypb.Empty))
			attempts = 0
			_ = s.RecvMsg(new(emptypb.Empty))
		},
	} {
		call, active := budgetedCall(t)
		call.plan = &plan{retry: policy}
		attempts = 0
		ctx, cancel := context.WithCancel(t.Context())
		if v := recovered(func() { rpc(ctx, call) }); v != "application" {
			t.Errorf("%s: recovered %v, want the panic of the application", name, v)
		}
		if n := active.Load(); n != 0 {
			t.Errorf("%s: %d retries are active after a panic was recovered", name, n)
		}
		cancel()
	}
}

// A failingStream accepts the first message, and fails then.
type failingStream struct {
	grpc.ClientStream
	ctx  context.Context
	send func() error
}

func (s *failingStream) Context() context.Context     { return s.ctx }
func (s *failingStream) SendMsg(any) error            { _ = s.send(); return nil }
func (s *failingStream) RecvMsg(any) error            { return status.Error(codes.Unavailable, "x") }
func (s *failingStream) Header() (metadata.MD, error) { return nil, nil }
func (s *failingStream) Trailer() metadata.MD         { return nil }

// TestPanicInHedgedRPC checks that a panic of an attempt reaches the goroutine of the application, after the
// attempt that uses its messages has ended.
func TestPanicInHedgedRPC(t *testing.T) {
	policy := &picker.RetryPolicy{On: []uint32{uint32(codes.Unavailable)}, MaxAttempts: 3, BaseBackoff: 1, MaxBackoff: 1, PerTryTimeout: 100 * time.Millisecond}
	for name, panics := range map[string]int{"the first attempt": 1, "a hedge": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				call, active := budgetedCall(t)
				ctx := context.WithValue(t.Context(), callKey{}, call)
				var started, running atomic.Int32
				v := recovered(func() {
					_ = hedge(ctx, policy, new(emptypb.Empty), new(wrapperspb.Int32Value), nil, func(ctx context.Context, _, _ proto.Message, _ []grpc.CallOption) error {
						n := int(started.Add(1))
						if n == 1 {
							running.Add(1)
							defer running.Add(-1)
						}
						if n == panics {
							panic("application")
						}
						<-ctx.Done()
						time.Sleep(time.Second)
						return status.FromContextError(ctx.Err()).Err()
					})
				})
				if v != "application" {
					t.Errorf("recovered %v, want the panic of the application", v)
				}
				if n := running.Load(); n != 0 {
					t.Error("the first attempt is running after the RPC")
				}
				time.Sleep(time.Minute)
				if n := active.Load(); n != 0 {
					t.Errorf("%d retries are active after a panic was recovered", n)
				}
			})
		})
	}
}

// TestPanicReleasesFault checks that a panic during the creation of a stream ends its fault.
func TestPanicReleasesFault(t *testing.T) {
	f := &resource.Fault{MaxActive: math.MaxUint32, Delay: &resource.FaultDelay{Chance: resource.Percentage{PerMillion: 1e6}}}
	before := activeFaults.Load()
	panics := func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
		panic("application")
	}
	if v := recovered(func() { _, _ = faultInterceptor(f).stream(t.Context(), bothWays, nil, "/s/m", panics) }); v != "application" {
		t.Errorf("recovered %v, want the panic of the application", v)
	}
	if n := activeFaults.Load() - before; n != 0 {
		t.Errorf("%d faults are active after a panic was recovered", n)
	}
}
