// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/xdslb/xdslb/bench/kit"
	lb "github.com/xdslb/xdslb/integrate/internal/balancer"
	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/picker"
)

// randomRetries draws a limit of a cluster's retries, or nil.
func randomRetries(rng *rand.Rand) *picker.RetryLimit {
	if rng.IntN(4) == 0 {
		return nil
	}
	return &picker.RetryLimit{Percent: []float64{0, 20, 50, 100}[rng.IntN(4)], Min: rng.Uint32N(4)}
}

// retryBurst is some RPCs to a cluster, all attempts of which fail, sent through the interceptors.
// The model knows for each whether the budget admits another attempt: it counts retries from their
// back-off to their end, and the other RPCs in flight (Envoy's retry_budget).
type retryBurst struct {
	t       *history
	cluster string
	leaf    *modelLeaf // that the RPCs go to

	mu          sync.Mutex // guards the fields below, and the history while the burst runs
	active      int        // retries under way, by the model
	rpcs        []*burstRPC
	misdirected bool // an attempt did not get to the leaf, so that another budget may count
	violation   string
}

// burstRPC is an RPC of a retryBurst.
type burstRPC struct {
	made     int  // attempts
	panicsAt int  // the attempt in which the application panics; 0 if no attempt does
	admitted bool // another one, by the model
	ended    bool
}

// retryBursts makes a burst to a cluster that must be served.
func (t *history) retryBursts() {
	t.runBurst(t.controlPlane.clusters[t.Rand.IntN(len(t.controlPlane.clusters))], false)
}

// panicInRetries has the application panic in retries. A server recovers such a panic, and the
// retries must no longer count as active.
func (t *history) panicInRetries() {
	c := t.controlPlane.clusters[t.Rand.IntN(len(t.controlPlane.clusters))]
	t.runBurst(c, true)
	t.runBurst(c, false)
}

// retried makes RPCs to a cluster that fail, and are retried.
func (t *history) runBurst(c *modelCluster, panics bool) {
	if !c.routed || !t.controlPlane.attempts || !t.mustServe(c) || t.hashes(c) {
		return
	}
	t.cancelIntercepted()
	v := &retryBurst{t: t, cluster: c.name}
	n := 1 + t.Rand.IntN(8)
	t.Logf("%d RPCs to %s, all attempts of which fail", n, c.name)
	for range n {
		r := &burstRPC{}
		if panics {
			r.panicsAt = t.Rand.IntN(hedged.MaxAttempts + 1)
		}
		v.rpcs = append(v.rpcs, r)
		go v.run(r)
		synctest.Wait() // it has ended, or is in its back-off
	}
	kit.Pass(time.Duration(hedged.MaxAttempts) * 2 * hedged.MaxBackoff)
	synctest.Wait()
	for _, r := range v.rpcs {
		switch {
		case v.violation != "":
		case !r.ended:
			v.violation = "an RPC all attempts of which fail does not end"
		case v.active != 0 && !v.misdirected:
			v.violation = fmt.Sprintf("the model counts %d retries after all RPCs have ended, want 0", v.active)
		}
	}
	if v.violation != "" {
		t.Fatalf("%s", v.violation)
	}
}

// run makes an RPC.
func (v *retryBurst) run(r *burstRPC) {
	err := recovered(func() error {
		return callAsIntercepted(v.t.lb, "/"+v.cluster+"/m", func(ctx context.Context, method string) error { return v.attempt(ctx, method, r) })
	})
	v.mu.Lock()
	defer v.mu.Unlock()
	r.ended = true
	if r.admitted && r.made < hedged.MaxAttempts && !v.misdirected {
		v.reportViolation("an RPC ended after %d attempts, want another one, which the retry budget %+v of %s admits with %d active retries: %v", r, err)
	}
}

