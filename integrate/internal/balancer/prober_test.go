// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/internal/proberpc"
	"github.com/xdslb/xdslb/integrate/probe"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// An askedServer is a server that reports a load that the test sets.
type askedServer struct {
	testgrpc.UnimplementedTestServiceServer
	addr   string
	lis    net.Listener
	report atomic.Pointer[proberpc.Report] // nil: it does not know probes
	delay  atomic.Int64                    // of answers, in nanoseconds
	rpcs   atomic.Int64
	probes atomic.Int64
}

func (s *askedServer) EmptyCall(context.Context, *testgrpc.Empty) (*testgrpc.Empty, error) {
	s.rpcs.Add(1)
	time.Sleep(10 * time.Microsecond) // latencies of 0 differ by any factor
	return &testgrpc.Empty{}, nil
}

// answer is a server interceptor.
func (s *askedServer) answer(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if info.FullMethod != probe.Method {
		return handler(ctx, req)
	}
	s.probes.Add(1)
	if d := s.delay.Load(); d > 0 {
		select {
		case <-time.After(time.Duration(d)):
		case <-ctx.Done():
		}
	}
	if r := s.report.Load(); r != nil {
		return r, nil
	}
	return nil, status.Error(codes.Unimplemented, "unknown service")
}

// An askedFleet is servers, and a channel to them under xdslb_prequal.
type askedFleet struct {
	servers []*askedServer
	dial    grpc.DialOption
	cc      *grpc.ClientConn
	state   *manual.Resolver
}

