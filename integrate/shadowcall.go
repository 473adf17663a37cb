// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
)

// shadowWatch watches one RPC.
type shadowWatch struct {
	shadow *Shadow
	ctx    context.Context
	method string
	done   atomic.Bool // compared
}

// labels is told of each attempt: first of what the cluster's metadata says, and then,
// if there is an endpoint, which cluster it is of. The first attempt counts.
func (w *shadowWatch) labels(labels map[string]string) {
	if cluster, ok := labels["grpc.lb.backend_service"]; ok && !w.done.Swap(true) {
		w.shadow.compare(w.ctx, w.method, cluster)
	}
}

// failed is told how an RPC failed.
func (w *shadowWatch) failed(err error) {
	if s, ok := status.FromError(err); ok && s.Code() == codes.Unavailable && strings.Contains(s.Message(), stockNoRoute) && !w.done.Swap(true) {
		w.shadow.compare(w.ctx, w.method, "")
	}
}

// stockNoRoute is in the message of RPCs for which stock finds no route.
const stockNoRoute = "no matched route was found"

// compare compares what stock did with an RPC: the cluster, or "" if it found no route.
// It allocates nothing if there is no difference.
func (s *Shadow) compare(ctx context.Context, method, cluster string) {
	state := s.state.Load()
	if state == nil {
		return
	}
	s.calls.Add(1)
	if state.snapshot != nil && cluster != "" {
		route, index, _ := state.snapshot.Match(ctx, method, rand.Uint64())
		if route >= 0 && state.splits[route] != nil {
			if split := state.splits[route]; split.count(cluster) {
				if !split.noted.Swap(true) {
					s.note(ShadowShares, &shadowCall{ctx: metadatautil.Detached(ctx), method: method, cluster: cluster, shares: split}, state)
				}
			}
		}
		if index >= 0 && state.leads(index, cluster) {
			return
		}
	}
	call := shadowCall{ctx: ctx, method: method, cluster: cluster}
	if state.judge(&call) == "" || state.wasRight(&call) {
		return
	}
	call.ctx, call.at = metadatautil.Detached(ctx), time.Now()
	s.suspect(call)
}

const (
	shadowSettles = time.Second // how long a difference has to be one
	shadowPending = 1024        // calls that are kept until then; others are left out
)

// suspect keeps a call until its difference is settled.
func (s *Shadow) suspect(c shadowCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.target == "" || len(s.pending) >= shadowPending {
		return
	}
	s.pending = append(s.pending, c)
	if s.timer == nil {
		s.timer = time.AfterFunc(shadowSettles, s.settle)
	}
}

// settle counts what is still a difference.
func (s *Shadow) settle() {
	s.mu.Lock()
	n, now := 0, time.Now()
	for n < len(s.pending) && now.Sub(s.pending[n].at) >= shadowSettles {
		n++
	}
	settled := s.pending[:n:n]
	s.pending = s.pending[n:]
	s.timer = nil
	if len(s.pending) > 0 {
		s.timer = time.AfterFunc(shadowSettles-now.Sub(s.pending[0].at), s.settle)
	}
	state := s.state.Load()
	s.mu.Unlock()
	for i := range settled {
		if kind := state.judge(&settled[i]); kind != "" {
			s.note(kind, &settled[i], state)
		}
	}
}

// shadowCall is an RPC, and what stock did with it.
type shadowCall struct {
	ctx     context.Context
	method  string
	cluster string // a leaf, or "" if stock found no route
	at      time.Time
	shares  *shadowSplit // of its route, if that is the difference
}

// did says what stock did.
func (c *shadowCall) did() string {
	switch {
	case c.shares != nil:
		return c.shares.String()
	case c.cluster == "":
		return "no route"
	}
	return fmt.Sprintf("cluster %q", c.cluster)
}
