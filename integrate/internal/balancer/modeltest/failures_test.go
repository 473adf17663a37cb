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

// randomRetries draws a limit of a cluster's retries, or none.
func randomRetries(rng *rand.Rand) *picker.RetryLimit {
	if rng.IntN(4) == 0 {
		return nil
	}
	return &picker.RetryLimit{Percent: []float64{0, 20, 50, 100}[rng.IntN(4)], Min: rng.Uint32N(4)}
}

// volley is RPCs to a cluster all attempts of which fail, as the interceptor makes them. The
// model knows of each whether the budget admits another attempt: it counts retries from their
// back-off to their end, and what else is in flight (Envoy's retry_budget).
type volley struct {
	t       *trial
	cluster string
	leaf    *planeLeaf // that the RPCs go to

	mu     sync.Mutex // guards what follows, and the trial while the volley is under way
	active int        // retries under way, by the model
	rpcs   []*volleyRPC
	astray bool // an attempt did not get to the leaf, so that another budget may count
	wrong  string
}

// volleyRPC is one of its RPCs.
type volleyRPC struct {
	made     int  // attempts
	panicsAt int  // the attempt in which the application panics; 0 is none
	admitted bool // another one, by the model
	ended    bool
}

// volleys makes one to a cluster that is certain to be served.
func (t *trial) volleys() { t.retried(t.plane.clusters[t.Rand.IntN(len(t.plane.clusters))], false) }

// panicInRetries has the application panic in retries, as servers recover it. They do not count as
// retries under way afterwards.
func (t *trial) panicInRetries() {
	c := t.plane.clusters[t.Rand.IntN(len(t.plane.clusters))]
	t.retried(c, true)
	t.retried(c, false)
}

// retried makes RPCs to a cluster that fail, and are retried.
func (t *trial) retried(c *planeCluster, panics bool) {
	if !c.routed || !t.plane.attempts || !t.mustServe(c) || t.hashes(c) {
		return
	}
	t.landAll()
	v := &volley{t: t, cluster: c.name}
	n := 1 + t.Rand.IntN(8)
	t.Logf("a volley of %d RPCs to %s, which fail", n, c.name)
	for range n {
		r := &volleyRPC{}
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
		case v.wrong != "":
		case !r.ended:
			v.wrong = "an RPC of a volley does not end"
		case v.active != 0 && !v.astray:
			v.wrong = "the model has lost count of retries"
		}
	}
	if v.wrong != "" {
		t.Fatalf("%s", v.wrong)
	}
}

// run makes an RPC.
func (v *volley) run(r *volleyRPC) {
	err := recovered(func() error {
		return callAsIntercepted(v.t.lb, "/"+v.cluster+"/m", func(ctx context.Context, method string) error { return v.attempt(ctx, method, r) })
	})
	v.mu.Lock()
	defer v.mu.Unlock()
	r.ended = true
	if r.admitted && r.made < hedged.MaxAttempts && !v.astray {
		v.accuse("an RPC of a volley ended after %d attempts, though the budget %+v of %s admits another, with %d retries under way: %v", r, err)
	}
}

// attempt is one attempt, which fails at once.
func (v *volley) attempt(ctx context.Context, method string, r *volleyRPC) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if r.made++; r.made > 1 && !r.admitted && !v.astray {
		v.accuse("an RPC of a volley made attempt %d, though the budget %+v of %s does not admit it, with %d retries under way: %v", r, nil)
	}
	if r.admitted {
		v.active--
		r.admitted = false
	}
	if r.made == r.panicsAt {
		panic(errPanic)
	}
	p, _ := v.t.grpc.seen()
	res, err := p.Pick(balancer.PickInfo{FullMethodName: method, Ctx: ctx})
	if err != nil {
		v.astray = true
		return status.Error(codes.Unavailable, "no connection")
	}
	rpc := v.t.newRPC(v.cluster, 0, false)
	rpc.conn, rpc.done = res.SubConn.(*modelConn), res.Done
	if rpc.done == nil {
		rpc.done = func(balancer.DoneInfo) {}
	}
	l := v.t.leafOf(rpc.conn.number)
	if v.leaf == nil {
		v.leaf = l
	}
	v.astray = v.astray || v.leaf != l
	failed := status.Error(codes.Unavailable, "failed")
	account := account{l.name, l.service}
	// The attempt has ended, by its Done, when the budget is asked.
	rest := v.t.counts[account] - v.active
	if rpc.account, rpc.reported = account, l.server != ""; v.t.counts[account] >= int(l.max) {
		v.accuse("attempt %d of a volley was admitted beyond max_requests: %+v of %s, %d: %v", r, nil)
	}
	v.t.counts[account]++
	v.t.release(rpc, balancer.DoneInfo{Err: failed, BytesSent: true})
	if limit := l.sentRetries; r.made < hedged.MaxAttempts {
		r.admitted = limit == nil || v.active < max(int(limit.Min), int(limit.Percent/100*float64(rest)))
	}
	if r.admitted {
		v.active++
	}
	return failed
}

