// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"encoding/base64"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// ring makes c a ring_hash cluster with one layer (A42).
func ring(c *picker.Cluster) *picker.Cluster {
	for i := range c.Leaves {
		c.Leaves[i].Policy = picker.Policy{Kind: picker.PolicyRingHash, Flat: true, Ring: &picker.RingPolicy{MinSize: 1024, MaxSize: 4096}}
	}
	return c
}

// open returns the numbers below n of endpoints that have a SubConn.
func (cc *fakeCC) open(n int) (numbers []int) {
	for i := range n {
		if cc.has(i) {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

// TestLazyRemoved: an endpoint that leaves while an RPC wakes it is not
// connected.
func TestLazyRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		b.Update(configOf(ring(clusterOf("c", prio(eps(0))))))
		for i := range 100 {
			_, _ = b.pickHash(1)
			b.Update(configOf(ring(clusterOf("c", prio(eps(i+1))))))
			synctest.Wait()
			b.flush()
			if n := cc.open(i + 1); len(n) > 0 {
				t.Fatalf("endpoints %v are gone and have SubConns", n)
			}
		}
	})
}

// TestLazyWakesAgain: whatever became of an endpoint that an RPC asked for, once it is
// IDLE again RPCs wake it again (A61): if it was drained before it was connected, and
// if another policy had it meanwhile.
func TestLazyWakesAgain(t *testing.T) {
	for name, use := range map[string]func(b *testLB, asked *endpoint){
		"drained": func(b *testLB, asked *endpoint) {
			p := prio(eps(0))
			edit(&p, 0, func(e *picker.Endpoint) { e.Health = picker.Draining })
			b.Update(configOf(ring(clusterOf("c", p))))
			requestConnect(asked)
		},
		"in other hands": func(b *testLB, asked *endpoint) {
			requestConnect(asked)
			synctest.Wait()
			b.Update(configOf(customOf(true, "xdslb_test.missing", "{}", prio(eps(0)))))
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, cc := newTestLB(t, Config{})
			b.Update(configOf(ring(clusterOf("c", prio(eps(0))))))
			use(b, b.picker.current.Load().cluster(0).connectable[0])
			synctest.Wait()
			b.flush()
			if cc.has(0) {
				t.Fatalf("%s: the endpoint has a connection", name)
			}
			b.Update(configOf(ring(clusterOf("c", prio(eps(0))))))
			b.flush()
			_, _ = b.pickHash(1)
			synctest.Wait()
			if !cc.has(0) {
				t.Errorf("%s: an RPC did not wake the endpoint again", name)
			}
		})
	}
}

// TestLazySession: an RPC whose session is with an endpoint that is drained goes to
// another one once the connection is gone, for there will be no new one (A55,
// A27-CLA-8).
func TestLazySession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		update := func(health picker.Health) {
			c := ring(clusterOf("c", prio(eps(0, 1))))
			c.Leaves[0].Override.Draining = true
			edit(&c.Leaves[0].Priorities[0], 0, func(e *picker.Endpoint) { e.Health = health })
			cfg := configOf(c)
			cfg.Filters = []picker.Filter{{Name: "session", Config: &resource.Session{Cookie: "s"}}}
			b.take(cfg)
			b.flush()
		}
		// pick picks for the session with endpoint 0. Endpoint 1 is there when it is
		// needed.
		pick := func() string {
			cookie := "s=" + base64.StdEncoding.EncodeToString([]byte(addr(0).String()+";cluster:c"))
			ctx := b.bind(metadata.AppendToOutgoingContext(t.Context(), "cookie", cookie))
			for range 3 {
				res, err := b.picker.Pick(balancer.PickInfo{FullMethodName: "/s/m", Ctx: ctx})
				if err == nil {
					res.Done(balancer.DoneInfo{BytesReceived: true})
					return res.SubConn.(*fakeConn).Addr
				}
				synctest.Wait()
				if cc.has(1) {
					cc.conn(t, 1).To(ready)
				}
				b.flush()
			}
			return "nowhere"
		}
		update(picker.Healthy)
		_ = pick() // wakes it
		cc.conn(t, 0).To(ready)
		update(picker.Draining)
		if got := pick(); got != addr(0).String() {
			t.Errorf("while the drained endpoint is connected, its session goes to %s", got)
		}
		cc.conn(t, 0).To(idle)
		b.flush()
		if got := pick(); got != addr(1).String() {
			t.Errorf("after the connection was lost, the session goes to %s, want the other endpoint", got)
		}
	})
}

// TestExitIdle: a channel that is asked to connect wakes one endpoint of a
// lazy cluster, which differs from channel to channel (A117).
func TestExitIdle(t *testing.T) {
	seen := map[int]bool{}
	for range 64 {
		b, cc := newTestLB(t, Config{})
		b.Update(configOf(ring(clusterOf("c", prio(eps(0, 1, 2))))))
		b.ExitIdle()
		n := cc.open(3)
		if len(n) != 1 {
			t.Fatalf("ExitIdle connected endpoints %v, want one", n)
		}
		seen[n[0]] = true
	}
	if len(seen) < 3 {
		t.Errorf("64 channels connected only to endpoints %v", seen)
	}
}
