// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/balancer"
)

var soak = flag.Duration("soak", time.Second, "how long TestSoak runs")

// soaked is a channel of the soak test, with 200 endpoints.
type soaked struct {
	b       *Balancer
	cc      *fakeCC
	members []int
	next    int // number of the next endpoint that is new
}

func newSoaked() *soaked {
	s := &soaked{cc: newFakeCC(func(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }), next: 200}
	s.b = balancerBuilder{}.Build(s.cc, balancer.BuildOptions{}).(*Balancer)
	s.b.setOptions(Options{}.WithDefaults())
	for i := range s.next {
		s.members = append(s.members, i)
	}
	s.update(rand.New(rand.NewPCG(1, 1)))
	return s
}

// update replaces an endpoint, changes all weights, and lets everything connect.
func (s *soaked) update(rng *rand.Rand) {
	s.members[rng.IntN(len(s.members))] = s.next
	s.next++
	endpoints := eps(s.members...)
	for i := range endpoints {
		endpoints[i].Weight = 1 + rng.Uint32N(100)
	}
	s.b.Update(configOf(clusterOf("c", prio(endpoints[:100], endpoints[100:]))))
	for _, sc := range s.cc.Open() {
		sc.To(ready)
	}
	s.cc.Deliver()
}

// TestSoak keeps 50 channels with 10,000 endpoints busy: 20 updates a second, and each second a
// channel that is closed and replaced, in every other tenth of the time. It prints the slopes of
// the heap and of the number of goroutines, and the 99th percentile of picks with and without
// updates. Run it by make soak.
func TestSoak(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 3))
	channels := make([]*soaked, 50)
	for i := range channels {
		channels[i] = newSoaked()
	}
	const phases = 20
	var heap, goroutines []float64
	var quiet, busy []time.Duration
	for phase := range phases {
		p99 := pickFor(*soak/phases, channels, func(tick int) {
			if phase%2 == 0 {
				return
			}
			channels[rng.IntN(len(channels))].update(rng)
			if tick%20 == 0 {
				i := rng.IntN(len(channels))
				channels[i].b.Close()
				channels[i] = newSoaked()
			}
		})
		if phase%2 == 0 {
			quiet = append(quiet, p99)
			continue
		}
		busy = append(busy, p99)
		heap, goroutines = append(heap, float64(live())), append(goroutines, float64(runtime.NumGoroutine()))
	}
	for _, s := range channels {
		s.b.Close()
		s.b.closing.Wait()
	}
	minutes := soak.Minutes() / float64(len(heap))
	perMinute, threads := slope(heap[2:])/minutes, slope(goroutines[2:])/minutes
	slices.Sort(quiet)
	slices.Sort(busy)
	q, b := quiet[len(quiet)/2], busy[len(busy)/2]
	t.Logf("heap %.0f KiB, %+.1f KiB a minute; goroutines %+.2f a minute; p99 of picks %v quiet, %v during updates (%.2f times)",
		heap[len(heap)-1]/1024, perMinute/1024, threads, q, b, float64(b)/float64(q))
	if *soak >= time.Minute && (perMinute > 256<<10 || threads > 1) {
		t.Errorf("heap grows by %.0f bytes a minute, goroutines by %.1f", perMinute, threads)
	}
}

// pickFor picks from all channels for a while, calling tick 20 times a second in
// between, and returns the 99th percentile of the time that a pick and its end take.
// Ticks run on another goroutine.
func pickFor(d time.Duration, channels []*soaked, tick func(int)) time.Duration {
	pickers := make([]*stablePicker, len(channels))
	for i, s := range channels {
		pickers[i] = &s.b.picker
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for n := 0; ; n++ {
			select {
			case <-ticker.C:
				tick(n)
			case <-stop:
				return
			}
		}
	}()
	info := balancer.PickInfo{FullMethodName: "/s/m", Ctx: context.Background()}
	samples := make([]time.Duration, 0, 1<<16)
	for begin, i := time.Now(), 0; time.Since(begin) < d; i++ {
		start := time.Now()
		res, err := pickers[i%len(pickers)].Pick(info)
		if err == nil {
			res.Done(balancer.DoneInfo{BytesReceived: true})
		}
		if took := time.Since(start); len(samples) < cap(samples) {
			samples = append(samples, took)
		} else {
			samples[i%cap(samples)] = took
		}
	}
	close(stop)
	<-done
	slices.Sort(samples)
	return samples[len(samples)*99/100]
}

// slope returns by how much y grows from one to the next, by least squares.
func slope(y []float64) float64 {
	n := float64(len(y))
	var sx, sy, sxx, sxy float64
	for i, v := range y {
		x := float64(i)
		sx, sy, sxx, sxy = sx+x, sy+v, sxx+x*x, sxy+x*v
	}
	return (n*sxy - sx*sy) / (n*sxx - sx*sx)
}
