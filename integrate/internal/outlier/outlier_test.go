// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package outlier

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/xdslb/xdslb/picker"
)

const second = int64(time.Second)

// world has hosts and a clock.
type world struct {
	cfg   *picker.OutlierDetection
	hosts []*Host
	now   int64
	draw  func(n uint32) uint32
}

func newWorld(n int, cfg picker.OutlierDetection) *world {
	w := &world{cfg: &cfg, draw: func(uint32) uint32 { return 0 }}
	for range n {
		w.hosts = append(w.hosts, new(Host))
	}
	return w
}

// calls counts RPCs of host i.
func (w *world) calls(i, ok, failed int) {
	for range ok {
		w.hosts[i].Count(true)
	}
	for range failed {
		w.hosts[i].Count(false)
	}
}

// sweep sweeps ten seconds after the previous sweep.
func (w *world) sweep() Findings {
	w.now += 10 * second
	return Sweep(w.cfg, w.hosts, w.now, w.draw)
}

func (w *world) ejected() []int {
	var out []int
	for i, h := range w.hosts {
		if h.Ejected() {
			out = append(out, i)
		}
	}
	return out
}

func (w *world) want(t *testing.T, hosts ...int) {
	t.Helper()
	if got := w.ejected(); !slices.Equal(got, hosts) {
		t.Errorf("after %d s hosts %v are ejected, want %v", w.now/second, got, hosts)
	}
}

// base is a configuration that ejects for 30 s, up to 300 s, any number of hosts.
func base() picker.OutlierDetection {
	return picker.OutlierDetection{
		Interval: 10 * time.Second, BaseEjectionTime: 30 * time.Second, MaxEjectionTime: 300 * time.Second, MaxEjectionPercent: 100,
	}
}

func byFailures(f picker.FailurePercentage) picker.OutlierDetection {
	cfg := base()
	cfg.FailurePercentage = &f
	return cfg
}

// TestFailurePercentage checks that a host is ejected if more than the threshold of its RPCs
// failed, and that hosts with less than the request volume, and too few hosts, are ignored (A50,
// T-OD-1).
func TestFailurePercentage(t *testing.T) {
	tests := []struct {
		name       string
		f          picker.FailurePercentage
		ok, failed int // of host 0; host 1 has 50 that are OK
		want       bool
	}{
		{"at the threshold", picker.FailurePercentage{Threshold: 50, Enforcement: 100, RequestVolume: 50}, 25, 25, false},
		{"above it", picker.FailurePercentage{Threshold: 50, Enforcement: 100, RequestVolume: 50}, 24, 26, true},
		{"all of 100 %", picker.FailurePercentage{Threshold: 100, Enforcement: 100}, 0, 100, false},
		{"one above 0 %", picker.FailurePercentage{Enforcement: 100}, 99, 1, true},
		{"too few RPCs", picker.FailurePercentage{Threshold: 50, Enforcement: 100, RequestVolume: 50}, 0, 49, false},
		{"no RPCs", picker.FailurePercentage{Enforcement: 100}, 0, 0, false},
		{"hosts enough", picker.FailurePercentage{Threshold: 50, Enforcement: 100, RequestVolume: 50, MinimumHosts: 2}, 0, 50, true},
		{"too few hosts", picker.FailurePercentage{Threshold: 50, Enforcement: 100, RequestVolume: 50, MinimumHosts: 3}, 0, 50, false},
		{"too few hosts with RPCs", picker.FailurePercentage{Threshold: 50, Enforcement: 100, RequestVolume: 51, MinimumHosts: 2}, 0, 51, false},
		{"never enforced", picker.FailurePercentage{Threshold: 50}, 0, 50, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(2, byFailures(tt.f))
			w.calls(0, tt.ok, tt.failed)
			w.calls(1, 50, 0)
			w.sweep()
			if tt.want {
				w.want(t, 0)
			} else {
				w.want(t)
			}
		})
	}
}

