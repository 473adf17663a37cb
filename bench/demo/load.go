// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// load makes RPCs all the time, from a few goroutines, and counts who answers.
type load struct {
	client testgrpc.TestServiceClient
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	served  map[string]int64 // by backend
	dropped int64            // by a drop category
	failed  int64
	lastErr error
}

// startLoad makes rate RPCs per second and worker, from the given number of
// workers, until stop.
func startLoad(cc *grpc.ClientConn, workers, rate int, isDrop func(error) bool) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{client: testgrpc.NewTestServiceClient(cc), cancel: cancel, served: map[string]int64{}}
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
	rpc, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	res, err := l.client.UnaryCall(rpc, &testgrpc.SimpleRequest{})
	if status.Code(err) == codes.Canceled && ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.served[res.GetHostname()]++
	case isDrop(err):
		l.dropped++
	default:
		l.failed++
		l.lastErr = err
	}
}

func (l *load) stop() {
	l.cancel()
	l.wg.Wait()
}

// counts are the RPCs since the last take.
type counts struct {
	served                 map[string]int64
	total, dropped, failed int64
	lastErr                error
}

// take returns the counts and starts from zero.
func (l *load) take() counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := counts{served: l.served, dropped: l.dropped, failed: l.failed, lastErr: l.lastErr}
	for _, n := range c.served {
		c.total += n
	}
	c.total += c.dropped + c.failed
	l.served, l.dropped, l.failed, l.lastErr = map[string]int64{}, 0, 0, nil
	return c
}

// seen reports how many RPCs were answered since the last take, and by whom.
func (l *load) seen() (total int64, served map[string]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	served = make(map[string]int64, len(l.served))
	for k, n := range l.served {
		served[k] = n
		total += n
	}
	return total + l.dropped + l.failed, served
}
