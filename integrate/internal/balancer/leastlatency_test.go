// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
)

// takes has n RPCs begin, a millisecond apart, each of which ends after the time of its endpoint,
// and returns how many each endpoint got.
func (b *testLB) takes(t *testing.T, n int, takes map[int]time.Duration) map[int]int {
	t.Helper()
	got := map[int]int{}
	for range n {
		kit.Pass(time.Millisecond)
		res, err := b.picker.Pick(balancer.PickInfo{FullMethodName: "/s/m", Ctx: context.Background()})
		kit.Must(t, err)
		for k, d := range takes {
			if res.SubConn.(*fakeConn).addr == addr(k).String() {
				got[k]++
				time.AfterFunc(d, func() { res.Done(balancer.DoneInfo{BytesSent: true, BytesReceived: true}) })
			}
		}
	}
	return got
}

// TestLeastLatencySwitch: the policy is switched to least latency and back while RPCs are in
// flight. Connections stay, each RPC ends where it began, and a slow endpoint gets few RPCs.
func TestLeastLatencySwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		with := func(p picker.Policy) *picker.Config {
			c := clusterOf("c", prio(eps(1, 2), eps(3, 4)))
			c.Leaves[0].Policy = p
			return configOf(c)
		}
		leastRequest := with(picker.Policy{Kind: picker.PolicyLeastRequest, Flat: true, Least: &picker.LeastRequest{Choices: 2}})
		b, cc := newTestLB(t, Config{})
		b.set(leastRequest)
		for n := 1; n <= 4; n++ {
			b.to(cc.conn(t, n), ready)
		}
		speeds := map[int]time.Duration{1: 200 * time.Millisecond, 2: 5 * time.Millisecond, 3: 5 * time.Millisecond, 4: 5 * time.Millisecond}
		for range 2 {
			b.takes(t, 300, speeds)
			b.set(with(picker.Policy{Kind: picker.PolicyLeastLatency, Flat: true, Latency: &picker.LeastLatency{Decay: 10 * time.Second}}))
			b.flush()
			b.takes(t, 1000, speeds)
			if n := b.takes(t, 1000, speeds)[1]; n > 10 {
				t.Errorf("the slow one of four endpoints got %d of 1000 RPCs", n)
			}
			x := onlyCluster(t, b.explained(t, context.Background()))
			slow, fast := endpointIn(x, addr(1).String()), endpointIn(x, addr(2).String())
			if slow.Latency < .05 || fast.Latency < .004 || fast.Latency > .01 || slow.Share > 0 {
				t.Errorf("latencies of %.3f and %.3f s, a share of %.2f of the slow one, for 200 and 5 ms", slow.Latency, fast.Latency, slow.Share)
			}
			b.set(leastRequest)
			b.flush()
		}
		kit.Pass(time.Second)
		if n := breakerOf(b).InFlight(); n != 0 {
			t.Errorf("%d RPCs in flight at the end", n)
		}
		if cc.opened != 4 {
			t.Errorf("opened %d connections, want 4", cc.opened)
		}
	})
}

// TestLeastLatencyAfterClose: the clock of a closed channel stops by itself, and RPCs that end
// after the close do no harm.
func TestLeastLatencyAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := latency(clusterOf("c", prio(eps(1, 2))))
		b, cc := newTestLB(t, Config{})
		b.set(configOf(c))
		b.to(cc.conn(t, 1), ready)
		var ends []func(balancer.DoneInfo)
		for range 200 { // at once, which makes the clock coarse
			res, err := b.picker.Pick(balancer.PickInfo{FullMethodName: "/s/m", Ctx: context.Background()})
			kit.Must(t, err)
			ends = append(ends, res.Done)
		}
		b.Close()
		for _, done := range ends {
			done(balancer.DoneInfo{})
		}
		kit.Pass(time.Hour)
	})
}

// TestLeastLatencyAllocs: nothing is allocated for an RPC.
func TestLeastLatencyAllocs(t *testing.T) {
	b, cc := newTestLB(t, Config{})
	b.set(configOf(latency(clusterOf("c", prio(eps(1, 2))))))
	b.to(cc.conn(t, 1), ready)
	b.to(cc.conn(t, 2), ready)
	b.flush()
	info := balancer.PickInfo{FullMethodName: "/s/m", Ctx: context.Background()}
	if n := testing.AllocsPerRun(10000, func() {
		res, err := b.picker.Pick(info)
		kit.Must(t, err)
		res.Done(balancer.DoneInfo{BytesSent: true, BytesReceived: true})
	}); n != 0 {
		t.Errorf("Pick and Done allocate %v times", n)
	}
}
