// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// A traffic sends RPCs on a channel, one after the other with pauses of 10 ms, and counts them.
type traffic struct {
	t      testing.TB
	name   string // of the service
	stop   context.CancelFunc
	ended  chan struct{}
	mu     sync.Mutex
	counts counts
}

// counts are the results of RPCs.
type counts struct {
	ok, failed int
	by         map[string]int // RPCs answered by each backend
	err        error          // of the first failed RPC
}

// send sends RPCs until the end of the test or stop.
func send(t testing.TB, name string, cc *grpc.ClientConn) *traffic {
	ctx, cancel := context.WithCancel(context.Background())
	f := &traffic{t: t, name: name, stop: cancel, ended: make(chan struct{}), counts: counts{by: map[string]int{}}}
	go func() {
		defer close(f.ended)
		for ticker := time.NewTicker(10 * time.Millisecond); ctx.Err() == nil; <-ticker.C {
			f.count(call(cc))
		}
	}()
	t.Cleanup(func() { f.end() })
	return f
}

// call makes one RPC, and returns the address of the backend.
func call(cc *grpc.ClientConn, opts ...grpc.CallOption) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	resp, err := testgrpc.NewTestServiceClient(cc).UnaryCall(ctx, &testgrpc.SimpleRequest{}, opts...)
	return resp.GetHostname(), err
}

func (f *traffic) count(backend string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.counts.ok++
		f.counts.by[backend]++
		return
	}
	f.counts.failed++
	if f.counts.err == nil {
		f.counts.err = err
	}
}

// now returns the results so far.
func (f *traffic) now() counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.counts
	c.by = maps.Clone(c.by)
	return c
}

// end ends the RPCs and returns their results.
func (f *traffic) end() counts {
	f.stop()
	<-f.ended
	return f.now()
}

// reaches waits until a backend answers more RPCs, and returns the time taken.
func (f *traffic) reaches(b *xdstest.Backend) time.Duration {
	f.t.Helper()
	addr := b.Addr().String()
	before := f.now().by[addr]
	return kit.WaitFor(f.t, fmt.Sprintf("RPCs to %s at %s; first error: %v", f.name, addr, f.now().err), func() bool {
		return f.now().by[addr] > before
	})
}

// more waits for n more RPCs.
func (f *traffic) more(n int) {
	f.t.Helper()
	done := func() int { c := f.now(); return c.ok + c.failed }
	before := done()
	kit.WaitFor(f.t, fmt.Sprintf("%d more RPCs to %s", n, f.name), func() bool { return done() >= before+n })
}
