// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/xdslb/xdslb/xds/internal/timing"
	"github.com/xdslb/xdslb/xds/resource"
)

// maxWatcherWait bounds how long slow watchers delay the reading of a stream. Dependency
// managers keep only the latest state, so reading on requires no memory. A watcher that never
// returns, or that waits for a resource of the same stream, must not block the server.
const maxWatcherWait = 3 * time.Second

// maxThrottle bounds the pause of a worker after a response.
const maxThrottle = 20 * time.Second

var errHungUp = errors.New("the server closed the stream")

// stream is one ADS stream. It receives, and has goroutines that end with it: one that sends
// requests, and one for each type that has been received.
type stream struct {
	session *session
	use     context.Context // ends when the server is not used any more
	ctx     context.Context // ends with the stream
	cancel  context.CancelFunc
	ads     adsStream
	tasks   sync.WaitGroup // the goroutines
	workers [resource.NumTypes]chan received

	responded bool // guarded by core.mu
}

// received is a response and its arrival.
type received struct {
	msg message
	at  receiveTime
}

// runStream opens a stream and serves it until it ends, which is always with an error. It reports
// whether there was a response. use ends when the server is not used any more.
func runStream(use context.Context, s *session, cc *grpc.ClientConn) (responded bool, err error) {
	st := &stream{session: s, use: use}
	st.ctx, st.cancel = context.WithCancel(use)
	defer st.tasks.Wait()
	defer st.cancel()
	if err := st.open(cc); err != nil {
		return false, err
	}
	defer st.watchSilence()()
	st.tasks.Go(st.send)
	return st.receive()
}

// open opens the stream. Without wait-for-ready this fails with the error of the connection, or
// returns when the connection is ready (A57).
func (st *stream) open(cc *grpc.ClientConn) (err error) {
	s := st.session
	after := s.core.opts.ConnectFailureAfter
	notice := timing.NewDeadlineTimer(after, func() {
		state := cc.GetState()
		s.core.mu.Lock()
		defer s.core.unlock()
		if st.ctx.Err() == nil && !s.up && s.err == nil {
			s.failedLocked(fmt.Errorf("not connected after %v (the connection is %v)", after, state))
		}
	})
	defer notice.Stop()
	s.core.mu.Lock()
	variant := s.variant
	if st.ctx.Err() == nil { // else the client may be closed
		noteOpening(s.cfg.URI, s.core, time.Now())
	}
	s.core.mu.Unlock()
	if st.ads, err = variant.open(st.ctx, cc); err != nil {
		return err
	}
	s.core.mu.Lock()
	defer s.core.unlock()
	notice.Stop()
	s.openedLocked()
	s.end = st.cancel
	return nil
}

// watchSilence starts the timer for servers that send nothing, and returns a function that stops it.
func (st *stream) watchSilence() (stop func()) {
	s := st.session
	var silence, local timing.Timer
	s.core.mu.Lock()
	defer s.core.unlock()
	if after := s.core.opts.ConnectFailureAfter; s.cfg.Local() {
		// The stream opens at once, so the next server is used as if the connection took this long. Without
		// another server, the source may take its time.
		s.core.startLocked(&local, after, func() {
			if st.ctx.Err() == nil && !st.responded && s.hasNextLocked() {
				s.failedLocked(fmt.Errorf("no resources within %v", after))
			}
		})
	}
	s.core.startLocked(&silence, s.core.resourceTimeoutLocked(s.cfg), func() {
		if st.ctx.Err() == nil {
			s.onResponseTimeoutLocked()
		}
	})
	return func() {
		s.core.mu.Lock()
		defer s.core.unlock()
		silence.StopLocked()
		local.StopLocked()
	}
}

// receive reads responses and passes them to the workers of their types.
func (st *stream) receive() (responded bool, err error) {
	var pace timing.Pace
	for {
		msg, err := st.ads.recv()
		if err == io.EOF {
			err = errHungUp
		}
		if err != nil {
			return responded || st.wasQuiet(), err
		}
		at := time.Now()
		pace.Wait(st.ctx, at)
		typ, ok := st.count(msg, !responded)
		responded = true
		if !ok {
			msg.Free()
			continue // neither ACK nor NACK, since no request can be about the type (T-XDS-12)
		}
		if st.workers[typ] == nil {
			responses := make(chan received)
			st.workers[typ] = responses
			st.tasks.Go(func() { st.work(&st.session.types[typ], responses) })
		}
		select {
		case st.workers[typ] <- received{msg, &at}:
		case <-st.ctx.Done():
		}
	}
}

func (st *stream) wasQuiet() bool {
	st.session.core.mu.Lock()
	defer st.session.core.unlock()
	return st.session.wasQuietLocked()
}

// count counts a response, which may be the first one of the stream, and returns its type; not ok
// if the type is unknown.
func (st *stream) count(msg message, first bool) (typ resource.Type, ok bool) {
	typ, ok = resource.TypeOf(msg.GetTypeUrl())
	size := msg.Size()
	s := st.session
	s.core.mu.Lock()
	defer s.core.unlock()
	if first {
		st.responded = true
		s.respondedLocked()
	}
	if !ok {
		s.core.logLocked(slog.LevelWarn, "xdslb: an xDS server sent resources of an unknown type", logFields{server: s.cfg, typ: noType, name: msg.GetTypeUrl()})
		return typ, false
	}
	counts := s.types[typ].counts
	counts.Messages++
	counts.Bytes += uint64(size)
	return typ, true
}

// send sends the requests that are due until the stream ends. Errors are reported by the receiving
// side of the stream.
func (st *stream) send() {
	s := st.session
	node := s.core.node // in the first request of each stream (A27-NODE-1)
	for {
		select {
		case <-st.ctx.Done():
			return
		case <-s.wake:
		}
		for {
			s.core.mu.Lock()
			req, awaited := s.requestLocked(node)
			s.core.unlock()
			if req == nil {
				break
			}
			if err := st.ads.send(req); err != nil {
				return
			}
			node = nil
			s.core.mu.Lock()
			s.sentLocked(req, awaited)
			s.core.unlock()
		}
	}
}

// work handles the responses of one type, one after the other. Each type has a worker, so that
// endpoints do not wait while a large set of clusters is decoded. A stream holds one response for
// each worker, and one that it has just read.
//
// After a response the worker pauses for as long as handling and applying it took, so that a server that sends
// continuously gets half a processor for each type. The last response before the end of a stream is
// handled without the pause, as long as the server is used.
func (st *stream) work(t *subscriptions, responses <-chan received) {
	var rested time.Time // when the next response may be handled
	for {
		var next received
		select {
		case <-st.ctx.Done():
			return
		case next = <-responses:
		}
		select {
		case <-st.ctx.Done():
		case <-timing.After(time.Until(rested)): // starts no timer if that has passed
		}
		begin := time.Now()
		r := response{ctx: st.use, t: t, msg: next.msg, at: next.at}
		pending := r.handle()
		next.msg.Free()
		next = received{}
		st.waitFor(pending)
		rested = time.Now().Add(min(time.Since(begin), maxThrottle))
	}
}

// waitFor waits until watchers have handled the changes of a response (T-XDS-14), for
// maxWatcherWait at most.
func (st *stream) waitFor(pending []chan struct{}) {
	enough := time.After(maxWatcherWait)
	for _, delivered := range pending {
		select {
		case <-delivered:
			continue
		case <-enough:
		case <-st.ctx.Done():
		}
		return
	}
}
