// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"
	lrsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	lb "github.com/xdslb/xdslb/integrate/internal/balancer"
	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/picker"
)

// modelRPC is an RPC from its first pick to its end, as gRPC makes it: it picks with each new
// picker until it has a READY connection or an error that ends it.
//
//	waiting ─pick→ holding ─use→ in flight ─end→ over
//	   ↑              │
//	   └──connection lost
type modelRPC struct {
	id           int
	cluster      string
	ctx          context.Context // has the RPC's hash, except of every fourth
	host         int             // the number of the endpoint of its session; 0 without session
	waitForReady bool

	waiting    bool
	seen       int // the number of the picker that it waits for a successor of
	err        error
	conn       *modelConn // that it picked
	done       func(balancer.DoneInfo)
	attemptCtx context.Context         // of its attempts, if they avoid earlier endpoints; or nil
	lose       context.CancelCauseFunc // ends the attempts in flight
	made       int                     // attempts that picked a connection
	hedged     bool                    // the latest attempt is a hedged one
	authority  string                  // of the latest pick; empty is the channel's

	account  account // counts it from the pick to its end
	reported bool    // load is reported of it
	lost     bool    // superseded by another attempt
	timedOut bool    // canceled after per_try_timeout
}

// account identifies a circuit breaker (A32).
type account struct{ cluster, service string }

func (r *modelRPC) String() string { return fmt.Sprintf("RPC %d to %s", r.id, r.cluster) }

// newRPC makes an RPC that has not picked yet.
func (t *history) newRPC(cluster string, hash uint64, waitForReady bool) *modelRPC {
	t.rpcs++
	ctx, end := context.WithCancel(context.Background())
	t.ends = append(t.ends, end)
	if t.rpcs%4 > 0 {
		ctx = metadatautil.WithHash(ctx, hash)
	}
	return &modelRPC{id: t.rpcs, cluster: cluster, ctx: ctx, waitForReady: waitForReady}
}

// pick has the RPC pick once, with the latest picker.
func (t *history) pick(r *modelRPC) {
	p, seen := t.grpc.Seen()
	r.waiting, r.seen, r.err, r.conn, r.done = true, seen, nil, nil, nil
	if p == nil {
		return
	}
	ctx, method := r.ctx, "/"+r.cluster+"/m"
	switch {
	case r.host > 0:
		ctx = inSessionWith(ctx, t.lb, method, addr(r.host))
	case r.attemptCtx == nil:
		ctx, lose := context.WithCancelCause(ctx)
		if ctx, bound := avoidingTried(ctx, t.lb, method); bound {
			r.attemptCtx, r.lose = ctx, lose
		} else {
			lose(nil)
		}
	}
	if r.attemptCtx != nil {
		ctx = r.attemptCtx
	}
	possible := t.explain(r, ctx, method)
	res, err := p.Pick(balancer.PickInfo{FullMethodName: method, Ctx: ctx})
	possible(res, err)
	switch {
	case errors.Is(err, balancer.ErrNoSubConnAvailable):
	case err != nil:
		if _, final := status.FromError(err); final || !r.waitForReady {
			r.waiting, r.err = false, err
		}
	default:
		conn, ok := res.SubConn.(*modelConn)
		if !ok || conn == nil {
			t.Fatalf("%v picked the SubConn %v, want one that gRPC made", r, res.SubConn)
		}
		r.waiting, r.conn, r.done, r.authority = false, conn, res.Done, strings.Join(res.Metadata[":authority"], ",")
		r.made++
		r.hedged = r.attemptCtx != nil && t.lb.Table().Plans != nil
		if r.done == nil {
			r.done = func(balancer.DoneInfo) {}
		}
		t.admit(r)
	}
}

// joinSession makes the RPC part of a session with some endpoint of its cluster.
func (t *history) joinSession(r *modelRPC) {
	c := t.clusterNamed(r.cluster)
	r.host = c.leaves[t.Rand.IntN(len(c.leaves))].first + t.Rand.IntN(endpointsPerLeaf)
}

// use has the RPC use the connection that it picked, or wait again if that was lost.
func (t *history) use(r *modelRPC) {
	if r.conn.TakesRPCs() {
		t.inFlight = append(t.inFlight, r)
		return
	}
	t.release(r, balancer.DoneInfo{})
	r.waiting, r.conn = true, nil
}

