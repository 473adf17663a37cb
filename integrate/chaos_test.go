// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// Chaos is scenarios of random faults, which the whole client has to survive. This file has
// the course of a scenario: its events (world.step) and the final checks (world.check), and two
// scenarios that are not random: an outage, and channels that come and go. The rest is in
//
//	chaosplan_test.go    plan: a configuration, as random changes make it, and its resources
//	chaosworld_test.go   world: control planes, backends, channels, the load on them, time
//	chaosoracle_test.go  oracle: which outcomes of RPCs, and which connections, can be excused
//	chaosaudit_test.go   counters and load reports once nothing is in progress, each attempt as gRPC
//	                     reports it, and the budgets of retries

var (
	scenarios = flag.Int("chaos.scenarios", 0, "how many random scenarios of virtual time to run; 0 is a few")
	chaosSeed = flag.Uint64("chaos.seed", 0, "the first seed; 0 is a random one with -chaos.scenarios")

	loopbackToo = flag.Bool("chaos.loopback", false, "run TestChaosLoopback")
)

// TestChaos runs scenarios of half a minute of virtual time each: backends are killed, restarted
// and cut off, and fail RPCs, configurations of every kind of change are pushed, valid and not,
// control planes are cut off, restarted and slow, one channel goes idle and comes back, one is
// closed and dialed again, while RPCs and streams go on. All along no RPC fails that could succeed,
// none goes to a wrong endpoint, and no connection is made or closed without need; in the end the
// load reports (T-LRS-3) and counters (T-CB-1) are exact, and nothing is left. The bubble of a
// scenario would not end with a goroutine in it. The seeds are always the same, so that a fault of
// the code fails again and a change is not blamed for the faults of others; make chaos uses new
// ones.
func TestChaos(t *testing.T) {
	n, first := 12, max(1, *chaosSeed)
	if testing.Short() {
		n = 3
	}
	if *scenarios > 0 {
		n = *scenarios
		if *chaosSeed == 0 {
			first = uint64(rand.Uint32())
		}
	}
	var seeds []uint64
	for i := range n {
		seeds = append(seeds, first+uint64(i))
	}
	var heap []uint64
	budgeted, limited := 0, 0
	for i, seed := range seeds {
		ok := t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := scenario(t, seed, false, 30*time.Second)
				budgeted, limited = budgeted+w.attempts.budgeted, limited+w.oracle.limited
			})
		})
		if !ok {
			t.Fatalf("again: go test ./integrate -run 'TestChaos$' -chaos.scenarios 1 -chaos.seed %d", seed)
		}
		if i%10 == 9 {
			heap = append(heap, liveHeap())
		}
	}
	if len(seeds) >= 12 && (budgeted == 0 || limited == 0) {
		t.Errorf("%d retries were held against budgets, and %d attempts against a per_try_timeout, want some", budgeted, limited)
	}
	// Memory is flat: the last tenth has no more than the first.
	if n := len(heap); n >= 10 && heap[n-1] > heap[1]+1<<20 {
		t.Errorf("live heap grew from %d to %d bytes over %d scenarios", heap[1], heap[n-1], len(seeds))
	}
}

// liveHeap returns the size of the live heap in bytes: the least of some collections, since objects
// that one collection finds unreachable, and their cleanups, may be freed by a later one.
func liveHeap() uint64 {
	least := uint64(math.MaxUint64)
	for range 5 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		least = min(least, m.HeapAlloc)
	}
	return least
}

// TestChaosLoopback is TestChaos over TCP and in real time, once. It fails if something takes
// longer than it should, so it is for machines with time to spare.
func TestChaosLoopback(t *testing.T) {
	if !*loopbackToo {
		t.Skip("judges by real time: -chaos.loopback, as make chaos does")
	}
	seed := max(1, *chaosSeed)
	t.Logf("-chaos.seed %d", seed)
	scenario(t, seed, true, 4*time.Second)
}

// scenario is the scenario of a seed.
func scenario(t *testing.T, seed uint64, real bool, d time.Duration) *world {
	controls := 1 + int(seed%4)/3
	w := newWorld(t, seed, real, controls)
	if controls > 1 && seed%8 == 3 {
		w.cutControl() // begins with the second one
	}
	steady, lazy := w.dial("steady"), w.dial("lazy", grpc.WithIdleTimeout(2*time.Second))
	for range 3 {
		w.load(func(rng *rand.Rand) {
			for w.rest(time.Duration(rng.IntN(200)) * time.Millisecond) {
				_ = w.unary("steady", steady, rng)
			}
		})
	}
	for range 2 {
		w.load(func(rng *rand.Rand) {
			for w.rest(time.Duration(rng.IntN(500)) * time.Millisecond) {
				w.stream("steady", steady, rng, rng.IntN(20))
			}
		})
	}
	w.load(func(rng *rand.Rand) { // idle in between
		for w.rest(time.Duration(rng.IntN(6000)) * time.Millisecond) {
			for range 1 + rng.IntN(5) {
				_ = w.unary("lazy", lazy, rng)
			}
		}
	})
	w.load(func(rng *rand.Rand) {
		for i := 0; w.rest(time.Duration(rng.IntN(1000)) * time.Millisecond); i++ {
			who := fmt.Sprint("redialed ", i)
			cc := w.dial(who)
			for range rng.IntN(4) {
				_ = w.unary(who, cc, rng)
			}
			w.hangUp(cc)
		}
	})
	for end := time.Now().Add(d); time.Now().Before(end); {
		w.pass(time.Duration(w.rng.IntN(1500)) * time.Millisecond)
		w.step()
		w.check()
	}
	w.calm()
	w.end()
	w.check()
	w.audit(steady)
	w.hangUp(steady)
	w.hangUp(lazy)
	w.gone()
	served, failed := w.oracle.counts()
	t.Logf("%d steps; RPCs served %v, failed with reason %d; %v hedges; attempts %+v, %d within budgets, %d within per_try_timeout", len(w.history), served, failed,
		w.metrics.Sum("xdslb.client.hedges"), w.attempts.sums, w.attempts.budgeted, w.oracle.limited)
	return w
}

