// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
)

// TestModel runs random histories of a client and of its servers: watches begin and end, streams open and
// end, servers fail and fall back (A71), resources change, are deleted, become invalid or are sent again,
// and messages are delivered in either direction at any time, so that nonces are outdated and responses
// cross requests. A world checks invariants after each step, and the result when everything has
// been delivered. Each history runs in every mode.
//
// There is no network: messages are handed over in the goroutine of the test. TestChurn is similar, with
// a network and concurrency.
func TestModel(t *testing.T) {
	testModel(t, 300, testing.Short() || raceEnabled, model{ // 150,000 steps in each mode
		seeds:   []uint64{5044, 1774, 4126, 13638, 20620, 22253, 157, 524},
		weights: opWeights,
		draw:    randomOps,
		world:   newSeededWorld,
	})
}

// TestModelOutages is TestModel with control planes that cannot be reached for a while, also all of an
// authority (A47, A71), servers with the feature resource_timer_is_transient_error (A88), routes to
// several clusters, targets with unusual names, and targets whose names cannot be requested.
func TestModelOutages(t *testing.T) {
	weights := opWeights
	for kind, weight := range outageWeights {
		weights[kind] += weight
	}
	testModel(t, 60, testing.Short() || raceEnabled, model{weights: weights, draw: randomOutages, world: newOutageWorld})
}

// model is a kind of random history.
type model struct {
	seeds   []uint64 // histories that once found a defect
	weights [numOps]int
	draw    func(seed uint64, steps int) []uint64
	world   func(t *kit.Trial, opts Options) *world
}

func testModel(t *testing.T, runs int, short bool, of model) {
	const steps = 500
	if short {
		runs = runs * 2 / 15
	}
	var took [numOps]int
	histories := 0
	for mode := range numModes {
		t.Run(mode.String(), func(t *testing.T) {
			m := kit.Model{
				Seeds: of.seeds,
				Draw:  func(seed uint64) []uint64 { return of.draw(seed, steps) },
				Run:   func(t *kit.Trial) { histories++; runOps(t, mode, of.world, &took) },
			}
			m.Test(t, runs)
		})
	}
	for kind, n := range took {
		if of.weights[kind] > 0 && histories > int(numModes) && n < histories/int(numModes) {
			t.Errorf("%d steps of kind %v had an effect in %d histories", n, opKind(kind), histories)
		}
	}
}

// mode is which variant of ADS is spoken. All have the same history, and have to end
// with the same configurations: see world.settle.
type mode uint8

const (
	modeSotW    mode = iota
	modeDelta        // incremental, and the servers say little: see world.kind
	modeEcho         // incremental, and they say more than they must
	modeThere        // sotw, then incremental
	modeAndBack      // incremental, then sotw
	modeMixed        // servers of both variants, which turn to the other
	numModes
)

func (m mode) String() string {
	return [numModes]string{"sotw", "delta", "echo", "there", "and back", "mixed"}[m]
}

// op is a step. Its arguments choose among the targets and resources of the time, so a run makes
// sense without any of its steps.
type op struct {
	kind    opKind
	a, b, c uint8
}

type opKind uint8

const (
	opWatch opKind = iota
	opCancel
	opRewatch
	opConnect
	opCut
	opRefuse
	opSend
	opHear
	opReceive
	opChange
	opSpoil
	opDelete
	opResend
	opPartial
	opWait
	opSettle
	opOutage        // of TestModelOutages, like the next one
	opInvalidTarget // watches a target whose name cannot be requested, or ends the watch
	opReturn        // a resource leads to another one for a while, and its own is deleted
	numOps
)

var opNames = [numOps]string{"watch", "cancel", "rewatch", "connect", "cut", "refuse", "send", "hear", "receive",
	"change", "spoil", "delete", "resend", "partial", "wait", "settle", "outage", "invalid target", "return"}

func (k opKind) String() string { return opNames[k] }

