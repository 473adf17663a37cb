// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/xdslb/xdslb/integrate/internal/perrpc"
	"github.com/xdslb/xdslb/internal/alike"
)

// Bounds of a channel's log: how often equal lines are written, and of how many that is
// remembered.
const (
	logInterval = alike.Interval
	maxLogKeys  = 256
)

// logLimiter remembers what a channel has logged. The balancer's mutex guards it.
type logLimiter struct {
	lines map[logKey]*logged
	alike alike.Limiter[string] // by message: thousands of clusters can fail at once
}

// logKey says which lines are equal.
type logKey struct{ message, cluster string }

// logged is when a line was written, and how many equal ones were left out since.
type logged struct {
	at      time.Time
	leftOut int
}

// due returns what is to be said of lines equal to one, and like it, that were left out before
// it, or after how long it may be written, if that is not now.
func (l *logLimiter) due(key logKey, now time.Time) (leftOut []slog.Attr, wait time.Duration) {
	last := l.lines[key]
	if last != nil {
		if wait = logInterval - now.Sub(last.at); wait > 0 {
			last.leftOut++
			return nil, wait
		}
	}
	if leftOut, wait = l.alike.Due(key.message, now); wait > 0 {
		return nil, wait
	}
	if last != nil && last.leftOut > 0 {
		leftOut = append(leftOut, slog.Int("left_out", last.leftOut))
	}
	if l.lines == nil || last == nil && len(l.lines) >= maxLogKeys {
		l.lines = map[logKey]*logged{}
	}
	l.lines[key] = &logged{at: now}
	return leftOut, 0
}

// logLocked has a line written, with the target and the node, once the mutex is free:
// the Logger is the user's code. Of lines with the same message and cluster there is one
// in logInterval, of those with the same message alike.Max, and none while maxLogKeys wait for the
// Logger: if this one is left out, wait is how long it would have to wait.
func (b *lb) logLocked(level slog.Level, message, cluster string, attrs ...slog.Attr) (wait time.Duration) {
	if len(b.lines) >= maxLogKeys { // the Logger does not keep up
		return logInterval
	}
	leftOut, wait := b.logged.due(logKey{message, cluster}, time.Now())
	if wait > 0 {
		return wait
	}
	logger, about := b.opts.Logger, b.aboutLocked(cluster)
	attrs = slices.Concat(attrs, leftOut)
	b.lines = append(b.lines, func() {
		perrpc.LoggerOr(logger).LogAttrs(context.Background(), level, message, slices.Concat(about, attrs)...)
	})
	return 0
}

// turn is what the log says of something that goes back and forth, such as whether RPCs
// of a cluster fail. The balancer's mutex guards it.
type turn struct {
	state string      // by the latest line that was written
	timer *time.Timer // runs until the latest one that was left out is written
}

// topic is what lines with a turn are about.
type topic struct{ what, cluster string }

// logTurnLocked is logLocked for lines that are about a state, which others undo. The
// last of these says how it is: if it is left out, it is written when the time has come,
// unless what the log says is the same, or nothing since many others were alike.
func (b *lb) logTurnLocked(of topic, state string, level slog.Level, message string, attrs ...slog.Attr) {
	t := b.turns[of]
	if t == nil {
		t = &turn{}
		b.turns[of] = t
	}
	halt(&t.timer)
	wait := b.logLocked(level, message, of.cluster, attrs...)
	switch {
	case wait == 0:
		t.state = state
	case t.state == "" && b.logged.lines[logKey{message, of.cluster}] == nil:
	case t.state != state:
		b.afterLocked(wait, &t.timer, func() {
			if last := b.logged.lines[logKey{message, of.cluster}]; last != nil && last.leftOut > 0 {
				last.leftOut-- // it is not left out after all
			}
			b.logTurnLocked(of, state, level, message, attrs...)
		})
	}
}

