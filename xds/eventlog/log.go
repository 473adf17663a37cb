// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Limits of a Log.
const (
	// Interval is the time for which a line suppresses repeats of itself.
	Interval = time.Minute
	// maxSimilar is the number of lines of one message and group that are written in an
	// Interval.
	maxSimilar = 32

	maxLines   = 256 // kept to suppress their repeats
	maxPending = 256 // waiting for the Logger
)

// A Line is a line of a log.
type Line struct {
	Level   slog.Level
	Message string
	// Group and About are comparable. A line repeats an earlier one with the same Message,
	// Group and About. Lines with the same Message and Group are similar.
	Group, About any
	Attrs        []slog.Attr
}

// A Log writes lines to a Logger. It must be made by NewLog. It is safe for concurrent use,
// even with locks held: the Logger is called by a goroutine that holds no locks.
type Log struct {
	logger func() *slog.Logger

	mu      sync.Mutex
	written map[lineKey]*written
	similar map[similarKey]*similar
	states  map[any]*state // by topic
	pending []Line
	lost    int  // lines that exceeded the capacity of pending
	writing bool // a goroutine writes pending
	closed  bool
}

type lineKey struct {
	message      string
	group, about any
}

type similarKey struct {
	message string
	group   any
}

// written is a written line, and the number of repeats suppressed since.
type written struct {
	at         time.Time
	suppressed int
}

// similar counts lines of a message and group since a time.
type similar struct {
	since               time.Time
	written, suppressed int
}

// state is the latest state of a topic.
type state struct {
	written any         // the state in the latest line; nil before the first
	timer   *time.Timer // runs until a suppressed line is written
}

// NewLog returns a Log that writes to the Logger that logger returns at the time of writing.
func NewLog(logger func() *slog.Logger) *Log {
	return &Log{logger: logger, written: map[lineKey]*written{}, similar: map[similarKey]*similar{}, states: map[any]*state{}}
}

// Write writes a line unless it is suppressed. In that case it returns the remaining time of
// suppression.
func (l *Log) Write(line Line) (suppressed time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writeLocked(line)
}

// WriteState writes a line about the state of a topic that changes repeatedly, such as whether
// a server can be reached. Topic and state are comparable. If the line is suppressed and the
// state still holds at the end of the suppression, the line is written then, so the latest line
// about a topic is always accurate, though up to an Interval late. A topic without any written
// line, because too many were similar, remains without lines.
func (l *Log) WriteState(topic, to any, line Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writeStateLocked(topic, to, line)
}

func (l *Log) writeStateLocked(topic, to any, line Line) {
	s := l.states[topic]
	if s == nil {
		s = &state{}
		l.states[topic] = s
	}
	s.stop()
	wait := l.writeLocked(line)
	switch {
	case wait == 0 && to == any(resolved{}):
		delete(l.states, topic)
	case wait == 0:
		s.written = to
	case s.written == nil && l.written[line.key()] == nil:
	case s.written != to && !l.closed:
		var t *time.Timer
		t = time.AfterFunc(wait, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if s.timer != t {
				return
			}
			if w := l.written[line.key()]; w != nil && w.suppressed > 0 {
				w.suppressed-- // this line is written now
			}
			l.writeStateLocked(topic, to, line)
		})
		s.timer = t
	}
}

// resolved is the state of a topic that Resolve has set.
type resolved struct{}

// Resolve writes the line that ends a condition, if a line about the topic was written. A condition
// whose line was suppressed throughout has no end either.
func (l *Log) Resolve(topic any, line Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch s := l.states[topic]; {
	case s == nil:
	case s.written == nil, s.written == any(resolved{}):
		s.stop()
		delete(l.states, topic)
	default:
		l.writeStateLocked(topic, resolved{}, line)
	}
}

// EndState forgets a topic. A suppressed line about it is dropped.
func (l *Log) EndState(topic any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.states[topic]; s != nil {
		s.stop()
		delete(l.states, topic)
	}
}

func (s *state) stop() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// Close drops the suppressed lines of states. Lines may still be written.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, s := range l.states {
		s.stop()
	}
}

// Idle reports whether all lines have been passed to the Logger.
func (l *Log) Idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.writing
}

func (line *Line) key() lineKey { return lineKey{line.Message, line.Group, line.About} }

// writeLocked queues a line unless it is suppressed.
func (l *Log) writeLocked(line Line) (suppressed time.Duration) {
	now := time.Now()
	last := l.written[line.key()]
	if last != nil {
		if wait := Interval - now.Sub(last.at); wait > 0 {
			last.suppressed++
			return wait
		}
	}
	attrs, wait := l.countSimilarLocked(similarKey{line.Message, line.Group}, now)
	if wait > 0 {
		return wait
	}
	if last != nil && last.suppressed > 0 {
		attrs = append([]slog.Attr{slog.Int("suppressed", last.suppressed)}, attrs...)
	}
	if last == nil && len(l.written) >= maxLines {
		l.forgetLocked(now)
	}
	l.written[line.key()] = &written{at: now}
	if len(l.pending) == maxPending {
		l.lost++
		return 0
	}
	line.Attrs = append(line.Attrs[:len(line.Attrs):len(line.Attrs)], attrs...)
	l.pending = append(l.pending, line)
	if !l.writing {
		l.writing = true
		go l.writePending()
	}
	return 0
}

// countSimilarLocked counts a line among the similar ones of an Interval. The last line before
// the limit announces the suppression, and the first one after it has the number of suppressed
// lines.
func (l *Log) countSimilarLocked(key similarKey, now time.Time) (attrs []slog.Attr, suppressed time.Duration) {
	c := l.similar[key]
	if c == nil {
		c = &similar{since: now}
		l.similar[key] = c
	}
	left := Interval - now.Sub(c.since)
	if left <= 0 {
		if c.suppressed > 0 {
			attrs = append(attrs, slog.Int("suppressed_similar", c.suppressed))
		}
		*c, left = similar{since: now}, Interval
	}
	if c.written == maxSimilar {
		c.suppressed++
		return nil, left
	}
	if c.written++; c.written == maxSimilar {
		attrs = append(attrs, slog.Duration("similar_suppressed_for", left))
	}
	return attrs, 0
}

// forgetLocked makes room for another line: it removes lines that may be written again, or all
// lines if there are no such lines.
func (l *Log) forgetLocked(now time.Time) {
	for key, w := range l.written {
		if now.Sub(w.at) >= Interval {
			delete(l.written, key)
		}
	}
	if len(l.written) >= maxLines {
		clear(l.written)
	}
}

// writePending passes the pending lines to the Logger, in order, until the queue is empty.
func (l *Log) writePending() {
	for {
		l.mu.Lock()
		lines, lost := l.pending, l.lost
		l.pending, l.lost = nil, 0
		l.writing = len(lines) > 0
		l.mu.Unlock()
		if len(lines) == 0 {
			return
		}
		logger := l.logger()
		if logger == nil {
			logger = slog.Default()
		}
		for _, line := range lines {
			logger.LogAttrs(context.Background(), line.Level, line.Message, line.Attrs...)
		}
		if lost > 0 {
			logger.LogAttrs(context.Background(), slog.LevelWarn, "xdslb: log lines lost: the Logger does not keep up", slog.Int("lost", lost))
		}
	}
}
