// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"math"
	"slices"
	"time"

	"github.com/montanaflynn/stats"
)

// A Result is the score of one policy in one fleet. Times are in milliseconds.
type Result struct {
	Fleet  string
	Policy string
	Impl   Impl
	Mode   Mode
	Long   bool   // a run of a minute for the calibration
	Error  string // reason for a missing score

	RPCs                int // number of scored RPCs
	P50, P90, P99, P999 float64
	// Doubt is half of the 95 % confidence interval of P99, relative to P99, from the variance
	// over tenths of the run.
	Doubt float64
	// Goodput is the fraction of the RPCs that succeeded.
	Goodput float64
	// Regret is 0 for the oracle and 1 for random.
	Regret float64
	// BadShare is the fraction of the RPCs sent to the bad servers.
	BadShare float64
	// Foreign is the fraction of the RPCs sent to a zone other than the client's, if clients
	// have zones.
	Foreign float64
	// Attempts is the average number of attempts of an RPC seen by servers; like BadShare,
	// between BadFrom and BadTo if these are set.
	Attempts float64
	// Delivered is the fraction of the servers' capacity between BadFrom and BadTo used by
	// successful RPCs that were due then. Recovery is the time after BadTo, in seconds, until
	// at most one of a hundred due RPCs fails; -1 means not before the end.
	Delivered, Recovery float64
	// Hits is the fraction of the RPCs whose key was in the server's cache, and WorstHits in the worst second.
	Hits, WorstHits float64
	// MaxMean is the utilization of the busiest server relative to the mean.
	MaxMean float64
	// Extra is the number of additional messages per RPC.
	Extra float64
	// CPU is the processor time per RPC in microseconds, for client, server and model.
	CPU float64

	Utilisation []float64 // by server
	Points      []Point
	Marks       []Mark
}

// A Point is a second, by the times at which RPCs were due.
type Point struct {
	Second float64
	RPCs   int
	Failed int
	P99    float64
}

// A Mark is the time of an event.
type Mark struct {
	Second float64
	Label  string
}

// score computes the Result of a run.
func score(f *Fleet, seed uint64, work []arrival, calls []call, models []*Server) *Result {
	r := &Result{Fleet: f.Name}
	var took []float64
	tenths := make([][]float64, 10)
	points := make([][]float64, (f.Run+time.Second-1)/time.Second)
	r.Points = make([]Point, len(points))
	hits := make([]float64, len(points))
	ok := 0
	for i, a := range work {
		if a.at < f.Warm {
			continue
		}
		c := &calls[i]
		wait := c.took
		if c.failed {
			wait = max(wait, f.Timeout)
		} else {
			ok++
		}
		ms := float64(wait) / float64(time.Millisecond)
		took = append(took, ms)
		since := a.at - f.Warm
		tenth := since * 10 / f.Run
		tenths[tenth] = append(tenths[tenth], ms)
		second := int(since / time.Second)
		points[second] = append(points[second], ms)
		if c.hit.Load() {
			hits[second]++
			r.Hits++
		}
		if c.failed {
			r.Points[second].Failed++
		}
	}
	r.RPCs = len(took)
	if r.RPCs == 0 {
		r.Error = "no RPCs"
		return r
	}
	slices.Sort(took)
	r.P50, r.P90, r.P99, r.P999 = percentile(took, 50), percentile(took, 90), percentile(took, 99), percentile(took, 99.9)
	r.Hits, r.WorstHits = r.Hits/float64(r.RPCs), 1
	for i, p := range points {
		r.WorstHits = min(r.WorstHits, hits[i]/float64(max(1, len(p))))
	}
	r.Goodput = float64(ok) / float64(r.RPCs)
	r.Doubt = doubt(tenths)
	for i, p := range points {
		slices.Sort(p)
		r.Points[i].Second, r.Points[i].RPCs, r.Points[i].P99 = float64(i)+.5, len(p), percentile(p, 99)
	}
	r.bad(f, work, calls)
	r.servers(f, models)
	r.Extra /= float64(len(work))
	for _, e := range f.events(seed) {
		if e.Label != "" {
			r.Marks = append(r.Marks, Mark{(e.At - f.Warm).Seconds(), e.Label})
		}
	}
	return r
}

