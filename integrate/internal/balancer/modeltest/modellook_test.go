// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"context"
	"encoding/json"
	"math/rand/v2"

	lb "github.com/xdslb/xdslb/integrate/internal/balancer"
	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
	"github.com/xdslb/xdslb/integrate/report"
)

// This file asks channels what they are at and where RPCs would go, at any moment: such
// questions disturb nothing, wait for nobody, and have an answer.

// look asks while everything is at rest, and checks that it stays so.
func (t *trial) look() {
	t.rest()
	b := t.lb
	table, _ := b.Published()
	before, busyBefore := t.grpc.doings(), b.InFlight()
	t.ask()
	t.rest()
	if after := t.grpc.doings(); after != before {
		t.Fatalf("questions have the balancer act: it was at %+v, and is at %+v", before, after)
	}
	if now, _ := b.Published(); now != table {
		t.Fatalf("questions have something published")
	}
	if n := b.InFlight(); n != busyBefore {
		t.Fatalf("questions are counted as RPCs: endpoints have %d in flight, and had %d", n, busyBefore)
	}
}

// glimpse asks while the balancer has not settled.
func (t *trial) glimpse() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.ask()
	}()
	<-done
}

// ask asks everything.
func (t *trial) ask() {
	b := t.lb
	for _, detailed := range []bool{false, true} {
		s := statusIn(b, detailed)
		if _, err := json.Marshal(s); err != nil {
			t.Fatalf("the status cannot be printed: %v", err)
		}
		if wrong := unsound(&s); wrong != "" {
			t.Fatalf("the status is not sound: %s: %+v", wrong, s)
		}
	}
	for _, c := range t.plane.clusters {
		x, err := lb.Explain(metadatautil.WithHash(context.Background(), rand.Uint64()), b, "/"+c.name+"/m")
		switch {
		case err != nil:
			if _, ok := b.Published(); ok {
				t.Fatalf("an RPC to %s cannot be explained: %v", c.name, err)
			}
		case x.NoRoute < 1 && len(x.Routes) == 0:
			t.Fatalf("an RPC to %s takes no route, and is not refused for that: %v", c.name, x)
		case (x.NoRoute == 1) == c.routed && !x.Pending && c.sent != nil:
			t.Fatalf("an RPC to %s, which is routed: %v, is without a route: %v", c.name, c.routed, x)
		}
		if x != nil && x.String() == "" {
			t.Fatalf("the explanation of an RPC to %s has no text", c.name)
		}
	}
}

// unsound returns in what a status contradicts itself, whatever is going on.
func unsound(s *report.TargetStatus) string {
	for _, c := range s.Clusters {
		inUse := 0
		for _, l := range c.Leaves {
			if l.InFlight < 0 {
				return "RPCs in flight are less than none"
			}
			for _, p := range l.Priorities {
				n := p.Endpoints
				if n.Total != n.Ready+n.Connecting+n.Idle+n.Failed+n.Ejected+n.Draining+n.Subset {
					return "endpoints do not add up"
				}
				if p.InUse {
					inUse++
				}
				for _, loc := range p.Localities {
					if loc.Share < 0 || loc.Share > 1+1e-9 {
						return "a share is no part of one"
					}
				}
			}
		}
		if (c.Priority >= 0) != (inUse > 0) {
			return "a cluster uses a priority and none is in use, or the other way round"
		}
	}
	return ""
}

// doings is what the balancer has had gRPC do.
type doings struct{ made, announced, actions, streams int }

func (cc *modelChannel) doings() doings {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	return doings{cc.made, cc.announced, cc.actions, cc.streams}
}

// lookFrom returns what asks a balancer now and then when it calls others, which may do so:
// it holds no mutex then.
func (t *trial) lookFrom(b *lb.Balancer) func() {
	return func() {
		if rand.IntN(8) == 0 {
			_ = statusIn(b, true) // or the test hangs, and its trace says who waits
		}
	}
}

// callBack is code of others' that the balancer has called.
func (cc *modelChannel) callBack() {
	if cc.called != nil {
		cc.called()
	}
}
