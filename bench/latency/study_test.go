// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package latency

import (
	"testing"
	"time"
)

// A short run of each policy of ours, with all that belongs to it: RPCs come
// back, and EDF gives backends their parts.
func TestMeasure(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	s := Study{Rate: 300, Duration: time.Second}
	for _, p := range policies {
		run := Run{}
		if err := s.measure(t.Context(), job{impl: Ours, policy: p}, &run); err != nil {
			t.Errorf("%s: %v", p.name, err)
			continue
		}
		if run.Sent == 0 || run.Failed == run.Sent || len(run.Shares) != backends {
			t.Errorf("%s: %+v", p.name, run)
		}
		if s := run.Shares[0]; p.weighted && (s.Got < s.Capacity/2 || s.Got > s.Capacity*2) {
			t.Errorf("%s: the slow backend has %.1f %% of the RPCs, want about %.1f %%", p.name, 100*s.Got, 100*s.Capacity)
		}
	}
}

// The steps of an event are taken, and RPCs move to the second locality.
func TestEvent(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	// A machine that stands still has RPCs wait for what comes after them: then once more, for
	// longer.
	first, last := 0., 0.
	for d := 2 * time.Second; d < 10*time.Second; d *= 2 {
		run := Run{}
		if err := (Study{Rate: 300, Duration: d}).measure(t.Context(), job{impl: Ours, policy: policies[0], event: &events[0]}, &run); err != nil {
			t.Fatal(err)
		}
		if len(run.Marks) != 1 || len(run.Buckets) < 10 {
			t.Fatalf("%d marks, %d buckets", len(run.Marks), len(run.Buckets))
		}
		// Of four buckets there are 120 RPCs: twelve deviations between a tenth and a half.
		if first, last = moved(run.Buckets[:4]), moved(run.Buckets[len(run.Buckets)-4:]); first < .5 && last > .5 {
			return
		}
	}
	t.Errorf("the second locality has %.2f of the RPCs at first and %.2f in the end, want about .1 and .9", first, last)
}

// moved is the share of the second half of the fleet in some buckets.
func moved(list []Bucket) float64 {
	there, all := 0., 0.
	for _, b := range list {
		there, all = there+b.Moved*float64(b.Sent-b.Failed), all+float64(b.Sent-b.Failed)
	}
	return there / max(all, 1)
}
