// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// seedVariable makes TestModel repeat the run of one seed, or begin there if modelRuns is
// set.
const seedVariable = "XDSLB_MODEL_SEED"

var modelRuns = flag.Int("model.runs", 0, "how many histories TestModel runs; 0 is a few")

// TestModel does random things to a client and to the servers at the other end
// of its wires: watch, cancel, watch
// again, cut, refuse, fall back (A71), change, delete and spoil resources, send
// some or all of them again, and deliver messages in either direction, each at
// some time or other, so that nonces go stale and responses cross requests. A
// world (see there) says after each step what must never be, and now and then,
// when everything has been delivered, what must be.
//
// There is no network: messages are handed over in the test's own goroutine, so
// a run depends on its seed alone, and one that fails is repeated without most of
// its steps for as long as it still fails. What is left is printed. TestChurn is
// its like with a network and everything at once.
func TestModel(t *testing.T) {
	const steps = 500
	runs := 300 // 150,000 steps, in each mode
	if testing.Short() || raceEnabled {
		runs = 40
	}
	seeds, first := []uint64{1774, 4126, 13638, 20620, 22253, 157, 524}, uint64(0) // once found what the others had not
	if s := os.Getenv(seedVariable); s != "" {
		var err error
		if first, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
		seeds, runs = nil, 1
	}
	if *modelRuns > 0 {
		runs = *modelRuns
	}
	for i := range uint64(runs) {
		seeds = append(seeds, first+i)
	}
	var took [numOps]int
	for _, seed := range seeds {
		ops := randomOps(seed, steps)
		for mode := range numModes {
			err := runOps(t, seed, mode, ops, &took)
			if err == nil {
				continue
			}
			ops, err = shrink(ops, err, func(ops []op) error { return runOps(t, seed, mode, ops, nil) })
			t.Fatalf("seed %d, %v: %v\nRepeat it with %s=%d. The steps that it takes:\n%s", seed, mode, err, seedVariable, seed, opsString(ops))
		}
	}
	if runs > 1 {
		for kind, n := range took {
			if n < runs {
				t.Errorf("%d steps of kind %v had an effect in %d runs", n, opKind(kind), runs)
			}
		}
	}
	t.Logf("%d steps; of each kind, those that had an effect: %v", len(seeds)*steps, took)
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
	modeLEDS         // incremental, and assignments have their endpoints in collections at times
	modeTurns        // the same, and the servers turn to state of the world, where there are none, or from there
	modeMixed        // the same with servers of both variants, which turn to the other
	numModes
)

func (m mode) String() string {
	return [numModes]string{"sotw", "delta", "echo", "there", "and back", "leds", "turns", "mixed"}[m]
}

// op is a step. Its arguments choose among what there is at the time, so a run
// makes sense without any of its steps.
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
	numOps
)

var opNames = [numOps]string{"watch", "cancel", "rewatch", "connect", "cut", "refuse", "send", "hear", "receive",
	"change", "spoil", "delete", "resend", "partial", "wait", "settle"}

func (k opKind) String() string { return opNames[k] }

// opWeights are how often each kind is drawn. Messages have to be delivered for
// anything to happen.
var opWeights = [numOps]int{8, 4, 5, 10, 2, 2, 24, 24, 36, 12, 2, 3, 2, 3, 5, 1}

func randomOps(seed uint64, n int) []op {
	rng := rand.New(rand.NewPCG(seed, 9))
	var bag []opKind
	for kind, weight := range opWeights {
		bag = append(bag, slices.Repeat([]opKind{opKind(kind)}, weight)...)
	}
	ops := make([]op, n)
	for i := range ops {
		ops[i] = op{bag[rng.IntN(len(bag))], uint8(rng.Uint32()), uint8(rng.Uint32()), uint8(rng.Uint32())}
	}
	return append(ops, op{kind: opSettle})
}

func opsString(ops []op) string {
	var b strings.Builder
	for _, o := range ops {
		fmt.Fprintf(&b, "\t{%v %d %d %d}\n", o.kind, o.a, o.b, o.c)
	}
	return b.String()
}

// runOps takes the steps in a new world, and says what went wrong. The seed
// chooses the kind of world.
func runOps(t *testing.T, seed uint64, mode mode, ops []op, took *[numOps]int) (err error) {
	synctest.Test(t, func(t *testing.T) {
		opts := Options{
			Linger: []time.Duration{-1, 5 * time.Second}[seed%2],
			Delta:  mode == modeDelta || mode == modeEcho || mode >= modeAndBack,
		}
		w := newWorld(t, opts, seed/2%2 == 1, seed/8%2 == 1, 1+int(seed/4%2))
		w.leds = mode >= modeLEDS
		for _, sim := range w.servers {
			sim.delta = opts.Delta
			if first := seed/16%2 == 0; mode == modeTurns && !first || mode == modeMixed && first == (sim.number == 0) {
				sim.delta = false
			}
		}
		w.mortal = w.leds && seed%4 == 3
		w.age()
		w.kind = []deltaKind{strict, plain, goCPlane}[seed%3]
		if mode == modeDelta {
			w.kind = []deltaKind{plain, goCPlane, istio}[seed%3]
		} else if mode == modeEcho {
			w.kind = strict
		}
		w.trusts = seed%3 == 1
		w.evaluates = seed%12 == 0
		defer w.close()
		for i, o := range ops {
			for n, sim := range w.servers {
				if i == len(ops)*(4+n)/8 && (mode == modeThere || mode == modeAndBack || mode >= modeTurns) {
					w.swap(sim)
				}
			}
			effect := w.do(o)
			if effect && took != nil {
				took[o.kind]++
			}
			if err = w.err(); err != nil {
				err = fmt.Errorf("step %d, %v: %w", i, o.kind, err)
				return
			}
		}
	})
	return err
}

// shrink returns steps that fail, as few as it finds without trying too long: it
// drops ever smaller pieces.
func shrink(ops []op, err error, run func([]op) error) ([]op, error) {
	tries := 600
	for size := len(ops) / 2; size > 0; size /= 2 {
		for from := 0; from < len(ops) && tries > 0; {
			less := slices.Delete(slices.Clone(ops), from, min(from+size, len(ops)))
			tries--
			if e := run(less); e != nil {
				ops, err = less, e
			} else {
				from += size
			}
		}
	}
	return ops, err
}

// TestShrink checks that of many steps those are left that matter.
func TestShrink(t *testing.T) {
	ops, err := shrink(randomOps(1, 500), nil, func(ops []op) error {
		i := slices.IndexFunc(ops, func(o op) bool { return o.kind == opCut })
		if i >= 0 && slices.ContainsFunc(ops[i:], func(o op) bool { return o.kind == opSpoil }) {
			return fmt.Errorf("%d steps", len(ops))
		}
		return nil
	})
	if len(ops) != 2 || ops[0].kind != opCut || ops[1].kind != opSpoil || err.Error() != "2 steps" {
		t.Errorf("left: %v\n%s", err, opsString(ops))
	}
}
