// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package latency

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/orca"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// backends is how many there are; the first is the slow one.
const (
	backends    = 10
	workers     = 2
	serviceTime = 2 * time.Millisecond
	slowness    = 4 // of the slow one
)

// A node is a backend with a limited number of workers.
type node struct {
	*xdstest.Backend
	work     time.Duration
	free     chan struct{} // one for each idle worker
	received rate
}

// startFleet returns running backends, of which one may be slow.
func startFleet(oneSlow bool, listen func(addr string) (net.Listener, error)) ([]*node, error) {
	var fleet []*node
	for i := range backends {
		n := &node{work: serviceTime, free: make(chan struct{}, workers)}
		if i == 0 && oneSlow {
			n.work *= slowness
		}
		for range workers {
			n.free <- struct{}{}
		}
		list, err := xdstest.StartBackends(1, xdstest.BackendOptions{Listen: listen, Server: []grpc.ServerOption{
			orca.CallMetricsServerOption(nil), grpc.ChainUnaryInterceptor(n.serve),
		}})
		if err != nil {
			stopFleet(fleet)
			return nil, err
		}
		n.Backend = list[0]
		fleet = append(fleet, n)
	}
	return fleet, nil
}

func stopFleet(fleet []*node) {
	for _, n := range fleet {
		n.Stop()
	}
}

// capacity is in RPCs per second.
func (n *node) capacity() float64 { return workers / n.work.Seconds() }

// serve handles an RPC: it waits for a worker, then for the work to be done.
func (n *node) serve(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	qps := n.received.add(time.Now())
	if m := orca.CallMetricsRecorderFromContext(ctx); m != nil {
		m.SetQPS(qps)
		m.SetApplicationUtilization(qps / n.capacity())
	}
	select {
	case <-n.free:
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	defer func() { n.free <- struct{}{} }()
	t := time.NewTimer(n.work)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return handler(ctx, req)
}

// rate counts events per second over the last whole tenth of a second.
type rate struct {
	slot  atomic.Int64 // since the epoch
	count atomic.Int64 // in slot
	last  atomic.Int64 // in the one before
}

const slot = 100 * time.Millisecond

// add counts an event and returns the rate, at least that of one event a slot.
// Events at the turn of a slot may be counted in either.
func (r *rate) add(now time.Time) float64 {
	current := now.UnixNano() / int64(slot)
	if old := r.slot.Load(); old != current && r.slot.CompareAndSwap(old, current) {
		n := r.count.Swap(0)
		if current != old+1 {
			n = 0
		}
		r.last.Store(n)
	}
	r.count.Add(1)
	return float64(max(1, r.last.Load())) / slot.Seconds()
}
