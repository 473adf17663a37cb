// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"testing"
	"time"
)

// TestReconnectSpread checks when a client returns to a server after an outage of
// some seconds: one that lacks a resource, or starts to, as soon as there is a
// connection, which gRPC's own backoff decides, and one that has everything within
// Options.ReconnectSpread.
func TestReconnectSpread(t *testing.T) {
	const backoff = 5 * time.Second // the longest of gRPC's in an outage of 3 s
	for _, tt := range []struct {
		name    string
		spread  time.Duration
		missing bool // a cluster that the server does not have
		late    bool // another target is asked for after the outage
		within  time.Duration
	}{
		{"nothing lacks", 0, false, false, backoff + 13*time.Second},
		{"nothing lacks, no spread", -1, false, false, backoff},
		{"nothing lacks, 2 s", 2 * time.Second, false, false, backoff + 2*time.Second},
		{"a cluster does not exist", time.Hour, true, false, backoff},
		{"another target", time.Hour, false, true, backoff},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 10 { // the waits are random
				bubble(t, func(t *testing.T) {
					h, cp := only(t, Options{ReconnectSpread: tt.spread})
					clusters := []string{"svc"}
					if tt.missing {
						clusters = append(clusters, "missing")
					}
					cp.serve(append(target("svc", 1)[1:], listenerTo("svc", "r"), routesTo("r", clusters...))...)
					h.watch("svc")
					advance(time.Minute)
					cp.refuse(errRefused)
					advance(3 * time.Second)
					cp.refuse(nil)
					if tt.late {
						h.watch("late")
					}
					advance(tt.within)
					if n := cp.opened(); n != 2 {
						t.Errorf("%d streams %v after the outage, want 2", n, tt.within)
					}
				})
			}
		})
	}
}
