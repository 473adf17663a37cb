// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// openConns counts the open connections of clients by address.
type openConns struct {
	mu   sync.Mutex
	open map[string]map[string]int
}

func (o *openConns) add(client, addr string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open == nil {
		o.open = map[string]map[string]int{}
	}
	if o.open[client] == nil {
		o.open[client] = map[string]int{}
	}
	o.open[client][addr] += n
	if o.open[client][addr] == 0 {
		delete(o.open[client], addr)
	}
}

// of returns the number of a client's open connections by address.
func (o *openConns) of(client string) map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.open[client])
}

// total returns the number of open connections of all clients.
func (o *openConns) total() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, byAddr := range o.open {
		for _, k := range byAddr {
			n += k
		}
	}
	return n
}

// audit checks the books of a scenario in which nothing is under way any more.
func (w *world) audit(cc *grpc.ClientConn) {
	w.t.Helper()
	w.await(w.inexact)
	for addr, n := range w.conns.of("steady") {
		if n != 1 || !slices.Contains(w.configured(), addr) {
			w.fail("%d connections to %s are open; configured are %v", n, addr, w.configured())
		}
	}
	w.subscriptions()
	w.breaker(cc)
	w.retries(cc)
	w.drops(cc)
}

// reported adds up the load reports of a cluster to both control planes.
func (w *world) reported(name string) (sum xdstest.LocalityCounts, dropped uint64) {
	for _, c := range w.controls {
		counts := c.Loads(w.service+name, w.service+name)
		one := counts.Total
		sum.Issued += one.Issued
		sum.OK += one.OK
		sum.Failed += one.Failed
		sum.InProgress += one.InProgress
		dropped += counts.Drops["chaos"]
	}
	return sum, dropped
}

// fellBack reports whether clients have used a control plane other than the first. The reporter of
// that control plane ended with the change back to the first, so that RPCs in progress then are
// never reported.
func (w *world) fellBack() bool {
	return slices.ContainsFunc(w.controls[1:], func(c *xdstest.Server) bool {
		_, streams := c.LoadStreams()
		return streams > 0
	})
}

// inexact returns the error in the load reports, if any: whatever was issued has ended
// (T-LRS-3), and all that succeeded and failed was reported once. Attempts at a hedged RPC that
// another one has decided are neither. Of attempts that nothing was sent of gRPC does not say
// whether they were picked for.
func (w *world) inexact() string {
	if w.lossy || w.fellBack() {
		return ""
	}
	served, _ := w.oracle.counts()
	w.attempts.mu.Lock()
	defer w.attempts.mu.Unlock()
	unsent := w.attempts.sums[""]
	for _, name := range []string{"a", "b"} {
		sum, _ := w.reported(name)
		ended := w.attempts.sums[name]
		lost := sum.Issued - sum.OK - sum.Failed
		if sum.InProgress != 0 || sum.OK != ended.ok || sum.OK < uint64(served[name]) || !w.plan.hedged && sum.OK != uint64(served[name]) ||
			sum.Failed < ended.failed || sum.Failed > ended.failed+ended.mayFail+unsent.failed || lost+ended.mayFail < ended.lost || lost > ended.lost+unsent.lost {
			return fmt.Sprintf("cluster %s: %+v are reported, %d RPCs succeeded, of the attempts were %+v, and not sent %+v", name, sum, served[name], ended, unsent)
		}
	}
	return ""
}

// retries checks that no retry of the scenario is still in the budget's count: of a budget
// of one retry, one is left.
func (w *world) retries(cc *grpc.ClientConn) {
	w.t.Helper()
	if w.real {
		return // where deadlines are the machine's
	}
	p := w.plan.clone()
	for !p.retries() {
		p.number++
	}
	p.oneRetry, p.routed = true, map[string]uint32{"a": 1}
	w.apply(p)
	before := uint64(0)
	for _, addr := range w.pools["a"] {
		w.backends[addr].Fail(codes.Unavailable)
		before += w.backends[addr].Calls()
	}
	if _, err := testgrpc.NewTestServiceClient(cc).UnaryCall(context.Background(), new(testgrpc.SimpleRequest)); status.Code(err) != codes.Unavailable {
		w.fail("an RPC to backends that fail ends with %v", err)
	}
	for _, addr := range w.pools["a"] {
		w.backends[addr].Fail(codes.OK)
		before -= w.backends[addr].Calls()
	}
	if made := -before; made != uint64(p.number%3+2) {
		w.fail("%d attempts at an RPC by %v, want %d", made, p, p.number%3+2)
	}
	p = p.clone()
	p.oneRetry = false
	w.apply(p)
}

// subscriptions checks that the client subscribes to the configured resources and to no others.
func (w *world) subscriptions() {
	w.t.Helper()
	w.await(func() string {
		for _, c := range w.controls {
			names := c.Stats(xdstest.EDS).Names
			if open, _ := c.Streams(); open > 0 && !slices.Equal(names, []string{w.service + "a", w.service + "b"}) {
				return fmt.Sprintf("subscriptions to %q", names)
			}
		}
		return ""
	})
}

// breaker checks that no RPC of the scenario is still in the breaker's count: of a
// limit of 3, 3 are left (T-CB-1).
func (w *world) breaker(cc *grpc.ClientConn) {
	w.t.Helper()
	p := w.plan.clone()
	p.routed = map[string]uint32{"a": 1}
	p.clusters["a"].breaker = 3
	w.apply(p)
	rng := rand.New(rand.NewPCG(1, 1))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := testgrpc.NewTestServiceClient(cc)
	for i := range 3 {
		s, err := client.FullDuplexCall(ctx)
		if err == nil {
			_, err = s.Header()
		}
		if err != nil {
			w.fail("RPC %d of 3 that the breaker allows: %v", i+1, err)
		}
	}
	_, err := client.UnaryCall(ctx, new(testgrpc.SimpleRequest))
	if status.Code(err) != codes.Unavailable || !strings.Contains(fmt.Sprint(err), "circuit breaker") {
		w.fail("the RPC beyond the breaker's limit: %v", err)
	}
	cancel()
	w.pass(deadline / w.haste())
	p = p.clone()
	p.clusters["a"].breaker = 1 << 20
	w.apply(p)
	for range 3 {
		if err := w.unary("audit", cc, rng); err != nil {
			w.fail("RPC after the breaker's limit: %v", err)
		}
	}
}

// drops checks that the number of dropped RPCs equals the reported number (A27-CLA-13).
func (w *world) drops(cc *grpc.ClientConn) {
	w.t.Helper()
	p := w.plan.clone()
	p.clusters["a"].drop = 300_000
	w.apply(p)
	client := testgrpc.NewTestServiceClient(cc)
	dropped := uint64(0)
	for range 100 {
		_, err := client.UnaryCall(context.Background(), new(testgrpc.SimpleRequest))
		switch {
		case err == nil:
		case status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "dropped"):
			dropped++
		default:
			w.fail("an RPC that may be dropped: %v", err)
		}
	}
	w.await(func() string {
		if _, got := w.reported("a"); got == dropped || w.lossy && got <= dropped {
			return ""
		}
		return "drops that are not reported"
	})
	if dropped == 0 || dropped == 100 {
		w.fail("%d of 100 RPCs were dropped, of 30 %%", dropped)
	}
}

// apply pushes a plan and waits until it is in effect.
func (w *world) apply(p *plan) {
	w.t.Helper()
	w.note("push %v", p)
	w.push(p, noDefect)
	w.await(w.unsettled)
	w.pass(deadline / w.haste())
}
