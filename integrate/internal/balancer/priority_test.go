// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
)

const (
	ready      = connectivity.Ready
	connecting = connectivity.Connecting
	idle       = connectivity.Idle
	failure    = connectivity.TransientFailure
)

// wantPick checks that picks go to one of the endpoints, or queue if none is
// given.
func wantPick(t *testing.T, b *testLB, numbers ...int) {
	t.Helper()
	b.flush()
	for range 20 {
		got, err := b.pick()
		if len(numbers) == 0 {
			if !errors.Is(err, balancer.ErrNoSubConnAvailable) {
				t.Fatalf("Pick() = %q, %v, want ErrNoSubConnAvailable", got, err)
			}
			return
		}
		if err != nil {
			t.Fatalf("Pick() failed: %v", err)
		}
		found := false
		for _, n := range numbers {
			found = found || addr(n).String() == got
		}
		if !found {
			t.Fatalf("Pick() = %s, want one of endpoints %v", got, numbers)
		}
	}
}

// TestFailoverAtOnce: a priority whose endpoints have all failed is given up
// without waiting for the timer, lower ones connect only then (A56 lazy
// creation, A27-EDSP-2), and the higher one gets all RPCs back as soon as one of its
// endpoints is READY (A27-EDSP-4).
func TestFailoverAtOnce(t *testing.T) {
	b, cc := newTestLB(t, Config{})
	b.Update(configOf(clusterOf("c", prio(eps(1, 2)), prio(eps(3)))))
	wantPick(t, b)
	if cc.has(3) {
		t.Fatal("priority 1 connects while priority 0 may still come up")
	}
	cc.conn(t, 1).To(failure)
	if cc.has(3) {
		t.Fatal("priority 1 connects after one failure of two in priority 0")
	}
	cc.conn(t, 2).To(failure)
	wantPick(t, b) // P1 is connecting: wait, do not fail
	cc.conn(t, 3).To(ready)
	wantPick(t, b, 3)
	cc.conn(t, 2).To(connecting) // sticky failure: P0 is still down
	wantPick(t, b, 3)
	cc.conn(t, 2).To(ready)
	wantPick(t, b, 2)
	if !cc.has(3) {
		t.Error("the connections of priority 1 were closed at once, want them kept for 15 minutes")
	}
}

// TestFailoverTimer is T-PRIO-1: a priority that hangs in CONNECTING gets 10 s,
// when it leaves READY again, and its lower ones are kept 15 minutes (A56).
func TestFailoverTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		b.Update(configOf(clusterOf("c", prio(eps(1)), prio(eps(2)))))
		cc.conn(t, 1).To(connecting)
		kit.Pass(9900 * time.Millisecond)
		if cc.has(2) {
			t.Fatal("failover before the timeout")
		}
		kit.Pass(200 * time.Millisecond)
		cc.conn(t, 2).To(ready)
		wantPick(t, b, 2)
		cc.conn(t, 1).To(ready)
		wantPick(t, b, 1)

		// P0 loses its connection: it was READY, so it gets the full time again.
		cc.conn(t, 1).To(idle)
		wantPick(t, b)
		kit.Pass(11 * time.Second)
		wantPick(t, b, 2) // P1 was only deactivated: used at once
		cc.conn(t, 1).To(ready)
		wantPick(t, b, 1)
		kit.Pass(14 * time.Minute)
		if !cc.has(2) {
			t.Fatal("a deactivated priority was closed before its time")
		}
		kit.Pass(2 * time.Minute)
		if cc.has(2) {
			t.Fatal("a deactivated priority is kept for ever")
		}
		wantPick(t, b, 1)
	})
}

