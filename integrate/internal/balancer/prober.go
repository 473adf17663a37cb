// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/xdslb/xdslb/integrate/internal/proberpc"
	"github.com/xdslb/xdslb/integrate/internal/serial"
	"github.com/xdslb/xdslb/integrate/probe"
	"github.com/xdslb/xdslb/picker"
)

// A prober queries the load of a group's endpoints (Prequal), over their existing
// connections, and puts the reports into the group's pool. It is idle unless RPCs are picked:
//
//	a pick wants probes ──wake──► round ──► ask, a goroutine for each ──► answered ──► pool
//	                                ▲│
//	                                └┘ timer, while probes come too fast
//
// Its lifetime: cluster.followProbes creates it for a pool without a prober, and updates it
// with the published groups; it closes the prober when no group has its pool any more. Closing
// cancels the probes in flight.
//
// The mutex comes after the balancer's and before the pool's. It is not held while a probe is
// sent.
type prober struct {
	rt      *serial.Runtime
	rec     *recorder
	cluster string
	pool    *picker.ProbePool
	ctx     context.Context
	cancel  context.CancelFunc

	mu      sync.Mutex
	cfg     picker.Prequal
	group   *picker.ProbeGroup // followed last
	targets []*probeTarget     // by index in group
	byState map[*picker.EndpointState]*probeTarget
	flying  int     // probes in flight
	tokens  float64 // probes that may be sent before more time passes
	filled  int64   // when tokens were added last
	later   bool    // a timer calls round
	expires bool    // a timer calls expire
	silence bool    // it has been logged that endpoints do not answer, and not that all answer again

	sent, failed uint64 // probes
}

// A probeTarget is an endpoint that is probed. The prober's mutex guards all fields but the
// immutable ones.
type probeTarget struct {
	state   *picker.EndpointState
	sc      balancer.SubConn
	conn    *probeConn
	release func() // of conn

	busy     bool  // a probe is in flight
	answered bool  // at least once
	silent   bool  // it does not answer probes
	failures int   // since the last answer
	notUntil int64 // no probes before this time of Runtime.Now
}

const (
	maxFlying     = 16                    // probes of a pool in flight, besides probes of synchronous RPCs
	silentAfter   = 3                     // failures of an endpoint that has never answered
	firstBackoff  = 50 * time.Millisecond // after a failure; doubles
	maxBackoff    = 10 * time.Second
	silentBackoff = 30 * time.Second // for endpoints that reject probes
	awayBackoff   = time.Second      // for endpoints that are going away
)

// close ends the prober. Probes in flight are canceled.
func (p *prober) close() {
	p.cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.targets {
		t.release()
	}
	p.targets, p.byState, p.group = nil, nil, nil
}

// follow makes the endpoints of a group the targets of probes, over the connections that picks
// use: O(endpoints) if the group has changed.
func (p *prober) follow(g *picker.ProbeGroup, policy *picker.Policy, results []result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.group == g {
		return
	}
	olds := p.byState
	p.group, p.cfg = g, *policy.Prequal
	p.targets, p.byState = make([]*probeTarget, g.Len()), make(map[*picker.EndpointState]*probeTarget, g.Len())
	for k := range p.targets {
		state, index := g.Endpoint(k)
		t := olds[state]
		if sc := results[index].sc; t == nil || t.sc != sc {
			t = newProbeTarget(state, sc)
		} else {
			delete(olds, state)
		}
		p.targets[k], p.byState[state] = t, t
	}
	for _, t := range olds {
		t.release()
	}
	g.Adopt(p.rt.Now())
}

func newProbeTarget(state *picker.EndpointState, sc balancer.SubConn) *probeTarget {
	conn, release := sc.GetOrBuildProducer(probeProducer)
	return &probeTarget{state: state, sc: sc, conn: conn.(*probeConn), release: release}
}

// round sends the probes that picks want, within the limits.
func (p *prober) round() {
	p.mu.Lock()
	if p.ctx.Err() != nil || p.later {
		p.mu.Unlock()
		return
	}
	now := p.rt.Now()
	p.refillLocked(now)
	if p.tokens < 1 {
		p.later = true
		time.AfterFunc(time.Duration(math.Ceil((1-p.tokens)/float64(p.cfg.MaxProbesPerSecond)*float64(time.Second))), func() {
			p.mu.Lock()
			p.later = false
			p.mu.Unlock()
			p.round()
		})
		p.mu.Unlock()
		return
	}
	limit := min(int(p.tokens), maxFlying-p.flying)
	p.mu.Unlock()

	n := p.pool.Demand(limit)

	p.mu.Lock()
	asked := p.drawLocked(n, now)
	p.tokens -= float64(len(asked))
	p.flying += len(asked)
	p.mu.Unlock()
	for _, t := range asked {
		go func() {
			p.probe(p.ctx, t)
			p.mu.Lock()
			defer p.mu.Unlock()
			p.flying--
		}()
	}
}

