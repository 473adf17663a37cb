// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"testing"
	"time"
)

// TestReconnectSpread checks when a client returns to a server after an outage of
// some seconds: as soon as there is a connection, which gRPC's own backoff decides, or
// within Options.ReconnectSpread if it lacks nothing.
func TestReconnectSpread(t *testing.T) {
	// gRPC waits up to 3.1 s for its fifth attempt, which may begin at the end of the outage; the
	// stream follows within a second.
	const backoff = 4500 * time.Millisecond
	for _, tt := range []struct {
		name    string
		spread  time.Duration
		missing bool // a cluster that the server does not have
		late    bool // another target is asked for after the outage
		within  time.Duration
	}{
		{"nothing lacks", 0, false, false, backoff},
		{"nothing lacks, 13 s", 13 * time.Second, false, false, backoff + 13*time.Second},
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
					cp.serve(append(targetOf("svc", 1)[1:], listenerTo("svc", "r"), routesTo("r", clusters...))...)
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

// TestReturnsSoon: an endpoint that changes right after the end of a stream that had worked is in
// use within two seconds, also if the server restarts.
func TestReturnsSoon(t *testing.T) {
	for name, end := range map[string]func(*fake){
		"orderly": func(cp *fake) { cp.hangUp(nil) },
		"failed":  func(cp *fake) { cp.hangUp(errRefused) },
		"restart": func(cp *fake) { cp.refuse(errRefused); cp.refuse(nil) },
	} {
		for _, feature := range []string{"", deltaFeature} {
			t.Run(name+feature, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					h, cp, w := serving(t, Options{}, feature)
					for i := range uint16(10) {
						advance(time.Minute)
						end(cp)
						cp.serve(endpointsAt("svc", 100+i))
						advance(2 * time.Second)
						if got, want := ports(w.cluster(t, "svc")), fmt.Sprint("svc ", 100+i); got != want {
							t.Errorf("end %d: two seconds later endpoints %q, want %q", i, got, want)
						}
						if s := h.c.Servers()[0]; !s.Connected || s.Failures > 0 {
							t.Errorf("server %+v", s)
						}
					}
				})
			})
		}
	}
}

// TestGapIsSeen: a server whose stream is gone does not count as connected for longer than the
// second in which the next attempt begins, and one that spreads the return not even that. It is
// one failure if it cannot be reached.
func TestGapIsSeen(t *testing.T) {
	for _, spread := range []time.Duration{0, time.Hour} {
		bubble(t, func(t *testing.T) {
			h, cp, _ := serving(t, Options{ReconnectSpread: spread})
			advance(time.Minute)
			cp.hangUp(nil)
			if s := h.c.Servers()[0]; s.Connected != (spread == 0) || s.Failures != 0 {
				t.Errorf("spread %v: server %+v after the end of a stream", spread, s)
			}
			cp.refuse(errRefused)
			advance(time.Second + spread)
			if s := h.c.Servers()[0]; s.Connected || s.Failures != 1 {
				t.Errorf("spread %v: server %+v that cannot be reached", spread, s)
			}
			cp.refuse(nil)
			advance(10*time.Minute + spread)
			if s := h.c.Servers()[0]; !s.Connected || s.Failures != 1 {
				t.Errorf("spread %v: server %+v that is back", spread, s)
			}
		})
	}
}
