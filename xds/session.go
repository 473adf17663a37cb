// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/eventlog"
	"github.com/xdslb/xdslb/xds/resource"
)

// session is the state of ADS with one server: the subscriptions by type, and the results of the
// streams so far. It exists while the server is in use, and is guarded by core.mu.
//
// Requests are not queued. The content of a request is computed from this state when the request is
// sent, so a burst of subscriptions is one request, and a late request cannot revert a later
// one (T-XDS-4, T-XDS-5).
type session struct {
	peer
	types [resource.NumTypes]subscriptions

	switched bool      // the variant has changed since the latest response
	refused  time.Time // when the server last answered UNIMPLEMENTED to the wanted variant
	quiet    bool      // the server has nothing to send on this stream: see onResponseTimeoutLocked
	err      error     // why there is no stream; nil at the beginning of the first attempt

	end      context.CancelFunc // ends the stream; nil without one
	cause    error              // why the client has ended the stream, for another one; otherwise nil
	overlays int                // core.firstOverlays when the stream was opened
}

// initLocked initializes the state of a server that is not in use yet.
func (s *session) initLocked(core *core, cache *cache, cfg *bootstrap.Server, r *serverStats) {
	s.peer = peer{core: core, cache: cache, cfg: cfg, stats: r, users: map[serverUser]bool{}, wake: make(chan struct{}, 1)}
	for i := range s.types {
		s.types[i] = subscriptions{peer: &s.peer, typ: resource.Type(i), counts: &r.status.Types[i], subs: map[string]*subscription{}}
	}
	s.setVariantLocked(wantedVariantLocked(cfg, &core.combined))
}

