// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"log/slog"

	"github.com/zeebo/xxh3"

	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/eventlog"
	"github.com/xdslb/xdslb/xds/resource"
)

// maxLogError is how long an error in a log line may be, in bytes, so that a line has no more
// than 8 KiB.
const maxLogError = 4 << 10

// fact is what a log line is about. Fields that do not apply are zero, except for typ, which
// is noType then.
type fact struct {
	server  *bootstrap.Server
	typ     resource.Type
	name    string // of the resource
	version string
	err     error
}

const noType = resource.NumTypes

// logKey identifies lines that repeat each other. It leaves out the version, which a server
// that sends the same fault again may count up.
type logKey struct {
	typ       resource.Type
	name, err uint64 // hashes: texts can be long
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
		attrs = append(attrs, slog.String("resource", eventlog.Cut(f.name)))
	}
	if f.version != "" {
		attrs = append(attrs, slog.String("version", eventlog.Cut(f.version)))
	}
	return attrs
}

// logLocked queues a line for the log. Lines about the same fact are repeats, and lines with the
// same message about a server are similar: see [eventlog.Log].
func (c *Client) logLocked(level slog.Level, message string, f fact, more ...slog.Attr) {
	about := logKey{typ: f.typ, name: xxh3.HashString(f.name)}
	attrs := append(f.attrs(), more...)
	attrs = append(attrs, slog.String("node", c.node.GetId()))
	if f.err != nil {
		text := f.err.Error()
		about.err = xxh3.HashString(text)
		attrs = append(attrs, slog.String("error", eventlog.CutTo(text, maxLogError)))
	}
	c.log.Write(eventlog.Line{Level: level, Message: message, Group: f.server, About: about, Attrs: attrs})
}

// unlock releases mu. Callers that only read may unlock mu directly.
func (c *Client) unlock() {
	c.counted = nil
	c.mu.Unlock()
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
