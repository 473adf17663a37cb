// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy

import (
	"slices"
	"strings"
	"testing"
	"time"

	wrrv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	"google.golang.org/protobuf/types/known/durationpb"
)

// TestUtilizationNames: at most 100 metric names are accepted (A114), since each RPC looks all of them
// up at its end.
func TestUtilizationNames(t *testing.T) {
	for n, want := range map[int]string{100: "", 101: "metric_names_for_computing_utilization has 101 names, more than 100", 100_000: "more than 100"} {
		names := slices.Repeat([]string{"named_metrics.a"}, n)
		_, err := new(Registry).Convert(listOf(t, &wrrv3.ClientSideWeightedRoundRobin{MetricNamesForComputingUtilization: names}))
		if (err != nil) != (want != "") || err != nil && !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%d names: got error %v, want %q", n, err, want)
		}
	}
}

// TestPeriods checks durations at the limits of their range, some of which protobuf's JSON
// cannot express.
func TestPeriods(t *testing.T) {
	const year = 31556952 // seconds
	for _, test := range []struct {
		period *durationpb.Duration
		want   time.Duration
		err    string // empty if valid
	}{
		{nil, defaultBlackout, ""},
		{new(durationpb.Duration), 0, ""},
		{&durationpb.Duration{Nanos: 1}, 1, ""},
		{&durationpb.Duration{Nanos: -1}, 0, "blackout_period -1ns is negative"},
		{&durationpb.Duration{Seconds: 300 * year}, 1<<63 - 1, ""},
		{&durationpb.Duration{Seconds: -300 * year}, 0, "is negative"},
		{&durationpb.Duration{Seconds: 10001 * year}, 0, "blackout_period of 315601076952 seconds and 0 nanoseconds is not a valid duration"},
		{&durationpb.Duration{Nanos: 1e9}, 0, "is not a valid duration"},
		{&durationpb.Duration{Seconds: 1, Nanos: -1}, 0, "is not a valid duration"},
	} {
		p, err := new(Registry).Convert(listOf(t, &wrrv3.ClientSideWeightedRoundRobin{BlackoutPeriod: test.period}))
		switch {
		case test.err != "":
			if err == nil || !strings.HasSuffix(err.Error(), test.err) {
				t.Errorf("%v: got error %v, want %s", test.period, err, test.err)
			}
		case err != nil:
			t.Errorf("%v: %v", test.period, err)
		case p.WRR.Blackout != test.want:
			t.Errorf("%v: got %v, want %v", test.period, p.WRR.Blackout, test.want)
		}
	}
}
