// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"maps"
	"math/rand/v2"
	"slices"

	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/picker"
)

// This file changes request headers as Envoy documents it: routes and sessions use the headers
// before, and attempts send those after.

// randomMutations draws the header mutations of one level, or none. They affect the headers that
// routes and sessions use.
func randomMutations(rng *rand.Rand) *picker.HeaderMutations {
	if rng.IntN(3) > 0 {
		return nil
	}
	names := []string{"x", "cookie", "other"}
	m := &picker.HeaderMutations{}
	if rng.IntN(3) == 0 {
		m.Remove = []string{names[rng.IntN(3)]}
	}
	for range rng.IntN(3) {
		m.Add = append(m.Add, picker.HeaderMutation{Name: names[rng.IntN(3)], Value: []string{"1", "2", "3"}[rng.IntN(3)], Action: picker.HeaderAction(rng.IntN(4))})
	}
	return m
}

// mutated returns headers after some levels of mutations. At each level, what is present is decided
// after the removals, and values are replaced before others are added.
func mutated(md metadata.MD, levels ...*picker.HeaderMutations) metadata.MD {
	md = md.Copy()
	for _, m := range levels {
		if m == nil {
			continue
		}
		for _, name := range m.Remove {
			delete(md, name)
		}
		present, added := maps.Clone(md), metadata.MD{}
		for _, h := range m.Add {
			switch has := len(present[h.Name]) > 0; {
			case h.Action == picker.SetHeader, h.Action == picker.ReplaceHeaderIfPresent && has:
				md[h.Name] = []string{h.Value}
			case h.Action == picker.AppendHeader, h.Action == picker.AddHeaderIfAbsent && !has:
				added.Append(h.Name, h.Value)
			}
		}
		md = metadata.Join(md, added)
	}
	return md
}

// sent returns the headers that attempts may send by some routes, from the RPC's own.
func (v *trip) sent(by []crossroad, own metadata.MD) (list []metadata.MD) {
	for _, r := range v.routes(by) {
		to := r.destinations(v, v.session && v.host > 0)
		for _, c := range r.clusters {
			if slices.Contains(to, c.Name) {
				list = append(list, mutated(own, append([]*picker.HeaderMutations{c.RequestHeaders}, r.headers...)...))
			}
		}
	}
	if v.unserved {
		list = append(list, own)
	}
	return list
}

// checkSent checks the headers of an attempt, which are the same for all attempts at an RPC.
func (t *trial) checkSent(l *leg) {
	got, _ := metadata.FromOutgoingContext(l.ctx)
	delete(got, "grpc-previous-rpc-attempts")
	f := l.of
	f.sends = slices.DeleteFunc(f.sends, func(want metadata.MD) bool { return !maps.EqualFunc(got, want, slices.Equal) })
	if len(f.sends) == 0 {
		t.Fatalf("attempt %s at an RPC of %s sends the headers %v; its own are %v, its routes were %+v", l.id, f.cluster, got, f.own, f.trip)
	}
}
