// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestWatchesShare checks that watches of one target are one view, and that
// several targets share resources and streams (D4).
func TestWatchesShare(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		var all []*recorder
		for i := range 20 {
			all = append(all, h.watch(fmt.Sprint("t", i%10)))
		}
		for i := range 10 {
			cp.serve(listenerTo(fmt.Sprint("t", i), "r"))
		}
		cp.serve(routesTo("r", "c"), clusterTo("c", "c"), endpointsAt("c", 1))
		if all[0].cluster(t, "c") != all[10].cluster(t, "c") {
			t.Error("two watches of the same target have different clusters")
		}
		a, b := all[0].cluster(t, "c").Leaves[0].Priorities, all[1].cluster(t, "c").Leaves[0].Priorities
		if &a[0] != &b[0] {
			t.Error("two targets have different copies of the endpoints")
		}
		if cp.opened() != 1 || h.entries() != 13 || h.targets() != 10 {
			t.Errorf("%d streams, %d entries, %d targets; want 1, 13, 10", cp.opened(), h.entries(), h.targets())
		}
	})
}

// TestCancel checks that nothing is delivered after cancel, also if cancel is
// called by the watcher, and that others do not notice.
func TestCancel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		inside := &selfCancelling{}
		inside.cancel = h.c.view().Watch("svc", "svc", inside)
		gone := h.watch("svc")
		stays := h.watch("svc")
		gone.cancel()
		gone.cancel() // does no harm
		cp.serve(targetOf("svc", 1)...)
		cp.serve(endpointsAt("svc", 2))
		if inside.calls != 1 || gone.got().updates+gone.got().errs != 0 || stays.got().updates != 2 {
			t.Errorf("calls = %d, %d, %d; want 1, 0, 2", inside.calls, gone.got().updates+gone.got().errs, stays.got().updates)
		}
	})
}

type selfCancelling struct {
	cancel func()
	calls  int
}

func (s *selfCancelling) Update(*picker.Config) { s.calls++; s.cancel() }
func (s *selfCancelling) Error(error)           { s.calls++; s.cancel() }

// TestRewatch checks that a resource that is not watched any more is removed, and
// asked for again by the next to watch it (T-WATCH-3).
func TestRewatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, w := serving(t, Options{Linger: -1})
		keep := h.watch("keep")
		cp.serve(targetOf("keep", 7)...)
		keep.must(t)
		w.cancel()
		synctest.Wait()
		cp.asked(lds, "keep")
		if s := statusOf(h.c, lds, "svc"); s.Watched {
			t.Errorf("still watched: %+v", s)
		}
		cp.serve(endpointsAt("svc", 3))
		again := h.watch("svc")
		again.serves(t, "svc", "svc 3")
		// Without a pause, the server receives no unsubscription, and its responses are applied.
		again.cancel()
		again = h.watch("svc")
		again.serves(t, "svc", "svc 3")
		advance(time.Minute)
		if again.got().errs != 0 {
			t.Errorf("error %v", again.got().err)
		}
	})
}

// TestRefetch checks that a resource which was unsubscribed from is requested again, not taken from
// the cache (T-WATCH-3): a Listener is deleted, and comes back when its cluster does not exist any
// more, which the client could not know. A server that still has the cluster sends it at once.
func TestRefetch(t *testing.T) {
	for _, deleted := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			h, cp := only(t, Options{TargetOptions: TargetOptions{DropDeleted: true}})
			cp.serve(targetOf("svc", 1)...)
			w := h.watch("svc")
			w.must(t)
			cp.Remove(xdstest.LDS, "svc")
			w.fails(t, "has been removed")
			if deleted {
				cp.Remove(xdstest.CDS, "svc")
			}
			advance(time.Second)
			updates := w.got().updates
			cp.serve(listenerTo("svc", "svc"))
			if got := w.got().updates - updates; (got == 0) != deleted {
				t.Errorf("cluster deleted: %v; %d updates when the listener came back", deleted, got)
			}
			advance(16 * time.Second)
			if err := w.cluster(t, "svc").Err; (err != nil) != deleted {
				t.Errorf("cluster deleted: %v; its error is %v", deleted, err)
			}
		})
	}
}

