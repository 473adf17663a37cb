// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/internal/counters"
	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/picker"
)

func init() { shutdownDelay = 0 } // but see TestShutdownDelay

// testLB is an LB policy on a fake ClientConn, with methods for tests: give it a configuration,
// wait until it has come to rest, and make RPCs.
type testLB struct {
	*Balancer
	cc *fakeCC
}

// newTestLB returns an LB policy on a fake ClientConn.
func newTestLB(t testing.TB, opts Config) (*testLB, *fakeCC) {
	cc := newFakeCC(t.Errorf)
	b := balancerBuilder{}.Build(cc, balancer.BuildOptions{}).(*Balancer)
	b.setOptions(opts.options())
	t.Cleanup(func() {
		b.Close()
		// The RPCs that the test left end, since the next test may use the same names.
		counters.Breakers(func(_, _ string, b *counters.Breaker) {
			for n := b.InFlight(); 0 < n && n < 1<<20; n-- { // a failed test may have released too many
				b.Release()
			}
		})
	})
	return &testLB{b, cc}, cc
}

// unlocked reports whether no goroutine holds the mutex.
func (b *testLB) unlocked() bool {
	free := make(chan struct{})
	go func() {
		b.rt.Lock()
		defer close(free)
		b.rt.Unlock()
	}()
	select {
	case <-free:
		return true
	case <-time.After(time.Minute):
		return false
	}
}

// set is Update, and waits until children have handled it.
func (b *testLB) set(cfg *picker.Config) {
	b.Update(cfg)
	b.calm()
}

// take applies a configuration with its plans, as Update does with a resolver of
// ours.
func (b *testLB) take(cfg *picker.Config) {
	_, plans := rpc.Compile(cfg, false)
	b.lock()
	defer b.unlock()
	b.apply(cfg, plans)
}

// to moves a SubConn to a state, and waits until children have handled it.
func (b *testLB) to(sc *fakeConn, s connectivity.State) {
	for sc.State != s && sc.Toward(s) {
		b.calm()
	}
}

// connected returns an LB policy that has a cluster, and whose connections to some endpoints are READY.
func connected(t testing.TB, c *picker.Cluster, numbers ...int) (*testLB, *fakeCC) {
	t.Helper()
	b, cc := newTestLB(t, Config{})
	b.set(configOf(c))
	b.ready(t, numbers...)
	return b, cc
}

// ready moves the connections to endpoints to READY.
func (b *testLB) ready(t testing.TB, numbers ...int) {
	t.Helper()
	for _, n := range numbers {
		b.to(b.cc.conn(t, n), ready)
	}
}

// flush publishes pending changes, once everything has come to rest.
func (b *testLB) flush() {
	b.calm()
	b.publishNow()
	b.calm()
}

// publishNow publishes pending changes, without waiting for anything.
func (b *testLB) publishNow() {
	b.lock()
	defer b.unlock()
	b.publish()
}

// wantUnobserved checks that no endpoint counts RPCs or listens to load reports.
func (b *testLB) wantUnobserved(t testing.TB, when string) {
	t.Helper()
	n := 0
	for _, l := range b.live() {
		for e := range l.endpoints {
			if e.observers.Load() != nil {
				n++
			}
		}
	}
	if n > 0 {
		t.Errorf("%s: %d endpoints have observers of their RPCs, want none", when, n)
	}
}

// calm waits until all calls of other LB policies have been made, and everything
// that was to be closed is.
func (b *testLB) calm() {
	for rested := false; !rested; {
		for b.talks() {
			runtime.Gosched()
		}
		resume := b.holdPublication()
		b.closing.Wait()
		resume()
		rested = !b.talks() && !b.cc.Deliver()
	}
}

// holdPublication delays the pending publication, if there is one, until resume is called. A
// publication closes connections, and so adds to closing, which is not allowed while a goroutine
// waits for it.
func (b *testLB) holdPublication() (resume func()) {
	for {
		b.lock()
		due, closed := b.pending, b.rt.Closed()
		held := due != nil && due.Stop()
		b.unlock()
		switch {
		case due == nil || closed:
			return func() {}
		case held:
			return func() {
				b.lock()
				defer b.unlock()
				if b.pending == due && !b.rt.Closed() {
					due.Reset(max(time.Until(b.nextPublish), 1))
				}
			}
		}
		runtime.Gosched() // it is under way
	}
}

// talks reports whether calls of other LB policies are to be made, or lines written.
func (b *testLB) talks() bool {
	b.lock()
	defer b.unlock()
	return !b.rt.Idle() || !b.rec.log.Idle()
}

