// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/xds/internal/timing"
)

// server is an xDS server in use. Its goroutine, run, keeps a stream open while any resource
// is watched, and pauses between streams. The pool starts and stops it.
type server struct {
	session
	channel *channel
	cancel  context.CancelFunc
}

// stopLocked ends the goroutine and the stream.
func (s *server) stopLocked() {
	s.cancel()
	s.downLocked()
}

// run keeps a stream to the server open while any resource is watched, until ctx ends.
func (s *server) run(ctx context.Context) {
	cc, err := s.channel.conn()
	if err != nil {
		s.ended(ctx, false, err)
		<-ctx.Done()
		return
	}
	backoff := timing.Backoff{Base: s.core.opts.BackoffBase, Max: s.core.opts.BackoffMax}
	if s.cfg.Local() {
		backoff.Max = backoff.Base // attempts are cheap
	}
	for s.pause(ctx, cc, &backoff) {
		begun := time.Now()
		backoff.Begin(begun)
		responded, err := s.attempt(ctx, cc)
		displaced := !responded && err == errHungUp && time.Since(begun) < backoff.Base
		if displaced {
			// Istio's agent ends a stream in order when another client opens one. A client of grpc-go's
			// whose stream had a response opens the next one at once, so without a second stream, this
			// client would get no response as long as there is the other one. The other client then
			// backs off. The attempt counts as failed, so that the two do not compete all the time.
			s.core.mu.Lock()
			s.displacedEndedLocked(err)
			s.downLocked()
			s.core.unlock()
			responded, err = s.attempt(ctx, cc)
			displaced = time.Since(begun) < backoff.Max
		}
		backoff.End(time.Now(), responded && !displaced, rand.Float64())
		s.ended(ctx, responded, err)
	}
}

// attempt runs a stream in the wanted variant, and a second one in the other variant if the server
// does not implement the first.
func (s *server) attempt(ctx context.Context, cc *grpc.ClientConn) (responded bool, err error) {
	s.core.mu.Lock()
	s.retryVariantLocked()
	s.core.unlock()
	responded, err = runStream(ctx, &s.session, cc)
	if responded {
		return true, err
	}
	s.core.mu.Lock()
	again := s.switchVariantLocked(err)
	s.core.unlock()
	if again {
		return runStream(ctx, &s.session, cc)
	}
	return false, err
}

// ended updates the state at the end of a stream, unless the client has ended it.
func (s *server) ended(ctx context.Context, responded bool, err error) {
	s.core.mu.Lock()
	defer s.core.unlock()
	s.exhausted = !responded && status.Code(err) == codes.ResourceExhausted
	if ctx.Err() == nil {
		s.endedLocked(responded, err)
	}
}

// pause returns true when the next stream is due, and false when ctx has ended. It waits until a
// resource is watched, and for the backoff. The backoff is cut short when the connection, which has
// a backoff of its own, is ready again.
func (s *server) pause(ctx context.Context, cc *grpc.ClientConn, backoff *timing.Backoff) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var connected chan struct{}
	if cc.GetState() == connectivity.TransientFailure {
		connected = make(chan struct{})
		s.core.tasks.Go(func() {
			defer close(connected)
			for state := cc.GetState(); state != connectivity.Ready && cc.WaitForStateChange(ctx, state); {
				state = cc.GetState()
			}
		})
	}
	var since time.Time // when the connection was ready again
	for ctx.Err() == nil {
		s.core.mu.Lock()
		lacking, idle := s.demandLocked()
		if idle {
			s.err = nil // it is outdated by the time that a resource is watched
		}
		spread := s.core.combined.spread
		if lacking || !since.IsZero() && s.replacedLocked() {
			spread = 0
		}
		s.core.unlock()
		var due <-chan time.Time
		if !idle {
			at := backoff.Due(spread)
			if !since.IsZero() {
				at = backoff.Connected(since, spread)
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
