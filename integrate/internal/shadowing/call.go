// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package shadowing

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
)

const (
	// Settles is how long a difference must last to count.
	Settles    = time.Second
	maxPending = 1024 // maximum number of pending calls; further calls are not compared
)

// call is an RPC, and stock's result for it.
type call struct {
	ctx     context.Context
	method  string
	cluster string // a leaf, or "" if stock found no route
	at      time.Time
	shares  *split // of its route, if the difference is in the shares
}

// stockResult returns a description of stock's result.
func (c *call) stockResult() string {
	switch {
	case c.shares != nil:
		return c.shares.String()
	case c.cluster == "":
		return "no route"
	}
	return fmt.Sprintf("cluster %q", c.cluster)
}

// Compare compares stock's result for an RPC: the cluster, or "" if stock found no route. It
// does not allocate without a difference.
func (s *Comparer) Compare(ctx context.Context, method, cluster string) {
	now := s.state.Load()
	if now == nil {
		return
	}
	s.calls.Add(1)
	if now.snapshot != nil && cluster != "" {
		route, index, _ := now.snapshot.Match(ctx, method, rand.Uint64())
		if route >= 0 && now.splits[route] != nil {
			if split := now.splits[route]; split.count(cluster) && !split.noted.Swap(true) {
				s.note(Shares, &call{ctx: metadatautil.Detached(ctx), method: method, cluster: cluster, shares: split}, now)
			}
		}
		if index >= 0 && now.routesTo(index, cluster) {
			return
		}
	}
	c := call{ctx: ctx, method: method, cluster: cluster}
	if now.classify(&c) == "" || now.matchesEarlier(&c) {
		return
	}
	c.ctx, c.at = metadatautil.Detached(ctx), time.Now()
	s.addPending(c)
}

// addPending keeps a call until its difference is settled.
func (s *Comparer) addPending(c call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.target == "" || len(s.pending) >= maxPending {
		return
	}
	s.pending = append(s.pending, c)
	if s.timer == nil {
		s.timer = time.AfterFunc(Settles, s.settle)
	}
}

// settle counts the calls that are still differences.
func (s *Comparer) settle() {
	s.mu.Lock()
	n, now := 0, time.Now()
	for n < len(s.pending) && now.Sub(s.pending[n].at) >= Settles {
		n++
	}
	settled := s.pending[:n:n]
	s.pending = s.pending[n:]
	s.timer = nil
	if len(s.pending) > 0 {
		s.timer = time.AfterFunc(Settles-now.Sub(s.pending[0].at), s.settle)
	}
	latest := s.state.Load()
	s.mu.Unlock()
	for i := range settled {
		if kind := latest.classify(&settled[i]); kind != "" {
			s.note(kind, &settled[i], latest)
		}
	}
}
