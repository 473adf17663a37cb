// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/bench/kit"
)

// TestFirstEndpointsAtOnce: a channel's first endpoints get RPCs as soon as they are READY, while
// the endpoints of a large cluster are published together.
func TestFirstEndpointsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		b.Update(configOf(clusterOf("c", prio(eps(1, 2, 3)))))
		synctest.Wait()
		for n := 1; n <= 3; n++ {
			cc.conn(t, n).to(ready)
		}
		got := map[string]bool{}
		for range 3 {
			a, err := b.pick()
			kit.Must(t, err)
			got[a] = true
		}
		if len(got) != 3 {
			t.Errorf("the first three RPCs went to %d of 3 endpoints", len(got))
		}
	})
}

// TestStatesAtOnce: gRPC is notified of each state of the channel, however fast connections are:
// from IDLE it comes to READY by way of CONNECTING, though the snapshot for picks is published
// after a pause.
func TestStatesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		b.Update(configOf(ring(clusterOf("c", prio(eps(0)))), ring(clusterOf("other", prio(eps(1))))))
		begin := time.Now()
		want := func(when string, s connectivity.State) {
			t.Helper()
			if synctest.Wait(); cc.state != s {
				t.Errorf("%s the channel is %v, want %v", when, cc.state, s)
			}
		}
		want("before any RPC", idle)
		for range 3 {
			_, _ = b.pickHash(1)
			want("while an RPC has an endpoint connected", connecting)
			cc.conn(t, 0).to(ready)
			want("when the endpoint is READY", ready)
			cc.conn(t, 0).to(idle)
			want("when the connection is lost", idle)
			b.flush() // picks learn of it
		}
		if time.Since(begin) > 0 {
			t.Error("time has passed")
		}
	})
}

// TestUpdateRate (LB-SEC-1): however fast configurations come, the snapshot for picks is built no
// more often than every millisecond, and the last configuration takes effect in time.
func TestUpdateRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		const updates = 1000
		begin, built := time.Now(), 0
		last := b.picker.current.Load()
		count := func() {
			if now := b.picker.current.Load(); now != last {
				last = now
				built++
			}
		}
		for i := range updates {
			b.Update(configOf(clusterOf("c", prio(eps(1, 2+i)))))
			count()
			<-time.After(100 * time.Microsecond)
			synctest.Wait()
			count()
		}
		if most := int(time.Since(begin)/time.Millisecond) + 1; built > most {
			t.Errorf("%d snapshots of %d updates in %v, want at most %d", built, updates, time.Since(begin), most)
		}
		<-time.After(maxPublishPause)
		synctest.Wait()
		cc.conn(t, updates+1).to(ready)
		b.flush()
		if got, err := b.pick(); got != addr(updates+1).String() {
			t.Errorf("picked %q, %v, want the endpoint of the last update", got, err)
		}
		b.closing.Wait()
	})
}

// TestShutdownDelay checks that a removed SubConn is shut down a moment after the publication
// that removes it, since RPCs that picked it may not have created their streams, and at once if
// the balancer is closed.
func TestShutdownDelay(t *testing.T) {
	shutdownDelay = 50 * time.Millisecond
	defer func() { shutdownDelay = 0 }()
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		replaceBy := func(n int) {
			b.Update(configOf(clusterOf("c", prio(eps(n)))))
			cc.conn(t, n).to(ready)
			time.Sleep(maxPublishPause)
			synctest.Wait()
			if got, err := b.pick(); got != addr(n).String() {
				t.Fatalf("Pick() = %q, %v, want endpoint %d", got, err, n)
			}
		}
		replaceBy(1)
		replaceBy(2)
		if !cc.has(1) {
			t.Errorf("the removed SubConn was shut down within %v of the publication", maxPublishPause)
		}
		time.Sleep(shutdownDelay)
		synctest.Wait()
		if cc.has(1) {
			t.Errorf("the removed SubConn was not shut down within %v of the publication", shutdownDelay)
		}
		replaceBy(3)
		b.Close()
		synctest.Wait()
		if cc.has(2) || cc.has(3) {
			t.Error("Close did not shut down all SubConns at once")
		}
	})
}
