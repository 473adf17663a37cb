// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestHeaderActions: Envoy's actions of request_headers_to_add. Conditions hold or not before any
// header of the level is added, values are replaced before others are added, and removals are first.
func TestHeaderActions(t *testing.T) {
	add := func(name, value string, action picker.HeaderAction) picker.HeaderMutation {
		return picker.HeaderMutation{Name: name, Value: value, Action: action}
	}
	for _, tt := range []struct {
		name   string
		before metadata.MD
		m      picker.HeaderMutations
		want   metadata.MD
	}{
		{"append to a value", metadata.MD{"a": {"0"}}, picker.HeaderMutations{Add: []picker.HeaderMutation{add("a", "1", picker.AppendHeader)}}, metadata.MD{"a": {"0", "1"}}},
		{"append without a value", metadata.MD{}, picker.HeaderMutations{Add: []picker.HeaderMutation{add("a", "1", picker.AppendHeader)}}, metadata.MD{"a": {"1"}}},
		{"add if absent, present", metadata.MD{"a": {"0"}}, picker.HeaderMutations{Add: []picker.HeaderMutation{add("a", "1", picker.AddHeaderIfAbsent)}}, metadata.MD{"a": {"0"}}},
		{"add if absent, absent", metadata.MD{}, picker.HeaderMutations{Add: []picker.HeaderMutation{add("a", "1", picker.AddHeaderIfAbsent)}}, metadata.MD{"a": {"1"}}},
		{"add if absent, removed", metadata.MD{"a": {"0"}}, picker.HeaderMutations{Remove: []string{"a"}, Add: []picker.HeaderMutation{add("a", "1", picker.AddHeaderIfAbsent)}}, metadata.MD{"a": {"1"}}},
		{"add if absent twice", metadata.MD{}, picker.HeaderMutations{Add: []picker.HeaderMutation{add("a", "1", picker.AddHeaderIfAbsent), add("a", "2", picker.AddHeaderIfAbsent)}}, metadata.MD{"a": {"1", "2"}}},
		{"set", metadata.MD{"a": {"0", "1"}}, picker.HeaderMutations{Add: []picker.HeaderMutation{add("a", "2", picker.SetHeader)}}, metadata.MD{"a": {"2"}}},
		{"set without a value", metadata.MD{}, picker.HeaderMutations{Add: []picker.HeaderMutation{add("a", "2", picker.SetHeader)}}, metadata.MD{"a": {"2"}}},
		{"replace", metadata.MD{"a": {"0", "1"}}, picker.HeaderMutations{Add: []picker.HeaderMutation{add("a", "2", picker.ReplaceHeaderIfPresent)}}, metadata.MD{"a": {"2"}}},
		{"replace without a value", metadata.MD{}, picker.HeaderMutations{Add: []picker.HeaderMutation{add("a", "2", picker.ReplaceHeaderIfPresent)}}, metadata.MD{}},
		{"replace what is only appended", metadata.MD{}, picker.HeaderMutations{Add: []picker.HeaderMutation{add("a", "1", picker.AppendHeader), add("a", "2", picker.ReplaceHeaderIfPresent)}}, metadata.MD{"a": {"1"}}},
		{"append, then set", metadata.MD{"a": {"0"}}, picker.HeaderMutations{Add: []picker.HeaderMutation{add("a", "1", picker.AppendHeader), add("a", "2", picker.SetHeader)}}, metadata.MD{"a": {"2", "1"}}},
		{"remove", metadata.MD{"a": {"0"}, "b": {"1"}}, picker.HeaderMutations{Remove: []string{"a", "c"}}, metadata.MD{"b": {"1"}}},
	} {
		md := tt.before.Copy()
		applyMutations(md, &tt.m)
		if !reflect.DeepEqual(md, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, md, tt.want)
		}
	}
}

