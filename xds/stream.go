// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/xds/eventlog"
	"github.com/xdslb/xdslb/xds/internal/timing"
	"github.com/xdslb/xdslb/xds/resource"
)

// maxWatcherWait is how long busy watchers may keep a stream from being read.
// Dependency managers keep the latest state only, so reading on costs no memory. A
// watcher that never returns, or that waits for something that this very stream
// brings, must not silence the server.
const maxWatcherWait = time.Second

// maxThrottle bounds the pause of a typeWorker after a response.
const maxThrottle = time.Second

// run keeps a stream to the server open for as long as there is something to
// ask for, until ctx ends.
func (s *server) run(ctx context.Context) {
	cc, err := s.channel.conn()
	if err != nil {
		s.ended(ctx, false, err)
		<-ctx.Done()
		return
	}
	wait := timing.Backoff{Base: s.c.opts.BackoffBase, Max: s.c.opts.BackoffMax}
	for s.pause(ctx, cc, &wait) {
		wait.Begin(time.Now())
		s.retryVariant()
		responded, err := s.stream(ctx, cc)
		if !responded && s.switchVariant(err) {
			responded, err = s.stream(ctx, cc)
		}
		wait.End(time.Now(), responded, rand.Float64())
		s.ended(ctx, responded, err)
	}
}

// ended takes note of the end of a stream.
func (s *server) ended(ctx context.Context, responded bool, err error) {
	s.c.mu.Lock()
	defer s.c.unlock()
	s.exhausted = !responded && status.Code(err) == codes.ResourceExhausted
	if ctx.Err() != nil {
		return // it was the client that ended it
	}
	s.downLocked()
	s.c.reviewLocked()
	if responded {
		// Servers may hang up when they please; only one that says nothing
		// is out of reach (A57).
		s.c.logLocked(slog.LevelInfo, "xdslb: the stream of an xDS server ended", fact{server: s.cfg, typ: noType, err: err})
		s.relation.ended(err)
		if s.c.opts.ReconnectSpread > s.c.opts.BackoffBase {
			s.relation.away()
		}
		s.journalLocked(eventlog.StreamFailed, err)
		return
	}
	s.c.logLocked(slog.LevelWarn, "xdslb: an xDS server cannot be reached", fact{server: s.cfg, typ: noType, err: err})
	s.failedLocked(err)
}