// check fails the test if the oracle found something wrong.
func (w *world) check() {
	w.t.Helper()
	if list := w.oracle.violations(); len(list) > 0 {
		w.fail("%s", strings.Join(list, "\n"))
	}
}

// step does one random thing to the world.
func (w *world) step() {
	var all []string
	for _, name := range []string{"a", "b"} {
		all = append(all, w.pools[name]...)
	}
	addr := all[w.rng.IntN(len(all))]
	switch well := !w.dead[addr] && !w.held[addr] && !w.sick[addr] && !w.ailing[addr]; w.rng.IntN(16) {
	case 0, 1:
		if w.dead[addr] {
			w.restart(addr)
		} else if well {
			w.kill(addr)
		}
	case 2: // down and up again, before anybody can say so
		if well {
			w.kill(addr)
			w.restart(addr)
		}
	case 12, 13:
		if w.sick[addr] {
			w.heal(addr)
		} else if well {
			w.note("%s fails RPCs", addr)
			w.sick[addr] = true
			w.oracle.down(addr)
			w.backends[addr].Fail(codes.Unavailable)
		}
	case 14, 15:
		if w.ailing[addr] {
			w.recover(addr)
		} else if well {
			w.note("%s is not SERVING", addr)
			w.ailing[addr] = true
			w.oracle.down(addr)
			w.oracle.unhealthy(addr, time.Now())
			w.health[addr].SetServingStatus("s", healthpb.HealthCheckResponse_NOT_SERVING)
		}
	case 3:
		if w.held[addr] {
			w.release(addr)
		} else if well {
			w.note("hold %s", addr)
			w.held[addr] = true
			w.oracle.down(addr)
			w.net.Hold(addr)
		}
	case 4, 5, 6, 7:
		p := w.plan.mutate(w.rng, w.pools)
		w.note("push %v", p)
		w.push(p, noDefect)
	case 8:
		// A rejected resource must not be the first version that clients receive.
		if d := defect(1 + w.rng.IntN(int(numDefects)-1)); w.settled() {
			w.note("push a defect, %d", d)
			w.push(w.plan, d)
		}
	case 9:
		if w.cut {
			w.joinControl()
		} else {
			w.cutControl()
		}
	case 10:
		w.note("break the control plane's streams")
		w.lossy = w.lossy || w.slow || w.real
		for _, c := range w.controls {
			c.BreakStreams()
		}
	case 11:
		// The end of a stream loses the reports in progress, so that they cannot be checked:
		// reports of hedged worlds are not.
		w.slow = !w.slow && !w.plan.hedged
		w.note("control plane is slow: %v", w.slow)
		w.slowControl()
	}
}

func (w *world) kill(addr string) {
	w.note("kill %s", addr)
	w.dead[addr] = true
	w.oracle.down(addr)
	w.backends[addr].Stop()
}

func (w *world) restart(addr string) {
	w.note("restart %s", addr)
	delete(w.dead, addr)
	if err := w.backends[addr].Start(); err != nil {
		w.fail("%v", err)
	}
	w.oracle.up(addr)
}

func (w *world) heal(addr string) {
	w.note("%s fails no more", addr)
	delete(w.sick, addr)
	w.backends[addr].Fail(codes.OK)
	w.oracle.up(addr)
}

func (w *world) recover(addr string) {
	w.note("%s is SERVING", addr)
	delete(w.ailing, addr)
	w.oracle.unhealthy(addr, time.Time{})
	w.health[addr].SetServingStatus("s", healthpb.HealthCheckResponse_SERVING)
	w.oracle.up(addr)
}

func (w *world) release(addr string) {
	w.note("release %s", addr)
	delete(w.held, addr)
	w.net.Release(addr)
	w.oracle.up(addr)
}

func (w *world) cutControl() {
	w.note("cut off the control plane")
	w.cut, w.lossy = true, w.lossy || w.slow || w.real
	w.controls[0].Stop()
}

