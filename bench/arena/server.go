// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"math"
	"sync"
	"time"
)

// A Server is the model of a server: workers that take jobs from one queue in order of arrival.
// The need of a job is known when it arrives (see Load); its duration depends on the server's
// speed.
//
//	arrive ── refused (down, failing, queue full)
//	   │
//	   ├─ queue ─→ worker ─→ done
//	   └─ given up: leaves the queue, unless the server is stubborn; a worker that has it
//	      carries on all the same
//
// A Server is safe for concurrent use.
type Server struct {
	Index int
	Zone  int
	// Nominal is the speed known to the operator: the generation of the hardware. Events change
	// the actual speed.
	Nominal float64

	clock    clock
	workers  int
	limit    int  // of the queue; 0 means no limit
	stubborn bool // works on jobs that the client has given up

	mu      sync.Mutex
	speed   float64 // nominal, minus the part used by antagonists; 0 while it stalls
	failing bool    // rejects all jobs immediately
	down    bool    // unreachable
	cached  map[int]bool
	keys    []int // cached, in the order of their arrival
	cold    int   // jobs until the cache is warm; the first ones take coldFactor times as long
	queue   []*job
	waiting int // queued jobs that have not been given up
	running []*job

	arrivals counts   // jobs, including rejected ones
	foreign  counts   // arrivals from other zones
	busy     counts   // nanoseconds of workers
	messages uint64   // messages other than the RPCs of the load
	rate     decaying // of arrivals
	refusals decaying
	used     decaying // seconds of workers
}

// coldJobs is the number of jobs that warm a cold cache, linearly; the first takes coldFactor
// times as long.
const (
	coldJobs   = 200
	coldFactor = 4
)

// A refusal is the reason for which a server did not do a job.
type refusal int

const (
	served refusal = iota
	refusedFull
	refusedFailing
	refusedDown
)

// A job is an RPC at a server.
type job struct {
	need  float64 // remaining nanoseconds of a worker at speed 1
	done  func(refusal)
	since time.Duration // time of the last update of need
	timer timer         // of the end; nil while it is queued
	gone  bool          // given up
}

func newServer(c clock, index, workers, limit int, speed float64) *Server {
	return &Server{Index: index, Nominal: speed, clock: c, workers: workers, limit: limit, speed: speed}
}

// submit starts a job that needs the given time of a worker at speed 1, and calls done when it
// is done or rejected, possibly immediately. Clients call the returned function when they no
// longer wait; done may still be called.
func (s *Server) submit(need time.Duration, done func(refusal)) (giveUp func()) {
	s.mu.Lock()
	now := s.clock.now()
	s.arrivals.add(now, 1)
	s.rate.add(now, 1)
	why := served
	switch {
	case s.down:
		why = refusedDown
	case s.failing:
		why = refusedFailing
	case s.limit > 0 && s.waiting >= s.limit:
		why = refusedFull
	}
	if why != served {
		s.refusals.add(now, 1)
		s.mu.Unlock()
		done(why)
		return func() {}
	}
	j := &job{need: float64(need), done: done}
	if s.cold > 0 {
		j.need *= 1 + (coldFactor-1)*float64(s.cold)/coldJobs
		s.cold--
	}
	if len(s.running) < s.workers {
		s.beginLocked(j, now)
	} else {
		s.queue = append(s.queue, j)
		s.waiting++
	}
	s.mu.Unlock()
	return func() { s.giveUp(j) }
}

func (s *Server) giveUp(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stubborn {
		return
	}
	if j.timer == nil && !j.gone && s.waiting > 0 && !s.runsLocked(j) {
		s.waiting--
	}
	j.gone = true
}

func (s *Server) runsLocked(j *job) bool {
	for _, r := range s.running {
		if r == j {
			return true
		}
	}
	return false
}

// beginLocked assigns a job to a worker.
func (s *Server) beginLocked(j *job, now time.Duration) {
	s.running = append(s.running, j)
	s.scheduleLocked(j, now)
}

// scheduleLocked sets the timer of a running job by the current speed.
func (s *Server) scheduleLocked(j *job, now time.Duration) {
	j.since = now
	if s.speed > 0 {
		j.timer = s.clock.after(time.Duration(math.Ceil(j.need/s.speed)), func() { s.finish(j) })
	}
}