// opWeights are how often each kind is drawn. Messages have to be delivered for
// anything to happen.
var opWeights = [numOps]int{8, 4, 5, 10, 2, 2, 24, 24, 36, 12, 2, 3, 2, 3, 5, 1}

// outageWeights are the weights of the steps that randomOutages adds.
var outageWeights = [numOps]int{opOutage: 4, opInvalidTarget: 3, opReturn: 2, opChange: 6, opSettle: 1}

// randomOps returns steps, packed into numbers.
func randomOps(seed uint64, n int) []uint64 {
	return drawOps(rand.New(rand.NewPCG(seed, 9)), opWeights, n)
}

// randomOutages returns the steps of randomOps, and others after some of them.
func randomOutages(seed uint64, n int) (ops []uint64) {
	rng := rand.New(rand.NewPCG(seed, 10))
	for _, op := range randomOps(seed, n) {
		ops = append(ops, op)
		if rng.IntN(8) == 0 {
			ops = append(ops, drawOps(rng, outageWeights, 1)...)
		}
	}
	return ops
}

// drawOps draws steps of kinds with the given weights.
func drawOps(rng *rand.Rand, weights [numOps]int, n int) (ops []uint64) {
	var bag []opKind
	for kind, weight := range weights {
		bag = append(bag, slices.Repeat([]opKind{opKind(kind)}, weight)...)
	}
	for range n {
		kind := bag[rng.IntN(len(bag))]
		ops = append(ops, uint64(kind)<<24|uint64(uint8(rng.Uint32()))<<16|uint64(uint8(rng.Uint32()))<<8|uint64(uint8(rng.Uint32())))
	}
	return ops
}

// newSeededWorld returns the world of a history of TestModel.
func newSeededWorld(t *kit.Trial, opts Options) *world {
	return newWorld(t, opts, worldOptions{drops: t.Seed/2%2 == 1, federated: t.Seed/8%2 == 1, servers: 1 + int(t.Seed/4%2)})
}

// runOps runs a history in a new world. The seed determines the properties of the world.
func runOps(t *kit.Trial, mode mode, newWorld func(*kit.Trial, Options) *world, took *[numOps]int) {
	seed := t.Seed
	opts := Options{
		Linger: []time.Duration{-1, 5 * time.Second}[seed%2],
		Delta:  mode == modeDelta || mode == modeEcho || mode >= modeAndBack,
		Logger: slog.New(slog.DiscardHandler),
	}
	w := newWorld(t, opts)
	defer w.close()
	if seed%7 == 1 || seed%7 == 4 {
		w.overlay = newWorldOverlay(t, int(seed/7))
	}
	for _, sim := range w.servers {
		sim.delta = opts.Delta
		if first := seed/16%2 == 0; mode == modeMixed && first == (sim.number == 0) {
			sim.delta = false
		}
	}
	w.mortal = opts.Delta && seed%4 == 3
	w.age()
	w.kind = []deltaKind{strict, plain, goCPlane}[seed%3]
	if mode == modeDelta {
		w.kind = []deltaKind{plain, goCPlane, istio}[seed%3]
	} else if mode == modeEcho {
		w.kind = strict
	}
	w.trusts = seed%3 == 1
	w.evaluates = seed%12 == 0
	for i := range t.Steps() {
		for n, sim := range w.servers {
			if i == (t.Len()+1)*(4+n)/8 && (mode == modeThere || mode == modeAndBack || mode == modeMixed) {
				w.swap(sim)
			}
		}
		o := op{opKind(t.Step >> 24), uint8(t.Step >> 16), uint8(t.Step >> 8), uint8(t.Step)}
		t.Logf("%v %d %d %d", o.kind, o.a, o.b, o.c)
		if w.do(o) {
			took[o.kind]++
		}
	}
	if !t.Failed() {
		t.Logf("%v", opSettle)
		w.do(op{kind: opSettle})
	}
}
