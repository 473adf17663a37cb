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
	Long   bool   // a minute of the calibration
	Error  string // why there is no score

	RPCs                int // that are scored
	P50, P90, P99, P999 float64
	// Doubt is half of the 95 % confidence interval of P99, as a part of it, from
	// the scatter over tenths of the run.
	Doubt float64
	// Goodput is the part of the RPCs that succeeded.
	Goodput float64
	// Regret is 0 for the oracle and 1 for random.
	Regret float64
	// BadShare is the part of the RPCs that was sent to the bad servers.
	BadShare float64
	// Foreign is the part of the RPCs that went to a server in another zone than the
	// client's, where clients are in zones.
	Foreign float64
	// Attempts is how many attempts at an RPC servers have seen, on average; as BadShare,
	// between BadFrom and BadTo if there are these.
	Attempts float64
	// Delivered is the part of what the servers can do between BadFrom and BadTo that
	// RPCs which were due then and succeeded make up, and Recovery how long after BadTo, in
	// seconds, more than one RPC of a hundred that were due failed; -1 is until the end.
	Delivered, Recovery float64
	// MaxMean is the utilisation of the busiest server to the mean.
	MaxMean float64
	// Extra is how many messages there were for an RPC, beside it.
	Extra float64
	// CPU is microseconds of the processor for an RPC, client, server and model.
	CPU float64

	Utilisation []float64 // by server
	Points      []Point
	Marks       []Mark
}

// A Point is a second, by the times at which RPCs should have been sent.
type Point struct {
	Second float64
	RPCs   int
	Failed int
	P99    float64
}

// A Mark is when something happened.
type Mark struct {
	Second float64
	Label  string
}

// score fills in what a run says.
func score(f *Fleet, seed uint64, work []arrival, calls []call, models []*Server) *Result {
	r := &Result{Fleet: f.Name}
	var took []float64
	tenths := make([][]float64, 10)
	points := make([][]float64, (f.Run+time.Second-1)/time.Second)
	r.Points = make([]Point, len(points))
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

// badTime is between BadFrom and BadTo, or the run.
func (f *Fleet) badTime() (from, to time.Duration) {
	if f.BadTo > 0 {
		return f.BadFrom, f.BadTo
	}
	return f.Warm, f.end()
}

// bad fills in what is to be said about RPCs in bad times, and after.
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

// servers fills in what is to be said about servers.
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

// percentile is that of sorted values, by the nearest rank; 0 if there are none.
func percentile(sorted []float64, percent float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(percent / 100 * float64(len(sorted))))
	return sorted[max(0, rank-1)]
}

// doubt is half of the 95 % confidence interval of the 99th percentile, as a part
// of it, 0 if there is no telling: those of the batches are taken for independent.
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
	const t = 2.26 // Student's for ten batches
	return t * scatter / math.Sqrt(float64(len(list))) / mean
}

// regret is (p99 - oracle) / (random - oracle), or 0 if these two are the same.
func regret(p99, oracle, random float64) float64 {
	if random == oracle {
		return 0
	}
	return (p99 - oracle) / (random - oracle)
}

// Judge fills in the regret of all results.
func Judge(list []*Result) {
	for _, r := range list {
		if random, oracle := anchors(list, r); random != nil && oracle != nil {
			r.Regret = regret(r.P99, oracle.P99, random.P99)
		}
	}
}

// anchors are random and oracle in the same fleet, by the same means.
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