// finish ends a job and starts the next.
func (s *Server) finish(j *job) {
	s.mu.Lock()
	if !s.runsLocked(j) || j.timer == nil {
		s.mu.Unlock()
		return // stopped, or the speed changed, at this moment
	}
	now := s.clock.now()
	s.workedLocked(j, now)
	s.removeLocked(j)
	for len(s.queue) > 0 && len(s.running) < s.workers {
		next := s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
		if !next.gone {
			s.waiting--
			s.beginLocked(next, now)
		}
	}
	s.mu.Unlock()
	j.done(served)
}

func (s *Server) removeLocked(j *job) {
	for i, r := range s.running {
		if r == j {
			last := len(s.running) - 1
			s.running[i] = s.running[last]
			s.running[last] = nil
			s.running = s.running[:last]
			return
		}
	}
}

// workedLocked accounts for a worker's time since the last update.
func (s *Server) workedLocked(j *job, now time.Duration) {
	s.busy.spread(j.since, now)
	s.used.add(now, (now - j.since).Seconds())
	j.need = max(0, j.need-s.speed*float64(now-j.since))
	j.since = now
}

// setSpeed changes the speed of the workers.
func (s *Server) setSpeed(speed float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.now()
	for _, j := range s.running {
		s.workedLocked(j, now)
		if j.timer != nil {
			j.timer.Stop()
			j.timer = nil
		}
	}
	s.speed = speed
	for _, j := range s.running {
		s.scheduleLocked(j, now)
	}
}

// setFailing starts or stops rejecting all jobs immediately.
func (s *Server) setFailing(failing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = failing
}

// chill empties the cache.
func (s *Server) chill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cold = coldJobs
}

// setDown stops the server, which loses its jobs, or starts it.
func (s *Server) setDown(down bool) {
	s.mu.Lock()
	now := s.clock.now()
	s.down = down
	lost := s.queue
	if down {
		for _, j := range s.running {
			s.workedLocked(j, now)
			if j.timer != nil {
				j.timer.Stop()
				j.timer = nil
			}
			lost = append(lost, j)
		}
		s.queue, s.running, s.waiting = nil, nil, 0
	}
	s.mu.Unlock()
	if down {
		for _, j := range lost {
			j.done(refusedDown)
		}
	}
}

// inFlight returns the number of queued or running jobs.
func (s *Server) inFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting + len(s.running)
}

// wait returns the oracle's estimate: the latency of a job that arrives now, if each job in
// flight needs mean. It is infinite if the server rejects jobs or stalls.
func (s *Server) wait(mean time.Duration) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down || s.failing || s.speed == 0 || s.limit > 0 && s.waiting >= s.limit {
		return math.Inf(1)
	}
	n := s.waiting + len(s.running)
	work := float64(mean) / s.speed
	if s.cold > 0 {
		work *= 1 + (coldFactor-1)*float64(s.cold)/coldJobs
	}
	if n < s.workers {
		return work
	}
	return work * (1 + float64(n-s.workers+1)/float64(s.workers))
}

// load returns the recent load of the server for its reports (A51): RPCs per second, rejected
// RPCs per second, and utilization.
func (s *Server) load() (qps, eps, utilisation float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.now()
	return s.rate.value(now), s.refusals.value(now), s.used.value(now) / float64(s.workers)
}

// count counts a message other than an RPC of the load: a probe, a report.
func (s *Server) count() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages++
}

// counts are amounts by time slot.
type counts []float64

// slot is the resolution of time series.
const slot = 500 * time.Millisecond

func (c *counts) add(at time.Duration, amount float64) {
	i := int(max(0, at) / slot)
	for len(*c) <= i {
		*c = append(*c, 0)
	}
	(*c)[i] += amount
}

// spread adds the nanoseconds from one time to another.
func (c *counts) spread(from, to time.Duration) {
	for from < to {
		end := min(to, (from/slot+1)*slot)
		c.add(from, float64(end-from))
		from = end
	}
}

// sum returns the amount from one time to another, which must be multiples of a slot.
func (c counts) sum(from, to time.Duration) float64 {
	total := 0.
	for i := int(from / slot); i < int(to/slot) && i < len(c); i++ {
		total += c[i]
	}
	return total
}

// decaying is a rate per second, over about the last second.
type decaying struct {
	amount float64
	at     time.Duration
}

const decay = time.Second

func (d *decaying) value(now time.Duration) float64 {
	return d.amount * math.Exp(-float64(now-d.at)/float64(decay)) / decay.Seconds()
}

func (d *decaying) add(now time.Duration, amount float64) {
	d.amount = d.value(now)*decay.Seconds() + amount
	d.at = now
}
