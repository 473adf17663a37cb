// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
)

// blocked is a Logger's handler that takes nothing until it is closed.
type blocked chan struct{}

func (blocked) Enabled(context.Context, slog.Level) bool { return true }

func (h blocked) Handle(context.Context, slog.Record) error {
	<-h
	return nil
}

func (h blocked) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h blocked) WithGroup(string) slog.Handler { return h }

// TestSlowLogger checks that a Logger that does not return delays neither a configuration nor
// a child policy.
func TestSlowLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := make(blocked)
		b, cc := newTestLB(t, Config{Logger: slog.New(h)})
		b.Error(errors.New("gone"))
		synctest.Wait()
		b.Update(configOf(customOf(true, stubA, `{}`, prio(eps(1)))))
		synctest.Wait()
		if sc := cc.find(1); sc == nil {
			t.Error("a child policy waits for the Logger")
		} else {
			sc.to(ready)
		}
		close(h)
		synctest.Wait()
	})
}