// TestHeaderActionsOracle compares applyMutations with a list of header lines on which the actions
// are done one after the other, as the documentation of Envoy describes.
func TestHeaderActionsOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	names := []string{"a", "b", "c"}
	type line struct{ name, value string }
	for range 20_000 {
		md, lines := metadata.MD{}, []line(nil)
		put := func(name, value string) { md[name] = append(md[name], value); lines = append(lines, line{name, value}) }
		for i := range rng.IntN(4) {
			put(names[rng.IntN(3)], string(rune('0'+i)))
		}
		m := new(picker.HeaderMutations)
		for range rng.IntN(2) {
			m.Remove = append(m.Remove, names[rng.IntN(3)])
		}
		for i := range rng.IntN(5) {
			m.Add = append(m.Add, picker.HeaderMutation{Name: names[rng.IntN(3)], Value: string(rune('v' + i)), Action: picker.HeaderAction(rng.IntN(4))})
		}
		remove := func(name string) { lines = slices.DeleteFunc(lines, func(l line) bool { return l.name == name }) }
		for _, name := range m.Remove {
			remove(name)
		}
		present := map[string]bool{}
		for _, l := range lines {
			present[l.name] = true
		}
		var appended []line
		for _, h := range m.Add {
			switch {
			case h.Action == picker.SetHeader, h.Action == picker.ReplaceHeaderIfPresent && present[h.Name]:
				remove(h.Name)
				lines = append(lines, line{h.Name, h.Value})
			case h.Action == picker.AppendHeader, h.Action == picker.AddHeaderIfAbsent && !present[h.Name]:
				appended = append(appended, line{h.Name, h.Value})
			}
		}
		want := metadata.MD{}
		for _, l := range append(lines, appended...) {
			want[l.name] = append(want[l.name], l.value)
		}
		before := maps.Clone(md)
		if applyMutations(md, m); !reflect.DeepEqual(md, want) {
			t.Fatalf("%v with %+v: %v, want %v", before, m, md, want)
		}
	}
}

// TestMutateCosts: routes without header mutations do not allocate for them.
func TestMutateCosts(t *testing.T) {
	ctx := metadata.AppendToOutgoingContext(t.Context(), "a", "0")
	plain := &Call{plan: &plan{}}
	changing := &Call{plan: &plan{headers: []*picker.HeaderMutations{{Add: []picker.HeaderMutation{{Name: "b", Value: "1", Action: picker.SetHeader}}}}}}
	var sent context.Context
	if n := testing.AllocsPerRun(100, func() { sent = plain.Unmutated(plain.mutate(ctx)) }); n != 0 || sent != ctx {
		t.Errorf("%v allocations for an RPC without header mutations, want none", n)
	}
	if n := testing.AllocsPerRun(100, func() { sent = changing.mutate(ctx) }); n > 12 {
		t.Errorf("%v allocations for an RPC with a header mutation, want 12 at most", n)
	} else {
		t.Logf("%v allocations for an RPC with a header mutation", n)
	}
	if plain.Unmutated(sent) != sent {
		t.Error("Unmutated changes the context of an RPC without header mutations")
	}
	if n := testing.AllocsPerRun(100, func() { changing.Unmutated(sent) }); n > 1 {
		t.Errorf("%v allocations for a pick for an RPC with a header mutation, want 1 at most", n)
	}
}

// TestUnmutated checks that picks for RPCs with changed headers use the values before the change, and
// that their context ends with the attempt: its Done channel identifies the RPC (T-RING-6).
func TestUnmutated(t *testing.T) {
	parent, cancelParent := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), "a", "0"))
	defer cancelParent()
	call := &Call{plan: &plan{headers: []*picker.HeaderMutations{{Add: []picker.HeaderMutation{{Name: "a", Value: "1", Action: picker.SetHeader}}}}}}
	attempt, cancel := context.WithCancelCause(call.mutate(parent)) // as gRPC does
	defer cancel(nil)
	ctx := call.Unmutated(attempt)
	if md, _ := metadata.FromOutgoingContext(ctx); !slices.Equal(md["a"], []string{"0"}) {
		t.Errorf("the header of a pick is %v, want the one before the mutation", md["a"])
	}
	if ctx.Done() != attempt.Done() || ctx.Done() == parent.Done() {
		t.Fatal("the context of a pick does not have the Done channel of its attempt")
	}
	ended := make(chan struct{})
	context.AfterFunc(ctx, func() { close(ended) })
	stop := context.AfterFunc(ctx, func() { t.Error("a function runs after it was stopped") })
	if !stop() {
		t.Error("a function cannot be stopped before the end of the attempt")
	}
	before := ctx.Err()
	cancel(nil)
	<-ended
	if before != nil || ctx.Err() != context.Canceled || parent.Err() != nil {
		t.Errorf("errors of the context: %v before the attempt ends, %v after", before, ctx.Err())
	}
}

