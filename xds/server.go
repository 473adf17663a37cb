// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/eventlog"
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
	c        *Client
	cfg      *bootstrap.Server
	channel  *channel
	relation *relation
	users    map[*authority]struct{}
	types    [resource.NumTypes]subscriptions
	wake     chan struct{} // holds a token if there may be something to do
	cancel   context.CancelFunc

	variant  variant   // of ADS that is spoken; changes between streams only
	switched bool      // it has changed since there was a response
	refused  time.Time // when the server last answered UNIMPLEMENTED to the wanted variant
	claimed  bool      // this stream has told the server versions of resources
	quiet    bool      // the server has nothing to say to that: see silentLocked
	// exhausted says that the stream before has ended with RESOURCE_EXHAUSTED and no
	// response: the server's limit may be below maxRequest, so versions are not claimed.
	exhausted bool

	members resource.MemberDecoder // of the typeWorker of LbEndpoints

	up  bool  // a stream is open
	err error // why there is none; nil while the first attempt is young
}

// serverLocked returns the server of a description, connecting if need be.
func (c *Client) serverLocked(cfg *bootstrap.Server) *server {
	s := c.servers[cfg.Key()]
	if s != nil {
		return s
	}
	s = &server{
		c:        c,
		cfg:      cfg,
		channel:  c.channelLocked(cfg),
		relation: c.relationLocked(cfg),
		users:    map[*authority]struct{}{},
		wake:     make(chan struct{}, 1),
		variant:  c.wantedVariant(cfg),
	}
	s.relation.status.Variant = s.variant.String()
	for t := range s.types {
		s.types[t].subs, s.types[t].protocol = map[string]*subscription{}, s.variant.newProtocol()
	}
	c.servers[cfg.Key()] = s
	ctx, cancel := context.WithCancel(c.ctx)
	s.cancel = cancel
	c.tasks.Go(func() { s.run(ctx) })
	return s
}

// close ends the stream and all that belongs to it.
func (s *server) closeLocked() {
	if s.c.servers[s.cfg.Key()] != s {
		return
	}
	delete(s.c.servers, s.cfg.Key())
	s.cancel()
	s.downLocked()
	s.c.releaseChannelLocked(s.channel)
}

func (s *server) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// demandLocked reports whether a resource that somebody wants is not in the cache, and
// whether nobody wants anything.
func (s *server) demandLocked() (lacking, idle bool) {
	idle = true
	for t := range s.types {
		for _, sub := range s.types[t].subs {
			if len(sub.entry.watchers) > 0 {
				idle = false
				if sub.entry.value == nil {
					return true, false
				}
			}
		}
	}
	return false, idle
}

// replacedLocked reports whether another server is in use instead of s (A71).
func (s *server) replacedLocked() bool {
	for a := range s.users {
		if a.lastLocked() != s {
			return true
		}
	}
	return false
}

// openedLocked prepares for a new stream: no nonce yet, and everything to say.
func (s *server) openedLocked() {
	s.up, s.err = true, nil
	s.claimed, s.quiet = false, false
	s.relation.streamOpened()
	for i := range s.types {
		t := &s.types[i]
		t.sent, t.heard, t.lastNack = false, false, rejection{}
		t.whole = false // another server may have sent something since
		t.protocol.openedLocked(t)
		t.dirty = true
	}
	s.notify()
}

// downLocked notes that there is no stream. Timers wait for the next (T-XDS-7).
func (s *server) downLocked() {
	s.up = false
	for i := range s.types {
		s.types[i].nackTimer.StopLocked()
		s.types[i].protocol.stopLocked()
		for _, sub := range s.types[i].subs {
			sub.timer.StopLocked()
			if len(sub.entry.watchers) == 0 {
				s.dropLocked(sub.entry)
			}
		}
	}
}

// failedLocked notes that the server cannot be reached: the connection or the stream
// ended without a response, or takes suspiciously long (A57).
func (s *server) failedLocked(err error) {
	s.err = err
	if s.relation.ended(err) {
		s.journalLocked(eventlog.StreamFailed, err)
	}
	s.relation.failed()
	for a := range s.users {
		a.checkLocked()
	}
}

// requestLocked returns the next request that is due on the current stream, and the
// subscriptions that wait for an answer to it; nil if none is due.
func (s *server) requestLocked(node *corev3.Node) (request, []*subscription) {
	for i := range s.types {
		if s.types[i].dirty {
			if req, awaited := s.types[i].protocol.requestLocked(s, resource.Type(i), node); req != nil {
				return req, awaited
			}
		}
	}
	return nil, nil
}
