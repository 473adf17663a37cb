// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/bench/kit"
	lb "github.com/xdslb/xdslb/integrate/internal/balancer"
	"github.com/xdslb/xdslb/picker"
)

// This file has the health services of backends, for clusters with a health check (A17).

// healthCheck returns a cluster's health check; 0 is none.
func healthCheck(version int) *picker.HealthCheck {
	if version == 0 {
		return nil
	}
	return &picker.HealthCheck{Service: strconv.Itoa(version)}
}

// A backendHealth is the health that a backend reports for a service. A backend without a health
// service, or that accepts no streams, ends all streams.
type backendHealth int

const (
	healthy backendHealth = iota
	unhealthy
	noHealthService
	noStreams
)

// modelHealth has the health services of all backends.
type modelHealth struct {
	mu      sync.Mutex
	now     map[healthKey]backendHealth
	changed chan struct{} // closed with the next change
	watches []*modelWatch // streams that have not ended
	delayed bool          // a stream has failed at once, so the client may be in a backoff
}

// healthKey is a service of the backend with the address of a number.
type healthKey struct {
	number  int
	service string
}

func newModelHealth() *modelHealth {
	return &modelHealth{now: map[healthKey]backendHealth{}, changed: make(chan struct{})}
}

// modelWatch is a stream to a health service.
type modelWatch struct {
	grpc.ClientStream // nil

	of       *modelHealth
	ctx      context.Context
	conn     *modelConn
	key      healthKey
	reported int // 1 + the latest backendHealth
}

func (h *modelHealth) watch(ctx context.Context, conn *modelConn) grpc.ClientStream {
	return &modelWatch{of: h, ctx: ctx, conn: conn}
}

func (w *modelWatch) SendMsg(m any) error {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	w.key = healthKey{w.conn.Data.number, m.(*healthpb.HealthCheckRequest).GetService()}
	w.of.watches = append(w.of.watches, w)
	w.conn.Data.unwatched = slices.DeleteFunc(w.conn.Data.unwatched, func(service string) bool { return service == w.key.service })
	return nil
}

func (w *modelWatch) CloseSend() error { return nil }

// RecvMsg waits for a change.
func (w *modelWatch) RecvMsg(m any) error {
	h := w.of
	for {
		h.mu.Lock()
		now, changed, open := h.now[w.key], h.changed, slices.Contains(h.watches, w)
		code := codes.OK
		switch {
		case w.ctx.Err() != nil:
			code = codes.Canceled
		case !open:
			code = codes.Unavailable
		case now == noHealthService:
			code = codes.Unimplemented
		case now == noStreams:
			code, h.delayed = codes.Internal, true
		case w.reported != 1+int(now):
			w.reported = 1 + int(now)
			h.mu.Unlock()
			m.(*healthpb.HealthCheckResponse).Status = map[backendHealth]healthpb.HealthCheckResponse_ServingStatus{
				healthy: healthpb.HealthCheckResponse_SERVING, unhealthy: healthpb.HealthCheckResponse_NOT_SERVING,
			}[now]
			return nil
		}
		if code != codes.OK {
			if code == codes.Unimplemented {
				w.conn.Data.unwatched = append(w.conn.Data.unwatched, w.key.service)
			}
			h.watches = slices.DeleteFunc(h.watches, func(of *modelWatch) bool { return of == w })
			h.mu.Unlock()
			return status.Error(code, "the stream has ended")
		}
		h.mu.Unlock()
		select {
		case <-changed:
		case <-w.ctx.Done():
		}
	}
}

// endsStreams reports whether there is a backend that ends health streams at once.
func (h *modelHealth) endsStreams() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, now := range h.now {
		if now == noStreams {
			return true
		}
	}
	return false
}

// change sets the health that a backend reports for a service.
func (h *modelHealth) change(key healthKey, to backendHealth) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now[key] = to
	h.wake()
}

func (h *modelHealth) wake() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// end ends the streams of a connection, and reports whether there were any. The client opens new
// ones while the connection is READY.
func (h *modelHealth) end(conn *modelConn) (any bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.watches)
	h.watches = slices.DeleteFunc(h.watches, func(w *modelWatch) bool { return w.conn == conn })
	h.wake()
	return len(h.watches) < n
}

// reports reports whether a connection has a stream on which a service was last SERVING, or whose
// backend had no health service when the latest stream began.
func (h *modelHealth) reports(conn *modelConn, service string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(conn.Data.unwatched, service) || slices.ContainsFunc(h.watches, func(w *modelWatch) bool {
		return w.conn == conn && w.key.service == service && w.reported == 1+int(healthy)
	})
}

// NewStream opens streams to the health service. Load reports out of band are never answered.
func (m randomBackend) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if h := m.health; h != nil && strings.HasPrefix(method, "/grpc.health.v1.Health/") {
		return h.watch(ctx, m.conn), nil
	}
	return m.Silent.NewStream(ctx, desc, method, opts...)
}

// changeHealth changes the health that backends report, or ends their streams.
func (t *history) changeHealth() {
	for range 1 + t.Rand.IntN(3) {
		open := t.grpc.Open()
		if len(open) == 0 {
			return
		}
		conn := open[t.Rand.IntN(len(open))]
		if t.Rand.IntN(6) == 0 {
			t.Logf("the health streams of %v end", conn)
			t.backends.end(conn)
			kit.Pass(lb.LossDelay)
			continue
		}
		key := healthKey{conn.Data.number, healthCheck(1 + t.Rand.IntN(2)).Service}
		to := []backendHealth{healthy, healthy, healthy, unhealthy, unhealthy, unhealthy, noHealthService, noStreams}[t.Rand.IntN(8)]
		t.Logf("the health of service %s of %d is %d", key.service, key.number, to)
		t.backends.change(key, to)
		if to == noStreams {
			kit.Pass(lb.LossDelay)
		}
		t.pickUnsettled()
	}
}

// restoreHealth has all backends report SERVING, and waits for the client's back-off.
func (t *history) restoreHealth() {
	h := t.backends
	h.mu.Lock()
	clear(h.now)
	h.wake()
	delayed := h.delayed
	h.mu.Unlock()
	if delayed {
		kit.Pass(3 * time.Minute)
	}
}
