// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package latency

import (
	"math"
	"time"

	"github.com/montanaflynn/stats"
)

// A Report is the result of a study, in JSON.
type Report struct {
	Go, GRPC, Machine, Commit, Date string

	Rate     float64 // RPCs per second
	Seconds  float64 // of each run
	Policies []Run
	Events   []Run
}

// A Run is one implementation under load. Times are in milliseconds.
type Run struct {
	Impl   string
	Policy string // of Policies
	Event  string // of Events: what happens
	Error  string // why there are no results

	Sent, Failed                   int
	Mean, P50, P90, P99, P999, Max float64
	Lag50, Lag99, Lag999           float64 // how late the generator sent
	CPU                            float64 // microseconds of processor time for each RPC
	GC                             float64 // percent of it for garbage collection

	Shares  []Share
	Marks   []Mark   // of Events
	Buckets []Bucket // of Events
}

// A Share is the part of the RPCs that a backend answered.
type Share struct {
	Backend  string
	Capacity float64 // its part of the fleet's
	Got      float64
}

// A Mark is when something was done.
type Mark struct {
	Second float64
	Label  string
}

// A Bucket is a tenth of a second, by the times at which RPCs should have been
// sent.
type Bucket struct {
	Second, P50, P99, Lag99 float64
	Sent, Failed            int
	Moved                   float64 // share of the second half of the fleet
}

// tooLate is a lateness, in milliseconds, of a machine that has no time for what
// is measured either.
const tooLate = 10

// Late reports whether a percentile of latencies says more about the machine
// than about what is measured: the same percentile of the generator's lateness,
// which is part of each latency, is more than a quarter of it, or more than
// 10 ms. Both are in milliseconds.
func Late(latency, lag float64) bool { return lag > min(latency/4, tooLate) }

const bucket = 100 * time.Millisecond

// summarise fills in what the calls say. Latencies are of all RPCs, those that
// failed included: users wait for failures, too.
func (r *Run) summarise(calls []call, fleet []*node) {
	var took, lag []float64
	got := make(map[string]int)
	for _, c := range calls {
		took, lag = append(took, ms(c.took)), append(lag, ms(c.lag))
		if c.backend == "" {
			r.Failed++
		} else {
			got[c.backend]++
		}
	}
	r.Sent = len(calls)
	r.Mean, _ = stats.Mean(took) // of none there is none
	r.Max, _ = stats.Max(took)
	r.P50, r.P90, r.P99, r.P999 = percentile(took, 50), percentile(took, 90), percentile(took, 99), percentile(took, 99.9)
	r.Lag50, r.Lag99, r.Lag999 = percentile(lag, 50), percentile(lag, 99), percentile(lag, 99.9)
	total := 0.
	for _, n := range fleet {
		total += n.capacity()
	}
	for _, n := range fleet {
		name := n.Addr().String()
		r.Shares = append(r.Shares, Share{
			Backend: name, Capacity: n.capacity() / total, Got: float64(got[name]) / float64(max(1, r.Sent-r.Failed)),
		})
	}
}

// divide fills in the buckets.
func (r *Run) divide(calls []call, fleet []*node) {
	moved := make(map[string]bool)
	for _, n := range fleet[len(fleet)/2:] {
		moved[n.Addr().String()] = true
	}
	for len(calls) > 0 {
		k := calls[0].at / bucket
		b := Bucket{Second: (k * bucket).Seconds()}
		var took, lag []float64
		there := 0
		for len(calls) > 0 && calls[0].at/bucket == k {
			c := calls[0]
			calls = calls[1:]
			took, lag = append(took, ms(c.took)), append(lag, ms(c.lag))
			b.Sent++
			switch {
			case c.backend == "":
				b.Failed++
			case moved[c.backend]:
				there++
			}
		}
		b.P50, b.P99, b.Lag99 = percentile(took, 50), percentile(took, 99), percentile(lag, 99)
		b.Moved = float64(there) / float64(max(1, b.Sent-b.Failed))
		r.Buckets = append(r.Buckets, b)
	}
}

// percentile is the nearest rank's, and 0 of an empty list.
func percentile(list []float64, percent float64) float64 {
	if len(list) == 0 {
		return 0
	}
	p, err := stats.PercentileNearestRank(list, percent)
	if err != nil {
		return math.NaN()
	}
	return p
}

func ms(d time.Duration) float64 { return d.Seconds() * 1000 }
