// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
)

// TestRotationDoesNotDisplace: a server that ends all streams in order now and then displaces none,
// although another client of the process connects within a second before each end.
func TestRotationDoesNotDisplace(t *testing.T) {
	for _, tt := range []struct {
		every time.Duration
		want  int
	}{
		{30 * time.Minute, 0},
		{4 * time.Minute, 0},
		{time.Minute, 1}, // more often than any backoff
	} {
		bubble(t, func(t *testing.T) {
			book := &kit.Logs{}
			h, first := only(t, Options{Logger: slog.New(book)})
			other, second := only(t, Options{}) // the same URI
			h.watch("svc")
			other.watch("svc")
			for range 10 {
				first.serve(targetOf("svc", 1)...)
				second.serve(targetOf("svc", 1)...)
				time.Sleep(tt.every)
				opened := second.opened()
				second.hangUp(nil)
				for range 1000 {
					if second.opened() > opened {
						break
					}
					advance(10 * time.Millisecond)
				}
				first.hangUp(nil)
				advance(2 * time.Second)
				synctest.Wait()
			}
			if lines := book.With("WARN", "displace"); len(lines) != tt.want {
				t.Errorf("every %v: %q, want %d lines", tt.every, lines, tt.want)
			}
		})
	}
}
