// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"math"
	"testing"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
)

// queue is one server, or many that each get a random part, for long enough that
// its 99th percentile is known to a few percent.
func queue(servers, workers int, load float64) *Fleet {
	run := 8000 * time.Second
	if raceEnabled {
		run /= 2
	}
	return &Fleet{
		Name: "queue", Clients: 3, Servers: servers, Workers: workers, Load: load,
		Methods: []Method{{Share: 1, Mean: 10 * time.Millisecond}}, Need: Exponential,
		Warm: 10 * time.Second, Run: (run / time.Duration(servers*workers)).Truncate(time.Second),
	}
}

// quantile inverts a tail, P(T > t) with t in service times.
func quantile(tail func(t float64) float64, p float64) float64 {
	low, high := 0., 1e4
	for range 100 {
		if mid := (low + high) / 2; tail(mid) > 1-p {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// sojourn is the tail of the time in a queue M/M/c, with Erlang's C.
func sojourn(c int, load float64) func(t float64) float64 {
	a := float64(c) * load
	term, sum := 1., 0.
	for k := range c {
		sum += term
		term *= a / float64(k+1)
	}
	wait := term / (1 - load) / (sum + term/(1-load))
	theta := float64(c) - a
	return func(t float64) float64 {
		return (1-wait)*math.Exp(-t) + wait*(theta*math.Exp(-t)-math.Exp(-theta*t))/(theta-1)
	}
}

// TestRandomIsMM1: servers that get RPCs at random are queues M/M/1.
func TestRandomIsMM1(t *testing.T) {
	r := simulated(t, queue(20, 1, .8), randomKernel)
	theory := func(p float64) float64 { return -math.Log(1-p) / .2 * 10 }
	near(t, "p50", r.P50, theory(.5), .04)
	near(t, "p90", r.P90, theory(.9), .05)
	near(t, "p99", r.P99, theory(.99), .1)
	for i, u := range r.Utilisation {
		near(t, "utilisation", u, .8, .06)
		if t.Failed() {
			t.Fatal("of server", i)
		}
	}
}

// TestWorkersAreMMc: a server with c workers is a queue M/M/c.
func TestWorkersAreMMc(t *testing.T) {
	for _, c := range []int{2, 8} {
		r := simulated(t, queue(1, c, .8), randomKernel)
		for _, p := range []struct{ part, got float64 }{{.5, r.P50}, {.9, r.P90}, {.99, r.P99}} {
			near(t, "quantile", p.got, 10*quantile(sojourn(c, .8), p.part), .08)
		}
	}
}

// TestOracleNearCentralQueue: no policy beats one queue for all servers; the
// shortest of all queues comes near it.
func TestOracleNearCentralQueue(t *testing.T) {
	r := simulated(t, queue(20, 1, .8), oracleKernel)
	bound := 10 * quantile(sojourn(20, .8), .99)
	if r.P99 < .97*bound || r.P99 > 1.2*bound {
		t.Errorf("p99 is %.1f ms, want a little more than %.1f, the central queue's", r.P99, bound)
	}
}

func simulated(t *testing.T, f *Fleet, k NewKernel) *Result {
	t.Helper()
	r, err := simulate(f, &Policy{Kernel: k}, 1)
	kit.Must(t, err)
	return r
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance*want {
		t.Errorf("%s is %.4g, want %.4g ± %.0f %%", what, got, want, 100*tolerance)
	}
}

// TestSketch: kernels agree with the figures that were known before (Known), but
// where these are known to be too small.
func TestSketch(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("takes seconds")
	}
	policies := Policies()
	for _, f := range Calibration() {
		for _, p := range policies {
			if p.Kernel == nil {
				continue
			}
			r, err := simulate(&f, &p, 1)
			kit.Must(t, err)
			for _, k := range Known() {
				if k.Fleet != f.Name || k.Row != p.String() {
					continue
				}
				allowed := agreement
				if k.Least > 30_000 {
					allowed = .25 // the sketch omits RPCs that have not ended
				}
				if d := k.Apart(r.P99); math.Abs(d) > allowed {
					t.Errorf("%s, %s: p99 is %.0f ms, %+.0f %% from %.0f", f.Name, k.Row, r.P99, 100*d, k.Least)
				}
			}
		}
	}
}

// TestDistributions: all have a mean of 1.
func TestDistributions(t *testing.T) {
	f := queue(1, 1, .5)
	for name, d := range map[string]Distribution{"fixed": Fixed, "exponential": Exponential, "Pareto": Pareto(2.5)} {
		f.Need, f.Run = d, 2000*time.Second
		sum := 0.
		work := f.arrivals(1)
		for _, a := range work {
			sum += float64(a.need)
		}
		near(t, name, sum/float64(len(work))/float64(f.mean()), 1, .03)
	}
}

// TestArrivals checks that methods, clients, bursts and days follow the fleet's configuration,
// and are reproducible by seed.
func TestArrivals(t *testing.T) {
	f := queue(10, 1, .7)
	f.Need, f.Methods = Fixed, []Method{{Share: .9, Mean: 2 * time.Millisecond}, {Share: .1, Mean: 82 * time.Millisecond}}
	f.Shape, f.Run = bursts(2*time.Second, 500*time.Millisecond, .5, 2), 90*time.Second
	work := f.arrivals(7)
	var long, burst, first float64
	for _, a := range work {
		if a.method == 1 {
			long++
		}
		if a.at%(2*time.Second) < 500*time.Millisecond {
			burst++
		}
		if a.client == 0 {
			first++
		}
	}
	n := float64(len(work))
	near(t, "the long method's share", long/n, .1, .05)
	near(t, "the bursts' share", burst/n, 2./(2+3*.5), .03)
	near(t, "a client's share", first/n, 1./3, .04)
	near(t, "RPCs", n, .7*10/.01*100*(.25*2+.75*.5), .03)
	again, other := f.arrivals(7), f.arrivals(8)
	for i := range work {
		if work[i] != again[i] {
			t.Fatal("the same seed has other RPCs")
		}
	}
	if work[0] == other[0] {
		t.Error("another seed has the same RPCs")
	}
	if d := day(time.Minute, .2, .8); math.Abs(d(0)-.2) > 1e-9 || math.Abs(d(30*time.Second)-.8) > 1e-9 {
		t.Error("a day does not go from low to high")
	}
}
