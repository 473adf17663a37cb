// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	wrrv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
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

const peakEWMAURL = "type.googleapis.com/envoy.extensions.load_balancing_policies.peak_ewma.v3alpha.PeakEwma"

// field appends a field with a message in it.
func field(t *testing.T, b []byte, number protowire.Number, m proto.Message) []byte {
	wire, err := proto.Marshal(m)
	kit.Must(t, err)
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), wire)
}

// TestPeakEWMA reads Envoy's message, of which the decay time counts.
func TestPeakEWMA(t *testing.T) {
	decay := func(d time.Duration) []byte { return field(t, nil, 1, durationpb.New(d)) }
	others := field(t, nil, 2, durationpb.New(time.Second))
	others = field(t, others, 4, durationpb.New(time.Minute))
	others = protowire.AppendVarint(protowire.AppendTag(others, 99, protowire.VarintType), 7)
	for _, test := range []struct {
		name string
		wire []byte
		want time.Duration
		err  string // empty if valid
	}{
		{"nothing", nil, 10 * time.Second, ""},
		{"decay_time", decay(3 * time.Second), 3 * time.Second, ""},
		{"in two parts", append(field(t, nil, 1, &durationpb.Duration{Seconds: 2}), field(t, nil, 1, &durationpb.Duration{Nanos: 5e8})...), 2500 * time.Millisecond, ""},
		{"all fields", append(others[:len(others):len(others)], decay(time.Millisecond)...), time.Millisecond, ""},
		{"other fields", others, 10 * time.Second, ""},
		{"0", decay(0), 0, "peak_ewma: decay_time 0s is below 1ms"},
		{"too short", decay(time.Millisecond - 1), 0, "peak_ewma: decay_time 999.999µs is below 1ms"},
		{"negative", decay(-time.Second), 0, "peak_ewma: decay_time -1s is negative"},
		{"no duration", field(t, nil, 1, &durationpb.Duration{Nanos: 2e9}), 0, "is not a valid duration"},
		{"another type", protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 7), 0, "is not a valid envoy.extensions.load_balancing_policies.peak_ewma.v3alpha.PeakEwma message"},
		{"cut off", decay(3 * time.Second)[:3], 0, "is not a valid envoy"},
		{"cut off in a tag", []byte{0x80}, 0, "is not a valid envoy"},
		{"no message within", protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), []byte{0x80}), 0, "is not a valid envoy"},
	} {
		list := &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{entryOf(&anypb.Any{TypeUrl: peakEWMAURL, Value: test.wire})}}
		got, err := new(Registry).Convert(list)
		checkLatency(t, test.name, got, err, test.want, test.err)
	}
}

// TestLeastLatencyJSON reads the configuration of xdslb_least_latency in a TypedStruct.
func TestLeastLatencyJSON(t *testing.T) {
	for _, test := range []struct {
		value map[string]any
		want  time.Duration
		err   string // empty if valid
	}{
		{nil, 10 * time.Second, ""},
		{map[string]any{"decayTime": "0.5s"}, 500 * time.Millisecond, ""},
		{map[string]any{"decay": "0.5s"}, 0, `unknown field "decay"`},
		{map[string]any{"decayTime": "0s"}, 0, "xdslb_least_latency: decayTime 0s is below 1ms"},
		{map[string]any{"decayTime": "-1s"}, 0, "decayTime -1s is below 1ms"},
		{map[string]any{"decayTime": "soon"}, 0, `decayTime "soon" is not a duration`},
		{map[string]any{"decayTime": 10}, 0, "decayTime is not a string"},
	} {
		got, err := new(Registry).Convert(listOf(t, typedStruct(t, "xdslb_least_latency", test.value)))
		checkLatency(t, fmt.Sprint(test.value), got, err, test.want, test.err)
	}
}

func checkLatency(t *testing.T, name string, got picker.Policy, err error, want time.Duration, wantErr string) {
	t.Helper()
	switch {
	case wantErr != "":
		if err == nil || !strings.Contains(err.Error(), wantErr) {
			t.Errorf("%s: error %v, want one with %q", name, err, wantErr)
		}
	case err != nil:
		t.Errorf("%s: %v", name, err)
	case got.Kind != picker.PolicyLeastLatency || !got.Flat || got.Latency.Decay != want:
		t.Errorf("%s: got %s, want a decay of %v", name, describe(got), want)
	}
}

