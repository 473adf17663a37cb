// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"unsafe"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
	"github.com/xdslb/xdslb/picker"
)

// replacing is an LB policy with Config.ReconnectOnTLSChange, whose cluster has gone
// through some TLS settings.
type replacing struct {
	*testLB
	cc      *fakeCC
	t       *testing.T
	version int
}

func newReplacing(t *testing.T, opts Config) *replacing {
	opts.ReconnectOnTLSChange = true
	b, cc := newTestLB(t, opts)
	return &replacing{testLB: b, cc: cc, t: t}
}

// use sets a cluster, with the latest settings.
func (r *replacing) use(c *picker.Cluster) {
	c.Leaves[0].TLS = &picker.TLS{ServerName: fmt.Sprint(r.version)}
	r.set(configOf(c))
	r.flush()
}

// change sets a cluster with other settings than before.
func (r *replacing) change(c *picker.Cluster) {
	r.version++
	r.use(c)
}

// next returns the latest SubConn to an endpoint, which is to be another than before.
func (r *replacing) next(n int, before *fakeConn) *fakeConn {
	r.t.Helper()
	sc := r.cc.find(n)
	if sc == nil || sc == before || sc.connects == 0 {
		r.t.Fatalf("endpoint %d has no new connection", n)
	}
	return sc
}

// wantServing checks that picks lead to the SubConns, and to no other.
func (r *replacing) wantServing(scs ...*fakeConn) {
	r.t.Helper()
	r.flush()
	got := map[*fakeConn]bool{}
	for range 20 * len(scs) {
		res, err := r.picker.Pick(balancer.PickInfo{FullMethodName: "/s/m", Ctx: metadatautil.WithHash(context.Background(), uint64(len(got))<<62)})
		if err != nil {
			r.t.Fatal(err)
		}
		sc := res.SubConn.(*fakeConn)
		res.Done(balancer.DoneInfo{BytesReceived: true})
		if got[sc] = true; sc.shut {
			r.t.Fatal("a pick led to a connection that is shut down")
		}
	}
	for _, sc := range scs {
		if !got[sc] && r.clusters["c"].cfg.Leaves[0].Policy.Kind != picker.PolicyRingHash {
			r.t.Fatalf("no pick led to the connection to %s", sc.addr)
		}
		delete(got, sc)
	}
	if len(got) > 0 {
		r.t.Fatalf("picks led to %d other connections", len(got))
	}
}

// wantShut checks which of some SubConns are shut down.
func (r *replacing) wantShut(want bool, scs ...*fakeConn) {
	r.t.Helper()
	r.flush()
	for _, sc := range scs {
		if sc.shut != want {
			r.t.Errorf("the connection to %s is shut down: %v, want %v", sc.addr, sc.shut, want)
		}
	}
}

// with returns a cluster with the policy of another.
func with(policy, c *picker.Cluster) *picker.Cluster {
	c.Leaves[0].Policy = policy.Leaves[0].Policy
	return c
}

// TestReplace (T-SEC-1): with Config.ReconnectOnTLSChange other TLS settings are met by
// connections made by them, whatever the policy; the old ones serve until a new one is
// READY, and are shut down then. A configuration with the same settings changes nothing.
func TestReplace(t *testing.T) {
	for name, policy := range map[string]*picker.Cluster{
		"round robin":           clusterOf("c"),
		"ring_hash":             ring(clusterOf("c")),
		"pick_first":            firstOf(false, false),
		"custom":                customOf(false, stubA, `{}`),
		"custom, of localities": customOf(true, stubA, `{}`),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplacing(t, Config{})
				list := func() *picker.Cluster { return with(policy, clusterOf("c", prio(eps(1), eps(2)))) }
				r.use(list())
				var old, fresh [2]*fakeConn
				for i := range old {
					if r.cc.find(i+1) == nil { // on demand
						r.lock()
						r.clusters["c"].inUse.connectOneIdle()
						r.clusters["c"].inUse.connectOneIdle()
						r.unlock()
					}
					old[i] = r.cc.conn(t, i+1)
					r.to(old[i], ready)
				}
				r.wantServing(old[:]...)
				r.use(list())
				if r.cc.opened != 2 {
					t.Fatalf("%d connections were opened, want 2", r.cc.opened)
				}
				r.change(list())
				for i := range old {
					fresh[i] = r.next(i+1, old[i])
					r.to(fresh[i], connecting)
				}
				r.wantServing(old[:]...)
				r.to(fresh[0], ready)
				r.wantServing(fresh[0], old[1])
				r.wantShut(true, old[0])
				r.wantShut(false, old[1])
				r.to(fresh[1], ready)
				r.wantServing(fresh[:]...)
				r.wantShut(true, old[:]...)
				r.to(fresh[0], idle) // and from then on they are as any
				if name != "ring_hash" {
					r.wantServing(fresh[1])
				}
				r.to(fresh[0], ready)
				r.wantServing(fresh[:]...)
				if r.cc.opened != 4 {
					t.Errorf("%d connections were opened, want 4", r.cc.opened)
				}
			})
		})
	}
}

