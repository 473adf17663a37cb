// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"log/slog"
	"sync"
	"time"
)

// This file detects streams that a server ends in order again and again. Some agents, such as Istio's,
// accept one stream and end the previous one in order when another one opens. Two clients behind
// such an agent then displace each other's streams each time that they reconnect. A server that is no
// such agent, and to which no other client of the process connects, may end them by itself.

const (
	// displacedWithin is the age below which the orderly end of a stream counts. It is longer than
	// the first backoffs of another XdsClient, during which the stream stays open.
	displacedWithin = 5 * time.Second
	// displacedTimes is the number of streams that end so, each within undisplacedAfter of the previous
	// one.
	displacedTimes = 3
	// undisplacedAfter is the age of a stream that ends the condition, and the time after which a
	// displaced stream no longer counts. It is longer than the longest backoff of another XdsClient.
	undisplacedAfter = 3 * time.Minute
)

const (
	msgDisplaced   = "xdslb: other xDS streams displace the client's"
	msgUndisplaced = "xdslb: xDS stream no longer displaced"
	msgEnding      = "xdslb: an xDS server ends each stream in order"
	msgStays       = "xdslb: an xDS server no longer ends each stream"
)

// displacedOpenedLocked is called when a stream has been opened.
func (s *session) displacedOpenedLocked() {
	d := &s.stats.displacement
	d.opened = time.Now()
	if d.since.IsZero() {
		return
	}
	s.core.startLocked(&d.settled, undisplacedAfter, func() {
		message := msgStays
		if !s.stats.status.Displaced.IsZero() {
			message = msgUndisplaced
		}
		s.core.logLocked(slog.LevelInfo, message, logFields{server: s.cfg, typ: noType}, slog.Duration("after", time.Since(d.since).Round(time.Second)))
		d.times, d.since = 0, time.Time{}
		s.stats.status.Displaced, s.stats.status.EndsStreams = d.since, d.since
	})
}

// displacedEndedLocked is called when a stream has ended.
func (s *session) displacedEndedLocked(err error) {
	d := &s.stats.displacement
	now := time.Now()
	by := openedByOther(s.cfg.URI, s.core, now)
	if !errors.Is(err, errHungUp) {
		d.times = 0
		return
	}
	if now.Sub(d.opened) >= displacedWithin && !by {
		return
	}
	if now.Sub(d.last) > undisplacedAfter {
		d.times = 0
	}
	d.last = now
	other := ""
	switch {
	case by:
		other = "another XdsClient of this process"
	case s.core.cfg.IsAgent(s.cfg):
		other = "unknown"
	}
	known := !d.since.IsZero() && (other == "" || !s.stats.status.Displaced.IsZero())
	if d.times++; d.times < displacedTimes || known {
		return
	}
	d.since = now
	s.stats.status.Displaced, s.stats.status.EndsStreams = now, time.Time{}
	if other == "" {
		s.stats.status.Displaced, s.stats.status.EndsStreams = time.Time{}, now
		s.core.logLocked(slog.LevelWarn, msgEnding, logFields{server: s.cfg, typ: noType},
			slog.String("cause", "the server ends streams by itself, or accepts one stream while another process opens others; updates are late or do not arrive"),
			slog.String("remedy", "look for the reason in the log of the server"))
		return
	}
	s.core.logLocked(slog.LevelWarn, msgDisplaced, logFields{server: s.cfg, typ: noType}, slog.String("other", other),
		slog.String("cause", "the server, for instance Istio's agent, accepts one stream and ends the previous one in order when another one opens; updates are late or do not arrive"),
		slog.String("remedy", "have one xDS client behind the agent: select all targets of the process or none with XDSLB_ENABLE and XDSLB_DISABLE; do not use "+
			"an xDS server or client of google.golang.org/grpc/xds, different Config.Policies or ControlPlaneDialOptions, or several processes behind one agent"))
}

// openings has the time of the latest stream of each client of the process to each server, by URI.
var openings = struct {
	mu     sync.Mutex
	latest map[string]map[*core]time.Time
}{latest: map[string]map[*core]time.Time{}}

// noteOpening records a stream of a client. It is called before the stream is opened, since the server
// may end another client's stream before this one's is known to be open.
func noteOpening(uri string, by *core, at time.Time) {
	openings.mu.Lock()
	defer openings.mu.Unlock()
	if openings.latest[uri] == nil {
		openings.latest[uri] = map[*core]time.Time{}
	}
	openings.latest[uri][by] = at
}

// openedByOther reports whether another client of the process has opened a stream to a server
// within the last second.
func openedByOther(uri string, than *core, now time.Time) bool {
	openings.mu.Lock()
	defer openings.mu.Unlock()
	for by, at := range openings.latest[uri] {
		if by != than && now.Sub(at) < time.Second {
			return true
		}
	}
	return false
}

// forgetOpenings is called when a client closes.
func forgetOpenings(of *core) {
	openings.mu.Lock()
	defer openings.mu.Unlock()
	for uri, latest := range openings.latest {
		if delete(latest, of); len(latest) == 0 {
			delete(openings.latest, uri)
		}
	}
}
