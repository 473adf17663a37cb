// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package methodconfig

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xdslb/xdslb/bench/cputime"
	"github.com/xdslb/xdslb/picker"
)

// TestMethodConfigs: settings of routes go into the service config
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

// TestSameClustersWith: the sets are compared by name, in any order. Clusters that are the same
// pointer at the same index are not examined; they are nil here.
func TestSameClustersWith(t *testing.T) {
	limited := func(name string) *picker.Cluster {
		return &picker.Cluster{Name: name, Leaves: []picker.Leaf{{Retries: &picker.RetryLimit{}}}}
	}
	free := func(name string) *picker.Cluster { return &picker.Cluster{Name: name, Leaves: []picker.Leaf{{}}} }
	for _, tt := range []struct {
		name string
		a, b []*picker.Cluster
		want bool
	}{
		{"nothing", nil, nil, true},
		{"one of many has changed", []*picker.Cluster{nil, limited("a"), nil}, []*picker.Cluster{nil, limited("a"), nil}, true},
		{"a limit came", []*picker.Cluster{free("a")}, []*picker.Cluster{limited("a")}, false},
		{"a limit went", []*picker.Cluster{limited("a"), free("b")}, []*picker.Cluster{free("a"), free("b")}, false},
		{"a limited one took another's place", []*picker.Cluster{limited("a")}, []*picker.Cluster{limited("b")}, false},
		{"another order", []*picker.Cluster{limited("a"), free("b")}, []*picker.Cluster{free("b"), limited("a")}, true},
		{"one more without a limit", []*picker.Cluster{limited("a")}, []*picker.Cluster{limited("a"), free("b")}, true},
	} {
		if got := SameClustersWith(&picker.Config{Clusters: tt.a}, &picker.Config{Clusters: tt.b}, LimitsRetries); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// randomRoutes draws routes of all kinds over a few overlapping paths, with few different settings.
func randomRoutes(rng *rand.Rand) *picker.Config {
	second := time.Second
	paths := []string{"", "/", "/s", "/s/", "/s/m", "/s/mm", "/t", "/t/", "/t/m", "/s/a/", "/s/a/m", "//", "s"}
	cfg := &picker.Config{Clusters: []*picker.Cluster{{Name: "c"}, {Name: "limited", Leaves: []picker.Leaf{{Retries: &picker.RetryLimit{}}}}}}
	for range 1 + rng.IntN(7) {
		r := picker.Route{Path: picker.StringMatch{Value: paths[rng.IntN(len(paths))]}, Clusters: []picker.WeightedCluster{{Name: "c", Weight: 1}}}
		if rng.IntN(2) == 0 {
			r.Path.Kind = picker.MatchExact
		}
		r.Path.IgnoreCase = rng.IntN(20) == 0
		if rng.IntN(3) == 0 {
			r.Headers = []picker.HeaderMatch{{Name: "x"}}
		}
		switch rng.IntN(6) {
		case 0, 1:
			r.Timeout = &second
		case 2, 3:
			r.Retry = &picker.RetryPolicy{MaxAttempts: 2 + rng.IntN(2)}
		}
		if rng.IntN(10) == 0 {
			r.Clusters[0].Name = "limited"
		}
		if r.Retry != nil && rng.IntN(10) == 0 {
			r.Retry.PerTryTimeout = second
		}
		cfg.Routes = append(cfg.Routes, r)
	}
	return cfg
}

// methodConfigOf returns the settings that gRPC applies to an RPC: the config of its method, or else of its
// service, or else the default. A path's last part is the method.
func methodConfigOf(methods []Config, path string) string {
	cut := strings.LastIndexByte(path, '/')
	for _, name := range []map[string]string{{"service": path[1:cut], "method": path[cut+1:]}, {"service": path[1:cut]}, {}} {
		for _, m := range methods {
			if fmt.Sprint(m.Name[0]) == fmt.Sprint(name) {
				return m.Timeout + string(m.RetryPolicy)
			}
		}
	}
	return ""
}

// TestFirstMatch: with random routes, an RPC that gets its settings from the service config gets
// those of the first route that matches it, whatever its headers. An RPC whose route
// needs interceptors gets no retries from the service config, which would multiply with those of
// the interceptors, and no other timeout (A31, A44).
func TestFirstMatch(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 38))
	expressed := 0
	for n := range 10_000 {
		cfg := randomRoutes(rng)
		for _, deep := range []bool{false, true} {
			methods, inServiceConfig, notDeep := Compile(cfg, deep)
			for _, path := range []string{"/s/m", "/s/mm", "/s/x", "/t/m", "/tt/m", "/s/a/m", "/u/m"} {
				for i := range cfg.Routes {
					r := &cfg.Routes[i]
					matches := func(r picker.Route) bool {
						return r.Path.Value == path || r.Path.Kind == picker.MatchPrefix && strings.HasPrefix(path, r.Path.Value)
					}
					if !matches(*r) || slices.ContainsFunc(cfg.Routes[:i], func(e picker.Route) bool { return matches(e) && len(e.Headers) == 0 }) {
						continue
					}
					want := string(RetryPolicy(r.Retry))
					if timeout := Timeout(cfg, r); timeout > 0 {
						want = fmt.Sprintf("%.9fs", timeout.Seconds()) + want
					}
					got := methodConfigOf(methods, path)
					whole := r.Retry == nil || r.Retry.PerTryTimeout == 0 && r.Clusters[0].Name != "limited"
					switch {
					case !deep && IsDeep(path): // without interceptors, gRPC's rules apply to these
					case inServiceConfig[i] && !(notDeep[i] && IsDeep(path)):
						expressed++
						if got != want || !whole {
							t.Fatalf("%d: gRPC applies %q to %s, want %q of route %d of %s", n, got, path, want, i, show(cfg))
						}
					case got != "" && (got != want || r.Retry != nil):
						t.Fatalf("%d: gRPC applies %q to %s, besides interceptors with %q of route %d of %s", n, got, path, want, i, show(cfg))
					}
				}
			}
		}
	}
	if expressed < 10_000 {
		t.Errorf("only %d RPCs got their settings from the service config", expressed)
	}
}