// TestReplacementCostsNothing: a connection is as large as it was without (48 bytes).
func TestReplacementCostsNothing(t *testing.T) {
	if n := unsafe.Sizeof(conn{}); n > 48 {
		t.Errorf("a connection takes %d bytes", n)
	}
}

// TestNoReplacement (T-SEC-1): other settings open and close no connections by default, nor for
// endpoints that are not connected.
func TestNoReplacement(t *testing.T) {
	b, cc := newTestLB(t, Config{})
	r := &replacing{testLB: b, cc: cc, t: t}
	r.use(clusterOf("c", prio(eps(1))))
	r.to(cc.conn(t, 1), ready)
	r.change(clusterOf("c", prio(eps(1))))
	if cc.opened != 1 || cc.closed != 0 {
		t.Errorf("opened %d, closed %d, want 1 and 0", cc.opened, cc.closed)
	}
	r = newReplacing(t, Config{})
	r.use(ring(clusterOf("c", prio(eps(1, 2)))))
	r.change(ring(clusterOf("c", prio(eps(1, 2)))))
	if r.cc.opened != 0 {
		t.Errorf("%d idle endpoints of ring_hash were connected", r.cc.opened)
	}
	r = newReplacing(t, Config{})
	r.use(clusterOf("c", prio(eps(1))))
	r.to(r.cc.conn(t, 1), failure)
	r.change(clusterOf("c", prio(eps(1))))
	if r.cc.opened != 1 {
		t.Errorf("%d connections to a backend that cannot be reached, want 1", r.cc.opened)
	}
}

// TestReplacementThatFails: settings that do not work leave the old connection in force,
// and are tried again; when they work at last the connection is replaced. Other settings
// meanwhile give another replacement.
func TestReplacementThatFails(t *testing.T) {
	r := newReplacing(t, Config{})
	r.use(clusterOf("c", prio(eps(1), eps(2))))
	old := []*fakeConn{r.cc.conn(t, 1), r.cc.conn(t, 2)}
	for _, sc := range old {
		r.to(sc, ready)
	}
	r.change(clusterOf("c", prio(eps(1), eps(2))))
	bad := r.next(1, old[0])
	for i := range 3 {
		r.to(bad, connecting)
		r.to(bad, failure)
		r.wantServing(old...)
		r.to(bad, idle)
		if bad.connects != i+2 {
			t.Fatalf("%d attempts, want %d", bad.connects, i+2)
		}
	}
	if !r.clusters["c"].leaves[0].replacementFailed {
		t.Error("nothing is noted")
	}
	r.change(clusterOf("c", prio(eps(1), eps(2))))
	good := r.next(1, bad)
	r.wantShut(true, bad)
	r.to(bad, ready) // too late
	r.wantServing(old...)
	r.to(good, failure)
	r.to(good, idle)
	r.to(good, ready)
	r.wantServing(good, old[1])
	r.wantShut(true, old[0])
}

// TestReplacementOfSeveral (A61): an endpoint with several addresses is replaced as a
// whole, also if their order changes meanwhile.
func TestReplacementOfSeveral(t *testing.T) {
	r := newReplacing(t, Config{})
	list := several(1)
	r.use(clusterOf("c", prio(list)))
	old := r.cc.conn(t, 1)
	r.to(old, ready)
	r.wantServing(old)
	r.change(clusterOf("c", prio(list)))
	fresh := r.next(1, old)
	r.to(fresh, connecting)
	swapped := several(1)
	swapped[0].Addr, swapped[0].Extra.Addrs[0] = swapped[0].Extra.Addrs[0], swapped[0].Addr
	r.use(clusterOf("c", prio(swapped)))
	r.wantServing(old)
	if r.cc.conn(t, 101).connects == 0 {
		t.Error("the replacement does not follow the order of addresses")
	}
	r.to(fresh, failure)
	r.to(r.cc.conn(t, 101), ready)
	r.wantServing(r.cc.conn(t, 101))
	r.wantShut(true, old)
	r.to(r.cc.conn(t, 101), idle)
	r.flush()
	if r.cc.state != connectivity.Connecting {
		t.Errorf("the channel is %v after the connection was lost", r.cc.state)
	}
}

// TestReplacementOfSeveralThatFail (A61): pick_first is in TRANSIENT_FAILURE while it
// tries on, perhaps by old settings.
func TestReplacementOfSeveralThatFail(t *testing.T) {
	r := newReplacing(t, Config{})
	r.use(clusterOf("c", prio(several(1))))
	old := r.cc.conn(t, 1)
	for _, n := range []int{1, 101} {
		r.to(r.cc.conn(t, n), failure)
	}
	r.to(old, idle)
	r.to(old, connecting)
	r.change(clusterOf("c", prio(several(1))))
	fresh := r.next(1, old)
	r.to(old, ready)
	r.wantServing(old)
	r.to(fresh, ready)
	r.wantServing(fresh)
	r.wantShut(true, old)
}