// TestEmptyPriority: priorities without usable endpoints have failed from the
// start (A27-CLA-7), and a cluster with none at all fails RPCs (A27-CLA-1).
func TestEmptyPriority(t *testing.T) {
	b, cc := connected(t, clusterOf("c", prio(eps()), prio(eps(1))), 1)
	wantPick(t, b, 1)
	b.Update(configOf(clusterOf("c")))
	b.flush()
	if _, err := b.pick(); err == nil || errors.Is(err, balancer.ErrNoSubConnAvailable) {
		t.Fatalf("Pick() without endpoints = %v, want an error about missing endpoints", err)
	}
	if cc.Now.ConnectivityState != failure {
		t.Errorf("channel is %v, want TRANSIENT_FAILURE", cc.Now.ConnectivityState)
	}
	if cc.has(1) {
		t.Error("the connection to an endpoint that is gone is still open")
	}
}

// zone makes a priority of one locality.
func zone(name string, endpoints []picker.Endpoint) picker.Priority {
	return picker.Priority{Localities: []picker.Locality{{ID: picker.LocalityID{Zone: name}, Weight: 1, Endpoints: picker.ListOf(endpoints...)}}}
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
		cc.conn(t, 1).To(failure)
		b.ready(t, 2, 1)
		wantPick(t, b, 1)
		kit.Pass(14 * time.Minute)
		cc.conn(t, 1).To(failure)
		wantPick(t, b, 2)
		if cc.Opened != 2 {
			t.Errorf("%d connections were opened, want 2: the lower priority's was kept", cc.Opened)
		}
		cc.conn(t, 1).To(ready)
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
		if cc.Opened != 2 || cc.Closed != 0 {
			t.Errorf("%d connections opened and %d closed, want 2 and 0", cc.Opened, cc.Closed)
		}
	})
}

// TestPriorityChosenOnce is T-PRIO-6: an update that empties a priority starts the
// next one as it is after the update, not as it was before.
func TestPriorityChosenOnce(t *testing.T) {
	b, cc := connected(t, clusterOf("c", zone("a", eps(1)), zone("b", eps(2))), 1)
	wantPick(t, b, 1)
	b.Update(configOf(clusterOf("c", zone("a", nil), zone("b", eps(3)))))
	cc.conn(t, 3).To(ready)
	wantPick(t, b, 3)
	if cc.Opened != 2 {
		t.Errorf("%d connections were opened, want those to endpoints 1 and 3", cc.Opened)
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
		cc.conn(t, 0).To(failure)
		b.ready(t, 1, 0)
		cc.conn(t, 1).To(idle)
		cc.conn(t, 1).To(connecting)
		cc.conn(t, 0).To(failure)
		wantFailover(t, b, cc, 2)
	})
}

// TestRetiredAboveConnecting: a retired priority that an update puts between a new one,
// which still connects, and the one in use is used, and not retired while it is (A56).
func TestRetiredAboveConnecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{RetireAfter: 5 * time.Second})
		of := func(zones ...int) *picker.Cluster {
			var prios []picker.Priority
			for _, n := range zones {
				prios = append(prios, zone(string(rune('a'+n)), eps(n)))
			}
			return clusterOf("c", prios...)
		}
		b.set(configOf(of(1, 2)))
		b.to(cc.conn(t, 1), failure)
		b.flush()
		b.ready(t, 2, 1)
		wantPick(t, b, 1) // 2 is retired
		b.set(configOf(of(3, 2, 1)))
		b.to(cc.conn(t, 3), connecting)
		wantPick(t, b, 2)
		kit.Pass(6 * time.Second)
		wantPick(t, b, 2)
	})
}

// TestLatestConnectionError: RPCs that fail say the latest connection error, also if the cluster had
// failed before. The error is no status, so that wait-for-ready RPCs wait.
func TestLatestConnectionError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		b.set(configOf(clusterOf("c", prio(eps(1)))))
		sc := cc.conn(t, 1)
		for _, text := range []string{"connection refused", "certificate has expired"} {
			cc.Refused = errors.New(text)
			sc.To(connecting)
			sc.To(failure)
			kit.Pass(2 * time.Second)
			if _, err := b.pick(); err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("Pick() error = %v, want it to say %q", err, text)
			} else if _, final := status.FromError(err); final {
				t.Errorf("Pick() error %v is a status, so that wait-for-ready RPCs do not wait", err)
			}
		}
	})
}
