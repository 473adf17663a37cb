// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/picker"
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