// TestSuccessRate checks that a host is ejected if its success rate is more than a number of
// population standard deviations below the mean (T-OD-1). Of nine hosts at 100 % and one at p, the
// mean is 0.9 + p/10 and the deviation 0.3 (1-p), so host 9 is ejected for factors below 3 only.
func TestSuccessRate(t *testing.T) {
	for _, tt := range []struct {
		factor uint32
		want   []int
	}{{0, []int{9}}, {1900, []int{9}}, {2990, []int{9}}, {3010, nil}, {math.MaxUint32, nil}} {
		cfg := base()
		cfg.SuccessRate = &picker.SuccessRate{StdevFactor: tt.factor, Enforcement: 100, MinimumHosts: 5, RequestVolume: 100}
		w := newWorld(10, cfg)
		for i := range 9 {
			w.calls(i, 100, 0)
		}
		w.calls(9, 50, 50)
		w.sweep()
		w.want(t, tt.want...)
		if got, want := w.hosts[9].Cause(), (Cause{SuccessRate, 50}); tt.want != nil && got != want {
			t.Errorf("factor %d: cause of the ejection is %+v, want %+v", tt.factor, got, want)
		}
	}
}

// TestLongestEjection checks an ejection whose base time times multiplier overflows.
func TestLongestEjection(t *testing.T) {
	cfg := byFailures(picker.FailurePercentage{Threshold: 50, Enforcement: 100, RequestVolume: 1})
	cfg.BaseEjectionTime, cfg.MaxEjectionTime = math.MaxInt64, math.MaxInt64
	w := newWorld(2, cfg)
	w.calls(0, 0, 10)
	w.sweep()
	w.hosts[0].multiplier = 7
	w.sweep()
	w.want(t, 0)
	if got := w.hosts[0].Until(w.cfg); got != math.MaxInt64 {
		t.Errorf("the longest ejection ends at %d, want %d", got, int64(math.MaxInt64))
	}
}

// TestAgainstOracle compares sweeps with the algorithms of A50 for random hosts, success rates and
// configurations, which change between sweeps (T-OD-1), and their findings (A91).
func TestAgainstOracle(t *testing.T) {
	runs := 2000
	if testing.Short() {
		runs = 300
	}
	for seed := range uint64(runs) {
		rng := rand.New(rand.NewPCG(seed, 50))
		w := newWorld(1+rng.IntN(12), randomConfig(rng))
		o := newOracle(len(w.hosts))
		for step := range 40 {
			if rng.IntN(10) == 0 {
				*w.cfg = randomConfig(rng)
			}
			for i := range w.hosts {
				ok, failed := rng.IntN(20), 0
				if rng.IntN(3) == 0 {
					failed = rng.IntN(20)
				}
				w.calls(i, ok, failed)
				o.calls(i, ok, failed)
			}
			draws := rng.Uint64()
			drawer := func() func(uint32) uint32 {
				r := rand.New(rand.NewPCG(draws, 0))
				return r.Uint32N
			}
			w.draw = drawer()
			got := w.sweep()
			if want := o.sweep(w.cfg, w.now, drawer()); got != want {
				t.Fatalf("seed %d, step %d, %d hosts, %+v: findings %+v, want %+v", seed, step, len(w.hosts), *w.cfg, got, want)
			}
			for i, h := range w.hosts {
				if h.Ejected() != o.endpoints[i].ejected || h.multiplier != uint32(o.endpoints[i].multiplier) {
					t.Fatalf("seed %d, step %d, host %d of %d, %+v: ejected %v with multiplier %d, want %v with %d by A50", seed, step, i, len(w.hosts), *w.cfg,
						h.Ejected(), h.multiplier, o.endpoints[i].ejected, o.endpoints[i].multiplier)
				}
			}
		}
	}
}

func randomConfig(rng *rand.Rand) picker.OutlierDetection {
	minimum := func() uint32 { // at times more than an int of 32 bits holds
		return rng.Uint32N(6) | uint32(rng.IntN(20)/19)<<31
	}
	cfg := picker.OutlierDetection{
		BaseEjectionTime:   time.Duration(rng.IntN(60)) * time.Second,
		MaxEjectionTime:    time.Duration(rng.IntN(120)) * time.Second,
		MaxEjectionPercent: rng.Uint32N(101),
	}
	if rng.IntN(4) > 0 {
		cfg.SuccessRate = &picker.SuccessRate{StdevFactor: rng.Uint32N(2000), Enforcement: rng.Uint32N(101), MinimumHosts: minimum(), RequestVolume: rng.Uint32N(25)}
	}
	if rng.IntN(4) > 0 {
		cfg.FailurePercentage = &picker.FailurePercentage{Threshold: rng.Uint32N(101), Enforcement: rng.Uint32N(101), MinimumHosts: minimum(), RequestVolume: rng.Uint32N(25)}
	}
	return cfg
}

// TestCountAllocates checks that Count does not allocate.
func TestCountAllocates(t *testing.T) {
	h := new(Host)
	if n := testing.AllocsPerRun(100, func() { h.Count(true); h.Count(false) }); n != 0 {
		t.Errorf("Count allocates %v times", n)
	}
}