// FuzzRouteMutation sends an RPC with a path and headers through the routes of a RouteConfiguration:
// matching, the route's plan, session affinity and header changes. Whatever the routes require,
//
//   - headers that gRPC or HTTP/2 sets are neither added, changed nor removed,
//   - added headers can be sent,
//   - picks use the headers from before,
//   - changing them again gives the same, and neither the RPC's own headers nor the configuration change.
func FuzzRouteMutation(f *testing.F) {
	for _, seed := range mutationSeeds() {
		value, err := proto.Marshal(seed.routes)
		kit.Must(f, err)
		f.Add(value, seed.path, seed.headers)
	}
	f.Fuzz(func(t *testing.T, value []byte, path, headers string) {
		decoded, err := resource.Decode(resource.RouteConfigType, value, resource.Options{TrustedServer: true})
		if err != nil {
			return
		}
		for _, host := range decoded.(*resource.RouteConfig).VirtualHosts {
			if n := len(host.Routes); n > 0 && n <= 200 {
				checkMutations(t, host.Routes, path, headersOf(headers))
			}
		}
	})
}

type mutationSeed struct {
	routes        *routev3.RouteConfiguration
	path, headers string // headers are lines
}

func mutationSeeds() []mutationSeed {
	add := func(name, value string, action corev3.HeaderValueOption_HeaderAppendAction) *corev3.HeaderValueOption {
		return &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: name, Value: value}, AppendAction: action}
	}
	const (
		appends   = corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
		ifAbsent  = corev3.HeaderValueOption_ADD_IF_ABSENT
		overwrite = corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
		ifPresent = corev3.HeaderValueOption_OVERWRITE_IF_EXISTS
	)
	levels := xdstest.RouteConfig("r", xdstest.Route("/s/", "a"), testplane.WeightedRoute("", testplane.Weighted{Cluster: "a", Weight: 1}, testplane.Weighted{Cluster: "b", Weight: 2}))
	levels.RequestHeadersToAdd = []*corev3.HeaderValueOption{
		add("x", "1", appends), add("Y-bin", "AAEC", overwrite), add("authorization", "z", ifAbsent), add("grpc-timeout", "1S", appends), add("x", "%%", ifPresent),
	}
	levels.RequestHeadersToRemove = []string{"cookie", "te", "X"}
	levels.MostSpecificHeaderMutationsWins = true
	host := levels.VirtualHosts[0]
	host.RequestHeadersToAdd = []*corev3.HeaderValueOption{add("a", "b", ifPresent), {Header: &corev3.HeaderValue{Key: "e"}, KeepEmptyValue: true}}
	host.RetryPolicy = &routev3.RetryPolicy{RetryOn: "unavailable", NumRetries: wrapperspb.UInt32(3), PerTryTimeout: durationpb.New(1)}
	host.Routes[0].RequestHeadersToRemove = []string{"a"}
	host.Routes[0].Match.Headers = []*routev3.HeaderMatcher{{Name: "X", HeaderMatchSpecifier: &routev3.HeaderMatcher_PrefixMatch{PrefixMatch: "1"}}}
	host.Routes[1].GetRoute().GetWeightedClusters().Clusters[0].RequestHeadersToAdd = []*corev3.HeaderValueOption{add("w", "c", appends)}
	replaced := xdstest.RouteConfig("r", xdstest.Route("", "c"))
	replaced.RequestHeadersToAdd = []*corev3.HeaderValueOption{add("x", "1", overwrite), add("x", "2", appends), add("user-agent", "3", overwrite)}
	return []mutationSeed{
		{levels, "/s/m", "x: 1\na: 2\ncookie: q"},
		{levels, "", ""},
		{replaced, "/s/m", "x: 0\nuser-agent: u\nte: t"},
		{xdstest.RouteConfig("r", testplane.HashHeader(xdstest.Route("", "c"), "x")), "/a/b/c", "x: 1\nx: 2\nz-bin: \x00\xff"},
	}
}