func pickInfo() balancer.PickInfo {
	return balancer.PickInfo{FullMethodName: "/s/m", Ctx: context.Background()}
}

// endedOK is the end of an RPC that succeeded.
var endedOK = balancer.DoneInfo{BytesReceived: true}

// picked returns the address of a pick whose RPC succeeds, or the pick's error.
func picked(res balancer.PickResult, err error) (string, error) {
	if err != nil {
		return "", err
	}
	res.Done(endedOK)
	return res.SubConn.(*fakeConn).Addr, nil
}

// pick picks once and returns the address picked.
func (b *testLB) pick() (string, error) { return picked(b.picker.Pick(pickInfo())) }

// pickHash picks for an RPC with a hash.
func (b *testLB) pickHash(hash uint64) (string, error) {
	return picked(b.picker.Pick(balancer.PickInfo{FullMethodName: "/s/m", Ctx: metadatautil.WithHash(context.Background(), hash)}))
}

// begin begins an RPC.
func (b *testLB) begin(t testing.TB) balancer.PickResult {
	t.Helper()
	res, err := b.picker.Pick(pickInfo())
	kit.Must(t, err)
	return res
}

// rpcs makes n RPCs, one after the other, each of which ends as outcome sets it.
func (b *testLB) rpcs(t testing.TB, n int, outcome func(endpoint int, info *balancer.DoneInfo)) {
	t.Helper()
	for range n {
		res, info := b.begin(t), endedOK
		outcome(numberOf(res), &info)
		res.Done(info)
	}
}

// numberOf returns the number of the endpoint that was picked.
func numberOf(res balancer.PickResult) int {
	return numberAt(netip.MustParseAddrPort(res.SubConn.(*fakeConn).Addr))
}

// serve makes n RPCs, at the end of which each endpoint in utilization reports 100 queries per
// second and its utilization.
func (b *testLB) serve(t *testing.T, n int, utilization map[int]float64) {
	t.Helper()
	b.rpcs(t, n, func(endpoint int, info *balancer.DoneInfo) {
		if u, ok := utilization[endpoint]; ok {
			info.ServerLoad = &orcav3.OrcaLoadReport{RpsFractional: 100, ApplicationUtilization: u}
		}
	})
}

// load makes n RPCs. RPCs on the failing endpoints fail.
func (b *testLB) load(t *testing.T, n int, failing ...int) {
	t.Helper()
	b.flush()
	b.rpcs(t, n, func(endpoint int, info *balancer.DoneInfo) {
		if slices.Contains(failing, endpoint) {
			info.Err, info.BytesSent = errors.New("failed"), true
		}
	})
}

// shares makes n RPCs and counts them by endpoint.
func (b *testLB) shares(t *testing.T, n int) map[int]int {
	t.Helper()
	b.flush()
	return b.counts(t, n)
}

// counts is shares, without publishing anything.
func (b *testLB) counts(t *testing.T, n int) map[int]int {
	t.Helper()
	counts := map[int]int{}
	b.rpcs(t, n, func(endpoint int, _ *balancer.DoneInfo) { counts[endpoint]++ })
	return counts
}

// wantShares checks that picks are shared as the weights, of endpoints 1, 2 and so
// on, say; without publishing anything.
func (b *testLB) wantShares(t *testing.T, weights ...float64) {
	t.Helper()
	const n = 6000
	got, sum := b.counts(t, n), 0.
	for _, w := range weights {
		sum += w
	}
	for i, w := range weights {
		share := float64(got[i+1]) / n
		if math.Abs(share-w/sum) > 0.02 {
			t.Errorf("endpoint %d of weight %v in %v gets %.3f of all RPCs, want %.3f", i+1, w, weights, share, w/sum)
		}
	}
}

// live returns the leaves of all clusters.
func (b *testLB) live() (leaves []*leaf) {
	for _, c := range b.clusters {
		leaves = append(leaves, c.leaves...)
	}
	return leaves
}

// bind returns the context that an RPC of /s/m has behind the interceptors.
func (b *testLB) bind(ctx context.Context) context.Context {
	s := b.picker.current.Load()
	if s.Plans == nil {
		return ctx
	}
	_ = rpc.Unary(ctx, &s.Table, "/s/m", nil, nil, nil, func(inner context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		ctx = inner
		return nil
	})
	return ctx
}

// series returns n numbers from the first on.
func series(from, n int) (numbers []int) {
	for i := range n {
		numbers = append(numbers, from+i)
	}
	return numbers
}
