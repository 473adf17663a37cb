// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// logs has what this module writes to the process's log while the tests run.
var logs logBuffer

func init() { slog.SetDefault(slog.New(&logs)) }

// logBuffer is a log/slog.Handler that keeps the lines of this module: level, message,
// attributes, unquoted.
type logBuffer struct {
	slog.Handler        // nil: groups and attributes of loggers are not expected
	onHandle     func() // may be nil
	mu           sync.Mutex
	lines        []string
}

// Enabled implements slog.Handler.
func (l *logBuffer) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle implements slog.Handler.
func (l *logBuffer) Handle(_ context.Context, r slog.Record) error {
	if !strings.HasPrefix(r.Message, "xdslb: ") {
		return nil
	}
	if l.onHandle != nil {
		l.onHandle()
	}
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}

// once has the test wait for a line that contains all of some texts, since lines are written
// when no lock is held any more, and fail if there is another.
func (l *logBuffer) once(t *testing.T, texts ...string) {
	t.Helper()
	waitFor(t, func() bool { return len(l.with(texts...)) > 0 })
	if found := l.with(texts...); len(found) != 1 {
		t.Errorf("the log has %d lines with %q, want 1: %q", len(found), texts, found)
	}
}

// with returns the lines that contain all of some texts.
func (l *logBuffer) with(texts ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
next:
	for _, line := range l.lines {
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue next
			}
		}
		found = append(found, line)
	}
	return found
}
