// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package channelmetrics

import (
	"testing"
	"time"

	"github.com/xdslb/xdslb/xds"
)

// TestCacheState: a resource need not have a version, which is for debugging only.
func TestCacheState(t *testing.T) {
	for _, updated := range []bool{false, true} {
		r, want := &xds.ResourceStatus{State: xds.Nacked}, "nacked"
		if updated {
			r.Updated, want = time.Now(), "nacked_but_cached"
		}
		if got := cacheState(r.Kind()); got != want {
			t.Errorf("a resource without a version is %s, want %s", got, want)
		}
	}
}