// end ends an RPC in flight. Backends report their load, some a high one.
func (t *history) end(r *modelRPC, err error) {
	report := &orcav3.OrcaLoadReport{RpsFractional: 100, ApplicationUtilization: float64(r.conn.Data.number%8) / 6}
	t.release(r, balancer.DoneInfo{Err: err, BytesSent: true, BytesReceived: err == nil, ServerLoad: report})
}

// mayRetry reports whether an RPC whose latest attempt has ended makes another one.
func (r *modelRPC) mayRetry() bool { return r.attemptCtx != nil && r.made < hedged.MaxAttempts }

// supersede ends an attempt of a hedged RPC because another one was faster, as gRPC does when the
// interceptor cancels it.
func (t *history) supersede(r *modelRPC) {
	r.lost = r.hedged
	r.lose(rpc.ErrHedgeSuperseded)
	t.release(r, balancer.DoneInfo{Err: status.Error(codes.Canceled, context.Canceled.Error()), BytesSent: true})
}

// admit counts an RPC that has picked a connection. The limit is that of the current configuration
// (A32).
func (t *history) admit(r *modelRPC) {
	l := t.leafOf(r.conn.Data.number)
	if l == nil {
		t.Fatalf("%v picked %v, want an endpoint of a leaf", r, r.conn)
	}
	r.account, r.reported = account{l.name, l.service}, l.server != ""
	if n := t.counts[r.account]; n >= int(l.max) && !t.updating {
		t.Fatalf("%v was admitted to %s with %d RPCs in flight, want at most max_requests, which is %d (A32)", r, l.name, n, l.max)
	}
	t.counts[r.account]++
}

func (t *history) release(r *modelRPC, info balancer.DoneInfo) {
	t.counts[r.account]--
	t.recordLoad(r, info)
	t.recordOutcome(r, info)
	r.done(info)
	r.done = nil
}

// refused reports whether the error is from a circuit breaker, and fails if no circuit breaker of
// the cluster has reached its limit.
func (t *history) refused(r *modelRPC) bool {
	if !strings.Contains(r.err.Error(), "circuit breaker") {
		return false
	}
	for _, l := range t.clusterNamed(r.cluster).leaves {
		if t.counts[account{l.name, l.service}] >= int(l.max) {
			return true
		}
	}
	t.Fatalf("%v was rejected (%v), want it admitted: the RPCs in flight are %v (A32)", r, r.err, t.counts)
	return true
}

// loadServers stands for all servers of load reports. It also accepts the streams of the control
// plane, and never answers them.
type loadServers struct {
	mu   sync.Mutex
	sums map[account]*loads
}

// loads is the sum of the reports of a cluster and its EDS service. RPCs whose connection was lost
// before they were sent are void: they may have been reported as issued. RPCs superseded by another
// attempt count neither as ok nor as failed.
type loads struct{ issued, ok, failed, lost, void uint64 }

// intercept answers in place of the servers.
func (s *loadServers) intercept(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, method string, _ grpc.Streamer, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	return &loadStream{servers: s, ctx: ctx, silent: !strings.Contains(method, "LoadReporting")}, nil
}

// reportInterval is the interval of reports.
const reportInterval = 10 * time.Second

// loadStream requests reports of all clusters.
type loadStream struct {
	grpc.ClientStream // nil

	servers *loadServers
	ctx     context.Context
	silent  bool // nothing is asked for, or has been already
}

func (s *loadStream) Context() context.Context     { return s.ctx }
func (s *loadStream) Header() (metadata.MD, error) { return nil, nil }
func (s *loadStream) Trailer() metadata.MD         { return nil }
func (s *loadStream) CloseSend() error             { return nil }

func (s *loadStream) RecvMsg(m any) error {
	if s.silent {
		<-s.ctx.Done()
		return io.EOF
	}
	s.silent = true
	resp := m.(*lrsv3.LoadStatsResponse)
	resp.SendAllClusters, resp.LoadReportingInterval = true, durationpb.New(reportInterval)
	return nil
}

func (s *loadStream) SendMsg(m any) error {
	s.servers.mu.Lock()
	defer s.servers.mu.Unlock()
	report, ok := m.(*lrsv3.LoadStatsRequest)
	if !ok {
		return nil
	}
	for _, c := range report.ClusterStats {
		a := account{c.ClusterName, c.ClusterServiceName}
		sum := s.servers.sums[a]
		if sum == nil {
			sum = &loads{}
			s.servers.sums[a] = sum
		}
		for _, l := range c.UpstreamLocalityStats {
			sum.issued += l.TotalIssuedRequests
			sum.ok += l.TotalSuccessfulRequests
			sum.failed += l.TotalErrorRequests
		}
	}
	return nil
}

