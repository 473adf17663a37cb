// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/resource"
)

// server is what the client wants of one xDS server and what it has heard from
// it. Everything but run's own variables is guarded by Client.mu.
//
// Requests are not queued. What is to be said about a type is computed when it
// is sent, from the state below, so a burst of subscriptions is one request,
// and a request that is late can never take back what a later one said
// (T-XDS-4, T-XDS-5).
type server struct {
	c       *Client
	cfg     *bootstrap.Server
	channel *channel
	users   map[*authority]struct{}
	types   [resource.NumTypes]subscriptions
	wake    chan struct{} // holds a token if there may be something to do
	cancel  context.CancelFunc

	up  bool  // a stream is open
	err error // why there is none; nil while the first attempt is young
}

// subscriptions is the state of one type.
type subscriptions struct {
	subs  map[string]*subscription // by canonical name
	names []string                 // those to ask for, sorted; nil if stale

	version string // last accepted; outlives the stream (T-XDS-2)
	nonce   string // last received on this stream
	nack    string // what was wrong with that response
	dirty   bool   // a request is due
	// sent says that this stream has carried names of the type. If not, a
	// request without names would mean all resources there are (T-XDS-2,
	// T-XDS-3).
	sent bool
	// heard says that this stream has carried a response of the type.
	heard bool
	round uint64 // number of the current response
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
	// server.leave.
	leaving bool
}

// server returns the server of a description, connecting if need be; mu is
// held.
func (c *Client) server(cfg *bootstrap.Server) *server {
	s := c.servers[cfg.Key()]
	if s != nil {
		return s
	}
	s = &server{
		c:       c,
		cfg:     cfg,
		channel: c.channel(cfg),
		users:   map[*authority]struct{}{},
		wake:    make(chan struct{}, 1),
	}
	for t := range s.types {
		s.types[t].subs = map[string]*subscription{}
	}
	c.servers[cfg.Key()] = s
	ctx, cancel := context.WithCancel(c.ctx)
	s.cancel = cancel
	c.tasks.Go(func() { s.run(ctx) })
	return s
}

// close ends the stream and all that belongs to it.
func (s *server) close() {
	if s.c.servers[s.cfg.Key()] != s {
		return
	}
	delete(s.c.servers, s.cfg.Key())
	s.cancel()
	s.down()
	s.c.releaseChannel(s.channel)
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
		// If the server knows that it was left, a response without e may
		// be on its way that is no deletion.
		sub.leaving, sub.received = false, false
		sub.stopTimer()
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

func (s *server) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// demand reports whether it is urgent to reach the server, because somebody
// waits for a resource of which nothing has been heard, and whether it is idle,
// because nobody wants anything.
func (s *server) demand() (urgent, idle bool) {
	idle = true
	for t := range s.types {
		for _, sub := range s.types[t].subs {
			if len(sub.entry.views) > 0 {
				idle = false
				if sub.entry.uncached() {
					return true, false
				}
			}
		}
	}
	return false, idle
}

// opened prepares for a new stream: no nonce yet, and everything to say.
func (s *server) opened() {
	s.up, s.err = true, nil
	for i := range s.types {
		t := &s.types[i]
		t.nonce, t.nack, t.sent, t.heard = "", "", false, false
		// A version claims that the cache has what this server sent. A
		// server that goes by it would not send that again.
		if !t.inCache(s.cfg) {
			t.version = ""
		}
		t.dirty = true
	}
	s.poke()
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

// down notes that there is no stream. Timers wait for the next (T-XDS-7).
func (s *server) down() {
	s.up = false
	for i := range s.types {
		for _, sub := range s.types[i].subs {
			sub.stopTimer()
			if len(sub.entry.views) == 0 {
				s.drop(sub.entry)
			}
		}
	}
}

// failed notes that the server cannot be reached: the connection or the stream
// ended without a response, or takes suspiciously long (A57).
func (s *server) failed(err error) {
	s.err = err
	for a := range s.users {
		a.check()
	}
}

// request returns the next request that is due on the current stream, and the
// resources that it is the first to ask for; nil if none is due.
func (s *server) request(node *corev3.Node) (*discoveryv3.DiscoveryRequest, []*subscription) {
	for i := range s.types {
		t := &s.types[i]
		if !t.dirty {
			continue
		}
		t.dirty = false
		names, fresh := t.current(s)
		if len(names) == 0 && !t.sent {
			continue
		}
		t.sent = true
		req := &discoveryv3.DiscoveryRequest{
			Node:          node,
			TypeUrl:       resource.Type(i).URL(),
			ResourceNames: names,
			VersionInfo:   t.version,
			ResponseNonce: t.nonce,
		}
		if t.nack != "" {
			req.ErrorDetail = &statuspb.Status{Code: int32(codes.InvalidArgument), Message: t.nack}
			t.nack = ""
		}
		return req, fresh
	}
	return nil, nil
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
