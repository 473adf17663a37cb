// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"reflect"
	"testing"
)

// TestMetrics: A85 sums and counts, from nothing after each report; bounded.
func TestMetrics(t *testing.T) {
	var c ClusterLoad
	id := LocalityID{Zone: "z"}
	c.Metrics(id).Add("cost", 2)
	c.Metrics(id).Add("cost", 3)
	c.Metrics(id).Add("cpu", 0.5)
	c.Metrics(LocalityID{Zone: "idle"})
	want := map[LocalityID]map[string]MetricSum{id: {"cost": {2, 5}, "cpu": {1, 0.5}}}
	if got := c.TakeMetrics(); !reflect.DeepEqual(got, want) {
		t.Errorf("TakeMetrics() = %v, want %v", got, want)
	}
	if got := c.TakeMetrics(); got != nil {
		t.Errorf("second TakeMetrics() = %v, want none", got)
	}
	for i := range 2 * maxMetrics {
		c.Metrics(id).Add(fmt.Sprint(i), 1)
	}
	if got := len(c.TakeMetrics()[id]); got != maxMetrics {
		t.Errorf("%d names, want at most %d", got, maxMetrics)
	}
}