// attempt is one attempt, which fails at once.
func (v *retryBurst) attempt(ctx context.Context, method string, r *burstRPC) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if r.made++; r.made > 1 && !r.admitted && !v.misdirected {
		v.reportViolation("an RPC made attempt %d, which the retry budget %+v of %s does not admit with %d active retries: %v", r, nil)
	}
	if r.admitted {
		v.active--
		r.admitted = false
	}
	if r.made == r.panicsAt {
		panic(errPanic)
	}
	p, _ := v.t.grpc.Seen()
	res, err := p.Pick(balancer.PickInfo{FullMethodName: method, Ctx: ctx})
	if err != nil {
		v.misdirected = true
		return status.Error(codes.Unavailable, "no connection")
	}
	rpc := v.t.newRPC(v.cluster, 0, false)
	rpc.conn, rpc.done = res.SubConn.(*modelConn), res.Done
	if rpc.done == nil {
		rpc.done = func(balancer.DoneInfo) {}
	}
	l := v.t.leafOf(rpc.conn.Data.number)
	if v.leaf == nil {
		v.leaf = l
	}
	v.misdirected = v.misdirected || v.leaf != l
	failed := status.Error(codes.Unavailable, "failed")
	account := account{l.name, l.service}
	// The attempt has ended, by its Done, when the budget is asked.
	others := v.t.counts[account] - v.active
	if rpc.account, rpc.reported = account, l.server != ""; v.t.counts[account] >= int(l.max) {
		v.reportViolation("attempt %d was admitted beyond max_requests (A32), with the retry budget %+v of %s and %d active retries: %v", r, nil)
	}
	v.t.counts[account]++
	v.t.release(rpc, balancer.DoneInfo{Err: failed, BytesSent: true})
	if limit := l.sentRetries; r.made < hedged.MaxAttempts {
		r.admitted = limit == nil || v.active < max(int(limit.Min), int(limit.Percent/100*float64(others)))
	}
	if r.admitted {
		v.active++
	}
	return failed
}

// reportViolation records the first violation.
func (v *retryBurst) reportViolation(format string, r *burstRPC, err error) {
	if v.violation == "" && v.leaf != nil {
		v.violation = fmt.Sprintf(format, r.made, v.leaf.sentRetries, v.leaf.name, v.active, err)
	}
}

// errPanic is the value with which the application panics in an attempt.
var errPanic = errors.New("the application panics")

// recovered calls f and returns its error, or errPanic if it panics with that.
func recovered(f func() error) (err error) {
	defer func() {
		if v := recover(); v == errPanic {
			err = errPanic
		} else if v != nil {
			panic(v)
		}
	}()
	return f()
}

// callAsIntercepted makes an RPC as the interceptor makes it.
func callAsIntercepted(b *lb.Balancer, method string, attempt func(ctx context.Context, method string) error) error {
	invoker := func(ctx context.Context, method string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		return attempt(ctx, method)
	}
	table := b.Table()
	if table.Plans == nil {
		return attempt(context.Background(), method)
	}
	return rpc.Unary(context.Background(), table, method, &emptypb.Empty{}, nil, nil, invoker)
}

// This file tests Envoy's consecutive_5xx, which ejects an endpoint after some RPCs in a row that
// were sent and failed. The count starts from zero when the endpoint returns.

// modelHost is the state of an endpoint for outlier detection, by the model.
type modelHost struct {
	failures int  // in a row until now
	most     int  // in a row since the last check
	ejected  bool // at the last check

	pushback modelPushback
}

// detectConsecutive has some clusters eject by consecutive failures, rather than by their percentage.
func (p *controlPlane) detectConsecutive(rng *rand.Rand) {
	for _, c := range p.clusters {
		for _, l := range c.leaves {
			if rng.IntN(2) == 0 {
				l.consecutive = 2 + rng.Uint32N(3)
				l.outlier = l.outlier || rng.IntN(2) == 0
			}
		}
	}
}

// hostOf returns the endpoint of a number, which may be that of its second address.
func (t *history) hostOf(number int) *modelHost {
	l := t.leafOf(number)
	base := l.first + (number-l.first)%(leafStride/2)
	h := t.hosts[base]
	if h == nil {
		h = &modelHost{}
		t.hosts[base] = h
	}
	return h
}

// recordOutcome counts the end of an RPC. RPCs without a response count as failures if they were
// sent and failed with UNAVAILABLE or DEADLINE_EXCEEDED, or after per_try_timeout.
func (t *history) recordOutcome(r *modelRPC, info balancer.DoneInfo) {
	h := t.hostOf(r.conn.Data.number)
	code := status.Code(info.Err)
	switch {
	case info.Err == nil && info.BytesReceived:
		h.failures = 0
	case info.Err != nil && (info.BytesReceived || info.BytesSent && (r.timedOut || code == codes.Unavailable || code == codes.DeadlineExceeded)):
		h.failures++
		h.most = max(h.most, h.failures)
	}
}