// newAskedFleet starts servers in memory, for a bubble, and connects to them by a
// configuration of the policy.
func newAskedFleet(t *testing.T, n int, config string, opts ...grpc.DialOption) *askedFleet {
	t.Helper()
	f := &askedFleet{state: manual.NewBuilderWithScheme("test")}
	network := xdstest.NewNetwork()
	for i := range n {
		s := &askedServer{addr: fmt.Sprintf("10.0.0.%d:80", i+1)}
		var err error
		if s.lis, err = network.Listen(s.addr); err != nil {
			t.Fatal(err)
		}
		s.report.Store(&proberpc.Report{LatencyNs: 1e6})
		g := grpc.NewServer(grpc.UnaryInterceptor(s.answer), grpc.WaitForHandlers(true))
		testgrpc.RegisterTestServiceServer(g, s)
		probe.Register(g, probe.NewLoad())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = g.Serve(s.lis) // it is stopped
		}()
		t.Cleanup(func() {
			g.Stop()
			<-done
		})
		f.servers = append(f.servers, s)
	}
	f.dial = grpc.WithContextDialer(network.Dial)
	f.state.InitialState(f.endpoints(f.servers...))
	var err error
	f.cc, err = grpc.NewClient("test:///fleet", append(opts, f.dial, grpc.WithResolvers(f.state), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"xdslb_prequal":`+config+`}]}`), grpc.WithIdleTimeout(0))...)
	kit.Must(t, err)
	t.Cleanup(func() {
		_ = f.cc.Close()
		synctest.Wait()
	})
	f.cc.Connect()
	kit.Pass(time.Second)
	return f
}

func (f *askedFleet) endpoints(servers ...*askedServer) (state resolver.State) {
	for _, s := range servers {
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: s.addr}}})
	}
	return state
}

// call makes RPCs, one each period.
func (f *askedFleet) call(t *testing.T, n int, period time.Duration) {
	t.Helper()
	for range n {
		if _, err := testgrpc.NewTestServiceClient(f.cc).EmptyCall(t.Context(), &testgrpc.Empty{}); err != nil {
			t.Fatal(err)
		}
		kit.Pass(period)
	}
}

// counts returns the RPCs that each server has got, and the probes of all, since the
// last call.
func (f *askedFleet) counts() (rpcs []int, probes int) {
	for _, s := range f.servers {
		rpcs = append(rpcs, int(s.rpcs.Swap(0)))
		probes += int(s.probes.Swap(0))
	}
	return rpcs, probes
}

// TestPrequal: RPCs go where servers say that it is best, probes are in proportion to the
// RPCs and stop with them, and an answer is worth nothing after its age.
func TestPrequal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newAskedFleet(t, 4, `{}`)
		if _, probes := f.counts(); probes != 0 {
			t.Errorf("%d probes before the first RPC", probes)
		}
		for best := range f.servers {
			for i, s := range f.servers {
				r := &proberpc.Report{InFlight: 1, LatencyNs: 90e6}
				if i == best {
					r = &proberpc.Report{InFlight: 1, LatencyNs: 10e6}
				}
				s.report.Store(r)
			}
			f.call(t, 20, 50*time.Millisecond) // of the change
			f.counts()
			const n = 200
			f.call(t, n, 50*time.Millisecond)
			rpcs, probes := f.counts()
			// Three of four are asked for each RPC, so that the best is known to 3/4 of
			// them and to some of the rest: 143 ± 8, and 50 would be an even share.
			if rpcs[best] < 2*n/5 || probes > 3*n || probes < 2*n {
				t.Errorf("server %d is the best; RPCs went to %v, with %d probes", best, rpcs, probes)
			}
		}
		kit.Pass(time.Minute)
		if _, probes := f.counts(); probes != 0 {
			t.Errorf("%d probes of a channel without RPCs", probes)
		}
	})
}

// TestPrequalGoingAway: a server that reports that it is about to stop gets no RPCs, and is probed
// once in a while.
func TestPrequalGoingAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newAskedFleet(t, 3, `{"poolSize": 4, "probesPerRpc": 3, "removePerRpc": 0}`)
		f.servers[1].report.Store(&proberpc.Report{GoingAway: true, LatencyNs: 1})
		f.call(t, 100, 50*time.Millisecond)
		f.counts()
		f.servers[1].probes.Store(0)
		f.call(t, 100, 50*time.Millisecond)
		if asked := f.servers[1].probes.Load(); asked < 3 || asked > 6 {
			t.Errorf("in 5 s it was asked %d times", asked)
		}
		rpcs, _ := f.counts()
		if rpcs[1] > 10 { // by least request, where no answer was at hand
			t.Errorf("RPCs went to %v", rpcs)
		}
		f.servers[1].report.Store(&proberpc.Report{LatencyNs: 1})
		f.call(t, 100, 50*time.Millisecond)
		if rpcs, _ := f.counts(); rpcs[1] < 50 {
			t.Errorf("it stays, and RPCs went to %v", rpcs)
		}
	})
}

// TestPrequalSilent: servers without integrate/probe get their share of the RPCs and are probed
// rarely, and that is logged once.
func TestPrequalSilent(t *testing.T) {
	var log kit.Logs
	was := slog.Default()
	slog.SetDefault(slog.New(&log))
	defer slog.SetDefault(was)
	synctest.Test(t, func(t *testing.T) {
		f := newAskedFleet(t, 4, `{}`)
		f.servers[0].report.Store(nil)
		f.servers[1].report.Store(nil)
		f.servers[2].report.Store(&proberpc.Report{LatencyNs: 1e9})
		f.call(t, 50, 50*time.Millisecond)
		f.counts()
		const n = 400
		f.call(t, n, 50*time.Millisecond) // 20 s
		asked := f.servers[0].probes.Load() + f.servers[1].probes.Load()
		rpcs, _ := f.counts()
		// Half for both, within 7 standard deviations. Among them it is by latency.
		if both := rpcs[0] + rpcs[1]; both < n/2-70 || both > n/2+70 || rpcs[3] < rpcs[2] {
			t.Errorf("RPCs went to %v; the first two are silent, the last is the best", rpcs)
		}
		if asked > 2 {
			t.Errorf("the silent endpoints were probed %d times", asked)
		}
		f.servers[0].report.Store(&proberpc.Report{LatencyNs: 10e9})
		f.servers[1].report.Store(&proberpc.Report{LatencyNs: 10e9})
		kit.Pass(silentBackoff)
		f.call(t, 50, 50*time.Millisecond)
		f.counts()
		f.call(t, n, 50*time.Millisecond)
		if rpcs, _ := f.counts(); rpcs[0]+rpcs[1] > n/4 {
			t.Errorf("they answer, and RPCs went to %v", rpcs)
		}
		for _, s := range f.servers { // all of them
			s.report.Store(nil)
		}
		f.call(t, 100, 50*time.Millisecond)
		f.counts()
		f.call(t, n, 50*time.Millisecond)
		if rpcs, _ := f.counts(); slices.Min(rpcs) == 0 {
			t.Errorf("no endpoint answers probes, and RPCs went to %v", rpcs)
		}
	})
	if begun, ended := strings.Count(log.String(), msgSilence), strings.Count(log.String(), msgAnswers); begun != 2 || ended != 1 {
		t.Errorf("%d lines that endpoints do not answer and %d that they answer again, want 2 and 1:\n%s", begun, ended, log.String())
	}
}

// TestPrequalLost: probes whose server does not answer any more end, and the endpoint is
// known no longer.
func TestPrequalLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newAskedFleet(t, 3, `{"probeTimeout": "0.2s"}`)
		f.call(t, 50, 50*time.Millisecond)
		f.servers[0].delay.Store(int64(time.Hour))
		f.call(t, 50, 50*time.Millisecond)
		f.counts()
		f.servers[0].probes.Store(0)
		f.call(t, 200, 50*time.Millisecond) // 10 s
		asked := f.servers[0].probes.Load()
		if rpcs, _ := f.counts(); rpcs[0] > 60 || asked > 20 {
			t.Errorf("RPCs went to %v; the first, which answers no probes any more, was asked %d times", rpcs, asked)
		}
		f.servers[0].delay.Store(0)
		f.servers[1].report.Store(&proberpc.Report{LatencyNs: 1e9})
		f.servers[2].report.Store(&proberpc.Report{LatencyNs: 1e9})
		kit.Pass(maxBackoff)
		f.call(t, 50, 50*time.Millisecond)
		f.counts()
		f.call(t, 100, 50*time.Millisecond)
		if rpcs, _ := f.counts(); rpcs[0] < 30 { // 85 ± 7, and before there were none
			t.Errorf("it answers again, and RPCs went to %v", rpcs)
		}
	})
}

// TestPrequalBounds: many RPCs at a time cause no more probes than are allowed.
func TestPrequalBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newAskedFleet(t, 8, `{"maxProbesPerSecond": 50}`)
		f.call(t, 2000, time.Millisecond)
		_, probes := f.counts()
		if probes < 80 || probes > 100+maxFlying+1 {
			t.Errorf("%d probes in 2 s", probes)
		}
	})
}

// TestPrequalMeets: the policy goes on while endpoints come and go, and when it is switched
// on and off.
func TestPrequalMeets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newAskedFleet(t, 4, `{}`)
		for k, servers := range [][]int{{0, 1}, {1, 2, 3}, {0}, {0, 1, 2, 3}} {
			var list []*askedServer
			for _, i := range servers {
				list = append(list, f.servers[i])
			}
			f.state.UpdateState(f.endpoints(list...))
			kit.Pass(100 * time.Millisecond)
			f.counts()
			f.call(t, 100, 10*time.Millisecond)
			rpcs, probes := f.counts()
			got := 0
			for _, i := range servers {
				got += rpcs[i]
			}
			if got != 100 || probes == 0 {
				t.Errorf("update %d: servers %v, RPCs went to %v with %d probes", k, servers, rpcs, probes)
			}
		}
		f.servers[2].lis.Close() // no new connections
		for i, policy := range []string{`{"xdslb_least_request":{}}`, `{"xdslb_prequal":{}}`, `{"round_robin":{}}`, `{"xdslb_prequal":{"poolSize":2}}`} {
			state := f.endpoints(f.servers...)
			state.ServiceConfig = f.state.CC().ParseServiceConfig(`{"loadBalancingConfig":[` + policy + `]}`)
			if i%2 == 0 {
				state.Endpoints = state.Endpoints[:2]
			}
			f.state.UpdateState(state)
			kit.Pass(time.Second)
			f.counts()
			f.call(t, 50, 10*time.Millisecond)
			if _, probes := f.counts(); probes > 0 != strings.Contains(policy, "prequal") {
				t.Errorf("%s: %d probes", policy, probes)
			}
		}
	})
}
