// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
)

// TestZonesLoggedOnce: that the zones of the fleet are not known is no news as long as the
// reason is the same, however often the cluster changes.
func TestZonesLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		b, _ := newTestLB(t, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		update := func(text string, n int) {
			c := clusterOf("c", prio(eps(1, n)))
			c.Leaves[0].Policy.ZoneAware = &picker.ZoneAware{Enabled: 1}
			c.Leaves[0].Origin = &picker.Origin{Err: errors.New(text)}
			b.Update(configOf(c))
			kit.Pass(2 * time.Minute) // equal lines are left out for one
			b.calm()
		}
		for i, step := range []struct {
			text  string
			lines int
		}{{"missing", 1}, {"missing", 1}, {"invalid", 2}, {"invalid", 2}, {"missing", 3}} {
			update(step.text, 2+i)
			if n := strings.Count(log.String(), "has zone-aware routing"); n != step.lines {
				t.Errorf("step %d: %d lines, want %d:\n%s", i, n, step.lines, log.String())
			}
		}
		c := clusterOf("c", prio(eps(1)))
		c.Leaves[0].Policy.ZoneAware = &picker.ZoneAware{Enabled: 1}
		c.Leaves[0].Origin = &picker.Origin{}
		b.Update(configOf(c))
		b.calm()
		kit.Pass(time.Second)
		if n := strings.Count(log.String(), msgZones); n != 1 {
			t.Errorf("%d lines that zones are known, want 1:\n%s", n, log.String())
		}
	})
}