// oracle is A50 step by step, in rational arithmetic but for the square root.
type oracle struct{ endpoints []*oracleEndpoint }

type oracleEndpoint struct {
	active, inactive struct{ ok, failed int64 } // buckets
	ejected          bool
	timestamp        int64
	multiplier       int64
}

func newOracle(n int) *oracle {
	o := new(oracle)
	for range n {
		o.endpoints = append(o.endpoints, new(oracleEndpoint))
	}
	return o
}

func (o *oracle) calls(i, ok, failed int) {
	o.endpoints[i].active.ok += int64(ok)
	o.endpoints[i].active.failed += int64(failed)
}

func (o *oracle) sweep(cfg *picker.OutlierDetection, now int64, draw func(uint32) uint32) (found Findings) {
	for _, e := range o.endpoints {
		e.inactive, e.active = e.active, struct{ ok, failed int64 }{}
	}
	if r := cfg.SuccessRate; r != nil {
		if with := o.with(r.RequestVolume); uint64(len(with)) >= uint64(r.MinimumHosts) {
			mean, stdev := meanAndDeviation(with)
			for _, e := range with {
				if mean-stdev*(float64(r.StdevFactor)/1000)-e.success() > 1e-12 || e.success() == 0 && mean > 0 { // the latter is grpc/proposal#523
					o.eject(e, cfg, r.Enforcement, now, draw, &found[SuccessRate])
				}
			}
		}
	}
	if f := cfg.FailurePercentage; f != nil {
		if with := o.with(f.RequestVolume); uint64(len(with)) >= uint64(f.MinimumHosts) {
			for _, e := range with {
				percentage := big.NewRat(100*e.inactive.failed, e.inactive.ok+e.inactive.failed)
				if percentage.Cmp(big.NewRat(int64(f.Threshold), 1)) > 0 {
					o.eject(e, cfg, f.Enforcement, now, draw, &found[FailurePercentage])
				}
			}
		}
	}
	for _, e := range o.endpoints {
		if !e.ejected {
			e.multiplier = max(e.multiplier-1, 0)
			continue
		}
		base, most := int64(cfg.BaseEjectionTime), int64(cfg.MaxEjectionTime)
		if now > e.timestamp+min(base*e.multiplier, max(base, most)) {
			e.ejected = false
		}
	}
	return found
}

// with returns the endpoints with the request volume, of which there must be some.
func (o *oracle) with(volume uint32) (out []*oracleEndpoint) {
	for _, e := range o.endpoints {
		if n := e.inactive.ok + e.inactive.failed; n >= max(int64(volume), 1) {
			out = append(out, e)
		}
	}
	return out
}

func (e *oracleEndpoint) success() float64 {
	return float64(e.inactive.ok) / float64(e.inactive.ok+e.inactive.failed)
}

func meanAndDeviation(endpoints []*oracleEndpoint) (mean, stdev float64) {
	n := int64(max(len(endpoints), 1))
	sum, squares := new(big.Rat), new(big.Rat)
	for _, e := range endpoints {
		r := big.NewRat(e.inactive.ok, e.inactive.ok+e.inactive.failed)
		sum.Add(sum, r)
		squares.Add(squares, new(big.Rat).Mul(r, r))
	}
	m := new(big.Rat).Quo(sum, big.NewRat(n, 1))
	v := new(big.Rat).Quo(squares, big.NewRat(n, 1))
	v.Sub(v, new(big.Rat).Mul(m, m))
	mean, _ = m.Float64()
	variance, _ := v.Float64()
	return mean, math.Sqrt(variance)
}

// eject ejects an endpoint that is not, within the share that may be.
func (o *oracle) eject(e *oracleEndpoint, cfg *picker.OutlierDetection, enforcement uint32, now int64, draw func(uint32) uint32, found *Verdicts) {
	ejected := int64(0)
	for _, x := range o.endpoints {
		if x.ejected {
			ejected++
		}
	}
	share := big.NewRat(100*ejected, int64(len(o.endpoints)))
	switch {
	case e.ejected:
	case share.Cmp(big.NewRat(int64(cfg.MaxEjectionPercent), 1)) >= 0:
		found.Overflow++
	case draw(100) >= enforcement:
		found.Spared++
	default:
		found.Ejected++
		e.ejected, e.timestamp = true, now
		e.multiplier++
	}
}
