// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package alike_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/xdslb/xdslb/internal/alike"
)

// TestLimiter: so many lines of a kind in an interval, the last of which says that there will be
// no more, and the first one afterwards how many were left out. Kinds do not share.
func TestLimiter(t *testing.T) {
	var l alike.Limiter[string]
	begin := time.Unix(1000, 0)
	due := func(kind string, after time.Duration, want string) {
		t.Helper()
		attrs, wait := l.Due(kind, begin.Add(after))
		if got := fmt.Sprint(attrs, wait); got != want {
			t.Errorf("%s after %v: %s, want %s", kind, after, got, want)
		}
	}
	for range alike.Max - 1 {
		due("a", 0, "[] 0s")
	}
	due("a", 20*time.Second, "[no_more_like_this_for=40s] 0s")
	due("a", 20*time.Second, "[] 40s")
	due("a", 59*time.Second, "[] 1s")
	due("b", 59*time.Second, "[] 0s")
	due("a", time.Minute, "[left_out_alike=2] 0s")
	due("a", 61*time.Second, "[] 0s")
	due("a", time.Hour, "[] 0s")
}
