// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Logs captures log lines. It is a slog.Handler, whose records become lines of level, message
// and attributes without quotes, and an io.Writer for other loggers, such as grpclog's. The
// zero value is ready to use. It is safe for concurrent use.
type Logs struct {
	Level slog.Level        // minimum level
	OnLog func(text string) // if not nil, called with each record or text written

	mu   sync.Mutex
	text strings.Builder
}

// Enabled implements slog.Handler.
func (l *Logs) Enabled(_ context.Context, level slog.Level) bool { return level >= l.Level }

// Handle implements slog.Handler.
func (l *Logs) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %s", r.Level, r.Message)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	_, err := l.Write([]byte(strings.ReplaceAll(b.String(), "\n", " ") + "\n"))
	return err
}

// Write implements io.Writer.
func (l *Logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	_, _ = l.text.Write(p) // never fails
	l.mu.Unlock()
	if l.OnLog != nil {
		l.OnLog(string(p))
	}
	return len(p), nil
}

// WithAttrs implements slog.Handler.
func (l *Logs) WithAttrs(attrs []slog.Attr) slog.Handler { return &logsWith{l, attrs} }

// WithGroup implements slog.Handler; groups are ignored.
func (l *Logs) WithGroup(string) slog.Handler { return l }

// logsWith is a Logs with attributes of a logger.
type logsWith struct {
	*Logs
	attrs []slog.Attr
}

func (l *logsWith) Handle(ctx context.Context, r slog.Record) error {
	all := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	all.AddAttrs(l.attrs...)
	r.Attrs(func(a slog.Attr) bool {
		all.AddAttrs(a)
		return true
	})
	return l.Logs.Handle(ctx, all)
}

func (l *logsWith) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logsWith{l.Logs, slices.Concat(l.attrs, attrs)}
}

func (l *logsWith) WithGroup(string) slog.Handler { return l }

// String returns all captured lines.
func (l *Logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// With returns the lines that contain all of the given texts.
func (l *Logs) With(texts ...string) (found []string) {
	for line := range strings.Lines(l.String()) {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			found = append(found, strings.TrimSuffix(line, "\n"))
		}
	}
	return found
}

// WantOne waits for a line that contains all of the given texts, and fails the test if there is
// more than one.
func (l *Logs) WantOne(t testing.TB, texts ...string) {
	t.Helper()
	WaitFor(t, fmt.Sprintf("a log line with %q", texts), func() bool { return len(l.With(texts...)) > 0 })
	if found := l.With(texts...); len(found) != 1 {
		t.Errorf("the log has %d lines with %q, want 1: %q", len(found), texts, found)
	}
}

// A LogPair has the messages that begin and end a condition.
type LogPair struct{ Begin, End string }

// LogPairs returns the rows of a page's table of log lines that name a test, by the message that
// begins the condition.
func LogPairs(t testing.TB, page, test string) map[string]LogPair {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	pairs := map[string]LogPair{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.Contains(cells[3], "`"+test+"`") {
			continue
		}
		begin, end := strings.Split(cells[1], "`"), strings.Split(cells[2], "`")
		if len(begin) == 3 && len(end) == 3 {
			pairs[begin[1]] = LogPair{strings.TrimSpace(begin[0]) + " " + begin[1], "INFO " + end[1]}
		}
	}
	if len(pairs) == 0 {
		t.Fatalf("%s has no log lines for %s", page, test)
	}
	return pairs
}

// WantPair fails the test unless the log has one line that begins a condition and one later line
// that ends it, each with the texts.
func (l *Logs) WantPair(t testing.TB, pair LogPair, texts ...string) {
	t.Helper()
	l.WantOne(t, append(texts, pair.Begin)...)
	l.WantOne(t, append(texts, pair.End)...)
	if text := l.String(); strings.Index(text, pair.Begin) > strings.Index(text, pair.End) {
		t.Errorf("the log has %q before %q:\n%s", pair.End, pair.Begin, text)
	}
}
