// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The random model is histories of a balancer between a control plane and gRPC that
// are both simulated. In this file is a history: how it runs, how it shrinks to what
// goes wrong, how it is printed. The rest is in
//
//	modelplane_test.go     plane: the configuration, and how it changes at random
//	modelplaces_test.go    where things are in the configuration that was sent last
//	modelmembers_test.go   endpoints that are members of collections (LEDS)
//	modelgrpc_test.go      modelChannel: gRPC's side, with SubConns that keep gRPC's rules
//	modelpolicydraw_test.go any policy, drawn at random
//	modelpolicies_test.go  custom policies, good and bad
//	modelrpc_test.go       modelRPC: an RPC from its first pick to its end
//	modelloads_test.go     the servers that load is reported to, and what they should hear
//	modelinside_test.go    all that the model knows of the inside of this package
//	modeltrial_test.go     trial: a history under way
//	modelops_test.go       all that can happen in it (ops)
//	modelchecks_test.go    what holds after every step (trial.audit)
//	modelstatus_test.go    what a channel says of itself
//	modelretries_test.go   volleys of RPCs that fail, and the retries that budgets admit
//	modelgates_test.go     the filters against overload, and what they are at
//	modelflights_test.go   flights: RPCs through these filters, which may refuse them
//	modelroutes_test.go    trips: RPCs by routes that change while they are bound, and their cookies
//	modelnames_test.go     hostnames: authorities (A81), and the TLS handshakes of connections (A101)
//	modelsessions_test.go  what holds for RPCs of sessions
//	modelpace_test.go      how fast endpoints are connected (Config.ConnectRate)
//	modellook_test.go      status and explanations at any moment
//	modelrollout_test.go   channels that the environment hands to stock
//	modelshadow_test.go    a Shadow of another channel, by the same control plane
//	modelend_test.go       the calm at the end, and what holds then (trial.converge, finish)
//	modelordeals_test.go   what is tried in the calm: an ejection, a reconnection

var (
	modelSeed = flag.Uint64("model.seed", 1, "the first history of TestModel")
	modelRuns = flag.Int("model.runs", 0, "how many histories TestModel runs; 0 is a few")
	modelAll  = flag.Bool("model.all", false, "go on after a history that fails, and print a line for each")
	modelSkip = flag.String("model.skip", "", "pass over what TestModel finds that matches this expression, for as long as it is known")
	modelLog  = flag.Bool("model.v", false, "print every history of TestModel as it goes, not only those that fail")
)

// history is what happens in a trial: how it begins, and steps, each of which is
// drawn from a number of its own, so that the others stay what they are if one is
// left out.
type history struct {
	seed  uint64
	steps []uint64
}

const stepsPerHistory = 60

func newHistory(seed uint64) history {
	rng := rand.New(rand.NewPCG(27, seed))
	h := history{seed: rng.Uint64()}
	for range stepsPerHistory {
		h.steps = append(h.steps, rng.Uint64())
	}
	return h
}

// run lives through the history in a bubble and returns what is wrong, and the
// steps in words if they are asked for.
func (h history) run(t *testing.T, verbose bool) (wrong string, log []string) {
	synctest.Test(t, func(*testing.T) {
		var tr *trial
		defer func() {
			switch r := recover().(type) {
			case nil:
			case finding:
				wrong = string(r)
			default:
				wrong = fmt.Sprintf("panic: %v\n%s", r, debug.Stack())
			}
			if tr != nil {
				log = tr.log
				tr.stop()
				pass(time.Minute) // for those who finish in their own time
			}
		}()
		tr = newTrial(rand.New(rand.NewPCG(0, h.seed)), verbose)
		tr.audit()
		for _, s := range h.steps {
			tr.step(s)
		}
		tr.converge()
		tr.finish()
	})
	return wrong, log
}

// shrink leaves steps out as long as the history goes wrong in the same way
// without them: halves first, then less and less, down to single ones.
func (h history) shrink(t *testing.T, wrong string) history {
	for size := len(h.steps) / 2; size > 0; size /= 2 {
		for from := 0; from < len(h.steps); {
			less := history{h.seed, slices.Delete(slices.Clone(h.steps), from, min(from+size, len(h.steps)))}
			if again, _ := less.fail(t, wrong, false); again != "" {
				h = less
			} else {
				from += size
			}
		}
	}
	return h
}

// fail returns what run does if that is wrong in a certain way. It tries more than
// once: picks draw at random, and goroutines of others' policies take turns as
// they like.
func (h history) fail(t *testing.T, way string, verbose bool) (wrong string, log []string) {
	for range 5 {
		if wrong, log := h.run(t, verbose); wrong != "" && sort(wrong) == sort(way) {
			return wrong, log
		}
	}
	return "", nil
}

// sort is what findings of the same kind have in common: all but the numbers and
// the states of SubConns.
func sort(wrong string) string { return details.ReplaceAllString(wrong, "") }

var details = regexp.MustCompile(`(?s)\d|to [ab]|"[ab]\d?\.\d+"|\([A-Z].*?\)|map\[.*?\]|\n.*`)

// TestModel is the random model of everything: see ops and plane.mutate for what
// happens in it, and audit, converge and finish for what a balancer promises.
//
// A history that goes wrong is printed with its seed and the fewest steps that
// still do it. If a goroutine of the balancer's panics, which ends the process, the
// trace names the bubble: the k-th is of the history -model.seed + k - 1, and
// -model.v prints its steps as they go.
func TestModel(t *testing.T) {
	runs := *modelRuns
	if runs == 0 {
		runs = 500
		if testing.Short() {
			runs = 100
		}
	}
	defer debug.SetGCPercent(debug.SetGCPercent(2000)) // the heap is small
	for i := range runs {
		seed := *modelSeed + uint64(i)
		h := newHistory(seed)
		if *modelLog {
			fmt.Fprintf(os.Stderr, "history %d:\n", seed)
		}
		wrong, _ := h.run(t, false)
		if wrong == "" {
			continue
		}
		t.Errorf("history %d: %s", seed, wrong)
		if *modelAll {
			continue
		}
		h = h.shrink(t, wrong)
		if wrong, log := h.fail(t, wrong, true); wrong != "" {
			t.Fatalf("in %d steps: %s\n%s", len(h.steps), wrong, strings.Join(log, "\n"))
		}
		t.Fatal("it does not go wrong each time: picks draw at random")
	}
}
