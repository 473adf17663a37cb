// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
)

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
