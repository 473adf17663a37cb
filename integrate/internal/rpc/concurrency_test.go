// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/integrate/internal/gradient"
	"github.com/xdslb/xdslb/integrate/internal/link"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// concurrencyConfig should have RPCs take 10 ms, begins with a limit of 2 and goes down to that.
func concurrencyConfig() resource.AdaptiveConcurrency {
	return resource.AdaptiveConcurrency{
		Enabled: true, Percentile: .5, Update: 100 * time.Millisecond, Min: 2, Max: 8,
		FixedRTT: 10 * time.Millisecond, Requests: 50, Pins: true, Buffer: .25, Code: uint32(codes.Unavailable),
	}
}

// limited is a route to some clusters with the filter, and its plans.
func limited(cfg resource.AdaptiveConcurrency, before *Plans, clusters ...string) *Plans {
	r := picker.Route{}
	for _, name := range clusters {
		r.Clusters = append(r.Clusters, picker.WeightedCluster{Name: name, Weight: 1})
	}
	_, p := Compile(&picker.Config{Routes: []picker.Route{r}, Filters: []picker.Filter{{Name: "f", Config: &cfg}}}, CompileOptions{Before: before})
	return p
}

// to is the Call of an RPC to a cluster, and its context.
func to(ctx context.Context, link *Channel, cluster string) (context.Context, *Call) {
	call := &Call{matched: match{name: cluster}}
	call.at.Store(link)
	return context.WithValue(ctx, callKey{}, call), call
}

// TestConcurrency: an RPC more than the limit is refused before it gets anywhere, a place is
// free when an RPC has ended, and clusters have places of their own.
func TestConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := limited(concurrencyConfig(), nil, "a", "b", "a")
		link := NewChannel(link.Options{}, ChannelOptions{})
		var sent atomic.Int64
		rpc := func(cluster string, err error) error {
			ctx, call := to(t.Context(), link, cluster)
			return p.routes[0].all.filters[0].unary(ctx, "/s/m", nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
				sent.Add(1)
				call.committed.Store(&call.matched)
				time.Sleep(50 * time.Millisecond)
				return err
			})
		}
		refused := 0
		burst := func(cluster string) {
			refused = 0
			sent.Store(0)
			done := make(chan error, 5)
			for range 5 {
				go func() { done <- rpc(cluster, nil) }()
			}
			for range 5 {
				if err := <-done; err != nil {
					if refused++; status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), `adaptive concurrency "f": cluster "`+cluster+`"`) || len(status.Convert(err).Details()) != 1 {
						t.Errorf("an RPC is refused with %v", err)
					}
				}
			}
		}
		for range 3 {
			if burst("a"); refused != 3 || sent.Load() != 2 {
				t.Errorf("of 5 RPCs at once %d are sent and %d refused, want 2", sent.Load(), refused)
			}
		}
		go func() { _ = rpc("a", nil) }()
		go func() { _ = rpc("a", nil) }()
		synctest.Wait()
		if burst("b"); refused != 3 {
			t.Errorf("%d RPCs to one cluster are refused while another has as many as it should, want 3", refused)
		}
		if err := rpc("c", nil); err != nil {
			t.Errorf("an RPC to no cluster of the route ends with %v", err)
		}
		synctest.Wait()
		if link.RejectedByConcurrency() != 12 {
			t.Errorf("%d RPCs count as refused, want 12", link.RejectedByConcurrency())
		}
		list := p.Concurrencies()
		if len(list) != 2 || list[0].Cluster != "a" || list[0].Refused != 9 || list[1].Refused != 3 || list[0].InFlight != 0 || list[0].SampleRTT < 45*time.Millisecond {
			t.Errorf("the filter is at %+v", list)
		}
	})
}

// TestConcurrencySamples: what counts of RPCs that fail, and for how long.
func TestConcurrencySamples(t *testing.T) {
	failed := func(c codes.Code) error {
		if c == codes.OK {
			return nil
		}
		return status.Error(c, "x")
	}
	for _, tt := range []struct {
		code   codes.Code
		picked bool // as far as a pick
		ended  bool // by that, or by the client
		want   time.Duration
	}{
		{codes.OK, true, false, 50 * time.Millisecond},
		{codes.NotFound, true, false, 50 * time.Millisecond},
		{codes.Internal, true, false, 50 * time.Millisecond},
		{codes.DeadlineExceeded, true, false, gradient.Forever},
		{codes.DeadlineExceeded, false, true, 0}, // it was late
		{codes.DeadlineExceeded, false, false, 0},
		{codes.NotFound, false, false, 0}, // by a filter
		{codes.NotFound, true, true, 0},
		{codes.Unavailable, true, false, 0},
		{codes.ResourceExhausted, true, false, 0},
		{codes.Canceled, true, false, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := limited(concurrencyConfig(), nil, "a")
			ctx, call := to(t.Context(), nil, "a")
			_ = p.routes[0].all.filters[0].unary(ctx, "/s/m", nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
				if tt.picked {
					call.committed.Store(&call.matched)
				}
				call.ended.Store(tt.ended)
				time.Sleep(50 * time.Millisecond)
				return failed(tt.code)
			})
			time.Sleep(100 * time.Millisecond)
			s := p.Concurrencies()[0]
			if s.SampleRTT != tt.want && (tt.want == gradient.Forever || tt.want == 0 || s.SampleRTT < tt.want*31/32 || s.SampleRTT > tt.want) {
				t.Errorf("%v, picked %v, ended %v: takes %v, want %v", tt.code, tt.picked, tt.ended, s.SampleRTT, tt.want)
			}
			if s.InFlight != 0 {
				t.Errorf("%v: %d are in flight after the end", tt.code, s.InFlight)
			}
		})
	}
}

