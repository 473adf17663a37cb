// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"testing"
	"time"

	"github.com/xdslb/xdslb/integrate"
)

// TestEventText: events of several endpoints that are shown as one do not give the error of
// one to another.
func TestEventText(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	event := integrate.EventStatus{Time: at, Kind: "ConnectionFailed", Cluster: "c", Endpoint: "10.0.0.1:80", Error: "refused"}
	for _, tt := range []struct {
		count int
		want  string
	}{
		{0, `03:04:05.006 ConnectionFailed cluster "c" endpoint "10.0.0.1:80": refused`},
		{2, `03:04:05.006 ConnectionFailed ×2 until 03:04:06.006 cluster "c" first endpoint "10.0.0.1:80", the last: refused`},
	} {
		event.Count = tt.count
		if tt.count > 1 {
			event.Last = at.Add(time.Second)
		}
		if got := event.String(); got != tt.want {
			t.Errorf("%d: got %s, want %s", tt.count, got, tt.want)
		}
	}
}
