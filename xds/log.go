// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"log/slog"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/xdslb/xdslb/internal/alike"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/resource"
)

// Bounds of the log: how often equal lines are written, how many different ones are
// remembered for that, and how many wait for a Logger that is busy.
const (
	logInterval = alike.Interval
	maxLogKeys  = 256
	maxLogLines = 256
)

// logLine is a line for the log.
type logLine struct {
	level   slog.Level
	message string
	attrs   []slog.Attr
}

// fact is what a line of the log is about. Fields that say nothing are zero, but the
// type of what concerns no resource is noType.
type fact struct {
	server  *bootstrap.Server
	typ     resource.Type
	name    string // of the resource
	version string
	err     error
}

const noType = resource.NumTypes

// logKey says which lines are equal: all of them but for the version, since a server
// that sends the same fault again may count versions up.
type logKey struct {
	message   string
	server    *bootstrap.Server
	typ       resource.Type
	name, err uint64 // hashes: texts can be long
}

// logged is when a line was written, and how many equal ones have been left out
// since.
type logged struct {
	at      time.Time
	leftOut int
}

// alikeKey is a kind of lines, of which so many are written (see package alike).
type alikeKey struct {
	message string
	server  *bootstrap.Server
}

// attrs returns the fact as attributes.
func (f fact) attrs() (attrs []slog.Attr) {
	if f.server != nil {
		attrs = append(attrs, slog.String("server", f.server.URI))
	}
	if f.typ < noType {
		attrs = append(attrs, slog.String("type", f.typ.String()))
	}
	if f.name != "" {
		attrs = append(attrs, slog.String("resource", cut(f.name)))
	}
	if f.version != "" {
		attrs = append(attrs, slog.String("version", cut(f.version)))
	}
	return attrs
}

// logLocked notes a line for the log, which is written once the lock is released. Of
// equal lines there is one in logInterval, which says how many were left out since the
// one before. Of lines that differ there are alike.Max with the same message about a server; the
// last of them, and the first one afterwards, say so. If the Logger does not keep up, the line is lost, and counted.
func (c *Client) logLocked(level slog.Level, message string, f fact, more ...slog.Attr) {
	key := logKey{message: message, server: f.server, typ: f.typ, name: xxh3.HashString(f.name)}
	if f.err != nil {
		key.err = xxh3.HashString(f.err.Error())
	}
	now := time.Now()
	last := c.logged[key]
	if last != nil && now.Sub(last.at) < logInterval {
		last.leftOut++
		return
	}
	others, wait := c.alike.Due(alikeKey{message, f.server}, now)
	if wait > 0 {
		return
	}
	attrs := append(f.attrs(), more...)
	attrs = append(attrs, slog.String("node", c.node.GetId()))
	if f.err != nil {
		attrs = append(attrs, slog.String("error", f.err.Error()))
	}
	if last != nil && last.leftOut > 0 {
		attrs = append(attrs, slog.Int("left_out", last.leftOut))
	}
	attrs = append(attrs, others...)
	if last == nil && len(c.logged) >= maxLogKeys {
		c.forgetLoggedLocked(now)
	}
	c.logged[key] = &logged{at: now}
	if len(c.log) == maxLogLines {
		c.logLost++
		return
	}
	c.log = append(c.log, logLine{level, message, attrs})
}

// forgetLoggedLocked makes room for another key: it forgets the lines that may be
// written again, and if there are none, all.
func (c *Client) forgetLoggedLocked(now time.Time) {
	for key, l := range c.logged {
		if now.Sub(l.at) >= logInterval {
			delete(c.logged, key)
		}
	}
	if len(c.logged) >= maxLogKeys {
		clear(c.logged)
	}
}

// unlock releases mu, and has what was noted for the log meanwhile written. The Logger is
// the user's code: it may call the client, and if it blocks, nothing waits for it. Who has
// only looked releases mu itself.
func (c *Client) unlock() {
	c.counted = nil
	if len(c.log) > 0 && !c.logging {
		c.logging = true
		go c.writeLog()
	}
	c.mu.Unlock()
}

// writeLog writes lines in the order in which they were noted, until there are none.
func (c *Client) writeLog() {
	for {
		c.mu.Lock()
		lines, lost := c.log, c.logLost
		c.log, c.logLost = nil, 0
		c.logging = len(lines) > 0
		c.mu.Unlock()
		if len(lines) == 0 {
			return
		}
		logger := loggerOr(c.logger.Load())
		for _, l := range lines {
			logger.LogAttrs(context.Background(), l.level, l.message, l.attrs...)
		}
		if lost > 0 {
			logger.LogAttrs(context.Background(), slog.LevelWarn, "xdslb: the Logger does not keep up, and lines of the log are lost",
				slog.Int("lost", lost), slog.String("node", c.node.GetId()))
		}
	}
}

// loggerOr returns the logger, or the process's if there is none.
func loggerOr(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.Default()
	}
	return l
}

// LogLoadReports writes a line to the Logger: the reports of load to a server, by its
// bootstrap.Server.Key, ended without a word of it. It does not wait for the Logger.
func (c *Client) LogLoadReports(server string, err error) {
	c.mu.Lock()
	defer c.unlock()
	c.logLocked(slog.LevelWarn, "xdslb: load cannot be reported to a server", fact{server: c.known[server], typ: noType, err: err})
}

// shareLogger has a client that exists already take notice of the Logger of one more
// Acquire: the first one that is not nil is used from then on. It reports whether
// that is another one, and the caller should say so.
func (c *Client) shareLogger(l *slog.Logger) (say bool) {
	if l == nil || c.logger.CompareAndSwap(nil, l) || c.logger.Load() == l {
		return false
	}
	return c.other.Swap(l) != l
}
