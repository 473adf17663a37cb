// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package methodconfig

import (
	"reflect"
	"testing"
	"time"

	"github.com/xdslb/xdslb/picker"
)

// TestMethodConfigs: what routes say about RPCs goes into the service config
// where first match and most specific name agree, and nowhere else (A31, A44).
func TestMethodConfigs(t *testing.T) {
	second, none := time.Second, time.Duration(0)
	prefix := func(p string, timeout *time.Duration) picker.Route {
		return picker.Route{Path: picker.StringMatch{Value: p}, Timeout: timeout}
	}
	exact := func(p string, timeout *time.Duration) picker.Route {
		return picker.Route{Path: picker.StringMatch{Kind: picker.MatchExact, Value: p}, Timeout: timeout}
	}
	byHeader := func(r picker.Route) picker.Route {
		r.Headers = []picker.HeaderMatch{{Name: "x"}}
		return r
	}
	retried := func(r picker.Route) picker.Route {
		r.Retry = &picker.RetryPolicy{MaxAttempts: 2}
		return r
	}
	tests := []struct {
		name            string
		routes          []picker.Route
		inServiceConfig []bool
		names           []string // "service/method timeout", as the service config has them
	}{
		{"nothing to say", []picker.Route{prefix("", nil)}, []bool{true}, nil},
		{"0 is none", []picker.Route{prefix("", &none)}, []bool{true}, nil},
		{"everything", []picker.Route{prefix("", &second)}, []bool{true}, []string{"/ 1.000000000s"}},
		{"a method, a service, the rest", []picker.Route{exact("/s/m", nil), prefix("/s/", &second), prefix("/", nil)},
			[]bool{true, true, true}, []string{"s/m ", "s/ 1.000000000s", "/ "}},
		{"a service hides its methods", []picker.Route{prefix("/s/", nil), exact("/s/m", &second), prefix("", &second)},
			[]bool{true, true, true}, []string{"s/ ", "/ 1.000000000s"}},
		{"everything hides all", []picker.Route{prefix("", nil), exact("/s/m", &second)}, []bool{true, false}, nil},
		{"a header", []picker.Route{byHeader(prefix("/s/", &second)), prefix("", nil)}, []bool{false, false}, nil},
		{"a header elsewhere", []picker.Route{byHeader(prefix("/s/", &second)), prefix("/t/", &second)},
			[]bool{false, true}, []string{"t/ 1.000000000s"}},
		{"a header that changes nothing", []picker.Route{byHeader(prefix("/s/", &second)), prefix("", &second)},
			[]bool{true, true}, []string{"/ 1.000000000s"}},
		{"a service between", []picker.Route{byHeader(prefix("", &second)), prefix("/s/", &second), prefix("", &second)},
			[]bool{true, true, true}, []string{"s/ 1.000000000s", "/ 1.000000000s"}},
		{"a header that a part covers", []picker.Route{byHeader(prefix("", &second)), prefix("/s/", &second)},
			[]bool{false, true}, []string{"s/ 1.000000000s"}},
		{"retries that a part covers", []picker.Route{retried(byHeader(prefix("", nil))), retried(prefix("/s/", nil))},
			[]bool{false, false}, nil},
		{"retries that the rest covers", []picker.Route{retried(byHeader(prefix("", nil))), retried(prefix("/s/", nil)), retried(prefix("", nil))},
			[]bool{true, true, true}, []string{"/ "}},
		{"retries of a method", []picker.Route{retried(byHeader(exact("/s/m", nil))), retried(exact("/s/m", nil))},
			[]bool{true, true}, []string{"s/m "}},
		{"retries of one method and another", []picker.Route{retried(byHeader(exact("/s/m", nil))), retried(exact("/s/m2", nil))},
			[]bool{false, true}, []string{"s/m2 "}},
		{"part of a service's name", []picker.Route{prefix("/pack", &second), prefix("/other/", &second)},
			[]bool{false, true}, []string{"other/ 1.000000000s"}},
	}
	for _, tt := range tests {
		methods, inServiceConfig, _ := Compile(&picker.Config{Routes: tt.routes}, false)
		if !reflect.DeepEqual(inServiceConfig, tt.inServiceConfig) {
			t.Errorf("%s: inServiceConfig %v, want %v", tt.name, inServiceConfig, tt.inServiceConfig)
		}
		var names []string
		for _, m := range methods {
			names = append(names, m.Name[0]["service"]+"/"+m.Name[0]["method"]+" "+m.Timeout)
		}
		if !reflect.DeepEqual(names, tt.names) {
			t.Errorf("%s: method configs %q, want %q", tt.name, names, tt.names)
		}
	}
}
