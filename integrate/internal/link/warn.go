// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"log/slog"
	"sync"
)

// warned contains the lines that were logged, by target and kind.
var warned sync.Map

// WarnOnce logs a line about a target, unless a line of the same kind was logged about it before
// (D15). A nil Logger is slog.Default().
func WarnOnce(logger *slog.Logger, target, kind, line string, more ...any) {
	if _, again := warned.LoadOrStore([2]string{target, kind}, true); !again {
		LoggerOr(logger).Warn("xdslb: "+line, append([]any{"target", target}, more...)...)
	}
}

// LoggerOr returns a Logger, or slog.Default() if it is nil.
func LoggerOr(logger *slog.Logger) *slog.Logger {
	if logger == nil {
		return slog.Default()
	}
	return logger
}
