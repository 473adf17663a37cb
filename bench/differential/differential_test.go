// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/leak"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

var without = flag.String("differential.without", "", "what worlds are to do without, to look for the rest: retries, failures, faults, streams, removals, defects, outages")

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }

// Sizes of samples: the first, and the second, for which the first looked odd.
const (
	firstSample  = 40
	secondSample = 800
	odd          = 2.5 // distance
	different    = 7
)

// TestDifferential compares the two clients in random worlds. A failure contains the seed, the
// world, and the first difference.
func TestDifferential(t *testing.T) {
	n := 6
	if testing.Short() {
		n = 2
	}
	total := &summary{lost: map[string]int{}, reasons: map[string]int{}}
	m := kit.Model{Steps: 8, Run: func(t *kit.Trial) { compareWorld(t, total) }}
	m.Test(t, n)
	t.Log(total.String())
}

// summary is the result of a run of many worlds.
type summary struct {
	worlds, steps, rpcs, background int
	lost                            map[string]int // by side
	reasons                         map[string]int // uses, by id
}

func (s *summary) String() string {
	return fmt.Sprintf("%d worlds, %d states, %d RPCs on each side; RPCs lost of %d during healthy updates: %v; differences with a reason: %v",
		s.worlds, s.steps, s.rpcs, s.background, s.lost, s.reasons)
}

// trial is the comparison in one world.
type trial struct {
	t       testing.TB
	gen     *gen
	fleet   *fleet
	sides   []*side
	clients []*client
	callers []*caller
	total   *summary

	worlds        []*world // all states so far
	world, before *world
	noListener    bool
	down          []string // backends that are
	history       []string
	healthy       map[*caller]bool // whose RPCs all succeeded in the state before
	differences   []*difference
}

func compareWorld(t *kit.Trial, total *summary) {
	total.worlds++
	n := xdstest.NewNetwork()
	x := &trial{t: t, gen: newGen(t.Rand), fleet: newFleet(t, n, backendNames()), total: total}
	w := x.gen.world()
	x.callers = x.gen.callers()
	for _, name := range both {
		s := newSide(t, name, n)
		s.cfg = integrate.Config{IgnoreEndpointWeights: w.ignoreWeights}
		x.sides = append(x.sides, s)
		x.clients = append(x.clients, &client{side: s, fleet: x.fleet, changes: x.gen.changes})
	}
	steps := 3 + x.gen.IntN(6)
	x.step(w, []string{"the first state"})
	for i := range t.Steps() {
		if i == steps {
			break
		}
		x.gen.Rand = t.Rand
		next, news := x.gen.mutate(w)
		x.step(next, news)
		w = next
	}
	for _, c := range x.clients {
		if err := c.cc.Close(); err != nil {
			t.Error(err)
		}
	}
}

// step serves a state of the world, and compares the results.
func (x *trial) step(w *world, news []string) {
	x.total.steps++
	x.before, x.world = x.world, w
	x.worlds = append(x.worlds, w)
	x.history = append(x.history, strings.Join(news, "; "))
	switch {
	case w.isGone("LDS"):
		x.noListener = true
	case !slices.ContainsFunc(w.defects, func(d defect) bool { return d.typ == "LDS" }):
		x.noListener = false
	case x.before == nil:
		x.noListener = true
	}
	x.differences = nil
	reachability := !slices.Equal(x.down, w.unreachable)
	for _, name := range x.down {
		x.fleet.setDown(name, false)
	}
	for _, name := range w.unreachable {
		x.fleet.setDown(name, true)
	}
	x.down = w.unreachable
	var lost []map[*caller]tally
	for _, s := range x.sides {
		s.forget()
	}
	if x.before == nil {
		x.set()
		for i, s := range x.sides {
			x.clients[i].cc = s.dial(x.t, service)
			x.clients[i].cc.Connect()
		}
	} else {
		lost = x.background(x.set)
	}
	x.settle()
	x.compareProtocol()
	healthy := map[*caller]bool{}
	for _, k := range x.callers {
		samples := x.compareCaller(k)
		healthy[k] = k.script == "" && samples[0].ok() && samples[1].ok()
		if lost != nil && !reachability && healthy[k] && x.healthy[k] {
			x.judgeLost(k, lost)
		}
	}
	x.healthy = healthy
	x.report()
}

// set serves the state on both sides.
func (x *trial) set() {
	for _, s := range x.sides {
		if err := s.control.Set(x.world.resources(x.fleet.addrs)); err != nil {
			x.t.Fatal(err)
		}
	}
}

// settle lets all come to rest: timers of resources and priorities run out in it.
func (x *trial) settle() {
	synctest.Wait()
	time.Sleep(20 * time.Second)
	synctest.Wait()
}

