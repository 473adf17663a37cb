// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
)

// zone makes a priority of one locality.
func zone(name string, endpoints []picker.Endpoint) picker.Priority {
	return picker.Priority{Localities: []picker.Locality{{ID: picker.LocalityID{Zone: name}, Weight: 1, Endpoints: picker.ListOf(endpoints...)}}}
}

// TestPriorityKeepsLower is T-PRIO-3: while a priority that lost its connections has time to get
// them back, the connections of lower priorities stay, and a change of the policy keeps all of
// them.
func TestPriorityKeepsLower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		cfg := func(kind picker.PolicyKind) *picker.Config {
			c := clusterOf("c", zone("a", eps(1)), zone("b", eps(2)))
			c.Leaves[0].Policy.Kind = kind
			return configOf(c)
		}
		b.Update(cfg(picker.PolicyEDF))
		cc.conn(t, 1).to(failure)
		cc.conn(t, 2).to(ready)
		cc.conn(t, 1).to(ready)
		wantPick(t, b, 1)
		cc.conn(t, 1).to(idle) // 10 s to connect
		kit.Pass(5 * time.Second)
		b.Update(cfg(picker.PolicyRoundRobin))
		if b.flush(); cc.opened != 2 || cc.closed != 0 {
			t.Fatalf("%d connections opened and %d closed, want 2 and 0", cc.opened, cc.closed)
		}
		kit.Pass(6 * time.Second)
		wantPick(t, b, 2)
	})
}

// TestPriorityRemoved is T-PRIO-4: a priority that leaves the configuration is
// closed at once, one that is only not needed any more keeps its connections, and
// has them when it is needed again.
func TestPriorityRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		a, low := zone("a", eps(1)), zone("b", eps(2))
		both, one := configOf(clusterOf("c", a, low)), configOf(clusterOf("c", a))
		b.Update(both)
		cc.conn(t, 1).to(failure)
		cc.conn(t, 2).to(ready)
		cc.conn(t, 1).to(ready)
		wantPick(t, b, 1)
		kit.Pass(14 * time.Minute)
		cc.conn(t, 1).to(failure)
		wantPick(t, b, 2)
		if cc.opened != 2 {
			t.Errorf("%d connections were opened, want 2: the lower priority's was kept", cc.opened)
		}
		cc.conn(t, 1).to(ready)
		wantPick(t, b, 1)
		b.Update(one)
		if b.flush(); cc.has(2) {
			t.Error("a priority that is gone still has a connection")
		}
	})
}

// TestPriorityIdentity is T-PRIO-5: a priority that an update moves is the one
// that has its localities, with its connections and the time that it has left.
func TestPriorityIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		b.Update(configOf(clusterOf("c", zone("a", eps(1)), zone("b", eps(2)))))
		kit.Pass(6 * time.Second) // of the 10 s that zone a has
		b.Update(configOf(clusterOf("c", zone("new", nil), zone("a", eps(1)), zone("b", eps(2)))))
		kit.Pass(3 * time.Second)
		if cc.has(2) {
			t.Fatal("zone a was given up before its time")
		}
		kit.Pass(2 * time.Second)
		if !cc.has(2) {
			t.Fatal("an update gave zone a more time than the 10 s")
		}
		if cc.opened != 2 || cc.closed != 0 {
			t.Errorf("%d connections opened and %d closed, want 2 and 0", cc.opened, cc.closed)
		}
	})
}

// TestPriorityChosenOnce is T-PRIO-6: an update that empties a priority starts the
// next one as it is after the update, not as it was before.
func TestPriorityChosenOnce(t *testing.T) {
	b, cc := newTestLB(t, Config{})
	b.Update(configOf(clusterOf("c", zone("a", eps(1)), zone("b", eps(2)))))
	cc.conn(t, 1).to(ready)
	wantPick(t, b, 1)
	b.Update(configOf(clusterOf("c", zone("a", nil), zone("b", eps(3)))))
	cc.conn(t, 3).to(ready)
	wantPick(t, b, 3)
	if cc.opened != 2 {
		t.Errorf("%d connections were opened, want those to endpoints 1 and 3", cc.opened)
	}
}

// wantFailover fails the test unless an endpoint is connected to after the failover
// time, and not before.
func wantFailover(t *testing.T, b *testLB, cc *fakeCC, n int) {
	t.Helper()
	if cc.has(n) {
		t.Fatalf("endpoint %d is connected to at once", n)
	}
	kit.Pass(b.opts.FailoverTimeout)
	if !cc.has(n) {
		t.Errorf("endpoint %d is not connected to after the failover time", n)
	}
}

// TestPriorityMovedConnecting: a priority that is new, but has taken over an endpoint
// which still connects, has the failover time like any other (T-PRIO-1).
func TestPriorityMovedConnecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		b.Update(configOf(clusterOf("c", zone("a", eps(0)), zone("b", eps(1)))))
		b.Update(configOf(clusterOf("c", zone("renamed", eps(0)), zone("b", eps(1)))))
		wantFailover(t, b, cc, 1)
	})
}

// TestPriorityReactivatedConnecting: so does one that lost its connection while it was
// not needed (T-PRIO-1, T-PRIO-4).
func TestPriorityReactivatedConnecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		b.Update(configOf(clusterOf("c", zone("a", eps(0)), zone("b", eps(1)), zone("c", eps(2)))))
		cc.conn(t, 0).to(failure)
		cc.conn(t, 1).to(ready)
		cc.conn(t, 0).to(ready)
		cc.conn(t, 1).to(idle)
		cc.conn(t, 1).to(connecting)
		cc.conn(t, 0).to(failure)
		wantFailover(t, b, cc, 2)
	})
}