func TestPrequal(t *testing.T) {
	usual := picker.Prequal{
		PoolSize: 16, MaxAge: time.Second, ProbesPerRPC: 3, RemovePerRPC: 1, HotQuantile: .84,
		ProbeTimeout: 100 * time.Millisecond, MaxProbesPerSecond: 500,
	}
	with := func(change func(p *picker.Prequal)) picker.Prequal {
		p := usual
		change(&p)
		return p
	}
	for js, want := range map[string]picker.Prequal{
		`{}`:                {},
		`{"synchronous":3}`: with(func(p *picker.Prequal) { p.Synchronous = 3 }),
		`{"poolSize":64,"maxAge":"1m","probesPerRpc":10,"removePerRpc":0,"hotQuantile":0,"probeTimeout":"5ms","maxProbesPerSecond":1}`: {
			PoolSize: 64, MaxAge: time.Minute, ProbesPerRPC: 10, ProbeTimeout: 5 * time.Millisecond, MaxProbesPerSecond: 1,
		},
	} {
		if want == (picker.Prequal{}) {
			want = usual
		}
		got, err := Prequal([]byte(js))
		if err != nil || got.Kind != picker.PolicyPrequal || !got.Flat || *got.Prequal != want {
			t.Errorf("Prequal(%s) = %+v, %v, want %+v", js, got, err, want)
		}
	}
	for js, want := range map[string]string{
		`{"poolSize":1}`: "poolSize 1", `{"poolSize":65}`: "poolSize 65", `{"poolSize":-1}`: "number -1",
		`{"maxAge":"0s"}`: `maxAge "0s"`, `{"maxAge":"61s"}`: `maxAge "61s"`, `{"maxAge":"x"}`: `maxAge "x"`, `{"probeTimeout":"-1s"}`: `probeTimeout "-1s"`,
		`{"probesPerRpc":0}`: "probesPerRpc 0", `{"probesPerRpc":11}`: "probesPerRpc 11",
		`{"probesPerRpc":1}`: "removePerRpc 1", `{"removePerRpc":-1}`: "removePerRpc -1",
		`{"hotQuantile":1.5}`: "hotQuantile 1.5", `{"maxProbesPerSecond":0}`: "maxProbesPerSecond 0", `{"maxProbesPerSecond":10001}`: "maxProbesPerSecond 10001",
		`{"synchronous":1}`: "synchronous 1", `{"synchronous":11}`: "synchronous 11", `{"pollSize":3}`: `unknown field "pollSize"`, `[]`: "array",
	} {
		if _, err := Prequal([]byte(js)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Prequal(%s): %v, want %q", js, err, want)
		}
	}
}

// TestHashSlowStart: TypedStructs of policies that hash have slow_start_config besides their own fields, and
// errors of either are reported.
func TestHashSlowStart(t *testing.T) {
	slow := map[string]any{"slow_start_window": "60s"}
	for _, test := range []struct {
		name, want string
		value      map[string]any
	}{
		{"ring_hash_experimental", "60 1000 2000", map[string]any{"minRingSize": 1000, "maxRingSize": 2000, "slow_start_config": slow}},
		{"xdslb_maglev", "60 1009 0", map[string]any{"table_size": 1009, "slow_start_config": slow}},
		{"xdslb_maglev", "table_size 1000 is not prime", map[string]any{"tableSize": 1000, "slow_start_config": slow}},
		{"ring_hash_experimental", "slow_start_config.slow_start_window -1s is negative", map[string]any{"slow_start_config": map[string]any{"slow_start_window": "-1s"}}},
	} {
		p, err := new(Registry).Convert(listOf(t, typedStruct(t, test.name, test.value)))
		got := ""
		if err != nil {
			got = err.Error()
		} else if p.SlowStart != nil {
			got = fmt.Sprint(p.SlowStart.Window.Seconds(), p.Ring.MinSize, p.Ring.MaxSize)
		}
		if !strings.HasSuffix(got, test.want) {
			t.Errorf("%s %v: %s, want %s", test.name, test.value, got, test.want)
		}
	}
}
