// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/xdslb/xdslb/integrate/internal/shadowing"
	"github.com/xdslb/xdslb/picker"
)

// modelShadow is a Shadow that hears of all configurations, and an oracle for what it finds:
// an RPC differs if no configuration that was in force in the second before it, or in the
// second after, explains what stock did with it.
type modelShadow struct {
	shadow *shadowing.Comparer
	states []shadowTime // in force one after the other
	calls  []shadowedCall
	made   uint64
	found  map[shadowing.Kind]uint64
}

// shadowTime is a configuration, or nil for an error, and since when it is in force.
type shadowTime struct {
	since time.Time
	cfg   *picker.Config
}

// shadowedCall is an RPC to a cluster of the model's, and which leaf stock has sent it to.
type shadowedCall struct {
	at            time.Time
	cluster, leaf string
}

func newModelShadow() *modelShadow {
	return &modelShadow{shadow: shadowing.New(slog.New(slog.DiscardHandler), true), found: map[shadowing.Kind]uint64{}}
}

// begin, update, fail and end are what happens to the Shadow; there may be none.
func (m *modelShadow) begin() {
	if m != nil {
		m.shadow.Begin("xds:///model")
	}
}

func (m *modelShadow) update(cfg *picker.Config) {
	if m != nil {
		m.advance()
		m.shadow.Update(cfg)
		m.states = append(m.states, shadowTime{time.Now(), cfg})
	}
}

func (m *modelShadow) fail() {
	if m != nil {
		m.advance()
		m.shadow.Error(errors.New("no such target"))
		m.states = append(m.states, shadowTime{time.Now(), nil})
	}
}

func (m *modelShadow) end() {
	if m != nil {
		m.advance()
		m.shadow.End()
		m.states, m.calls = nil, nil
	}
}

// shadowed has stock make some RPCs, by what it may believe.
func (t *trial) shadowed() {
	m := t.shadow
	if m == nil {
		return
	}
	m.advance()
	for range 1 + t.Rand.IntN(4) {
		c := t.plane.clusters[t.Rand.IntN(len(t.plane.clusters))]
		other := t.plane.clusters[t.Rand.IntN(len(t.plane.clusters))]
		call := shadowedCall{time.Now(), c.name, c.name}
		switch t.Rand.IntN(4) {
		case 0:
			call.leaf = ""
		case 1:
			call.leaf = other.leaves[t.Rand.IntN(len(other.leaves))].realName
		case 2:
			call.leaf = c.leaves[t.Rand.IntN(len(c.leaves))].realName
		}
		t.Logf("stock sends an RPC to %s to %q", c.name, call.leaf)
		m.shadow.Compare(context.Background(), "/"+c.name+"/m", call.leaf)
		m.made++
		m.calls = append(m.calls, call)
	}
}

// advance settles the RPCs that a second has passed since.
func (m *modelShadow) advance() {
	for len(m.calls) > 0 && time.Since(m.calls[0].at) >= shadowing.Settles {
		if kind := m.verdict(m.calls[0]); kind != "" {
			m.found[kind]++
		}
		m.calls = m.calls[1:]
	}
}

// verdict is how an RPC differs, by what was in force around it until now.
func (m *modelShadow) verdict(c shadowedCall) (kind shadowing.Kind) {
	for i, s := range m.states {
		over := i+1 < len(m.states) && c.at.Sub(m.states[i+1].since) >= shadowing.Settles
		if over || s.since.Sub(c.at) >= shadowing.Settles {
			continue
		}
		if kind = s.judge(c); kind == "" {
			return ""
		}
	}
	return kind
}

// judge is how an RPC differs from what a configuration has it do.
func (s *shadowTime) judge(c shadowedCall) shadowing.Kind {
	if s.cfg == nil {
		if c.leaf == "" {
			return ""
		}
		return shadowing.Unserved
	}
	i := slices.IndexFunc(s.cfg.Clusters, func(of *picker.Cluster) bool { return of.Name == c.cluster })
	switch {
	case i < 0 && c.leaf == "", i >= 0 && c.leaf == c.cluster:
		return ""
	case i < 0:
		return shadowing.NoRoute
	case c.leaf == "":
		return shadowing.Route
	case slices.ContainsFunc(s.cfg.Clusters[i].Leaves, func(l picker.Leaf) bool { return l.Name == c.leaf }):
		return ""
	}
	return shadowing.Cluster
}

// checkShadow holds what the Shadow says against the oracle.
func (t *trial) checkShadow() {
	m := t.shadow
	if m == nil {
		return
	}
	m.advance()
	suspects := 0
	for _, c := range m.calls {
		if m.verdict(c) != "" {
			suspects++
		}
	}
	r := m.shadow.Report()
	if r.Calls != m.made || r.Pending != suspects || !maps.Equal(r.Differences, m.found) {
		t.Fatalf("the Shadow has found %+v, want %d RPCs, %d pending, %v", r, m.made, suspects, m.found)
	}
}