// checkEjections checks that endpoints are ejected only after as many failures in a row as the
// cluster configures.
func (t *history) checkEjections() {
	var ejected map[int]bool
	for _, c := range t.controlPlane.clusters {
		for _, l := range c.leaves {
			if !c.routed || c.sent == nil || l.consecutive == 0 || !l.outlier {
				l.checked = false
				continue
			}
			if ejected == nil {
				ejected = t.ejected()
			}
			for n := range endpointsPerLeaf {
				h := t.hostOf(l.first + n)
				is := ejected[l.first+n] || ejected[l.first+n+leafStride/2]
				if is && !h.ejected && l.checked && h.most < int(l.consecutive) {
					t.Fatalf("endpoint %d of %s is ejected after %d failures in a row, want at least consecutive_5xx, which is %d", l.first+n, l.name, h.most, l.consecutive)
				}
				if h.ejected = is; is {
					h.failures = 0 // it returns with 0 failures
				}
				h.most = h.failures
			}
			l.checked = true
		}
	}
}

// ejected returns the numbers of the endpoints that are ejected by the status of the channel.
func (t *history) ejected() map[int]bool {
	m := map[int]bool{}
	for _, c := range statusIn(t.lb, true).Clusters {
		for _, l := range c.Leaves {
			for _, p := range l.Priorities {
				for _, loc := range p.Localities {
					for _, e := range loc.Endpoints {
						if e.Ejected {
							m[numberAt(e.Address)] = true
						}
					}
				}
			}
		}
	}
	return m
}

// failUnsent makes RPCs that fail before they are sent, for example because there is no token. They
// are no evidence about the endpoint.
func (t *history) failUnsent() {
	c := t.controlPlane.clusters[t.Rand.IntN(len(t.controlPlane.clusters))]
	n := 4 + t.Rand.IntN(12)
	t.Logf("%d RPCs to %s fail before they are sent", n, c.name)
	for range n {
		r := t.newRPC(c.name, t.Rand.Uint64(), false)
		if t.pick(r); r.conn != nil && t.tryUse(r) {
			t.release(r, balancer.DoneInfo{Err: status.Error(codes.Unavailable, "there is no token")})
		}
	}
}

// failAfterReturn has RPCs to an endpoint fail until it is ejected, some of them later, and then a few
// after its return, which do not eject it again.
func (t *history) failAfterReturn() {
	c := t.controlPlane.clusters[t.Rand.IntN(len(t.controlPlane.clusters))]
	if !c.routed || c.chosen() < 0 {
		return
	}
	p := c.priorities()[c.chosen()]
	if p.leaf.Outlier == nil || p.leaf.Outlier.Consecutive5xx == nil {
		return
	}
	threshold := int(p.leaf.Outlier.Consecutive5xx.Failures)
	bad, late := (*picker.Endpoint)(nil), t.Rand.IntN(threshold)
	t.Logf("RPCs to an endpoint of %s fail, %d of them after it is ejected", p.leaf.Name, late)
	fail := func(wanted int) (failed []*modelRPC) {
		for range 60 {
			r := t.newRPC(c.name, t.Rand.Uint64(), false)
			if t.pick(r); r.conn == nil || !t.tryUse(r) {
				continue
			}
			e := p.find(r.conn.Data.number)
			if bad == nil {
				bad = e
			}
			if e == nil || e != bad || len(failed) == wanted {
				t.end(r, nil)
				if e == bad { // a success ends the row
					break
				}
				continue
			}
			if failed = append(failed, r); len(failed) == wanted {
				break
			}
		}
		return failed
	}
	end := func(rpcs []*modelRPC) {
		for _, r := range rpcs {
			t.end(r, status.Error(codes.Unavailable, "failed"))
		}
		t.drainEvents()
		t.checkEjections()
	}
	first := fail(threshold + late)
	end(first[:min(threshold, len(first))])
	end(first[min(threshold, len(first)):])
	if bad == nil || !t.hostOf(numberOf(bad.Addr)).ejected {
		return
	}
	for range maxEjection / time.Second {
		kit.Pass(time.Second)
		if t.drainEvents(); !t.ejected()[numberOf(bad.Addr)] {
			break
		}
	}
	t.checkEjections()
	end(fail(1 + t.Rand.IntN(threshold-1)))
}
