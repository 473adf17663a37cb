// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"slices"
	"time"

	"github.com/xdslb/xdslb/xds/bootstrap"
)

// subscriptions is the state of one type.
type subscriptions struct {
	subs  map[string]*subscription // by canonical name
	names []string                 // those to ask for, sorted; nil if stale

	version string // last accepted; outlives the stream (T-XDS-2)
	nonce   string // last received on this stream
	nack    string // what was wrong with that response
	// rejected is the latest response that was rejected on this stream, by
	// version and fault, and later runs until an answer is due to one that
	// repeats it: see server.answerLater.
	rejected rejection
	later    *time.Timer
	dirty    bool // a request is due
	// sent says that this stream has carried names of the type. If not, a
	// request without names would mean all resources there are (T-XDS-2,
	// T-XDS-3).
	sent bool
	// heard says that this stream has carried a response of the type.
	heard bool
	round uint64 // number of the current response
}

// rejection says what was rejected, and why.
type rejection struct{ version, fault string }

// answerLater makes a NACK due after a while, unless another request carries it
// before. A server that answers a request for whatever is newer than the version
// in it sends what was rejected again as soon as it hears of the rejection (as
// go-control-plane's caches do, at least for the first version), and the two
// would go round as fast as they can.
func (s *server) answerLater(t *subscriptions) {
	if t.later != nil {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(s.c.opts.BackoffBase, func() {
		s.c.mu.Lock()
		defer s.c.unlock()
		if t.later != timer {
			return
		}
		t.later = nil
		if t.nack != "" {
			t.dirty = true
			s.poke()
		}
	})
	t.later = timer
}

// subscription is one server's relation to a resource.
type subscription struct {
	entry *entry
	// timer runs until the resource counts as absent or, if leaving, as
	// left; nil if it does not run.
	timer *time.Timer
	// received says that this server has sent the resource, in response
	// number round, and has not deleted it since (T-XDS-6).
	received bool
	round    uint64
	// leaving says that a request without the resource has been sent: see
	// server.leave. doubted says that it is asked for again since then: see
	// server.doubt.
	leaving, doubted bool
}

// subscribe asks for e, unless it was asked for before.
func (s *server) subscribe(e *entry) {
	t := &s.types[e.key.typ]
	sub := t.subs[e.key.name]
	switch {
	case sub == nil:
		t.subs[e.key.name] = &subscription{entry: e}
		e.subs++
	case sub.leaving:
		sub.leaving = false
		sub.stopTimer()
		if sub.received = sub.received && e.value != nil; sub.received {
			s.doubt(sub)
		}
	default:
		return
	}
	t.names = nil
	t.dirty = true
	s.poke()
}

// unsubscribe makes the next request leave e out.
func (s *server) unsubscribe(e *entry) {
	t := &s.types[e.key.typ]
	if !s.up || !t.sent {
		s.drop(e)
		return
	}
	t.dirty = true
	s.poke()
}

// leave is for when a request without a resource is about to be sent. Whether
// the server takes note is not certain: if a response of its own is under way,
// it will pass over the request (T-XDS-4). Then it still believes the client to
// have the resource, and would not send it to a client that asks for it anew.
// So the client keeps it, and whatever else the server says about it, for as
// long as a message may plausibly be under way. A resource that is asked for
// again within that time is in the cache, and if the server did take note it
// comes once more.
func (s *server) leave(sub *subscription) {
	sub.stopTimer()
	sub.leaving = true
	s.types[sub.entry.key.typ].names = nil
	var timer *time.Timer
	timer = time.AfterFunc(s.c.resourceTimeout(s.cfg), func() {
		s.c.mu.Lock()
		defer s.c.unlock()
		if sub.timer == timer {
			s.drop(sub.entry)
		}
	})
	sub.timer = timer
}

// doubt is for a resource in the cache that was left a moment ago and is asked for
// again. If the server knows that it was left, a response without the resource
// may be on its way that is no deletion, but then the resource follows. So such
// a response counts only if, for as long as a message may plausibly be under way,
// it does not (T-XDS-6).
func (s *server) doubt(sub *subscription) {
	t := &s.types[sub.entry.key.typ]
	round := t.round
	sub.doubted = true
	var timer *time.Timer
	timer = time.AfterFunc(s.c.resourceTimeout(s.cfg), func() {
		s.c.mu.Lock()
		defer s.c.unlock()
		if sub.timer != timer {
			return
		}
		sub.timer, sub.doubted = nil, false
		if t.round != round && complete(sub.entry.key.typ) {
			s.removed(sub)
		}
	})
	sub.timer = timer
}

// drop ends a subscription.
func (s *server) drop(e *entry) {
	t := &s.types[e.key.typ]
	sub := t.subs[e.key.name]
	if sub == nil {
		return
	}
	sub.stopTimer()
	delete(t.subs, e.key.name)
	t.names = nil
	e.subs--
	s.c.forget(e)
}

// current returns the names to ask for, without those that nobody wants any
// more, and the subscriptions that wait for a first answer.
func (t *subscriptions) current(s *server) (names []string, fresh []*subscription) {
	for _, sub := range t.subs {
		switch {
		case sub.leaving:
		case len(sub.entry.views) == 0:
			s.leave(sub)
		case sub.timer == nil && sub.entry.uncached():
			fresh = append(fresh, sub)
		}
	}
	if t.names == nil {
		t.names = make([]string, 0, len(t.subs))
		for name, sub := range t.subs {
			if !sub.leaving {
				t.names = append(t.names, name)
			}
		}
		slices.Sort(t.names)
	}
	return t.names, fresh
}

// inCache reports whether the cache has resources of the type that are wanted
// from a server, and none from others.
func (t *subscriptions) inCache(from *bootstrap.Server) (ok bool) {
	for _, sub := range t.subs {
		if sub.entry.value != nil {
			if sub.entry.from != from {
				return false
			}
			ok = true
		}
	}
	return ok
}

// startTimers starts the clock for resources that the server was asked for
// just now (A57).
func (s *server) startTimers(fresh []*subscription) {
	if !s.up {
		return
	}
	timeout := s.c.resourceTimeout(s.cfg)
	for _, sub := range fresh {
		if s.types[sub.entry.key.typ].subs[sub.entry.key.name] != sub || sub.timer != nil || !sub.entry.uncached() {
			continue
		}
		var timer *time.Timer
		timer = time.AfterFunc(timeout, func() {
			s.c.mu.Lock()
			defer s.c.unlock()
			if sub.timer == timer {
				sub.timer = nil
				s.expire(sub.entry, timeout)
			}
		})
		sub.timer = timer
	}
}

// answered stops the clock for a resource of which something has been heard.
func (sub *subscription) answered() {
	if !sub.leaving {
		sub.stopTimer()
	}
}

func (sub *subscription) stopTimer() {
	sub.doubted = false
	if sub.timer != nil {
		sub.timer.Stop()
		sub.timer = nil
	}
}

// expire gives up waiting for a resource (A57, A88). It may still come.
func (s *server) expire(e *entry, timeout time.Duration) {
	if !e.uncached() {
		return
	}
	hint := ""
	if !s.types[e.key.typ].heard {
		// What a go-control-plane SnapshotCache in ADS mode does to clients
		// that ask for less than all (T-XDS-17).
		hint = fmt.Sprintf("; it has sent no %v response at all on this stream, like a server that waits to be asked for every resource it has", e.key.typ)
	}
	err := fmt.Errorf("xds: %v resource %q not found: xDS server %q is connected but has not sent it within %v%s", e.key.typ, e.key.name, s.cfg.URI, timeout, hint)
	s.c.warnf("%v", err)
	if s.cfg.ResourceTimerIsTransientError {
		s.c.fail(e, TimedOut, err, true, false)
	} else {
		s.c.fail(e, DoesNotExist, err, false, false)
	}
}
