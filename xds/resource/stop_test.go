// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"bytes"
	"slices"
	"testing"
)

// TestStopped checks that decoding of a large resource polls Stopped frequently, and stops
// immediately. Earlier errors of the resource are not reported.
func TestStopped(t *testing.T) {
	const n = 10_000
	match := string(field(1, string(field(1, ""))))
	endpoint := func(i int) []byte { return encode(t, lbEndpoint(i, 1)) }
	locality := string(field(1, "")) + string(field(3, "\x08\x01"))
	var endpoints, localities []byte
	for i := range n {
		endpoints = append(endpoints, field(2, string(endpoint(i)))...)
		localities = append(localities, field(2, locality)...)
	}
	hosts := slices.Concat(field(1, "r"), bytes.Repeat(field(2, string(field(2, "*"))), n))
	routes := slices.Concat(field(1, "r"), field(2, string(bytes.Repeat(field(3, match+string(field(2, string(field(1, "c"))))), n))))
	for _, tt := range []struct {
		name  string
		typ   Type
		value []byte
		calls int // at least
	}{
		{"virtual hosts", RouteConfigType, hosts, n},
		{"routes", RouteConfigType, routes, n},
		{"routes of a Listener", ListenerType, inListener(t, routes), n},
		{"endpoints", EndpointsType, slices.Concat(field(1, "e"), field(2, locality+string(endpoints))), n / stopEvery},
		{"endpoints without weight", EndpointsType, slices.Concat(field(1, "e"), field(2, string(field(1, ""))+string(endpoints))), n / stopEvery},
		{"localities", EndpointsType, slices.Concat(field(1, "e"), localities), 30}, // which are the same
	} {
		calls := 0
		_, want := Decode(tt.typ, tt.value, Options{})
		_, got := Decode(tt.typ, tt.value, Options{Stopped: func() bool { calls++; return false }})
		if calls < tt.calls || (got == nil) != (want == nil) {
			t.Errorf("%s: called %d times, want at least %d; error %v, want %v", tt.name, calls, tt.calls, got, want)
		}
		for _, last := range []int{1, 2, tt.calls} {
			calls = 0
			v, err := Decode(tt.typ, tt.value, Options{Stopped: func() bool { calls++; return calls == last }})
			if v != nil || err != ErrStopped || calls != last {
				t.Errorf("%s: stopped at call %d: %v, error %v after %d calls", tt.name, last, v, err, calls)
			}
		}
	}
}