// accuse notes what is wrong first.
func (v *volley) accuse(format string, r *volleyRPC, err error) {
	if v.wrong == "" && v.leaf != nil {
		v.wrong = fmt.Sprintf(format, r.made, v.leaf.sentRetries, v.leaf.name, v.active, err)
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

// This file tests Envoy's consecutive_5xx, which ejects an endpoint after some RPCs in a row that were
// sent and failed. The count starts from zero when the endpoint returns.

// modelHost is what the model knows of an endpoint for outlier detection.
type modelHost struct {
	failures int  // in a row until now
	most     int  // in a row, since it was last looked at
	ejected  bool // when it was last looked at
}

// detectConsecutive has some clusters eject by consecutive failures, rather than by their percentage.
func (p *plane) detectConsecutive(rng *rand.Rand) {
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
func (t *trial) hostOf(number int) *modelHost {
	l := t.leafOf(number)
	base := l.first + (number-l.first)%(leafStride/2)
	h := t.hosts[base]
	if h == nil {
		h = &modelHost{}
		t.hosts[base] = h
	}
	return h
}

// countRun counts the end of an RPC. RPCs without a response count if they were sent and failed with
// UNAVAILABLE or DEADLINE_EXCEEDED, or after per_try_timeout.
func (t *trial) countRun(r *modelRPC, info balancer.DoneInfo) {
	h := t.hostOf(r.conn.number)
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
func (t *trial) checkEjections() {
	var ejected map[int]bool
	for _, c := range t.plane.clusters {
		for _, l := range c.leaves {
			if !c.routed || c.sent == nil || l.consecutive == 0 || !l.outlier {
				l.judged = false
				continue
			}
			if ejected == nil {
				ejected = t.ejected()
			}
			for n := range endpointsPerLeaf {
				h := t.hostOf(l.first + n)
				is := ejected[l.first+n] || ejected[l.first+n+leafStride/2]
				if is && !h.ejected && l.judged && h.most < int(l.consecutive) {
					t.Fatalf("%d of %s is ejected after %d failures in a row, consecutive_5xx is %d (Envoy)", l.first+n, l.name, h.most, l.consecutive)
				}
				if h.ejected = is; is {
					h.failures = 0 // at the latest when it returns
				}
				h.most = h.failures
			}
			l.judged = true
		}
	}
}

// ejected returns the numbers of the endpoints that are ejected by the status of the channel.
func (t *trial) ejected() map[int]bool {
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
// say nothing about the endpoint.
func (t *trial) failUnsent() {
	c := t.plane.clusters[t.Rand.IntN(len(t.plane.clusters))]
	n := 4 + t.Rand.IntN(12)
	t.Logf("%d RPCs to %s fail before they are sent", n, c.name)
	for range n {
		r := t.newRPC(c.name, t.Rand.Uint64(), false)
		if t.pick(r); r.conn != nil && t.used(r) {
			t.release(r, balancer.DoneInfo{Err: status.Error(codes.Unavailable, "there is no token")})
		}
	}
}

// failAfterReturn has RPCs to an endpoint fail until it is ejected, some of them later, and then a few
// after its return, which do not eject it again.
func (t *trial) failAfterReturn() {
	c := t.plane.clusters[t.Rand.IntN(len(t.plane.clusters))]
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
			if t.pick(r); r.conn == nil || !t.used(r) {
				continue
			}
			e := p.find(r.conn.number)
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
		t.rest()
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
		if t.rest(); !t.ejected()[numberOf(bad.Addr)] {
			break
		}
	}
	t.checkEjections()
	end(fail(1 + t.Rand.IntN(threshold-1)))
}
