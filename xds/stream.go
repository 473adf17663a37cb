// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/xds/resource"
)

// patience is how long watchers that are busy may keep a server from being
// heard. Views keep the latest state only, so reading on costs no memory; but
// a watcher that never returns, or that itself waits for something this very
// stream has to bring, must not silence the server.
const patience = time.Second

// longestRest bounds the rest that a lane takes after a response.
const longestRest = time.Second

// run keeps a stream to the server open for as long as there is something to
// ask for, until ctx ends.
func (s *server) run(ctx context.Context) {
	cc, err := s.channel.conn()
	if err != nil {
		s.ended(ctx, false, err)
		<-ctx.Done()
		return
	}
	wait := backoff{base: s.c.opts.BackoffBase, max: s.c.opts.BackoffMax}
	for s.pause(ctx, cc, &wait) {
		wait.begin(time.Now())
		responded, err := s.stream(ctx, cc)
		wait.end(time.Now(), responded, rand.Float64())
		s.ended(ctx, responded, err)
	}
}

// ended takes note of the end of a stream.
func (s *server) ended(ctx context.Context, responded bool, err error) {
	s.c.mu.Lock()
	defer s.c.unlock()
	if ctx.Err() != nil {
		return // it was the client that ended it
	}
	s.down()
	if responded {
		// Servers may hang up when they please; only one that says nothing
		// is out of reach (A57).
		s.c.infof("The stream of xDS server %q ended: %v", s.cfg.URI, err)
		return
	}
	s.c.warnf("xDS server %q cannot be reached: %v", s.cfg.URI, err)
	s.failed(err)
}

// pause returns true when the next stream should be opened, and false when ctx
// has ended. It waits for demand and for the backoff, but not for all of the
// latter once the connection, which has a backoff of its own, is up again.
func (s *server) pause(ctx context.Context, cc *grpc.ClientConn, wait *backoff) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var connected chan struct{}
	if cc.GetState() == connectivity.TransientFailure {
		connected = make(chan struct{})
		s.c.tasks.Go(func() {
			defer close(connected)
			for state := cc.GetState(); state != connectivity.Ready && cc.WaitForStateChange(ctx, state); {
				state = cc.GetState()
			}
		})
	}
	var since time.Time // there is a connection again
	for ctx.Err() == nil {
		s.c.mu.Lock()
		urgent, idle := s.demand()
		if idle {
			s.err = nil // what it was is no news by the time that somebody asks
		}
		if !since.IsZero() {
			urgent = urgent || s.replaced()
		}
		s.c.unlock()
		var due <-chan time.Time
		if !idle {
			at := wait.due(urgent)
			if !since.IsZero() {
				at = wait.connected(since, urgent)
			}
			if d := time.Until(at); d > 0 {
				due = time.After(d)
			} else {
				return true
			}
		}
		select {
		case <-ctx.Done():
		case <-due:
		case <-s.wake:
		case <-connected:
			connected, since = nil, time.Now()
		}
	}
	return false
}

// stream opens a stream and serves it until it ends, which is always with an
// error. It reports whether there was a response.
func (s *server) stream(ctx context.Context, cc *grpc.ClientConn) (responded bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel()

	notice := time.AfterFunc(s.c.opts.ConnectNotice, func() {
		state := cc.GetState()
		s.c.mu.Lock()
		defer s.c.unlock()
		if ctx.Err() == nil && !s.up && s.err == nil {
			s.failed(fmt.Errorf("not connected after %v (the connection is %v)", s.c.opts.ConnectNotice, state))
		}
	})
	defer notice.Stop()
	// Without wait-for-ready this fails, and says why, when the connection
	// does; otherwise it returns once there is one (A57).
	ads, err := discoveryv3.NewAggregatedDiscoveryServiceClient(cc).StreamAggregatedResources(ctx)
	if err != nil {
		return false, err
	}
	s.c.mu.Lock()
	notice.Stop()
	s.opened()
	s.c.unlock()

	tasks.Go(func() { s.send(ctx, ads) })
	var lanes [resource.NumTypes]chan *discoveryv3.DiscoveryResponse
	for {
		msg, err := ads.Recv()
		if err == io.EOF {
			err = errHungUp
		}
		if err != nil {
			return responded, err
		}
		if !responded {
			responded = true
			s.c.mu.Lock()
			for a := range s.users {
				a.responded(s)
			}
			s.c.unlock()
		}
		t, ok := resource.TypeOf(msg.GetTypeUrl())
		if !ok {
			// Neither ACK nor NACK: there is nothing to say about it (T-XDS-12).
			logger.Warningf("xDS server %q sent resources of the unknown type %q", s.cfg.URI, msg.GetTypeUrl())
			continue
		}
		if lanes[t] == nil {
			lane := make(chan *discoveryv3.DiscoveryResponse)
			lanes[t] = lane
			tasks.Go(func() { s.lane(ctx, t, lane) })
		}
		select {
		case lanes[t] <- msg:
		case <-ctx.Done():
		}
	}
}

// send writes the requests that are due. It ends with the stream; what went
// wrong is reported by the stream's receiving side.
func (s *server) send(ctx context.Context, ads discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient) {
	node := s.c.node // in the first request of each stream (A27-NODE-1)
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		for {
			s.c.mu.Lock()
			req, fresh := s.request(node)
			s.c.unlock()
			if req == nil {
				break
			}
			if err := ads.Send(req); err != nil {
				return
			}
			node = nil
			s.c.mu.Lock()
			s.startTimers(fresh)
			s.c.unlock()
		}
	}
}

// lane handles the responses of one type, one after the other. Each type has a
// lane of its own so that endpoints do not wait while a large set of clusters
// is decoded. A stream holds one response per lane, and one more in its hand.
//
// After a response a lane rests for as long as it took, so that a server which
// sends without a pause gets half a processor for each type and no more.
func (s *server) lane(ctx context.Context, t resource.Type, responses <-chan *discoveryv3.DiscoveryResponse) {
	for {
		var msg *discoveryv3.DiscoveryResponse
		select {
		case <-ctx.Done():
			return
		case msg = <-responses:
		}
		begin := time.Now()
		r := response{server: s, typ: t, msg: msg}
		touched := r.handle()
		msg = nil
		rest := min(time.Since(begin), longestRest)
		// Let the watchers finish before reading on (T-XDS-14).
		enough := time.After(patience)
		for _, settled := range touched {
			select {
			case <-settled:
				continue
			case <-enough:
			case <-ctx.Done():
			}
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(rest):
		}
	}
}

var errHungUp = errors.New("the server closed the stream")