// pause returns true when the next stream should be opened, and false when ctx
// has ended. It waits for demand and for the backoff, but not for all of the
// latter once the connection, which has a backoff of its own, is up again.
func (s *server) pause(ctx context.Context, cc *grpc.ClientConn, wait *timing.Backoff) bool {
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
		lacking, idle := s.demandLocked()
		if idle {
			s.err = nil // what it was is no news by the time that somebody asks
		}
		spread := s.c.opts.ReconnectSpread
		if lacking || !since.IsZero() && s.replacedLocked() {
			spread = 0
		}
		s.c.unlock()
		var due <-chan time.Time
		if !idle {
			at := wait.Due(spread)
			if !since.IsZero() {
				at = wait.Connected(since, spread)
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
// error. It reports whether there was a response. use ends when the server is not used any more.
func (s *server) stream(use context.Context, cc *grpc.ClientConn) (responded bool, err error) {
	ctx, cancel := context.WithCancel(use)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel()

	notice := timing.NewDeadlineTimer(s.c.opts.ConnectFailureAfter, func() {
		state := cc.GetState()
		s.c.mu.Lock()
		defer s.c.unlock()
		if ctx.Err() == nil && !s.up && s.err == nil {
			s.failedLocked(fmt.Errorf("not connected after %v (the connection is %v)", s.c.opts.ConnectFailureAfter, state))
		}
	})
	defer notice.Stop()
	// Without wait-for-ready this fails, and says why, when the connection
	// does; otherwise it returns once there is one (A57).
	s.c.mu.Lock()
	variant := s.variant
	s.c.mu.Unlock()
	ads, err := variant.open(ctx, cc)
	if err != nil {
		return false, err
	}
	s.c.mu.Lock()
	notice.Stop()
	s.openedLocked()
	s.c.unlock()

	silence := time.AfterFunc(s.c.resourceTimeout(s.cfg), func() {
		s.c.mu.Lock()
		defer s.c.unlock()
		if ctx.Err() == nil {
			s.silentLocked()
		}
	})
	defer silence.Stop()
	var retry timing.Timer
	s.c.mu.Lock()
	s.retryForCollectionsLocked(&retry, cancel)
	s.c.unlock()
	defer func() {
		s.c.mu.Lock()
		defer s.c.unlock()
		retry.StopLocked()
	}()

	tasks.Go(func() { s.send(ctx, ads) })
	var workers [resource.NumTypes]chan received
	var pace timing.Pace
	for {
		msg, err := ads.recv()
		if err == io.EOF {
			err = errHungUp
		}
		if err != nil {
			return responded || s.wasQuiet(), err
		}
		at := time.Now()
		pace.Wait(ctx, at)
		t, ok := s.received(msg, !responded)
		responded = true
		if !ok {
			msg.free()
			continue // neither ACK nor NACK: there is nothing to say about it (T-XDS-12)
		}
		if workers[t] == nil {
			responses := make(chan received)
			workers[t] = responses
			tasks.Go(func() { s.typeWorker(use, ctx, t, responses) })
		}
		select {
		case workers[t] <- received{msg, &at}:
		case <-ctx.Done():
		}
	}
}

// silentLocked is for when a server has said nothing for as long as it may take to send
// a resource. If it was told which versions the client has, and nothing lacks, then it
// has nothing to say, and is as good as one that has responded.
func (s *server) silentLocked() {
	if lacking, _ := s.demandLocked(); s.claimed && !lacking {
		s.quiet = true
		s.relation.responded()
	}
}

// wasQuiet reports whether the server had nothing to say on the stream. One that was
// asked for something since then had.
func (s *server) wasQuiet() bool {
	s.c.mu.Lock()
	defer s.c.unlock()
	lacking, _ := s.demandLocked()
	return s.quiet && !lacking
}

// received is a response and when it came.
type received struct {
	msg message
	at  arrival
}

// received counts a response, which may be the first one of its stream, and returns
// its type; not ok if it is none of ours.
func (s *server) received(msg message, first bool) (t resource.Type, ok bool) {
	t, ok = resource.TypeOf(msg.GetTypeUrl())
	size := msg.size()
	s.c.mu.Lock()
	defer s.c.unlock()
	if first {
		s.switched = false
		s.relation.responded()
		s.journalLocked(eventlog.Connected, nil)
		for a := range s.users {
			a.respondedLocked(s)
		}
	}
	if !ok {
		s.c.logLocked(slog.LevelWarn, "xdslb: an xDS server sent resources of an unknown type", fact{server: s.cfg, typ: noType, name: msg.GetTypeUrl()})
		return t, false
	}
	counts := &s.relation.status.Types[t]
	counts.Messages++
	counts.Bytes += uint64(size)
	return t, true
}

// send writes the requests that are due. It ends with the stream; what went
// wrong is reported by the stream's receiving side.
func (s *server) send(ctx context.Context, ads adsStream) {
	node := s.c.node // in the first request of each stream (A27-NODE-1)
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		for {
			s.c.mu.Lock()
			req, fresh := s.requestLocked(node)
			s.c.unlock()
			if req == nil {
				break
			}
			if err := ads.send(req); err != nil {
				return
			}
			node = nil
			s.c.mu.Lock()
			s.sentLocked(req)
			s.startTimersLocked(fresh)
			s.c.unlock()
		}
	}
}

// sentLocked counts a request.
func (s *server) sentLocked(req request) {
	t, _ := resource.TypeOf(req.GetTypeUrl())
	counts := &s.relation.status.Types[t]
	counts.Requests++
	if req.GetErrorDetail() != nil {
		counts.NACKs++
	}
}

// typeWorker handles the responses of one type, one after the other. Each type has
// a worker of its own so that endpoints do not wait while a large set of clusters is
// decoded. A stream holds one response per worker, and one that it has just read.
//
// After a response the next one waits for as long as the response took, so that a
// server which sends without a pause gets half a processor for each type and no
// more. The last response of a stream that ends is handled without that, for as long as the
// server is used.
func (s *server) typeWorker(use, ctx context.Context, t resource.Type, responses <-chan received) {
	var rested time.Time // when the next one may be handled
	for {
		var next received
		select {
		case <-ctx.Done():
			return
		case next = <-responses:
		}
		select {
		case <-ctx.Done():
		case <-timing.After(time.Until(rested)): // which takes no timer if that is over
		}
		begin := time.Now()
		r := response{ctx: use, server: s, typ: t, msg: next.msg, at: next.at}
		affected := r.handle()
		next.msg.free()
		next = received{}
		throttle := min(time.Since(begin), maxThrottle)
		// Let the watchers finish before reading on (T-XDS-14).
		enough := time.After(maxWatcherWait)
		for _, delivered := range affected {
			select {
			case <-delivered:
				continue
			case <-enough:
			case <-ctx.Done():
			}
			break
		}
		rested = time.Now().Add(throttle)
	}
}

var errHungUp = errors.New("the server closed the stream")
