// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"encoding/base64"
	"errors"
	"math/rand/v2"
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

// TestLazyRing: ring_hash connects to an endpoint when an RPC's hash leads to
// it, and to no other (A42, A61, T-RING-8); the RPC waits for that one. The
// channel is IDLE until then.
func TestLazyRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		b.Update(configOf(ring(clusterOf("c", prio(eps(0, 1, 2, 3), eps(4, 5, 6, 7))))))
		if n := cc.open(8); len(n) > 0 || cc.Now.ConnectivityState != idle {
			t.Fatalf("before any RPC endpoints %v connect and the channel is %v, want none and IDLE", n, cc.Now.ConnectivityState)
		}
		hash := rand.Uint64()
		for range 3 {
			if got, err := b.pickHash(hash); !errors.Is(err, balancer.ErrNoSubConnAvailable) {
				t.Fatalf("Pick() = %q, %v, want to wait", got, err)
			}
			synctest.Wait()
		}
		open := cc.open(8)
		if len(open) != 1 {
			t.Fatalf("RPCs with one hash woke endpoints %v, want one", open)
		}
		first := cc.conn(t, open[0])
		if first.Connects != 1 {
			t.Errorf("the endpoint was connected %d times, want once", first.Connects)
		}
		b.flush()
		before := cc.Announced
		first.To(connecting)
		first.To(ready)
		if cc.Announced == before {
			t.Error("gRPC got no new picker when the endpoint that an RPC waits for became READY")
		}
		for range 3 {
			if got, err := b.pickHash(hash); err != nil || got != first.Addr {
				t.Fatalf("Pick() = %q, %v, want %s", got, err, first.Addr)
			}
		}

		// A connection that is lost is not replaced before it is needed.
		first.To(idle)
		b.flush()
		if first.Connects != 1 || cc.Now.ConnectivityState != idle {
			t.Errorf("after the connection was lost: %d attempts, channel %v, want 1 and IDLE", first.Connects, cc.Now.ConnectivityState)
		}
		_, _ = b.pickHash(hash)
		synctest.Wait()
		if first.Connects != 2 {
			t.Errorf("an RPC for a lost connection made it %d attempts, want 2", first.Connects)
		}
	})
}

// TestLazyRingWakesOne is T-RING-7's last sentence: a priority that counts as CONNECTING or failed
// while no endpoint is CONNECTING wakes one IDLE endpoint at a time, even if RPCs go elsewhere by
// then, until one is READY.
func TestLazyRingWakesOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		b.Update(configOf(ring(clusterOf("c", prio(eps(0, 1, 2, 3)), prio(eps(10))))))
		_, _ = b.pickHash(rand.Uint64())
		synctest.Wait()
		failed := map[int]bool{}
		for len(failed) < 4 {
			open := cc.open(4)
			if len(open) != len(failed)+1 {
				t.Fatalf("with %d failed endpoints %v have SubConns, want one more", len(failed), open)
			}
			for _, n := range open {
				if !failed[n] {
					cc.conn(t, n).To(failure)
					failed[n] = true
				}
			}
			if got, want := len(failed) < 2, b.clusters["c"].inUse.phase == dormant || b.clusters["c"].inUse.index == 0; got != want {
				t.Fatalf("with %d failed endpoints the second priority is in use: %v", len(failed), !want)
			}
		}
		if cc.has(10) {
			t.Error("the second priority connects before an RPC asks for it")
		}
		// A failed endpoint keeps trying by itself.
		c := cc.conn(t, 2)
		n := c.Connects
		c.To(idle)
		if c.Connects != n+1 {
			t.Errorf("an endpoint whose back-off is over made %d attempts, want 1", c.Connects-n)
		}
		c.To(ready)
		wantPick(t, b, 2)
	})
}

// TestLazyRingTurnsEager: a change of policy keeps connections, and connects the idle endpoints.
func TestLazyRingTurnsEager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		p := prio(eps(0, 1, 2))
		b.Update(configOf(ring(clusterOf("c", p))))
		_, _ = b.pickHash(rand.Uint64())
		synctest.Wait()
		first := cc.conn(t, cc.open(3)[0])
		first.To(ready)
		first.To(idle)
		b.Update(configOf(clusterOf("c", p)))
		if n := cc.open(3); len(n) != 3 || cc.Opened != 3 || first.Connects != 2 {
			t.Errorf("under EDF endpoints %v are connected, %d SubConns were made, the one that slept got %d attempts, want all, 3, 2", n, cc.Opened, first.Connects)
		}
	})
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
