// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/balancer"
)

// TestPicksTakeNoLock: while configurations and connections change all the time,
// neither picks nor ends of RPCs ever wait for a mutex or hold one up, as the
// runtime's block and mutex profiles see it.
func TestPicksTakeNoLock(t *testing.T) {
	b, cc := newTestLB(t, Config{})
	b.Update(configOf(clusterOf("c", prio(eps(series(0, 50)...), eps(series(50, 50)...)))))
	for i := range 100 {
		cc.conn(t, i).to(ready)
	}
	b.flush()

	runtime.SetBlockProfileRate(1)
	defer runtime.SetBlockProfileRate(0)
	defer runtime.SetMutexProfileFraction(runtime.SetMutexProfileFraction(1))
	stop := make(chan struct{})
	var changes, picks sync.WaitGroup
	for w := range 2 { // two, so that there is something to see
		changes.Go(func() {
			for i := w; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				sc := cc.conn(t, i%100)
				sc.to(failure)
				sc.to(ready)
				b.flush()
			}
		})
	}
	for range 4 {
		picks.Go(func() {
			for range 50_000 {
				res, err := b.picker.Pick(balancer.PickInfo{FullMethodName: "/s/m", Ctx: t.Context()})
				if err != nil {
					t.Error(err)
					return
				}
				res.Done(balancer.DoneInfo{BytesReceived: true})
			}
		})
	}
	picks.Wait()
	// The changes go on until the profiles have seen them get in each other's way.
	seen := false
	for begin := time.Now(); !seen && time.Since(begin) < 10*time.Second; {
		seen = waits(t, func(function string) {
			if strings.HasSuffix(function, ".(*stablePicker).Pick") || strings.HasSuffix(function, ".(*endpoint).finish") {
				t.Errorf("%s waits for a lock, or holds one up", function)
			}
		})
	}
	close(stop)
	changes.Wait()
	if !seen {
		t.Error("the profiles saw nobody wait, not even changes for one another")
	}
}

// waits visits the functions on the stacks of the block and mutex profiles, and
// reports whether the balancer's own lock is among them.
func waits(t *testing.T, visit func(function string)) (locked bool) {
	t.Helper()
	for _, profile := range []func([]runtime.BlockProfileRecord) (int, bool){runtime.BlockProfile, runtime.MutexProfile} {
		n, _ := profile(nil)
		records := make([]runtime.BlockProfileRecord, n+100)
		n, ok := profile(records)
		if !ok {
			continue
		}
		for _, r := range records[:n] {
			frames := runtime.CallersFrames(r.Stack())
			for more := true; more; {
				var f runtime.Frame
				f, more = frames.Next()
				visit(f.Function)
				locked = locked || strings.HasSuffix(f.Function, ".(*lb).lock") || strings.HasSuffix(f.Function, ".(*lb).unlock") || strings.HasSuffix(f.Function, ".(*lb).flush")
			}
		}
	}
	return locked
}
