// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/picker"
)

// This file tests that endpoints whose servers push back get no RPCs of policies that time RPCs, as long as
// there is another endpoint (A6 defines grpc-retry-pushback-ms).

// modelPushback is the last pushback of an endpoint. The balancer may forget it if the connection or the
// configuration of the cluster changes.
type modelPushback struct {
	until time.Time
	conn  *modelConn
	sent  *picker.Cluster
}

// runPushbacks has servers push back after some steps, as runCombined.
func (t *history) runPushbacks() {
	own := t.Rand
	t.Rand = rand.New(rand.NewPCG(t.Step, 3))
	if t.Rand.IntN(4) == 0 {
		t.drainEvents()
		t.pushBack()
	}
	t.Rand = own
}

// pushBack makes RPCs to a cluster whose servers push back, and then others.
func (t *history) pushBack() {
	c := t.controlPlane.clusters[t.Rand.IntN(len(t.controlPlane.clusters))]
	if !c.routed || !slices.ContainsFunc(c.leaves, func(l *modelLeaf) bool { return l.sent.TimesRPCs() }) {
		return
	}
	for range 1 + t.Rand.IntN(3) {
		r := t.newRPC(c.name, t.Rand.Uint64(), false)
		if t.pick(r); r.conn == nil || !t.tryUse(r) {
			continue
		}
		wait, info := time.Second, balancer.DoneInfo{Err: status.Error(codes.ResourceExhausted, "overloaded"), BytesSent: true, BytesReceived: true}
		if t.Rand.IntN(2) == 0 {
			ms := 1 + t.Rand.IntN(90_000)
			wait = min(time.Duration(ms)*time.Millisecond, time.Minute)
			info.Err, info.Trailer = status.Error(codes.Unavailable, "overloaded"), metadata.Pairs("grpc-retry-pushback-ms", fmt.Sprint(ms))
		}
		t.Logf("%v pushes back for %v", r.conn, wait)
		t.release(r, info)
		const inexact = 3 * time.Millisecond // the clock of endpoints
		h := t.hostOf(r.conn.Data.number)
		if until := time.Now().Add(wait - inexact); until.After(h.pushback.until) {
			h.pushback = modelPushback{until, r.conn, c.sent}
		}
	}
	t.drainEvents()
	for range 8 {
		r := t.newRPC(c.name, t.Rand.Uint64(), false)
		t.pick(r)
		t.checkPicked(r)
	}
}

// checkPushback checks that an RPC did not pick an endpoint that pushes back, unless all others of its locality
// do or are not usable.
func (t *history) checkPushback(r *modelRPC, c *modelCluster, l *modelLeaf) {
	p := t.hostOf(r.conn.Data.number).pushback
	if !l.sent.TimesRPCs() || l.sent.Subset > 0 || r.host > 0 || !time.Now().Before(p.until) || p.conn != r.conn || p.sent != c.sent {
		return
	}
	ejected := t.ejected()
	isEjected := func(e *picker.Endpoint) bool {
		for number := range ejected {
			if has(e, number) {
				return true
			}
		}
		return false
	}
	at, e := c.find(r.conn.Data.number)
	for _, loc := range c.priorities()[at].Localities {
		var list []*picker.Endpoint
		for _, e := range loc.Endpoints.All() {
			list = append(list, e)
		}
		if !slices.Contains(list, e) {
			continue
		}
		for _, conn := range t.grpc.Open() {
			i := slices.IndexFunc(list, func(e *picker.Endpoint) bool { return has(e, conn.Data.number) })
			if i < 0 || list[i] == e || list[i].Health == picker.Draining || list[i].Weight == 0 || !t.usable(conn) || isEjected(list[i]) || t.hostOf(conn.Data.number).ejected {
				continue
			}
			if !time.Now().Before(t.hostOf(conn.Data.number).pushback.until) {
				t.Fatalf("%v picked %v, whose server pushes back, want another endpoint of its locality, such as %v", r, r.conn, conn)
			}
		}
	}
}

// pushingBack returns how many open connections to endpoints of a priority have pushed back.
func (t *history) pushingBack(p priorityView) (n int) {
	if !p.leaf.Policy.TimesRPCs() {
		return 0
	}
	for _, conn := range t.grpc.Open() {
		for _, l := range p.Localities {
			for _, e := range l.Endpoints.All() {
				if has(e, conn.Data.number) && time.Now().Before(t.hostOf(conn.Data.number).pushback.until) {
					n++
				}
			}
		}
	}
	return n
}