// entriesLocked visits the entries that are subscribed to.
func (s *session) entriesLocked() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for i := range s.types {
			for e := range s.types[i].entriesLocked() {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// recordLocked records an event about the server in the journals of the targets that have
// resources from it.
func (s *session) recordLocked(kind eventlog.Kind, err error) {
	recordLocked(newEvent(kind, s.cfg, err), s.entriesLocked())
}

// demandLocked reports whether a resource that is watched is not in the cache, and whether no
// resource is watched.
func (s *session) demandLocked() (lacking, idle bool) {
	idle = true
	for e := range s.entriesLocked() {
		if e.watchedLocked() {
			idle = false
			if e.value == nil || e.wantsBytesLocked() {
				return true, false
			}
		}
	}
	return false, idle
}

// owedLocked reports whether the server has to send a resource that is watched. It has not if the
// resource is known not to exist.
func (s *session) owedLocked() bool {
	for e := range s.entriesLocked() {
		if e.watchedLocked() && (e.uncachedLocked() || e.wantsBytesLocked()) {
			return true
		}
	}
	return false
}

// openedLocked prepares for a new stream: there is no nonce, and all types are dirty.
func (s *session) openedLocked() {
	s.up, s.err = true, nil
	s.sentVersions, s.quiet, s.cause, s.overlays = false, false, nil, s.core.firstOverlays
	s.stats.streamOpened()
	s.displacedOpenedLocked()
	for i := range s.types {
		t := &s.types[i]
		t.sent, t.responded, t.lastNack = false, false, rejection{}
		t.whole = false // another server may have sent something since
		t.protocol.openedLocked(t)
		t.dirty = true
	}
	s.notify()
}

// restartLocked ends the stream so that the server sends the resources again whose bytes are not known.
// It sends them on a stream that was opened since there is an overlay.
func (s *session) restartLocked() {
	if s.end != nil && s.cause == nil && s.overlays != s.core.firstOverlays {
		s.core.logLocked(slog.LevelInfo, "xdslb: opening another stream to receive resources again, since a channel has an overlay", logFields{server: s.cfg, typ: noType})
		s.endStreamLocked(errors.New("a channel has an overlay"))
	}
}

// endStreamLocked ends the stream, for another one.
func (s *session) endStreamLocked(cause error) {
	if s.end != nil && s.cause == nil {
		s.cause = cause
		s.end()
	}
}

// downLocked is called when there is no stream any more. Timers wait for the next one (T-XDS-7).
func (s *session) downLocked() {
	s.up, s.end = false, nil
	s.stats.displacement.settled.StopLocked()
	for i := range s.types {
		t := &s.types[i]
		t.nackTimer.StopLocked()
		t.protocol.stopLocked()
		for _, sub := range t.subs {
			sub.timer.StopLocked()
			if !sub.entry.watchedLocked() {
				t.dropLocked(sub.entry)
			}
		}
	}
}

// endedLocked is called when a stream has ended, or could not be opened.
func (s *session) endedLocked(responded bool, err error) {
	s.downLocked()
	s.displacedEndedLocked(err)
	if s.cause != nil {
		s.core.logLocked(slog.LevelDebug, "xdslb: the client ended the stream of an xDS server", logFields{server: s.cfg, typ: noType, err: s.cause})
		s.cause = nil
		return
	}
	if !responded {
		s.core.beginLocked(s.unreachable(), "xdslb: an xDS server cannot be reached", logFields{server: s.cfg, typ: noType, err: err})
		s.failedLocked(err)
		return
	}
	// Servers may end streams at any time; only a server that sends nothing is
	// unreachable (A57).
	s.core.logLocked(slog.LevelInfo, "xdslb: the stream of an xDS server ended", logFields{server: s.cfg, typ: noType, err: err})
	s.stats.ended(err)
	if s.core.combined.spread > s.core.opts.BackoffBase {
		s.stats.away()
	}
	s.recordLocked(eventStreamFailed, err)
}

// failedLocked is called when the server cannot be reached: the connection or the stream
// ended without a response, or takes suspiciously long (A57).
func (s *session) failedLocked(err error) {
	s.err = err
	if s.stats.ended(err) {
		s.recordLocked(eventStreamFailed, err)
	}
	s.stats.failed()
	for a := range s.users {
		a.checkLocked()
	}
}

// respondedLocked is called for the first response of a stream.
func (s *session) respondedLocked() {
	s.switched, s.err = false, nil
	s.reachedLocked()
	s.recordLocked(eventConnected, nil)
	for a := range s.users {
		a.respondedLocked(&s.peer)
	}
}

// onResponseTimeoutLocked is called when the server has sent nothing for the time in which it must send a
// resource (Options.ResourceTimeout). If the request had the versions of all resources, the server
// has nothing to send, and counts as having responded.
func (s *session) onResponseTimeoutLocked() {
	if s.sentVersions && !s.owedLocked() {
		s.quiet = true
		s.reachedLocked()
	}
}

// unreachable is the condition that the server cannot be reached.
func (s *session) unreachable() condition { return condition{server: s.cfg, kind: "unreachable"} }

// reachedLocked is called when the server has responded on a stream, or has nothing to send.
func (s *session) reachedLocked() {
	s.stats.responded()
	s.core.endLocked(s.unreachable(), "xdslb: an xDS server can be reached again", logFields{server: s.cfg, typ: noType})
}

// wasQuietLocked reports whether the server had nothing to send on the stream, or the client has
// ended it. It is false once the server has to send a resource.
func (s *session) wasQuietLocked() bool {
	return s.cause != nil || s.quiet && !s.owedLocked()
}

// requestLocked returns the next request that is due on the current stream, and the
// subscriptions that wait for an answer to it, or nil.
func (s *session) requestLocked(node *corev3.Node) (request, []*subscription) {
	for i := range s.types {
		if t := &s.types[i]; t.dirty {
			if req, awaited := t.protocol.requestLocked(t, node); req != nil {
				return req, awaited
			}
		}
	}
	return nil, nil
}

// sentLocked is called when a request has been sent. It counts the request and starts the timers of
// the resources that wait for an answer.
func (s *session) sentLocked(req request, awaited []*subscription) {
	typ, _ := resource.TypeOf(req.GetTypeUrl())
	t := &s.types[typ]
	t.counts.Requests++
	if req.GetErrorDetail() != nil {
		t.counts.NACKs++
	}
	t.startTimersLocked(awaited)
}

// variantRetry is the time after which a variant that a server does not implement is tried again.
const variantRetry = 5 * time.Minute

// switchVariantLocked switches to the other variant after a stream that ended without a response
// because the server does not implement this one. It reports whether a stream of the other one
// follows at once. A server that implements neither counts as unreachable.
func (s *session) switchVariantLocked(err error) bool {
	if status.Code(err) != codes.Unimplemented {
		return false
	}
	next := alternate(s.variant)
	s.core.logLocked(slog.LevelInfo, "xdslb: an xDS server does not implement a variant of ADS, trying the other", logFields{server: s.cfg, typ: noType, err: err},
		slog.String("variant", s.variant.String()), slog.String("other", next.String()))
	if s.variant == wantedVariantLocked(s.cfg, &s.core.combined) {
		s.refused = time.Now()
	}
	s.setVariantLocked(next)
	first := !s.switched
	s.switched = true
	return first
}

// retryVariantLocked switches the next stream to the wanted variant, if the server has not refused
// it for a while: the refusal may have been the answer of a proxy, or of an earlier version.
func (s *session) retryVariantLocked() {
	if want := wantedVariantLocked(s.cfg, &s.core.combined); s.variant != want && time.Since(s.refused) >= variantRetry {
		s.switched = false
		s.setVariantLocked(want)
	}
}

// setVariantLocked sets the variant of the next stream.
func (s *session) setVariantLocked(v variant) {
	s.variant = v
	s.stats.status.Variant = v.String()
	for i := range s.types {
		t := &s.types[i]
		if t.protocol != nil {
			t.protocol.stopLocked()
		}
		t.protocol, t.slots = v.newProtocol(), nil
		for _, sub := range t.subs {
			sub.received = false // versions of one variant mean nothing in the other
		}
	}
}