// TestReplacedIsLost: a lost connection is made again with the latest settings, and needs no
// replacement. One that was still connecting when the settings changed may have the old ones; the
// first connection that is READY serves.
func TestReplacedIsLost(t *testing.T) {
	for _, policy := range []*picker.Cluster{clusterOf("c"), customOf(true, stubA, `{}`)} {
		list := func() *picker.Cluster { return with(policy, clusterOf("c", prio(eps(1)))) }
		r := newReplacing(t, Config{})
		r.use(list())
		old := r.cc.conn(t, 1)
		r.change(list()) // it was asked to connect, and may do so already
		fresh := r.next(1, old)
		r.to(old, connecting)
		r.to(old, ready)
		r.wantServing(old)
		r.to(fresh, connecting)
		r.to(old, idle)
		r.wantShut(true, fresh)
		if old.connects != 2 {
			t.Errorf("the connection was asked to connect %d times, want 2", old.connects)
		}
		r.to(fresh, ready) // too late
		r.to(old, connecting)
		r.change(list())
		fresh = r.next(1, fresh)
		r.to(fresh, ready)
		r.wantServing(fresh)
		r.wantShut(true, old)

		r.to(fresh, idle)
		r.to(fresh, connecting)
		r.change(list())
		third := r.next(1, fresh)
		r.to(third, connecting)
		r.to(fresh, ready)
		r.wantServing(fresh)
		r.to(third, ready)
		r.wantServing(third)
		r.wantShut(true, fresh)
	}
}

// TestReplacedFails: a replacement is shut down with the failure of the connection that
// it was for, also if nothing is published for that.
func TestReplacedFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplacing(t, Config{})
		r.use(clusterOf("c", prio(eps(1))))
		old := r.cc.conn(t, 1)
		for _, s := range []connectivity.State{failure, idle, connecting} {
			r.to(old, s)
		}
		r.change(clusterOf("c", prio(eps(1))))
		fresh := r.next(1, old)
		r.to(old, failure)
		kit.Pass(maxPublishPause)
		r.calm()
		if !fresh.shut {
			t.Error("the replacement is still there")
		}
	})
}

// TestReplacementIsHealthy (A17): with health checks a replacement takes over when its
// backend is found healthy by it.
func TestReplacementIsHealthy(t *testing.T) {
	r := newReplacing(t, Config{HealthCheckService: "s"})
	r.use(clusterOf("c", prio(eps(1))))
	old := r.cc.conn(t, 1)
	r.to(old, ready)
	r.wantServing(old)
	r.change(clusterOf("c", prio(eps(1))))
	fresh := r.next(1, old)
	fresh.healthy = make(chan struct{})
	fresh.to(ready)
	r.lock()
	r.publish()
	r.unlock()
	if got := r.clusters["c"].leaves[0].priorities[0].localities[0].endpoints[0].conn.sc; got != connector(old) || old.shut {
		t.Error("a backend that is not found healthy is used")
	}
	close(fresh.healthy)
	r.wantServing(fresh)
	r.wantShut(true, old)
}

// TestReplacementFollowsHealthCheck: a READY replacement that waits for the health check takes over
// when an update removes the check, or has a child policy connect the endpoints. Its watch follows
// the check's service.
func TestReplacementFollowsHealthCheck(t *testing.T) {
	checked := func(service string, c *picker.Cluster) *picker.Cluster {
		c.Leaves[0].HealthCheck = &picker.HealthCheck{Service: service}
		return c
	}
	for _, tt := range []struct {
		name    string
		to      *picker.Cluster
		over    bool
		service string // that the replacement watches
	}{
		{"no health check", clusterOf("c", prio(eps(1))), true, ""},
		{"a custom policy", checked("s", customOf(true, stubA, `{}`, prio(eps(1)))), true, ""},
		{"another service", checked("other", clusterOf("c", prio(eps(1)))), false, "other"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplacing(t, Config{})
				r.use(clusterOf("c", prio(eps(1))))
				old := r.cc.conn(t, 1)
				r.to(old, ready)
				r.change(checked("s", clusterOf("c", prio(eps(1)))))
				fresh := r.next(1, old)
				r.to(fresh, ready) // the watch is not answered
				r.wantShut(false, old, fresh)
				l := r.clusters["c"].leaves[0]
				r.use(tt.to)
				r.wantShut(tt.over, old)
				r.wantShut(false, fresh)
				for c, w := range l.watches {
					if c.sc == connector(fresh) && w.service != tt.service {
						t.Errorf("the replacement watches service %q, want %q", w.service, tt.service)
					}
				}
			})
		})
	}
}