// background makes RPCs of healthy callers while change runs and takes effect, and returns the
// lost ones on each side.
func (x *trial) background(change func()) []map[*caller]tally {
	lost := []map[*caller]tally{{}, {}}
	var callers []*caller
	for _, k := range x.callers {
		if x.healthy[k] {
			callers = append(callers, k)
		}
	}
	const rounds = 40
	var wg sync.WaitGroup
	for i, c := range x.clients {
		wg.Go(func() { // one at a time, for the circuit breakers
			for range rounds {
				for _, k := range callers {
					r := c.do(context.Background(), k)
					if r.err == nil {
						continue
					}
					if lost[i][k] == nil {
						lost[i][k] = tally{}
					}
					lost[i][k][r.err.Error()]++
				}
			}
		})
	}
	change()
	wg.Wait()
	x.total.background += rounds * len(callers)
	return lost
}

// judgeLost counts the losses of a caller, except for rare random failures: drops, faults, and
// randomly drawn routes.
func (x *trial) judgeLost(k *caller, lost []map[*caller]tally) {
	if len(x.before.routesOf(k, gRFC)) > 1 || len(x.world.routesOf(k, gRFC)) > 1 {
		return
	}
	for i, s := range x.sides {
		maps.DeleteFunc(lost[i][k], func(err string, _ int) bool {
			return strings.Contains(err, "is dropped") || strings.Contains(err, "fault injection")
		})
		x.total.lost[s.name] += lost[i][k].total()
	}
	if lost[1][k].total() > 0 {
		x.differ(&difference{caller: k, aspect: aspectBackground, stock: lost[0][k].String(), ours: lost[1][k].String()})
	}
}

// compareProtocol compares the accepted and rejected resources, and the subscriptions.
func (x *trial) compareProtocol() {
	types := []struct{ short, url string }{{"LDS", xdstest.LDS}, {"RDS", xdstest.RDS}, {"CDS", xdstest.CDS}, {"EDS", xdstest.EDS}}
	for _, typ := range types {
		var answers, names [2]string
		var rejected [2]bool
		for i, s := range x.sides {
			rejected[i], answers[i] = s.answer(typ.url)
			names[i] = fmt.Sprintf("%s %q", typ.short, s.control.Stats(typ.url).Names)
		}
		if rejected[0] != rejected[1] {
			x.differ(&difference{aspect: aspectAnswer + ", " + typ.short, stock: answers[0], ours: answers[1]})
		}
		if names[0] != names[1] {
			x.differ(&difference{aspect: aspectNames, stock: names[0], ours: names[1]})
		}
	}
	for i, s := range x.sides {
		if v := s.checker.Violations(); len(v) > 0 && i == 1 {
			x.differ(&difference{aspect: "violations of the protocol", ours: fmt.Sprint(v)})
		}
	}
}

// compareCaller compares the results of one caller's RPCs.
func (x *trial) compareCaller(k *caller) []*sample {
	n := firstSample
	if k.burst > 0 {
		n = 6
	}
	first := x.samples(k, n)
	suspects := suspicious(first, odd)
	if len(suspects) == 0 {
		return first
	}
	if k.burst > 0 {
		n = 5
	}
	second := x.samples(k, n*secondSample/firstSample)
	for _, aspect := range suspicious(second, different) {
		if !slices.Contains(suspects, aspect) {
			continue
		}
		a, b := second[0].aspects[aspect], second[1].aspects[aspect]
		x.differ(&difference{caller: k, aspect: aspect, stock: a.String(), ours: b.String(), samples: second})
	}
	return first
}

// suspicious are the aspects in which two samples differ by more than that.
func suspicious(s []*sample, limit float64) (list []string) {
	for _, a := range aspects {
		if distance(s[0].aspects[a], s[1].aspects[a]) > limit {
			list = append(list, a)
		}
	}
	return list
}

// samples observes n RPCs on both sides.
func (x *trial) samples(k *caller, n int) []*sample {
	x.total.rpcs += n * max(1, k.burst)
	list := []*sample{newSample(), newSample()}
	var wg sync.WaitGroup
	for i, c := range x.clients {
		wg.Go(func() {
			for range n {
				list[i].add(c.observe(context.Background(), k))
			}
		})
	}
	wg.Wait()
	return list
}

// differ records a difference, unless there is a reason for it.
func (x *trial) differ(d *difference) {
	d.worlds, d.world, d.noListener = x.worlds, x.world, x.noListener
	if r := reasonFor(d); r != nil {
		x.total.reasons[r.id]++
		return
	}
	x.differences = append(x.differences, d)
}

// report fails the test if there was a difference.
func (x *trial) report() {
	if len(x.differences) == 0 {
		return
	}
	var b strings.Builder
	for i, d := range x.differences {
		if i == 6 {
			fmt.Fprintf(&b, "  and %d more\n", len(x.differences)-i)
			break
		}
		fmt.Fprintf(&b, "  %v\n", d)
	}
	x.t.Errorf("the clients differ in state %d\n%swhat was done:\n  %s\nthe world:\n%v",
		len(x.history)-1, &b, strings.Join(x.history, "\n  "), x.world)
}