// refillLocked adds tokens for the time that has passed.
func (p *prober) refillLocked(now int64) {
	p.tokens = min(p.tokens+float64(now-p.filled)*float64(p.cfg.MaxProbesPerSecond)/float64(time.Second), maxFlying)
	p.filled = now
}

// drawLocked returns up to n distinct random endpoints that may be probed, and marks them as
// busy.
func (p *prober) drawLocked(n int, now int64) []*probeTarget {
	var list []*probeTarget
	for range 3 * n { // some may not be probed
		if len(list) == n || len(p.targets) == 0 {
			break
		}
		if t := p.targets[rand.IntN(len(p.targets))]; !t.busy && now >= t.notUntil && !t.state.PushedBack() {
			t.busy = true
			list = append(list, t)
		}
	}
	return list
}

// probe probes an endpoint that is marked as busy, and records the answer. ok reports whether
// there was an answer.
func (p *prober) probe(ctx context.Context, t *probeTarget) (r picker.ProbeReport, ok bool) {
	p.mu.Lock()
	timeout := p.cfg.ProbeTimeout
	p.sent++
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r, err := t.conn.probe(ctx)
	if err != nil {
		p.onFailure(ctx, t, err)
		return r, false
	}
	p.onAnswer(t, r)
	return r, true
}

// onAnswer records an answer.
func (p *prober) onAnswer(t *probeTarget, r picker.ProbeReport) {
	now := p.rt.Now()
	p.mu.Lock()
	wasSilent := t.silent
	t.busy, t.answered, t.silent, t.failures, t.notUntil = false, true, false, 0, 0
	recovered := wasSilent && p.silence && !p.anySilentLocked()
	p.silence = p.silence && !recovered
	if r.GoingAway {
		t.notUntil = now + int64(awayBackoff)
	}
	current := p.byState[t.state] == t
	expires := p.expires
	p.expires = p.expires || current
	p.mu.Unlock()
	if !current {
		return
	}
	if recovered {
		p.rec.resolve(stateKey{name: stateProbes, cluster: p.cluster}, msgAnswers)
	}
	p.pool.Answer(t.state, r, now)
	if !expires {
		p.expire()
	}
}

// anySilentLocked reports whether an endpoint does not answer: O(endpoints).
func (p *prober) anySilentLocked() bool {
	for _, t := range p.byState {
		if t.silent {
			return true
		}
	}
	return false
}

// onFailure records that an endpoint did not answer. An endpoint that rejects probes, or has
// never answered, is silent: it is picked without probes. The load of any other endpoint is
// considered unknown for the moment.
func (p *prober) onFailure(ctx context.Context, t *probeTarget, err error) {
	now, code := p.rt.Now(), status.Code(err)
	p.mu.Lock()
	t.busy = false
	if p.ctx.Err() != nil || code == codes.Canceled && ctx.Err() == context.Canceled {
		p.mu.Unlock()
		return
	}
	p.failed++
	t.failures++
	t.notUntil = now + int64(min(firstBackoff<<min(t.failures-1, 16), maxBackoff))
	if code == codes.Unimplemented || code == codes.PermissionDenied || code == codes.Unauthenticated {
		t.silent, t.notUntil = true, now+int64(silentBackoff)
	} else if !t.answered && t.failures >= silentAfter {
		t.silent = true
	}
	silent := t.silent && p.byState[t.state] == t
	first := silent && !p.silence
	p.silence = p.silence || silent
	p.mu.Unlock()
	if silent {
		p.pool.SetSilent(t.state, true, now)
	}
	if first {
		p.rec.begin(stateKey{name: stateProbes, cluster: p.cluster}, msgSilence, slog.String("error", err.Error()))
	}
}

// expire removes answers that are too old, and schedules its next call.
func (p *prober) expire() {
	next := p.pool.Expire(p.rt.Now())
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.expires = next > 0 && p.ctx.Err() == nil; p.expires {
		time.AfterFunc(next, p.expire)
	}
}

// A probeConn sends probes over a connection. It is gRPC's producer of the connection.
type probeConn struct{ cc grpc.ClientConnInterface }

// probeProducer makes the probeConn of a connection.
var probeProducer balancer.ProducerBuilder = probeConnBuilder{}

type probeConnBuilder struct{}

// Build implements balancer.ProducerBuilder.
func (probeConnBuilder) Build(cc any) (balancer.Producer, func()) {
	return &probeConn{cc.(grpc.ClientConnInterface)}, func() {}
}

// probe sends one probe.
func (c *probeConn) probe(ctx context.Context) (picker.ProbeReport, error) {
	var r proberpc.Report
	if err := c.cc.Invoke(ctx, probe.Method, &emptypb.Empty{}, &r); err != nil {
		return picker.ProbeReport{}, err
	}
	return picker.ProbeReport{
		InFlight:  int(min(r.InFlight, math.MaxInt32)), // an int may have 32 bits
		Latency:   time.Duration(min(r.LatencyNs, math.MaxInt64)),
		Failing:   float64(min(r.FailingPPM, 1e6)) / 1e6,
		Weight:    r.Weight,
		GoingAway: r.GoingAway,
	}, nil
}

