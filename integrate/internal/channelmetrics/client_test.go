// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package channelmetrics

import (
	"testing"

	"github.com/xdslb/xdslb/xds"
)

// TestCacheState: a resource need not have a version, which is for debugging only.
func TestCacheState(t *testing.T) {
	for _, updated := range []bool{false, true} {
		want := "nacked"
		if updated {
			want = "nacked_but_cached"
		}
		if got := cacheState(xds.ResourceKind{State: xds.Nacked, InUse: updated}); got != want {
			t.Errorf("with a version in use %t: %s, want %s", updated, got, want)
		}
	}
}
