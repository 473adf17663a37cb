// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
)

// Peak-EWMA is the policy with which least latency is compared: the rule of Finagle, Linkerd
// and tower (https://twitter.github.io/finagle/guide/Clients.html). Of two random endpoints, it
// picks the one with the lower cost,
//
//	cost = moving average of latencies × (RPCs in flight + 1)
//
// where a latency above the average replaces it, and the average decays towards lower ones, and
// towards 0 while no RPC ends. An endpoint that has RPCs in flight and no latency yet is the
// last choice.
const (
	peakEWMAPolicy  = "arena_peak_ewma"
	peakEWMADecay   = 10 * time.Second
	peakEWMAPenalty = 1e6 // seconds
)

// A peakEWMA is one client's state of a server.
type peakEWMA struct {
	inFlight int
	average  float64       // seconds
	at       time.Duration // time of the last update
}

func (e *peakEWMA) observe(now time.Duration, latency float64) {
	w := math.Exp(-float64(now-e.at) / float64(peakEWMADecay))
	e.average, e.at = max(latency, e.average*w+latency*(1-w)), now
}

func (e *peakEWMA) cost(now time.Duration) float64 {
	e.observe(now, 0)
	if e.average == 0 && e.inFlight > 0 {
		return peakEWMAPenalty + float64(e.inFlight)
	}
	return e.average * float64(e.inFlight+1)
}

// peakEWMAs are the states of one client's servers.
type peakEWMAs []peakEWMA

// pick returns the index of a server and starts an RPC to it.
func (s peakEWMAs) pick(now time.Duration, intN func(int) int) int {
	i, k := intN(len(s)), intN(len(s))
	if s[k].cost(now) < s[i].cost(now) {
		i = k
	}
	s[i].inFlight++
	return i
}

func (s peakEWMAs) done(i int, begin, now time.Duration) {
	s[i].inFlight--
	s[i].observe(now, (now - begin).Seconds())
}

func peakEWMAKernel(f *Fleet, servers []*Server, rng *rand.Rand, now func() time.Duration) (Kernel, error) {
	k := &ewmaKernel{rng: rng, now: now}
	for range f.Clients {
		k.clients = append(k.clients, make(peakEWMAs, len(servers)))
	}
	return k, nil
}

type ewmaKernel struct {
	rng     *rand.Rand
	now     func() time.Duration
	clients []peakEWMAs
}

// Pick implements Kernel.
func (k *ewmaKernel) Pick(client int) (int, func(bool)) {
	s, begin := k.clients[client], k.now()
	i := s.pick(begin, k.rng.IntN)
	return i, func(bool) { s.done(i, begin, k.now()) }
}

func init() {
	balancer.Register(base.NewBalancerBuilder(peakEWMAPolicy, ewmaBuilder{}, base.Config{}))
}

// ewmaBuilder builds the pickers of channels. The state of servers is lost whenever a
// connection is added or removed.
type ewmaBuilder struct{}

// Build implements base.PickerBuilder.
func (ewmaBuilder) Build(info base.PickerBuildInfo) balancer.Picker {
	if len(info.ReadySCs) == 0 {
		return base.NewErrPicker(balancer.ErrNoSubConnAvailable)
	}
	p := &ewmaPicker{list: inOrder(info), start: time.Now()}
	p.known = make(peakEWMAs, len(p.list))
	return p
}

type ewmaPicker struct {
	list  []anchored
	start time.Time

	mu    sync.Mutex
	known peakEWMAs
}

// Pick implements balancer.Picker.
func (p *ewmaPicker) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	begin := time.Since(p.start)
	i := p.known.pick(begin, rand.IntN)
	result := p.list[i].result
	result.Done = func(balancer.DoneInfo) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.known.done(i, begin, time.Since(p.start))
	}
	return result, nil
}