// checkLoads checks that the reports match the RPCs, once all have ended and been reported
// (T-LRS-3): for the clusters whose reports always went to the same server, since a new server does
// not get the RPCs that began before.
func (t *history) checkLoads() {
	kit.Pass(reportInterval + time.Second)
	t.servers.mu.Lock()
	defer t.servers.mu.Unlock()
	for a, want := range t.loads {
		if t.incomplete[a.cluster] {
			continue
		}
		got := t.servers.sums[account{t.controlPlane.realName(a.cluster), a.service}]
		if got == nil {
			got = &loads{}
		}
		most := want.issued + want.void + uint64(t.counts[a]) // RPCs in flight may have been reported
		if got.ok != want.ok || got.failed != want.failed || got.issued < want.issued || got.issued > most {
			t.Fatalf("load reports of %v add up to %+v, want %+v and up to %d in flight (T-LRS-3)", a, *got, *want, t.counts[a])
		}
	}
}

// recordLoad counts the expected report of an RPC that has ended.
func (t *history) recordLoad(r *modelRPC, info balancer.DoneInfo) {
	if !r.reported {
		return
	}
	sum := t.loads[r.account]
	if sum == nil {
		sum = &loads{}
		t.loads[r.account] = sum
	}
	switch {
	case r.lost:
		sum.lost++
	case info.Err != nil:
		sum.failed++
	case info.BytesReceived:
		sum.ok++
	default:
		sum.void++
	}
	sum.issued = sum.ok + sum.failed + sum.lost
}

// checkSession checks that an RPC of a session uses the session's endpoint if that is connected and
// may be used: a session stays with an endpoint that drains if the cluster allows it, even if that
// is the only connected one (A55), and with one of a priority that is not in use (A75).
func (t *history) checkSession(r *modelRPC, c *modelCluster) {
	list := c.priorities()
	if r.host == 0 || !t.controlPlane.sessions || !c.routed || len(list) == 0 || len(c.sent.Leaves) != 1 || !list[0].transparent() {
		return // with several leaves, only the endpoints of the leaf in use are known
	}
	_, e := c.find(r.host)
	if e == nil || e.Health == picker.Draining && !list[0].leaf.Override.Draining {
		return
	}
	connected := slices.ContainsFunc(t.grpc.Open(), func(conn *modelConn) bool {
		return has(e, conn.Data.number) && t.usable(conn)
	})
	if connected && (r.conn == nil || !t.isHost(r, e)) {
		t.Fatalf("%v of the session with endpoint %d picked %v (error %v), want the endpoint, which is connected (A55)", r, r.host, r.conn, r.err)
	}
}