// endTurnLocked forgets what the log says of something that is no more.
func (b *lb) endTurnLocked(of topic) {
	if t := b.turns[of]; t != nil {
		halt(&t.timer)
		delete(b.turns, of)
	}
}

// msgSilence and msgAsynchronous may be matched like the lines of events.
const msgSilence = "xdslb: endpoints do not answer probes, and are picked by the latency of RPCs; their servers need integrate/probe.Register"

const msgAsynchronous = "xdslb: xdslb_prequal is asynchronous on a channel without xDS: nothing there could have RPCs wait for answers"

// logSilence logs that an endpoint of a cluster does not answer probes.
func (b *lb) logSilence(cluster string, err error) {
	b.lock()
	defer b.unlock()
	if !b.closed {
		b.logLocked(slog.LevelWarn, msgSilence, cluster, slog.String("error", err.Error()))
	}
}

// What turns are about.
const (
	turnServed   = "served"   // whether the target is
	turnFailed   = "failed"   // whether RPCs of a cluster fail
	turnPriority = "priority" // which one a cluster uses
)

// aboutLocked returns the attributes of all lines of a channel.
func (b *lb) aboutLocked(cluster string) (attrs []slog.Attr) {
	if b.src != nil {
		attrs = append(attrs, slog.String("target", b.src.link.Target), slog.String("node", b.src.node))
	} else {
		attrs = append(attrs, slog.String("target", b.build.Target.URL.String()))
	}
	if cluster != "" {
		attrs = append(attrs, slog.String("cluster", cluster))
	}
	return attrs
}

// The lines of events. Programs may match them.
const (
	msgTargetFailed = "xdslb: the target cannot be served"
	msgServedAgain  = "xdslb: the target is served again"
	msgFailover     = "xdslb: a cluster fails over to a lower priority"
	msgUnavailable  = "xdslb: RPCs of a cluster fail"
	msgRecovered    = "xdslb: RPCs of a cluster do not fail any more"
	msgFailback     = "xdslb: a cluster returns to a higher priority"
	msgEjected      = "xdslb: an endpoint is ejected as an outlier"
)

// logEventLocked logs the events that an operator wants to know of. Single connections
// are not among them: a fleet that restarts would fill the log.
func (b *lb) logEventLocked(ev *Event) {
	switch ev.Kind {
	case TargetFailed:
		b.hasFailed = true
		b.logTurnLocked(topic{what: turnServed}, msgTargetFailed, slog.LevelWarn, msgTargetFailed, slog.String("error", fmt.Sprint(ev.Err)))
	case ConfigurationApplied:
		if b.hasFailed {
			b.hasFailed = false
			b.logTurnLocked(topic{what: turnServed}, msgServedAgain, slog.LevelInfo, msgServedAgain)
		}
	case PriorityChanged:
		b.logPriorityLocked(ev)
	case ClusterFailed:
		b.logTurnLocked(topic{turnFailed, ev.Cluster}, msgUnavailable, slog.LevelWarn, msgUnavailable, slog.String("error", fmt.Sprint(ev.Err)))
	case ClusterRecovered:
		b.logTurnLocked(topic{turnFailed, ev.Cluster}, msgRecovered, slog.LevelInfo, msgRecovered)
	case EndpointEjected:
		b.logLocked(slog.LevelInfo, msgEjected, ev.Cluster)
	}
}

// logPriorityLocked logs that a cluster uses another priority. What it begins with is
// none.
func (b *lb) logPriorityLocked(ev *Event) {
	level, message := slog.LevelInfo, msgFailback
	switch {
	case ev.From < 0 || ev.To < 0:
		b.endTurnLocked(topic{turnPriority, ev.Cluster})
		return
	case ev.To > ev.From:
		level, message = slog.LevelWarn, msgFailover
	}
	b.logTurnLocked(topic{turnPriority, ev.Cluster}, priorityName(ev.To), level, message, slog.Int("from_priority", ev.From), slog.Int("to_priority", ev.To))
}
