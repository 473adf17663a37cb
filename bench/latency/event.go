// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package latency

import (
	"context"
	"time"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// An event is something that happens during a run.
type event struct {
	name string
	// weights and priorities are those of the two localities at first.
	weights, priorities [2]uint32
	steps               []step
}

// A step is done at a part of the run's duration.
type step struct {
	at    float64
	label string
	do    func(w *world) error
}

var events = []event{
	{
		name: "Weights shift", weights: [2]uint32{9, 1},
		steps: []step{{1. / 2, "9:1 → 1:9", func(w *world) error {
			return w.control.Set(w.policy.resources(w.fleet, [2]uint32{1, 9}, [2]uint32{}))
		}}},
	},
	{
		name: "Failover", weights: [2]uint32{1, 1}, priorities: [2]uint32{0, 1},
		steps: []step{
			{1. / 3, "priority 0 stops", func(w *world) error {
				stopFleet(w.fleet[:len(w.fleet)/2])
				return nil
			}},
			{2. / 3, "it starts again", func(w *world) error {
				for _, n := range w.fleet[:len(w.fleet)/2] {
					if err := n.Start(); err != nil {
						return err
					}
				}
				return nil
			}},
		},
	},
	{
		name: "Control plane lost", weights: [2]uint32{1, 1},
		steps: []step{
			{1. / 3, "control plane stops", func(w *world) error { w.control.Stop(); return nil }},
			{2. / 3, "it starts again", func(w *world) error { return w.control.Restart() }},
		},
	},
}

func (e *event) resources(w *world) xdstest.Resources {
	return w.policy.resources(w.fleet, e.weights, e.priorities)
}

func (e *event) marks(d time.Duration) []Mark {
	var list []Mark
	for _, s := range e.steps {
		list = append(list, Mark{s.at * d.Seconds(), s.label})
	}
	return list
}

// play takes the steps at their times.
func (e *event) play(ctx context.Context, w *world, d time.Duration) error {
	start := time.Now()
	for _, s := range e.steps {
		pause(ctx, time.Duration(s.at*float64(d))-time.Since(start))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := s.do(w); err != nil {
			return err
		}
	}
	return nil
}