// headersOf parses lines of headers.
func headersOf(lines string) metadata.MD {
	md := metadata.MD{}
	for line := range strings.Lines(lines) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			md.Append(strings.TrimSpace(name), strings.TrimSpace(value))
		}
	}
	return md
}

// checkMutations makes one RPC with routes, and checks the promises of FuzzRouteMutation.
func checkMutations(t *testing.T, routes []picker.Route, path string, original metadata.MD) {
	session := &resource.Session{Cookie: "s", Path: "/"}
	cfg := &picker.Config{Routes: routes, Filters: []picker.Filter{{Name: "s", Type: "x", Config: session}}}
	for _, name := range clustersOf(routes) {
		cfg.Clusters = append(cfg.Clusters, &picker.Cluster{Name: name})
	}
	states := make([]picker.ClusterState, len(cfg.Clusters))
	for i := range states {
		states[i].Leaf = -1
	}
	snapshot, err := picker.Build(nil, cfg, states, picker.Env{Header: metadatautil.OutgoingValues})
	if err != nil {
		t.Fatalf("routes that decoding accepts cannot be compiled: %v", err)
	}
	_, plans := Compile(cfg, true)
	if plans == nil {
		return
	}
	bound, call := Bind(metadata.NewOutgoingContext(t.Context(), original.Copy()), &Table{Snapshot: snapshot, Config: cfg, Plans: plans}, path)
	if call == nil {
		return
	}
	call.session = newSession(bound, session, path)
	configured := copyOf(call.mutations())
	mutated, again := call.mutate(bound), call.mutate(bound)
	got, _ := metadata.FromOutgoingContext(mutated)
	if second, _ := metadata.FromOutgoingContext(again); !reflect.DeepEqual(got, second) {
		t.Fatalf("the headers are changed to %q, and the second time to %q", got, second)
	}
	if own, _ := metadata.FromOutgoingContext(bound); !reflect.DeepEqual(own, original) {
		t.Fatalf("the RPC's own headers are %q, want %q", own, original)
	}
	if picks, _ := metadata.FromOutgoingContext(call.Unmutated(mutated)); !reflect.DeepEqual(picks, original) {
		t.Fatalf("picks use the headers %q, want %q", picks, original)
	}
	for _, values := range got {
		_ = append(values, "appended") // memory of the configuration would change
	}
	if !reflect.DeepEqual(copyOf(call.mutations()), configured) {
		t.Fatal("the configuration has changed")
	}
	checkHeaders(t, original, got)
}

// checkHeaders checks which headers of an RPC may differ from the original ones, and how.
func checkHeaders(t *testing.T, original, got metadata.MD) {
	for name, values := range original {
		if reserved(name) && !slices.Equal(values, got[name]) {
			t.Fatalf("header %q is %q, want %q", name, got[name], values)
		}
	}
	for name, values := range got {
		if slices.Equal(values, original[name]) {
			continue
		}
		if reserved(name) || name == "" || strings.Trim(name, "0123456789abcdefghijklmnopqrstuvwxyz-_.") != "" {
			t.Fatalf("header %q became %q", name, values)
		}
		for _, value := range values {
			if slices.Contains(original[name], value) {
				continue
			}
			unprintable := func(r rune) bool { return r < ' ' || r > '~' }
			if len(value) > 16<<10 || !strings.HasSuffix(name, "-bin") && strings.ContainsFunc(value, unprintable) {
				t.Fatalf("header %q became %q", name, values)
			}
		}
	}
}

// reserved reports whether gRPC or HTTP/2 sets a header.
func reserved(name string) bool {
	switch name {
	case "content-type", "content-length", "user-agent", "te", "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "host":
		return true
	}
	return strings.HasPrefix(name, ":") || strings.HasPrefix(name, "grpc-")
}

// clustersOf returns the names of the clusters of routes.
func clustersOf(routes []picker.Route) (names []string) {
	for i := range routes {
		for _, c := range routes[i].Clusters {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func copyOf(levels []*picker.HeaderMutations) (all []picker.HeaderMutations) {
	for _, m := range levels {
		all = append(all, picker.HeaderMutations{Remove: slices.Clone(m.Remove), Add: slices.Clone(m.Add)})
	}
	return all
}