func (w *world) joinControl() {
	w.note("the control plane is back")
	w.cut = false
	if err := w.controls[0].Restart(); err != nil {
		w.fail("%v", err)
	}
}

func (w *world) slowControl() {
	for _, c := range w.controls {
		d := time.Duration(0)
		if w.slow {
			d = 300 * time.Millisecond
		}
		w.net.SetDelay(c.Addr(), d)
	}
}

// calm ends all faults, and waits until the last configuration is in effect.
func (w *world) calm() {
	w.note("calm")
	for addr := range w.dead {
		w.restart(addr)
	}
	for addr := range w.held {
		w.release(addr)
	}
	for addr := range w.sick {
		w.heal(addr)
	}
	for addr := range w.ailing {
		w.recover(addr)
	}
	if w.cut {
		w.joinControl()
	}
	w.slow = false
	w.slowControl()
	p := w.plan.clone()
	p.routed = map[string]uint32{"a": 1, "b": 1}
	for _, name := range []string{"a", "b"} {
		p.clusters[name].policy, p.clusters[name].checked = roundRobin, false
		for i := range p.clusters[name].endpoints {
			p.clusters[name].endpoints[i].draining = false
		}
	}
	w.push(p, noDefect)
	w.await(w.unsettled)
	w.pass(15 * time.Second / w.haste())
	w.check()
}

// haste is by how much waits are shorter in real time.
func (w *world) haste() time.Duration {
	if w.real {
		return 20
	}
	return 1
}

// gone waits until nothing is left of the channels.
func (w *world) gone() {
	w.await(func() string {
		left := w.conns.total()
		for _, c := range w.controls {
			ads, _ := c.Streams()
			lrs, _ := c.LoadStreams()
			left += ads + lrs
		}
		if left == 0 {
			return ""
		}
		return fmt.Sprintf("%d connections and streams", left)
	})
}

// configured returns the addresses that the last configuration has, sorted.
func (w *world) configured() (list []string) {
	for _, c := range w.plan.clusters {
		for _, e := range c.endpoints {
			list = append(list, e.addr)
		}
	}
	slices.Sort(list)
	return list
}

// TestOutage: while the control plane is down for a minute RPCs go on, on channels
// that are there, idle ones that come back, and new ones; none fails, and no
// connection is touched (A57).
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, false, 1)
		cc := w.dial("steady")
		rng := rand.New(rand.NewPCG(3, 3))
		calls := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); w.pass(50 * time.Millisecond) {
				if err := w.unary("steady", cc, rng); err != nil {
					w.fail("%v", err)
				}
			}
		}
		calls(5 * time.Second)
		before := w.conns.of("steady")
		w.cutControl()
		calls(30 * time.Second)
		late := w.dial("late")
		for range 10 {
			if err := w.unary("late", late, rng); err != nil {
				w.fail("a new channel: %v", err)
			}
		}
		calls(30 * time.Second)
		w.joinControl()
		calls(5 * time.Second)
		w.check()
		if after := w.conns.of("steady"); len(after) != len(before) || len(after) == 0 {
			t.Errorf("connections are %v, before the outage they were %v", after, before)
		}
		w.hangUp(cc)
		w.hangUp(late)
		w.gone()
	})
}

// TestRedials: channels that are dialed, used once and closed leave nothing behind:
// no stream, no connection, no subscription, no memory, and no goroutine, with which
// the bubble would not end.
func TestRedials(t *testing.T) {
	cycles := 4000
	if raceEnabled {
		cycles = 2000
	}
	if testing.Short() {
		cycles = 500
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, false, 1)
		p := w.plan.clone()
		p.routed, p.clusters["a"].endpoints = map[string]uint32{"a": 1}, p.clusters["a"].endpoints[:1]
		p.silent = true // the test's own server would remember the reports
		w.push(p, noDefect)
		rng := rand.New(rand.NewPCG(4, 4))
		var heap uint64
		for i := range cycles {
			if i == cycles/4 {
				heap = w.residue()
			}
			who := fmt.Sprint("redialed ", i)
			cc := w.dial(who)
			if err := w.unary(who, cc, rng); err != nil {
				w.fail("cycle %d: %v", i, err)
			}
			w.hangUp(cc)
			w.oracle.settle()
		}
		w.check()
		// A channel has some 100 KiB. The allowance for each cycle is for stopped timers of virtual
		// time, which the runtime keeps. The total allowance is for gRPC's pools of buffers, which
		// are fuller at one time than at another, and for objects of earlier tests, which may be
		// freed.
		if after := w.residue(); after > heap+16<<20+uint64(512*cycles) {
			t.Errorf("%d cycles hold %d bytes", cycles-cycles/4, after-heap)
		} else {
			t.Logf("live heap is %d bytes, %d cycles earlier it was %d", after, cycles-cycles/4, heap)
		}
	})
}

// residue returns the size of the heap once nothing is left of channels that were
// closed, and all timers have run out.
func (w *world) residue() uint64 {
	w.t.Helper()
	w.gone()
	<-time.After(5 * time.Hour) // gRPC servers have timers of two
	synctest.Wait()
	return liveHeap()
}
