// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy

import (
	"strings"
	"testing"
	"time"

	"github.com/xdslb/xdslb/picker"
)

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
