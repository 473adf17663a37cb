// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"cmp"
	"flag"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

var (
	modelSeed = flag.Uint64("model.seed", 1, "the first random history of a model")
	modelRuns = flag.Int("model.runs", 0, "how many random histories of a model to run; 0 is a few")
	modelAll  = flag.Bool("model.all", false, "continue after a history that fails, without shrinking it")
	modelSkip = flag.String("model.skip", "", "ignore failures that match this `expression`, while they are known")
	modelLog  = flag.Bool("model.v", false, "print every history as it runs, not only those that fail")
)

// A Model tests a system with random histories. A failing history is shrunk to the fewest steps
// that fail in the same way, and printed with its seed.
//
// If a goroutine of the system panics, which ends the process, the trace names the bubble: the
// k-th belongs to history -model.seed + k - 1, and -model.v prints the steps as they run.
type Model struct {
	// Steps is the length of a history.
	Steps int
	// Run runs a history in a bubble of testing/synctest. It draws the initial state from
	// Trial.Rand, and ranges over Trial.Steps.
	Run func(t *Trial)
	// Seeds are histories that once found a defect. They run first, unless flags select other ones.
	Seeds []uint64
	// Draw returns the steps of a history; nil draws Steps numbers.
	Draw func(seed uint64) []uint64
	// Kind returns a key that is equal for failures of the same kind; nil uses the first line
	// without digits.
	Kind func(failure string) string
	// Retries is how often a history is repeated to reproduce a failure, for systems with their
	// own random draws.
	Retries int
}

// history determines a Trial. Each step has its own number, so that removing a step does not
// change the other steps.
type history struct {
	number uint64 // the seed of the history
	seed   uint64
	steps  []uint64
}

// Test runs the given number of histories, or -model.runs of them.
func (m *Model) Test(t *testing.T, runs int) {
	t.Helper()
	seeds := m.Seeds
	if *modelRuns > 0 || *modelSeed != 1 {
		seeds, runs = nil, cmp.Or(*modelRuns, runs)
	}
	for i := range runs {
		seeds = append(slices.Clip(seeds), *modelSeed+uint64(i))
	}
	defer debug.SetGCPercent(debug.SetGCPercent(2000)) // the heap is small
	for _, seed := range seeds {
		h := m.draw(seed)
		if *modelLog {
			fmt.Fprintf(os.Stderr, "history %d:\n", seed)
		}
		failure, _ := m.run(t, h, false)
		if failure == "" {
			continue
		}
		t.Errorf("history %d: %s", seed, failure)
		if *modelAll {
			continue
		}
		h = m.shrink(t, h, failure)
		again, log := m.repeat(t, h, failure, true)
		if again == "" {
			t.Fatalf("repeat it with -run '%s$' -model.seed %d; it does not fail each time", t.Name(), seed)
		}
		t.Fatalf("repeat it with -run '%s$' -model.seed %d -model.runs 1; in %d steps: %s\n%s", t.Name(), seed, len(h.steps), again, strings.Join(log, "\n"))
	}
}

func (m *Model) draw(seed uint64) history {
	rng := rand.New(rand.NewPCG(27, seed))
	h := history{number: seed, seed: rng.Uint64()}
	if m.Draw != nil {
		h.steps = m.Draw(seed)
		return h
	}
	for range m.Steps {
		h.steps = append(h.steps, rng.Uint64())
	}
	return h
}

// run runs a history, and returns its failure, and its log if verbose.
func (m *Model) run(t *testing.T, h history, verbose bool) (failure string, log []string) {
	synctest.Test(t, func(t *testing.T) {
		tr := &Trial{TB: t, Seed: h.number, history: h, Rand: rand.New(rand.NewPCG(0, h.seed)), verbose: verbose}
		defer func() { failure, log = tr.failure, tr.log }()
		t.Cleanup(func() { failure = tr.failure }) // of cleanup functions
		done := make(chan struct{})
		go func() { // Fatalf may end it
			defer close(done)
			defer func() {
				if r := recover(); r != nil {
					tr.record(fmt.Sprintf("panic: %v\n%s", r, debug.Stack()))
				}
			}()
			m.Run(tr)
		}()
		<-done
	})
	return failure, log
}

// repeat runs a history and returns its failure if it is of the given kind.
func (m *Model) repeat(t *testing.T, h history, like string, verbose bool) (failure string, log []string) {
	for range 1 + m.Retries {
		if failure, log := m.run(t, h, verbose); failure != "" && m.kind(failure) == m.kind(like) {
			return failure, log
		}
	}
	return "", nil
}

// shrink removes steps while the history fails in the same way: first halves, then smaller
// parts, down to single steps.
func (m *Model) shrink(t *testing.T, h history, failure string) history {
	for size := len(h.steps) / 2; size > 0; size /= 2 {
		for from := 0; from < len(h.steps); {
			less := history{h.number, h.seed, slices.Delete(slices.Clone(h.steps), from, min(from+size, len(h.steps)))}
			if again, _ := m.repeat(t, less, failure, false); again != "" {
				h = less
			} else {
				from += size
			}
		}
	}
	return h
}

var details = regexp.MustCompile(`(?s)\d|\n.*`)

func (m *Model) kind(failure string) string {
	if m.Kind != nil {
		return m.Kind(failure)
	}
	return details.ReplaceAllString(failure, "")
}

// A Trial is a running history. As a testing.TB it records the first failure; Fatalf also ends
// the history. Cleanup functions run in its bubble.
type Trial struct {
	testing.TB
	Rand *rand.Rand // of the current step
	Step uint64     // the number of the current step, from Model.Draw
	Seed uint64     // of the history

	history history
	verbose bool
	mu      sync.Mutex
	failure string
	log     []string
}

// Steps returns an iterator over the remaining steps of the history, by position. Each step has
// its own Rand. The iterator ends at the first failure.
func (t *Trial) Steps() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, s := range t.history.steps {
			t.Step, t.Rand = s, rand.New(rand.NewPCG(s, 0))
			if t.Failed() || !yield(i) {
				return
			}
		}
	}
}

// Len returns the number of steps of the history.
func (t *Trial) Len() int { return len(t.history.steps) }

// Logf logs a message, which is printed if the history fails.
func (t *Trial) Logf(format string, args ...any) {
	if t.verbose {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.log = append(t.log, fmt.Sprintf(format, args...))
	}
	if *modelLog {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}
}

// record records a failure, unless there is an earlier one, and reports whether it did.
func (t *Trial) record(failure string) bool {
	if *modelSkip != "" && regexp.MustCompile(*modelSkip).MatchString(failure) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failure == "" {
		t.failure = failure
	}
	return true
}

// Failed implements testing.TB.
func (t *Trial) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failure != ""
}

// Error implements testing.TB.
func (t *Trial) Error(args ...any) { t.record(strings.TrimSuffix(fmt.Sprintln(args...), "\n")) }

// Errorf implements testing.TB.
func (t *Trial) Errorf(format string, args ...any) { t.record(fmt.Sprintf(format, args...)) }

// Fatal implements testing.TB.
func (t *Trial) Fatal(args ...any) { t.Fatalf("%s", strings.TrimSuffix(fmt.Sprintln(args...), "\n")) }

// Fatalf implements testing.TB.
func (t *Trial) Fatalf(format string, args ...any) {
	if t.record(fmt.Sprintf(format, args...)) {
		runtime.Goexit()
	}
}
