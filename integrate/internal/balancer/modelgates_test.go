// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// This file is the filters against overload, and what they should be at.

// overload are the filters of a plane against overload; nil is none.
type overload struct {
	admission   *resource.AdmissionControl
	concurrency *resource.AdaptiveConcurrency
	limitFirst  bool
}

// randomOverload draws them. The window is longer than any history, so that all RPCs count.
func randomOverload(rng *rand.Rand) (o overload) {
	if rng.IntN(3) == 0 {
		o.admission = &resource.AdmissionControl{
			Enabled: true, Window: 1000 * time.Hour, Threshold: []float64{.3, .9}[rng.IntN(2)], Aggression: 1,
			MaxRejection: []float64{.5, 1}[rng.IntN(2)], Success: 1 << codes.OK,
		}
	}
	if rng.IntN(3) > 0 {
		least := 1 + rng.Uint32N(3)
		o.concurrency = &resource.AdaptiveConcurrency{
			Enabled: true, Percentile: .5, Update: time.Second, Min: least, Max: least + rng.Uint32N(4), Requests: 3, Buffer: .25,
			Interval: 10 * time.Second, Pins: rng.IntN(2) == 0, Code: []uint32{uint32(codes.Unavailable), uint32(codes.ResourceExhausted)}[rng.IntN(2)],
		}
		if rng.IntN(2) == 0 {
			o.concurrency.FixedRTT = time.Second
		}
	}
	o.limitFirst = rng.IntN(2) == 0
	return o
}

// none reports whether there is no filter.
func (o *overload) none() bool { return o.admission == nil && o.concurrency == nil }

// filters are the HTTP filters as the XdsClient decodes them: anew for each update.
func (o *overload) filters() (list []picker.Filter) {
	if o.admission != nil {
		cfg := *o.admission
		list = append(list, picker.Filter{Name: "admission", Config: &cfg})
	}
	if o.concurrency != nil {
		cfg := *o.concurrency
		list = append(list, picker.Filter{Name: "concurrency", Config: &cfg})
	}
	if o.limitFirst {
		slices.Reverse(list)
	}
	return list
}

// A gate is the state of a filter, for a cluster if it is adaptive concurrency, as the model
// has it. It lives from the update that brings its configuration to the one that lacks it.
type gate struct {
	gateKey
	plans           *rpc.Plans // some that have it; nil before there were any
	inFlight        int
	rpcs, successes uint32
	refused         uint64
}

type gateKey struct {
	cluster     string // empty for admission control
	admission   resource.AdmissionControl
	concurrency resource.AdaptiveConcurrency
}

// limitKey and admissionKey are the keys of the gates of a cluster's RPCs.
func (o *overload) limitKey(cluster string) (key gateKey) {
	if o.concurrency != nil {
		key.cluster, key.concurrency = cluster, *o.concurrency
	}
	return key
}

func (o *overload) admissionKey() (key gateKey) {
	if o.admission != nil {
		key.admission = *o.admission
	}
	return key
}

// gatesIn notes which gates the configuration that was sent has.
func (t *trial) gatesIn(clusters []*planeCluster) {
	was := t.sky.gates
	t.sky.gates = map[gateKey]*gate{}
	keep := func(key gateKey) {
		g := was[key]
		if delete(was, key); g == nil {
			g = &gate{gateKey: key}
		}
		t.sky.gates[key] = g
	}
	if o := &t.plane.overload; !o.none() {
		for _, c := range clusters {
			if c.routed && o.concurrency != nil {
				keep(o.limitKey(c.name))
			}
		}
		if o.admission != nil {
			keep(o.admissionKey())
		}
	}
	for _, g := range was {
		t.sky.closed = append(t.sky.closed, g)
	}
}

// refilter changes the filters, or sends them again.
func (t *trial) refilter() {
	next := randomOverload(t.Rand)
	switch t.Rand.IntN(4) {
	case 0:
		next = t.plane.overload
	case 1:
		next.admission = t.plane.overload.admission
	case 2:
		next.concurrency = t.plane.overload.concurrency
	}
	t.plane.overload = next
	t.Logf("filters: admission %+v, concurrency %+v, limit first %v", next.admission, next.concurrency, next.limitFirst)
	t.push()
}

// reasonOf is that of an error of this package, or "".
func reasonOf(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == ErrorDomain {
			return info.GetReason()
		}
	}
	return ""
}

// checkGates checks that filters are at what the model is at, those that are gone as well.
func (t *trial) checkGates() {
	plans := tableIn(t.lb).Plans
	for _, g := range t.sky.gates {
		g.plans = plans
		g.check(t)
	}
	for _, g := range t.sky.closed {
		if g.plans != nil {
			g.check(t)
		}
	}
}

func (g *gate) check(t *trial) {
	if g.cluster == "" {
		if s := g.admissionState(t); s.RPCs != g.rpcs || s.Successes != g.successes || s.Refused != g.refused {
			t.Fatalf("admission control is at %+v, want %d RPCs, %d successes, %d refused", s, g.rpcs, g.successes, g.refused)
		}
		return
	}
	s := g.concurrencyState(t)
	if int(s.InFlight) != g.inFlight || s.Refused != g.refused || s.Limit < g.concurrency.Min || s.Limit > g.concurrency.Max {
		t.Fatalf("adaptive concurrency for %s is at %+v, want %d RPCs in flight, %d refused, a limit from %d to %d", g.cluster, s, g.inFlight, g.refused, g.concurrency.Min, g.concurrency.Max)
	}
}

func (g *gate) admissionState(t *trial) rpc.AdmissionState {
	s, ok := g.plans.Admission("admission", &g.admission)
	if !ok {
		t.Fatalf("the plans lack admission control")
	}
	return s
}

func (g *gate) concurrencyState(t *trial) rpc.ConcurrencyState {
	s, ok := g.plans.Concurrency("concurrency", g.cluster, &g.concurrency)
	if !ok {
		t.Fatalf("the plans lack adaptive concurrency for %s", g.cluster)
	}
	return s
}
