// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
)

// A Mode is the way in which a policy runs in a fleet.
type Mode string

// The modes.
const (
	Channels Mode = "channels" // real channels in memory, in virtual time
	Loopback Mode = "loopback" // real channels over TCP, in real time
	Kernels  Mode = "kernels"  // only pickers, in virtual time
)

// A Cell is one run: a policy in a fleet.
type Cell struct {
	Mode   Mode
	Fleet  string
	Policy string // in the format of Policy.String
	Seed   uint64
	Long   bool // a fleet of the calibration, for a minute
}

// String implements fmt.Stringer.
func (c Cell) String() string { return fmt.Sprintf("%s, %s (%s)", c.Fleet, c.Policy, c.Mode) }

// Play runs a cell. Errors are part of the result.
func Play(t *testing.T, c Cell) *Result {
	r := &Result{Fleet: c.Fleet, Mode: c.Mode}
	f, p, err := c.find()
	if err != nil {
		r.Error = err.Error()
		return r
	}
	r.Impl, r.Policy = p.Impl, p.Name
	var result *Result
	switch c.Mode {
	case Kernels:
		result, err = simulate(f, p, c.Seed)
	case Loopback:
		result, err = play(f, p, c.Seed, true)
	default:
		synctest.Test(t, func(*testing.T) { result, err = play(f, p, c.Seed, false) })
	}
	if err != nil {
		r.Error = err.Error()
		return r
	}
	result.Mode, result.Long = c.Mode, c.Long
	return result
}

func (c Cell) find() (*Fleet, *Policy, error) {
	fleets := append(Fleets(), LoopbackFleet())
	if c.Long {
		fleets = Calibration()
	}
	policies := Policies()
	i := slices.IndexFunc(fleets, func(f Fleet) bool { return f.Name == c.Fleet })
	k := slices.IndexFunc(policies, func(p Policy) bool { return p.String() == c.Policy })
	if i < 0 || k < 0 {
		return nil, nil, fmt.Errorf("arena: there is no %v", c)
	}
	return &fleets[i], &policies[k], nil
}

// Cells returns all runs of a seed, the longest ones first.
func Cells(seed uint64) []Cell {
	var list []Cell
	add := func(mode Mode, f *Fleet, long bool) {
		for _, p := range Policies() {
			if p.plays(mode, f) {
				list = append(list, Cell{mode, f.Name, p.String(), seed, long})
			}
		}
	}
	for _, f := range Fleets() {
		add(Channels, &f, false)
	}
	small := LoopbackFleet()
	add(Channels, &small, false)
	for _, f := range Calibration() {
		add(Kernels, &f, true)
	}
	for _, f := range Fleets() {
		if !f.ChannelsOnly {
			add(Kernels, &f, false)
		}
	}
	add(Loopback, &small, false)
	return list
}

// scale reports whether all other policies are compared with this one.
func (p *Policy) scale() bool {
	return p.Impl == Anchor && (p.Name == RandomName || p.Name == OracleName)
}

// plays reports whether the policy has a row in the fleet.
func (p *Policy) plays(mode Mode, f *Fleet) bool {
	if mode == Kernels && p.Kernel == nil {
		return false
	}
	return (p.Only == nil || slices.Contains(p.Only, f.Name)) && (f.Only == nil || p.scale() || slices.Contains(f.Only, p.String()))
}