// interleaveSessions makes RPCs without a session between RPCs of sessions. The latter are no picks
// of the policy, so they take no position of its order: after any number of picks, endpoints of one
// locality that have the same weight have the same number of picks, plus or minus one (EDF-2).
func (t *history) interleaveSessions() {
	c := t.controlPlane.clusters[t.Rand.IntN(len(t.controlPlane.clusters))]
	if c.routed && t.Rand.IntN(3) == 0 {
		l := c.leaves[0]
		t.Logf("%s: sessions, load reports and round robin, and its endpoints connect", l.name)
		l.policy = picker.Policy{Kind: []picker.PolicyKind{picker.PolicyEDF, picker.PolicyRoundRobin}[t.Rand.IntN(2)], Flat: t.Rand.IntN(2) == 0}
		t.controlPlane.sessions, l.moved, l.outlier, c.stale = true, l.moved || l.server == "", false, true
		l.server = cmp.Or(l.server, t.controlPlane.servers[0])
		t.push()
		t.connectAll()
	}
	if !c.routed || !t.controlPlane.sessions || !t.mustServe(c) {
		return
	}
	p := c.priorities()[t.firstReady(c)]
	if k := p.leaf.Policy.Kind; k != picker.PolicyEDF && k != picker.PolicyRoundRobin || p.leaf.Policy.SlowStart != nil || p.leaf.Policy.ZoneAware != nil {
		return
	}
	var ready []*picker.Endpoint
	for _, loc := range p.Localities {
		for _, e := range loc.Endpoints.All() {
			if e.Health != picker.Draining && t.hasConn(e, t.usable) {
				ready = append(ready, e)
			}
		}
	}
	t.Logf("RPCs with sessions at %d endpoints of %s, and RPCs without sessions between them", len(ready), p.leaf.Name)
	counts := map[*picker.Endpoint]int{}
	for range (2 + t.Rand.IntN(4)) * len(ready) {
		r := t.newRPC(c.name, t.Rand.Uint64(), false)
		if t.pick(r); r.conn == nil || !t.tryUse(r) {
			return // rejected by the circuit breaker
		}
		counts[p.find(r.conn.Data.number)]++
		t.end(r, nil)
		for range t.Rand.IntN(3) {
			r := t.newRPC(c.name, t.Rand.Uint64(), false)
			r.host = numberOf(ready[t.Rand.IntN(len(ready))].Addr)
			if t.pick(r); r.conn == nil || !t.tryUse(r) {
				return
			}
			t.checkSession(r, c)
			t.end(r, nil)
		}
	}
	for _, loc := range p.Localities {
		for i, e := range loc.Endpoints.All() {
			for k, other := range loc.Endpoints.All() {
				if i < k && slices.Contains(ready, e) && slices.Contains(ready, other) && e.Weight == other.Weight && abs(counts[e]-counts[other]) > 1 {
					t.Fatalf("endpoints %v and %v of %s, of equal weight, get %d and %d picks between RPCs of sessions, want a difference of at most 1 (EDF-2)", e.Addr, other.Addr, p.leaf.Name, counts[e], counts[other])
				}
			}
		}
	}
}

func abs(n int) int { return max(n, -n) }

// isHost reports whether the RPC belongs to a session and used the session's endpoint.
func (t *history) isHost(r *modelRPC, e *picker.Endpoint) bool {
	return r.host > 0 && has(e, r.host) && (r.conn == nil || has(e, r.conn.Data.number))
}

// TestSessionPolicySwitch: if the latest attempt of an RPC used a policy without sessions, since
// the policy of its cluster has changed, the RPC gets no cookie with the endpoint of an earlier
// attempt.
func TestSessionPolicySwitch(t *testing.T) {
	for name, policy := range map[string]picker.Policy{
		"pick_first": {Kind: picker.PolicyPickFirst, First: &picker.PickFirst{}},
		"custom":     {Kind: picker.PolicyCustom, Custom: &picker.CustomPolicy{Name: string(immediate), Config: []byte(`{}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc := newModelChannel(t)
				b, source := newModelBalancer(cc, integrate.Config{}, nil, new(loadServers).intercept)
				defer source.Close()
				defer b.Close()
				switchTo := func(p picker.Policy) {
					cfg := configOf(picker.Leaf{Policy: p, Priorities: []picker.Priority{zone("0", member(1), member(2))}})
					cfg.Filters = []picker.Filter{sessionFilter()}
					b.Update(cfg)
					for range 5 {
						kit.Pass(lb.PublishPause)
						for _, conn := range cc.Open() {
							for conn.State != connectivity.Ready && conn.Step(true) {
							}
						}
					}
				}
				cookieAfter := func(between func()) []string {
					var header metadata.MD
					err := rpc.Unary(t.Context(), b.Table(), "/c/m", nil, nil, nil, func(ctx context.Context, method string, _, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
						for attempt := range 2 {
							if attempt > 0 {
								between()
							}
							p, _ := cc.Seen()
							res, err := p.Pick(balancer.PickInfo{FullMethodName: method, Ctx: ctx})
							if err != nil {
								return err
							}
							res.Done(balancer.DoneInfo{})
						}
						*opts[0].(grpc.HeaderCallOption).HeaderAddr = metadata.Pairs("k", "v")
						return nil
					}, grpc.Header(&header))
					kit.Must(t, err)
					return header.Get("set-cookie")
				}
				switchTo(picker.Policy{})
				if got := cookieAfter(func() {}); len(got) != 1 {
					t.Errorf("RPC without a session gets the cookies %q, want one", got)
				}
				if got := cookieAfter(func() { switchTo(policy) }); len(got) != 0 {
					t.Errorf("RPC answered by a policy without sessions gets the cookie %q, want none", got)
				}
			})
		})
	}
}