// oneMessage is a stream with one message.
type oneMessage struct{ grpc.ClientStream }

func (oneMessage) RecvMsg(any) error { return nil }

// TestConcurrencyStream: a stream has its place until its first message or its end, and one
// that the client streams has none.
func TestConcurrencyStream(t *testing.T) {
	p := limited(concurrencyConfig(), nil, "a")
	var onFinish func(error)
	open := func(clientStreams bool, err error) (grpc.ClientStream, error) {
		ctx, call := to(t.Context(), nil, "a")
		return p.routes[0].all.filters[0].stream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: clientStreams}, nil, "/s/m",
			func(_ context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				call.committed.Store(&call.matched)
				if len(opts) > 0 {
					onFinish = opts[0].(grpc.OnFinishCallOption).OnFinish
				}
				return oneMessage{}, err
			})
	}
	expect := func(what string, n uint32) {
		t.Helper()
		if s := p.Concurrencies()[0]; s.InFlight != n {
			t.Fatalf("%s: %d are in flight, want %d", what, s.InFlight, n)
		}
	}
	first, err := open(false, nil)
	if err != nil {
		t.Fatal(err)
	}
	firstEnds := onFinish
	expect("one is open", 1)
	if _, err := open(false, nil); err != nil {
		t.Fatal(err)
	}
	secondEnds := onFinish
	expect("two are open", 2)
	if _, err := open(false, nil); status.Code(err) != codes.Unavailable {
		t.Errorf("a third ends with %v", err)
	}
	if _, err := open(true, nil); err != nil {
		t.Errorf("one that the client streams ends with %v", err)
	}
	_ = first.RecvMsg(nil)
	expect("one has a message", 1)
	_ = first.RecvMsg(nil)
	firstEnds(nil)
	expect("and ends", 1)
	secondEnds(errFailing)
	expect("the other ends", 0)
	if _, err := open(false, errFailing); err != errFailing {
		t.Errorf("one that cannot be opened ends with %v", err)
	}
	expect("one could not be opened", 0)
}

// TestConcurrencySurvives: the filter goes on through updates that leave its configuration and
// the cluster, and begins anew with another configuration; it is gone with the cluster.
func TestConcurrencySurvives(t *testing.T) {
	cfg := concurrencyConfig()
	of := func(p *Plans, cfg resource.AdaptiveConcurrency, cluster string) *concurrency {
		return p.concurrencies[concurrencyKey{"f", cluster, cfg}]
	}
	first := limited(cfg, nil, "a", "b")
	second := limited(cfg, first, "c", "a")
	if a := of(first, cfg, "a"); a == nil || of(second, cfg, "a") != a || of(second, cfg, "b") != nil || of(second, cfg, "c") == nil {
		t.Errorf("after an update there are %v, before %v", second.concurrencies, first.concurrencies)
	}
	other := cfg
	other.Max++
	if third := limited(other, second, "a"); of(third, other, "a") == nil || of(third, other, "a") == of(first, cfg, "a") || len(third.concurrencies) != 1 {
		t.Errorf("after a change there are %v", third.concurrencies)
	}
	off := cfg
	off.Enabled = false
	if p := limited(off, nil, "a"); p != nil {
		t.Errorf("a disabled filter has plans: %v", p)
	}
	if s, ok := first.Concurrency("f", "b", &cfg); !ok || s.Cluster != "b" || !strings.Contains(s.String(), "limit of 2 RPCs in flight, 0 in flight; minimum latency 10ms") {
		t.Errorf("the filter is at %v, %v", s, ok)
	}
}

// TestConcurrencyAndAdmission: what one refuses, the other does not count.
func TestConcurrencyAndAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit, admission := concurrencyConfig(), admissionConfig()
		admission.MaxRejection = 0
		for _, filters := range [][]picker.Filter{
			{{Name: "a", Config: &admission}, {Name: "c", Config: &limit}},
			{{Name: "c", Config: &limit}, {Name: "a", Config: &admission}},
		} {
			_, p := Compile(&picker.Config{Routes: []picker.Route{{Clusters: []picker.WeightedCluster{{Name: "x", Weight: 1}}}}, Filters: filters}, CompileOptions{})
			refused := 0
			done := make(chan error, 6)
			for range 6 {
				go func() {
					ctx, call := to(t.Context(), nil, "x")
					call.plan = p.routes[0].all
					done <- unaryRPC{call: call, ctx: ctx, invoker: func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
						call.committed.Store(&call.matched)
						time.Sleep(time.Second)
						return nil
					}}.filter(0)
				}()
			}
			for range 6 {
				if <-done != nil {
					refused++
				}
			}
			if s := p.Admissions()[0]; refused != 4 || s.RPCs != 2 || s.Successes != 2 {
				t.Errorf("%s first: %d RPCs are refused, and admission control counts %d, %d of them successes; want 4, 2, 2", filters[0].Name, refused, s.RPCs, s.Successes)
			}
		}
	})
}
