// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package latency

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// inBubble makes a run of ours in a bubble, so that nothing depends on how busy the machine is.
func (s Study) inBubble(t *testing.T, j job) (run Run) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s.net = xdstest.NewNetwork()
		defer s.net.Close()
		if err := s.measure(t.Context(), j, &run); err != nil {
			t.Errorf("%s: %v", j, err)
		}
	})
	return run
}

// A short run of each policy of ours, with all that belongs to it: RPCs come
// back, and EDF gives backends their parts.
func TestMeasure(t *testing.T) {
	s := Study{Rate: 300, Duration: time.Second}
	for _, p := range policies {
		run := s.inBubble(t, job{impl: Ours, policy: p})
		if run.Sent == 0 || run.Failed > 0 || len(run.Shares) != backends {
			t.Fatalf("%s: %+v", p.name, run)
		}
		if s := run.Shares[0]; p.weighted && (s.Got < s.Capacity/2 || s.Got > s.Capacity*2) {
			t.Errorf("%s: the slow backend has %.1f %% of the RPCs, want about %.1f %%", p.name, 100*s.Got, 100*s.Capacity)
		}
	}
}

// The steps of an event are taken, and RPCs move to the second locality.
func TestEvent(t *testing.T) {
	s := Study{Rate: 300, Duration: 2 * time.Second}
	run := s.inBubble(t, job{impl: Ours, policy: policies[0], event: &events[0]})
	if len(run.Marks) != 1 || len(run.Buckets) < 10 {
		t.Fatalf("%d marks, %d buckets", len(run.Marks), len(run.Buckets))
	}
	// Of four buckets there are 120 RPCs: twelve deviations between a tenth and a half.
	first, last := moved(run.Buckets[:4]), moved(run.Buckets[len(run.Buckets)-4:])
	if first > .5 || last < .5 {
		t.Errorf("the second locality has %.2f of the RPCs at first and %.2f in the end, want about .1 and .9", first, last)
	}
}

// moved is the share of the second half of the fleet in some buckets.
func moved(list []Bucket) float64 {
	there, all := 0., 0.
	for _, b := range list {
		there, all = there+b.Moved*float64(b.Sent-b.Failed), all+float64(b.Sent-b.Failed)
	}
	return there / max(all, 1)
}
