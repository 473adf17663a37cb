// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// load sends RPCs continuously, from a few goroutines, and counts them by backend.
type load struct {
	client testgrpc.TestServiceClient
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu  sync.Mutex // guards now and its counts
	now *counts    // of the RPCs that start
}

// counts are the results of the RPCs that started between two calls of take.
type counts struct {
	served                 map[string]int64 // by backend
	total, dropped, failed int64            // dropped is by a drop category
	lastErr                error
	open                   sync.WaitGroup // RPCs without a result yet
}

// startLoad sends rate RPCs per second and worker, from the given number of workers, until
// stop.
func startLoad(cc *grpc.ClientConn, workers, rate int, isDrop func(error) bool) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{client: testgrpc.NewTestServiceClient(cc), cancel: cancel, now: &counts{served: map[string]int64{}}}
	for range workers {
		l.wg.Go(func() {
			tick := time.NewTicker(time.Second / time.Duration(rate))
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					l.call(ctx, isDrop)
				}
			}
		})
	}
	return l
}

func (l *load) call(ctx context.Context, isDrop func(error) bool) {
	l.mu.Lock()
	c := l.now
	c.open.Add(1)
	l.mu.Unlock()
	defer c.open.Done()
	rpc, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	res, err := l.client.UnaryCall(rpc, &testgrpc.SimpleRequest{})
	if status.Code(err) == codes.Canceled && ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.total++
	switch {
	case err == nil:
		c.served[res.GetHostname()]++
	case isDrop(err):
		c.dropped++
	default:
		c.failed++
		c.lastErr = err
	}
}

func (l *load) stop() {
	l.cancel()
	l.wg.Wait()
}

// take returns the counts of the RPCs that started since the last call, once all of them have
// ended, even on a slow machine, so that later steps do not affect them.
func (l *load) take() *counts {
	l.mu.Lock()
	c := l.now
	l.now = &counts{served: map[string]int64{}}
	l.mu.Unlock()
	c.open.Wait()
	return c
}

// seen returns the number of RPCs that started since the last take and have a result, the
// number of dropped ones, and the backends of the remaining ones.
func (l *load) seen() (total, dropped int64, served map[string]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now.total, l.now.dropped, maps.Clone(l.now.served)
}
