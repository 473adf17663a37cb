// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"

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

// replaced reports whether another server is in use instead of s (A71).
func (s *server) replaced() bool {
	for a := range s.users {
		if a.servers[len(a.servers)-1] != s {
			return true
		}
	}
	return false
}

// opened prepares for a new stream: no nonce yet, and everything to say.
func (s *server) opened() {
	s.up, s.err = true, nil
	for i := range s.types {
		t := &s.types[i]
		t.nonce, t.nack, t.sent, t.heard = "", "", false, false
		t.rejected = rejection{}
		// A version claims that the cache has what this server sent. A
		// server that goes by it would not send that again.
		if !t.inCache(s.cfg) {
			t.version = ""
		}
		t.dirty = true
	}
	s.poke()
}

// down notes that there is no stream. Timers wait for the next (T-XDS-7).
func (s *server) down() {
	s.up = false
	for i := range s.types {
		if t := &s.types[i]; t.later != nil {
			t.later.Stop()
			t.later = nil
		}
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
