// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/zeebo/xxh3"

	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/eventlog"
	"github.com/xdslb/xdslb/xds/internal/timing"
	"github.com/xdslb/xdslb/xds/resource"
)

var errClosed = errors.New("xdslb: the client is closed")

// core is shared by all parts of a Client: the configuration, the mutex, the log, and the
// context and goroutines that end with the Client. It does not refer to the parts.
type core struct {
	cfg    *bootstrap.Config
	opts   Options
	node   *corev3.Node
	bytes  bool                        // whether to keep the bytes of resources, see KeepBytes
	rest   time.Duration               // restTime, except in tests
	logger atomic.Pointer[slog.Logger] // nil is slog.Default()
	log    *eventlog.Log
	ctx    context.Context // ends with the Client
	cancel context.CancelFunc
	tasks  sync.WaitGroup // all goroutines of the Client

	// mu guards the state of all parts. It is the only lock of the package besides registry.mu and openings.mu. It is
	// held only while memory is accessed, never during a call of a Watcher, gRPC or a resolver.
	mu      sync.Mutex
	changes uint64 // incremented by unlock
	// overlaid is the number of targets with an overlay, see keepsLocked, and firstOverlays how often
	// it became 1.
	overlaid, firstOverlays int
	combined                combined // the options of all users
}

func newCore(cfg *bootstrap.Config, opts Options) *core {
	c := &core{cfg: cfg, opts: opts, node: cfg.Node(), bytes: keepBytes.Load(), rest: restTime, combined: combinedOf(&opts)}
	c.logger.Store(opts.Logger)
	c.log = eventlog.NewLog(c.logger.Load)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// restTime is longer than any message is in flight, and than any round trip to a server.
const restTime = 100 * time.Millisecond

// unlock releases mu after a change of the state, and invalidates results that are cached by
// changes, such as Client.CountResources. Callers that only read may unlock mu directly.
func (c *core) unlock() {
	c.changes++
	c.mu.Unlock()
}

// startLocked starts a timer, whose function is called with mu held.
func (c *core) startLocked(t *timing.Timer, d time.Duration, f func()) {
	t.StartLocked(d, locker{c}, f)
}

// locker is the sync.Locker of timers.
type locker struct{ core *core }

func (l locker) Lock()   { l.core.mu.Lock() }
func (l locker) Unlock() { l.core.unlock() }

// withNodeID adds the node id to an error, so that users can find the client in the log of a
// control plane (T-XDS-18).
func (c *core) withNodeID(err error) error {
	return fmt.Errorf("[xDS node id: %s]: %w", c.node.GetId(), err)
}

// resourceTimeoutLocked returns how long a server may take to send a resource.
func (c *core) resourceTimeoutLocked(s *bootstrap.Server) time.Duration {
	switch {
	case !c.combined.defaultTimeout:
		return c.combined.timeout
	case s.ResourceTimerIsTransientError:
		return max(c.combined.timeout, 30*time.Second)
	}
	return max(c.combined.timeout, 15*time.Second)
}

// decodeOptions returns the options of the bootstrap for decoding resources from a server.
func (c *core) decodeOptions(s *bootstrap.Server) resource.Options {
	return resource.Options{
		TrustedServer: s.TrustedXDSServer,
		Policies:      c.opts.Policies,
		CertProvider: func(instance string, use resource.CertUse) error {
			return c.cfg.CheckCertProvider(instance, use == resource.RootCerts)
		},
		Filter:          c.opts.Filter,
		AcceptHostnames: c.opts.AcceptHostnames,
	}
}

// recoverPanic decodes a resource, and returns a panic as an error (T-XDS-19).
func recoverPanic(t resource.Type, decode func() (any, error)) (value any, err error) {
	defer func() {
		if p := recover(); p != nil {
			value, err = nil, fmt.Errorf("xdslb: decoding a %v resource panicked: %v", t, p)
		}
	}()
	return decode()
}

// maxLogError bounds an error in a log line, in bytes, so that a line is not longer than 8 KiB.
const maxLogError = 4 << 10

// logFields is the subject of a log line. Fields that do not apply are zero, except for typ, which
// is noType then.
type logFields struct {
	server  *bootstrap.Server
	typ     resource.Type
	name    string // of the resource
	version string
	err     error
}

const noType = resource.NumTypes

// logKey identifies repeated lines. It leaves out the version, which a server may increment each
// time that it sends the same fault.
type logKey struct {
	typ       resource.Type
	name, err uint64 // hashes, since texts can be long
}

// attrs returns the fields as attributes.
func (f logFields) attrs() (attrs []slog.Attr) {
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

// logLocked queues a line for the log. Lines with the same fields are repeats, and lines with the
// same message about a server are similar: see [eventlog.Log].
func (c *core) logLocked(level slog.Level, message string, f logFields, more ...slog.Attr) {
	c.log.Write(c.line(level, message, f, more))
}

// A condition is a topic of the log that begins with a warning and ends with a line that says so.
type condition struct {
	kind   string
	server *bootstrap.Server // nil for conditions of a resource
	typ    resource.Type     // of rejected resources
	of     any               // the entry of a resource; otherwise nil
}

// beginLocked logs that a condition exists.
func (c *core) beginLocked(of condition, message string, f logFields, more ...slog.Attr) {
	c.log.WriteState(of, message, c.line(slog.LevelWarn, message, f, more))
}

// endLocked logs that a condition has ended, if its beginning was logged.
func (c *core) endLocked(of condition, message string, f logFields) {
	c.log.Resolve(of, c.line(slog.LevelInfo, message, f, nil))
}

// line returns a line of the log.
func (c *core) line(level slog.Level, message string, f logFields, more []slog.Attr) eventlog.Line {
	about := logKey{typ: f.typ, name: xxh3.HashString(f.name)}
	attrs := append(f.attrs(), more...)
	attrs = append(attrs, slog.String("node", c.node.GetId()))
	if f.err != nil {
		text := f.err.Error()
		about.err = xxh3.HashString(text)
		attrs = append(attrs, slog.String("error", eventlog.CutTo(text, maxLogError)))
	}
	return eventlog.Line{Level: level, Message: message, Group: f.server, About: about, Attrs: attrs}
}