// badTime returns the time between BadFrom and BadTo, or the whole run.
func (f *Fleet) badTime() (from, to time.Duration) {
	if f.BadTo > 0 {
		return f.BadFrom, f.BadTo
	}
	return f.Warm, f.end()
}

// bad sets the figures for RPCs during and after bad times.
func (r *Result) bad(f *Fleet, work []arrival, calls []call) {
	from, to := f.badTime()
	due, ok, attempts := 0, 0, int32(0)
	for i, a := range work {
		if a.at < from || a.at >= to {
			continue
		}
		due++
		attempts += calls[i].attempts.Load()
		if !calls[i].failed {
			ok++
		}
	}
	r.Attempts = float64(attempts) / float64(max(1, due))
	if f.BadTo == 0 {
		return
	}
	r.Delivered = float64(ok) * f.mean().Seconds() / f.capacity() / (to - from).Seconds()
	for i, p := range r.Points {
		end := f.Warm + time.Duration(i+1)*time.Second
		if end <= to || p.Failed*100 <= p.RPCs {
			continue
		}
		r.Recovery = (end - to).Seconds()
		if i == len(r.Points)-1 {
			r.Recovery = -1
		}
	}
}

// servers sets the figures for servers.
func (r *Result) servers(f *Fleet, models []*Server) {
	from, to := f.badTime()
	all, bad, most, total := 0., 0., 0., 0.
	foreign, ever := 0., 0.
	for i, s := range models {
		s.mu.Lock()
		now := s.clock.now()
		for _, j := range s.running {
			s.workedLocked(j, now)
		}
		n := s.arrivals.sum(from, to)
		all += n
		foreign += s.foreign.sum(f.Warm, f.end())
		ever += s.arrivals.sum(f.Warm, f.end())
		if slices.Contains(f.Bad, i) {
			bad += n
		}
		u := s.busy.sum(f.Warm, f.end()) / float64(f.Run) / float64(s.workers)
		r.Extra += float64(s.messages)
		s.mu.Unlock()
		r.Utilisation = append(r.Utilisation, u)
		most, total = max(most, u), total+u
	}
	if all > 0 {
		r.BadShare = bad / all
	}
	if f.ClientZones != nil && ever > 0 {
		r.Foreign = foreign / ever
	}
	if total > 0 {
		r.MaxMean = most * float64(len(models)) / total
	}
}

// percentile returns a percentile of sorted values, by the nearest rank; 0 without values.
func percentile(sorted []float64, percent float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(percent / 100 * float64(len(sorted))))
	return sorted[max(0, rank-1)]
}

// doubt returns half of the 95 % confidence interval of the 99th percentile, relative to it, or
// 0 if it cannot be computed. The percentiles of the batches are assumed to be independent.
func doubt(batches [][]float64) float64 {
	var list []float64
	for _, b := range batches {
		if len(b) > 0 {
			slices.Sort(b)
			list = append(list, percentile(b, 99))
		}
	}
	mean, err := stats.Mean(list)
	if err != nil || len(list) < 2 || mean == 0 {
		return 0
	}
	scatter, err := stats.StandardDeviationSample(list)
	if err != nil {
		return 0
	}
	const t = 2.26 // Student's t for ten batches
	return t * scatter / math.Sqrt(float64(len(list))) / mean
}

// regret returns (p99 - oracle) / (random - oracle), or 0 if these two are equal.
func regret(p99, oracle, random float64) float64 {
	if random == oracle {
		return 0
	}
	return (p99 - oracle) / (random - oracle)
}

// Judge sets the regret of all results.
func Judge(list []*Result) {
	for _, r := range list {
		if random, oracle := anchors(list, r); random != nil && oracle != nil {
			r.Regret = regret(r.P99, oracle.P99, random.P99)
		}
	}
}

// anchors returns the results of random and oracle in the same fleet and mode.
func anchors(list []*Result, of *Result) (random, oracle *Result) {
	for _, r := range list {
		if r.Fleet != of.Fleet || r.Mode != of.Mode || r.Long != of.Long || r.Impl != Anchor || r.Error != "" {
			continue
		}
		switch r.Policy {
		case RandomName:
			random = r
		case OracleName:
			oracle = r
		}
	}
	return random, oracle
}
