// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"math"
	"math/rand/v2"
	"time"
)

// A Distribution draws the needs of jobs, with a mean of 1.
type Distribution func(rng *rand.Rand) float64

// Fixed returns the same value for all jobs.
func Fixed(*rand.Rand) float64 { return 1 }

// Exponential is memoryless: the time already spent carries no information about the remaining
// time.
func Exponential(rng *rand.Rand) float64 { return rng.ExpFloat64() }

// Pareto has a heavy tail, which is heavier for smaller alpha, which must exceed 1. Values are
// capped at a thousand times the mean.
func Pareto(alpha float64) Distribution {
	least := (alpha - 1) / alpha
	return func(rng *rand.Rand) float64 {
		return min(1000, least*math.Pow(1-rng.Float64(), -1/alpha))
	}
}

// A Method is a kind of RPC.
type Method struct {
	Share float64       // fraction of the RPCs
	Mean  time.Duration // of their needs, as time of a worker at speed 1
	Open  time.Duration // duration of its streams; 0 means unary
}

// An arrival is an RPC to be sent.
type arrival struct {
	at     time.Duration
	client int
	zone   int // of the client
	method int
	need   time.Duration
	key    int
}

// arrivals draws the RPCs of a run: an open loop, a Poisson process whose rate follows the
// fleet's Shape. They depend only on the fleet and the seed, so that all policies have the same
// RPCs.
func (f *Fleet) arrivals(seed uint64) []arrival {
	rng := rand.New(rand.NewPCG(seed, 1))
	needs := rand.New(rand.NewPCG(seed, 2))
	top := f.top()
	keys := rand.New(rand.NewPCG(seed, 5))
	rate := f.rate()
	var list []arrival
	for t := 0.; ; {
		t += rng.ExpFloat64() / (rate * top)
		at := time.Duration(t * float64(time.Second))
		if at >= f.end() {
			return list
		}
		if rng.Float64()*top >= f.shape(at) {
			continue
		}
		a := arrival{at: at, client: rng.IntN(f.Clients)}
		a.zone = f.clientZone(a.client)
		for x := needs.Float64(); a.method < len(f.Methods)-1 && x >= f.Methods[a.method].Share; a.method++ {
			x -= f.Methods[a.method].Share
		}
		a.need = time.Duration(f.Need(needs) * float64(f.Methods[a.method].Mean))
		if f.Keys > 0 {
			a.key = keys.IntN(f.Keys)
		}
		list = append(list, a)
	}
}

// rate returns the mean number of RPCs per second while the shape is 1.
func (f *Fleet) rate() float64 { return f.Load * f.capacity() / f.mean().Seconds() }

// mean returns the mean need of an RPC, as time of a worker at speed 1.
func (f *Fleet) mean() time.Duration {
	total := 0.
	for _, m := range f.Methods {
		total += m.Share * float64(m.Mean)
	}
	return time.Duration(total)
}

// capacity returns the sum of all workers' nominal speeds.
func (f *Fleet) capacity() float64 {
	total := 0.
	for i := range f.Servers {
		total += float64(f.Workers) * f.nominal(i)
	}
	return total
}

func (f *Fleet) nominal(i int) float64 {
	if f.Speed == nil {
		return 1
	}
	return f.Speed(i)
}

func (f *Fleet) shape(at time.Duration) float64 {
	if f.Shape == nil {
		return 1
	}
	return f.Shape(at)
}

// top returns the maximum of the shape.
func (f *Fleet) top() float64 {
	top := 0.
	for at := time.Duration(0); at < f.end(); at += slot / 10 {
		top = max(top, f.shape(at))
	}
	return top
}

// end returns the end of the run.
func (f *Fleet) end() time.Duration { return f.Warm + f.Run }

// bursts returns a shape that is high for width of each period, and low otherwise.
func bursts(period, width time.Duration, low, high float64) func(time.Duration) float64 {
	return func(at time.Duration) float64 {
		if at%period < width {
			return high
		}
		return low
	}
}

// day returns a shape that rises from low to high and falls again in a period.
func day(period time.Duration, low, high float64) func(time.Duration) float64 {
	return func(at time.Duration) float64 {
		return low + (high-low)*(1-math.Cos(2*math.Pi*float64(at)/float64(period)))/2
	}
}