// followProbes probes the endpoints of the cluster, as the i-th cluster of the snapshot
// requires. The snapshot is about to be published.
func (c *cluster) followProbes(s *picker.Snapshot, i int) {
	asks := c.inUse != nil && c.inUse.leaf.cfg.Policy.Kind.Traits().Probes
	if !asks && c.probers == nil {
		return
	}
	olds := c.probers
	c.probers = nil
	for _, g := range s.ProbeGroups(i) {
		p := olds[g.Pool]
		if p == nil {
			p = c.newProber(g.Pool)
		}
		if c.probers == nil {
			c.probers = map[*picker.ProbePool]*prober{}
		}
		c.probers[g.Pool] = p
		p.follow(g, &c.inUse.leaf.cfg.Policy, c.view.results)
	}
	for pool, p := range olds { // which may be published, and must not change
		if c.probers[pool] == nil {
			p.close()
		}
	}
}

// closeProbers ends all probes of the cluster.
func (c *cluster) closeProbers() {
	for _, p := range c.probers {
		p.close()
	}
	c.probers = nil
}

func (c *cluster) newProber(pool *picker.ProbePool) *prober {
	p := &prober{rt: c.rt, rec: &c.rec, cluster: c.cfg.Name, pool: pool, tokens: maxFlying}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	pool.Serve(func() { go p.round() })
	if c.standalone && c.asksForEach() {
		c.rec.write(slog.LevelWarn, msgAsynchronous, c.cfg.Name)
	}
	return p
}

// asksForEach reports whether RPCs of the cluster send probes themselves.
func (c *cluster) asksForEach() bool {
	if c.inUse == nil {
		return false
	}
	p := c.inUse.leaf.cfg.Policy.Prequal
	return p != nil && p.Synchronous > 0
}

// In the synchronous mode of xdslb_prequal an RPC probes a few endpoints and uses the answers of all
// but the last. Interceptors wait for the answers (rpc's probefirst.go).

// probeFirst is rpc.Table.ProbeFirst.
func (s *pickState) probeFirst(ctx context.Context, cluster int32) *picker.EndpointState {
	probers := s.cluster(cluster).probers
	if probers == nil {
		return nil
	}
	g := s.Snapshot.ProbeGroup(cluster, rand.Uint64())
	if g == nil {
		return nil
	}
	if p := probers[g.Pool]; p != nil {
		return p.probeAndChoose(ctx, g)
	}
	return nil
}

// probeAndChoose probes endpoints of a group, and returns the best of all but the last that answers, or
// nil if no endpoint answers in time, or probes come too fast. The last answer also goes to the
// pool. An endpoint that does not answer probes is chosen for its share of the RPCs.
func (p *prober) probeAndChoose(ctx context.Context, g *picker.ProbeGroup) *picker.EndpointState {
	asked, silent := p.drawFor()
	if silent != nil {
		return silent
	}
	type answer struct {
		t  *probeTarget
		r  picker.ProbeReport
		ok bool
	}
	answers := make(chan answer, len(asked))
	for _, t := range asked {
		go func() {
			r, ok := p.probe(p.ctx, t)
			answers <- answer{t, r, ok}
		}()
	}
	var from []*picker.EndpointState
	var reports []picker.ProbeReport
wait:
	for n := 0; n < len(asked) && len(from) < max(len(asked)-1, 1); n++ {
		select {
		case a := <-answers:
			if a.ok {
				from, reports = append(from, a.t.state), append(reports, a.r)
			}
		case <-ctx.Done():
			break wait
		}
	}
	if i := g.Best(reports); i >= 0 {
		return from[i]
	}
	return nil
}

// drawFor draws the endpoints to probe for an RPC. If the first one drawn does not answer
// probes, the RPC goes to it.
func (p *prober) drawFor() (asked []*probeTarget, silent *picker.EndpointState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, d := p.rt.Now(), int(p.cfg.Synchronous)
	if len(p.targets) < 2 || p.ctx.Err() != nil {
		return nil, nil
	}
	if first := p.targets[rand.IntN(len(p.targets))]; first.silent {
		return nil, first.state
	}
	p.refillLocked(now)
	if d = min(d, len(p.targets)); p.tokens < float64(d) {
		return nil, nil
	}
	// From a random endpoint on, in steps that visit each endpoint once before repeating.
	n := len(p.targets)
	i, step := rand.IntN(n), coprime(n)
	for k := 0; k < min(n, 3*d) && len(asked) < d; k++ {
		if t := p.targets[i]; now >= t.notUntil && !t.state.PushedBack() {
			asked = append(asked, t)
		}
		i = (i + step) % n
	}
	p.tokens -= float64(len(asked))
	return asked, nil
}

// coprime returns a random number below n, or 1, that has no divisor in common with n.
func coprime(n int) int {
	for range 16 {
		k := 1 + rand.IntN(max(n-1, 1))
		a, b := n, k
		for b != 0 {
			a, b = b, a%b
		}
		if a == 1 {
			return k
		}
	}
	return 1
}