func show(cfg *picker.Config) string {
	js, err := json.Marshal(cfg.Routes)
	return fmt.Sprint(string(js), err)
}

// TestManyRoutes: Compile does not compare each route with each earlier one that cannot be
// expressed: a control plane can send a million.
func TestManyRoutes(t *testing.T) {
	second := time.Second
	conditional := func(path string) picker.Route {
		return picker.Route{Path: picker.StringMatch{Value: path}, Headers: []picker.HeaderMatch{{Name: "x"}}}
	}
	exact := func(path string, r picker.Route) picker.Route {
		r.Path = picker.StringMatch{Kind: picker.MatchExact, Value: path}
		return r
	}
	for name, add := range map[string]func(routes []picker.Route, i, n int) []picker.Route{
		"elsewhere": func(r []picker.Route, i, _ int) []picker.Route {
			return append(r, conditional(fmt.Sprintf("/a%d/", i)))
		},
		"in one service": func(r []picker.Route, i, _ int) []picker.Route {
			return append(r, conditional(fmt.Sprintf("/a/m%d", i)))
		},
		"deep": func(r []picker.Route, i, _ int) []picker.Route {
			return append(r, conditional(fmt.Sprintf("/s/%d/m", i)))
		},
		"for all": func(r []picker.Route, i, _ int) []picker.Route { return append(r, conditional("")) },
		"of the same paths": func(r []picker.Route, i, _ int) []picker.Route {
			return append(r, exact(fmt.Sprintf("/s%d/m", i), conditional("")))
		},
		"of some services": func(r []picker.Route, i, n int) []picker.Route {
			return append(r, conditional(fmt.Sprintf("/s%d/", i%100)))
		},
		"hidden": func(r []picker.Route, i, _ int) []picker.Route {
			return append(r, conditional(""), picker.Route{Path: picker.StringMatch{Value: ""}, Timeout: &second})
		},
		"nested": func(r []picker.Route, i, n int) []picker.Route {
			return append(r, conditional("/s"+strings.Repeat("0", i*200/n)))
		},
	} {
		const n = 32_000
		cfg := &picker.Config{}
		for i := range n {
			cfg.Routes = add(cfg.Routes, i, n)
		}
		for i := range n {
			cfg.Routes = append(cfg.Routes, exact(fmt.Sprintf("/s%d/m", i), picker.Route{}))
		}
		cfg.Routes = append(cfg.Routes, picker.Route{})
		before := cputime.Process()
		Compile(cfg, true)
		// A comparison of each route with each conditional one takes at least 20 s.
		if spent := cputime.Process() - before; spent > 2*time.Second {
			t.Errorf("%s: %d routes take %v of processor time", name, len(cfg.Routes), spent)
		}
	}
}