// TestLeave checks the race that makes servers withhold a resource: a response crosses the request
// that unsubscribes from it, which the server therefore ignores. When the client subscribes again,
// the server does not detect a change, and sends nothing.
func TestLeave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{Linger: -1}, "fail_on_data_errors")
		a, b := h.watch("a"), h.watch("b")
		cp.send(lds, "1", listenerTo("a", "ra"), listenerTo("b", "rb"))
		cp.send(rds, "1", routesTo("ra", "c"), routesTo("rb", "c"))
		cp.send(cds, "1", clusterTo("c", "c"))
		cp.send(eds, "1", endpointsAt("c", 1))
		a.must(t)
		a.cancel()
		cp.asked(rds, "rb")
		// These were sent before the server read that. Both types of responses count: responses
		// with all resources, and responses with the changed ones.
		cp.send(lds, "2", listenerTo("a", "ra"), listenerTo("b", "rb"))
		cp.send(rds, "2", routesTo("ra", "c", "c"))
		cp.asked(lds, "b")
		cp.asked(rds, "rb")
		a = h.watch("a")
		cp.asked(lds, "a", "b")
		// Responses that have all there is have it again, now that the server
		// knows. One that was sent before may lack it.
		cp.send(lds, "3", listenerTo("b", "rb"))
		advance(14 * time.Second)
		if got := a.got(); got.updates+got.errs != 0 {
			t.Errorf("%+v before the server has sent the listener again", got)
		}
		cp.send(lds, "4", listenerTo("a", "ra"), listenerTo("b", "rb"))
		cp.asked(rds, "ra", "rb")
		if n := len(a.must(t).Routes); n != 2 {
			t.Errorf("%d routes, want the 2 of the latest response", n)
		}
		advance(time.Minute)
		if got := a.got(); got.errs != 0 {
			t.Errorf("error %v", got.err)
		}

		// After a while the client no longer assumes that it has the resource,
		// whatever was heard of it meanwhile.
		a.cancel()
		cp.send(rds, "3", routesTo("ra", "c"))
		advance(16 * time.Second)
		if n := h.entries(); n != 4 {
			t.Errorf("%d entries, want those of b only", n)
		}
		a = h.watch("a")
		if got := a.got(); got.updates != 0 {
			t.Error("a resource that was left long ago is in use")
		}
		cp.send(lds, "4", listenerTo("a", "ra"), listenerTo("b", "rb"))
		cp.send(rds, "4", routesTo("ra", "c"))
		a.must(t)
		// The end of the stream clears everything up.
		a.cancel()
		cp.hangUp(errors.New("going away"))
		if n := h.entries(); n != 4 {
			t.Errorf("%d entries, want those of b only", n)
		}
		b.cancel()
	})
}

// TestDeletedMeanwhile checks that a resource that was left, asked for again, and
// deleted meanwhile does not stay in use for ever (T-XDS-6, T-WATCH-3).
func TestDeletedMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{Linger: -1}, "fail_on_data_errors")
		a := h.watch("a")
		h.watch("b")
		both := []proto.Message{inlineListener("a", routesTo("", "c")), inlineListener("b", routesTo("", "c"))}
		cp.send(lds, "1", both...)
		cp.send(cds, "1", clusterTo("c", "c"))
		cp.send(eds, "1", endpointsAt("c", 1))
		again := func() {
			t.Helper()
			a.must(t)
			a.cancel()
			cp.asked(lds, "b")
			a = h.watch("a")
			cp.asked(lds, "a", "b")
		}
		// The only response since lacks it.
		again()
		cp.send(lds, "2", both[1])
		if got := a.got(); got.errs != 0 {
			t.Errorf("error %v while it may follow", got.err)
		}
		advance(16 * time.Second)
		a.fails(t, "not found")
		cp.send(lds, "3", both...)
		// There is no response.
		again()
		advance(16 * time.Second)
		a.fails(t, "not found")
		cp.send(lds, "4", both...)
		a.must(t)
		cp.send(lds, "5", both[1])
		a.fails(t, "has been removed")
		cp.send(lds, "6", both...)
		// On a new stream everything is asked for at once.
		again()
		cp.hangUp(errors.New("going away"))
		advance(time.Minute)
		cp.asked(lds, "a", "b")
		cp.send(lds, "7", both[1])
		advance(16 * time.Second)
		a.fails(t, "not found")
	})
}

// TestRewatchMissing checks that a target that did not exist is given a chance
// when it is watched again.
func TestRewatchMissing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{Linger: -1})
		h.watch("other")
		w := h.watch("svc")
		advance(16 * time.Second)
		w.fails(t, "not found")
		w.cancel()
		w = h.watch("svc")
		if got := w.got(); got.errs != 0 {
			t.Errorf("error %v before the server can have answered", got.err)
		}
		w.cancel()
		synctest.Wait()
		w = h.watch("svc")
		if got := w.got(); got.errs != 0 {
			t.Errorf("error %v before the server can have answered", got.err)
		}
		cp.serve(targetOf("svc", 1)...)
		cp.send(lds, "1", listenerTo("svc", "svc"))
		w.must(t)
	})
}

// TestLinger checks that a target stays up to date for a while after its last
// watch, so that a channel that leaves idle mode does not have to ask.
func TestLinger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, w := serving(t, Options{})
		w.cancel()
		advance(29 * time.Second)
		cp.serve(endpointsAt("svc", 2))
		requests := len(cp.must().Requests(""))
		again := h.watch("svc")
		again.serves(t, "svc", "svc 2")
		if n := len(cp.must().Requests("")); n != requests {
			t.Errorf("%d requests to watch the target again", n-requests)
		}
		again.cancel()
		advance(50 * time.Second)
		if n := h.targets() + h.entries(); n != 0 {
			t.Errorf("%d targets and entries are left", n)
		}
	})
}
