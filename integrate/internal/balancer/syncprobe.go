// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"math/rand/v2"

	"github.com/xdslb/xdslb/picker"
)

// This file is the synchronous mode of xdslb_prequal: an RPC probes a few endpoints and uses
// the answers of all but the last. Interceptors wait for the answers (rpc's probefirst.go).

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
		if t := p.targets[i]; now >= t.notUntil {
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
