// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
)

// detecting returns c with outlier detection: who fails more than half of ten
// RPCs or more in 10 s is out for 15 s.
func detecting(c *picker.Cluster) *picker.Cluster {
	c.Leaves[0].Outlier = &picker.OutlierDetection{
		Interval: 10 * time.Second, BaseEjectionTime: 15 * time.Second, MaxEjectionTime: 300 * time.Second, MaxEjectionPercent: 100,
		FailurePercentage: &picker.FailurePercentage{Threshold: 50, Enforcement: 100, RequestVolume: 10},
	}
	return c
}

// TestEjection: an endpoint whose RPCs fail is ejected at the end of the interval, gets no RPCs,
// keeps its connection (T-OD-2), and returns once its time is over; if its RPCs fail in the next
// interval, it is ejected for twice as long (A50).
func TestEjection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := connected(t, detecting(clusterOf("c", prio(eps(1, 2, 3)))), 1, 2, 3)
		kit.Pass(9 * time.Second)
		b.load(t, 60, 1)
		wantPick(t, b, 1, 2, 3)
		kit.Pass(2 * time.Second) // 11 s
		wantPick(t, b, 2, 3)
		b.load(t, 60)
		kit.Pass(18 * time.Second) // 29 s
		wantPick(t, b, 2, 3)
		kit.Pass(2 * time.Second) // 31 s: 15 s were over at 25 s
		if counts := b.counts(t, 30); counts[1] != 10 {
			t.Errorf("of 30 RPCs after its return the endpoint got %d, want 10", counts[1])
		}
		b.load(t, 60, 1)
		kit.Pass(10 * time.Second) // 41 s: ejected at 40 s, for 30 s
		wantPick(t, b, 2, 3)
		kit.Pass(38 * time.Second) // 79 s
		wantPick(t, b, 2, 3)
		kit.Pass(2 * time.Second)
		b.load(t, 60)
		wantPick(t, b, 1, 2, 3)
		if cc.Opened != 3 || cc.Closed != 0 || cc.conn(t, 1).Connects != 1 {
			t.Errorf("opened %d connections, closed %d, connected %d times; want 3, 0, 1", cc.Opened, cc.Closed, cc.conn(t, 1).Connects)
		}
	})
}

// TestOutcomes: an RPC is a success if its status is OK, and otherwise a failure (T-OD-3); an RPC
// that was never sent counts as neither.
func TestOutcomes(t *testing.T) {
	for _, tt := range []struct {
		failed, void int
		ejects       bool
	}{{10, 0, true}, {10, 100, true}, {9, 100, false}} {
		synctest.Test(t, func(t *testing.T) {
			b, _ := connected(t, detecting(clusterOf("c", prio(eps(1)))), 1)
			b.load(t, tt.failed, 1)
			for range tt.void {
				b.begin(t).Done(balancer.DoneInfo{}) // the connection had gone
			}
			kit.Pass(11 * time.Second)
			if _, err := b.pick(); (err != nil) != tt.ejects {
				t.Errorf("%d failures and %d RPCs that were not sent: Pick() = %v, want an ejection: %v", tt.failed, tt.void, err, tt.ejects)
			}
		})
	}
}

// TestEjectedPriority: a priority whose endpoints are all ejected has failed, so the
// next one is used, until one returns (A50, A75); the channel stays READY.
func TestEjectedPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := connected(t, detecting(clusterOf("c", prio(eps(1, 2)), prio(eps(3)))), 1, 2)
		b.load(t, 40, 1, 2)
		kit.Pass(11 * time.Second)
		wantPick(t, b) // the next one connects
		cc.conn(t, 3).To(ready)
		wantPick(t, b, 3)
		if cc.Now.ConnectivityState != ready {
			t.Errorf("channel is %v, want READY", cc.Now.ConnectivityState)
		}
		b.load(t, 40, 3)
		kit.Pass(10 * time.Second) // 21 s
		b.flush()
		if _, err := b.pick(); err == nil || !strings.Contains(err.Error(), "1 of its endpoints are ejected") {
			t.Errorf("Pick() with all endpoints ejected = %v, want an error about ejection", err)
		}
		kit.Pass(10 * time.Second) // 31 s
		wantPick(t, b, 1, 2)
		if cc.Closed != 0 {
			t.Errorf("closed %d connections, want none", cc.Closed)
		}
	})
}

// TestDetectionTimer: a change of the configuration keeps the time that has passed
// of the interval, one that takes away the time left has the timer run at once, and
// interval 0 does not run without a pause (T-OD-2).
func TestDetectionTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := newTestLB(t, Config{})
		update := func(interval time.Duration) {
			c := detecting(clusterOf("c", prio(eps(1, 2))))
			c.Leaves[0].Outlier.Interval = interval
			c.Leaves[0].Outlier.BaseEjectionTime = 0
			b.Update(configOf(c))
		}
		update(10 * time.Second)
		b.ready(t, 1, 2)
		kit.Pass(6 * time.Second)
		b.load(t, 40, 1)
		for range 5 { // the same interval
			update(10 * time.Second)
		}
		kit.Pass(3900 * time.Millisecond)
		wantPick(t, b, 1, 2)
		kit.Pass(200 * time.Millisecond) // 10.1 s
		wantPick(t, b, 2)

		kit.Pass(20 * time.Second) // 30.1 s; back since 20 s
		b.load(t, 40, 1)
		kit.Pass(6 * time.Second) // 36.1 s
		update(8 * time.Second)   // since 30 s
		kit.Pass(1800 * time.Millisecond)
		wantPick(t, b, 1, 2)
		kit.Pass(200 * time.Millisecond) // 38.1 s
		wantPick(t, b, 2)

		kit.Pass(12 * time.Second) // 50.1 s; back since 46 s
		b.load(t, 40, 1)
		update(time.Second) // over since 47 s
		kit.Pass(10 * time.Millisecond)
		wantPick(t, b, 2)
		update(0)
		kit.Pass(time.Second) // would never end
		wantPick(t, b, 1, 2)
	})
}

// TestDetectionOff: a configuration without algorithms lets all endpoints return at once and counts
// nothing; a detection that is switched on starts without counts.
func TestDetectionOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := newTestLB(t, Config{})
		off := map[string]*picker.OutlierDetection{"absent": nil, "no algorithm": {Interval: time.Second}}
		for name, outlier := range off {
			b.Update(configOf(detecting(clusterOf("c", prio(eps(1, 2))))))
			b.ready(t, 1, 2)
			b.load(t, 40, 1)
			kit.Pass(11 * time.Second)
			wantPick(t, b, 2)
			c := clusterOf("c", prio(eps(1, 2)))
			c.Leaves[0].Outlier = outlier
			b.Update(configOf(c))
			counts := b.shares(t, 20)
			if counts[1] != 10 {
				t.Errorf("%s: the endpoint that was ejected gets %d of 20 RPCs, want 10", name, counts[1])
			}
			b.wantUnobserved(t, name)
			kit.Pass(time.Minute)
		}
	})
}

// TestEjectionSurvives: an ejected endpoint stays so while it is configured,
// wherever it moves, and is a new one if it was not for a while.
func TestEjectionSurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		update := func(prios ...picker.Priority) { b.Update(configOf(detecting(clusterOf("c", prios...)))) }
		update(prio(eps(1, 2)))
		b.ready(t, 1, 2)
		b.load(t, 40, 1)
		kit.Pass(11 * time.Second)
		wantPick(t, b, 2)
		update(prio(eps(2), eps(1))) // to another locality
		wantPick(t, b, 2)
		update(prio(eps(1)), prio(eps(2))) // to another priority
		wantPick(t, b, 2)
		update(prio(eps(1, 2)))
		cc.conn(t, 1).To(idle) // to another connection
		cc.conn(t, 1).To(ready)
		wantPick(t, b, 2)
		kit.Pass(10 * time.Second) // 21 s
		wantPick(t, b, 2)
		kit.Pass(10 * time.Second) // 31 s
		b.load(t, 20)
		if counts := b.shares(t, 20); counts[1] != 10 {
			t.Errorf("after its time the endpoint gets %d of 20 RPCs, want 10", counts[1])
		}

		b.load(t, 100, 1)
		kit.Pass(10 * time.Second)
		wantPick(t, b, 2)
		update(prio(eps(2)))
		update(prio(eps(1, 2)))
		cc.conn(t, 1).To(ready)
		b.flush()
		if counts := b.shares(t, 20); counts[1] != 10 {
			t.Errorf("an endpoint that was removed and added gets %d of 20 RPCs, want 10", counts[1])
		}
	})
}

// TestCounts: the counts of priorities, which are updated step by step, equal a full count, through
// random updates, states and ejections.
func TestCounts(t *testing.T) {
	steps := 20_000
	if testing.Short() {
		steps = 2000
	}
	synctest.Test(t, func(t *testing.T) {
		const seed = 50
		rng := rand.New(rand.NewPCG(seed, 2026))
		b, cc := newTestLB(t, Config{})
		for step := range steps {
			switch rng.IntN(4) {
			case 0:
				c := clusterOf("c", randomSplit(rng, rng.Perm(12)[:1+rng.IntN(11)])...)
				if rng.IntN(4) > 0 {
					detecting(c)
				}
				b.Update(configOf(c))
			case 1:
				for _, l := range b.live() {
					for e := range l.endpoints {
						if t := e.observers.Load(); t != nil && rng.IntN(2) == 0 {
							for range 10 {
								l.breaker.Acquire(math.MaxUint32)
								e.Begin()
								e.done(balancer.DoneInfo{Err: errors.New("failed")})
							}
						}
					}
				}
			case 2:
				kit.Pass(time.Duration(rng.IntN(20)) * time.Second)
			case 3:
				for n := range 12 {
					switch sc := cc.find(n); {
					case sc == nil: // SubConns are closed in the background
					case rng.IntN(2) == 0:
						for sc.State != ready && sc.Step(true) {
						}
					case rng.IntN(4) == 0:
						for sc.State != failure && sc.Step(false) {
						}
					}
				}
			}
			synctest.Wait()
			b.lock()
			for _, l := range b.live() {
				for i, p := range l.priorities {
					kept := p.counts
					if p.recount(); p.counts != kept {
						t.Errorf("seed %d, step %d: priority %d counts %v, has %v", seed, step, i, kept, p.counts)
					}
				}
			}
			b.unlock()
		}
	})
}

// TestConsecutiveFailures: an endpoint is ejected when the last of some consecutive RPCs has failed,
// before the interval ends, and returns like others. A change of the detectors applies to
// connected endpoints, and each ejection and return is logged.
func TestConsecutiveFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log kit.Logs
		b, _ := newTestLB(t, Config{Logger: slog.New(&log)})
		with := func(failures uint32) *picker.Config {
			c := detecting(clusterOf("c", prio(eps(1, 2, 3))))
			c.Leaves[0].Outlier.FailurePercentage = nil
			c.Leaves[0].Outlier.MaxEjectionPercent = 34
			if failures > 0 {
				c.Leaves[0].Outlier.Consecutive5xx = &picker.Consecutive{Failures: failures, Enforcement: 100}
			}
			return configOf(c)
		}
		b.Update(with(4))
		b.ready(t, 1, 2, 3)
		b.load(t, 9, 1) // three each
		b.load(t, 3)    // and one success
		b.load(t, 9, 1)
		kit.Pass(time.Second)
		if log.With("ejected") != nil {
			t.Fatal("three failures ejected an endpoint")
		}
		b.load(t, 3, 1)
		kit.Pass(time.Second)
		wantPick(t, b, 2, 3)
		if lines := log.With("ejected as an outlier"); len(lines) != 1 || !strings.Contains(lines[0], "endpoint="+addr(1).String()) ||
			!strings.Contains(lines[0], "detector=consecutive_5xx value=4") {
			t.Errorf("logged %q", lines)
		}
		b.load(t, 8, 2) // a third of the endpoints may be ejected, and is; the second is the next
		kit.Pass(time.Second)
		wantPick(t, b, 3)
		b.load(t, 4, 3) // two thirds are ejected
		kit.Pass(time.Second)
		wantPick(t, b, 3)
		kit.Pass(17 * time.Second)
		b.load(t, 9)
		wantPick(t, b, 1, 2, 3)
		if lines := log.With("ejected endpoint returned"); len(lines) != 2 {
			t.Errorf("logged %q, want two returns", lines)
		}

		b.Update(with(2))
		b.load(t, 6, 3)
		kit.Pass(time.Second)
		wantPick(t, b, 1, 2)
		b.Update(with(0))
		wantPick(t, b, 1, 2, 3)
		b.wantUnobserved(t, "without detectors")

		b.Update(with(1))
		b.load(t, 3, 1)
		b.Close() // while the decision is due
		kit.Pass(time.Minute)
	})
}

// TestFailingFast: with consecutive_5xx of 5, at least 99.5 % of RPCs succeed while 3 of 30 servers
// fail at once, although a server that fails fast gets no fewer RPCs than others.
func TestFailingFast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clusterOf("c", prio(eps(series(0, 30)...)))
		c.Leaves[0].Outlier = &picker.OutlierDetection{
			Interval: 10 * time.Second, BaseEjectionTime: 30 * time.Second, MaxEjectionTime: 300 * time.Second, MaxEjectionPercent: 10,
			Consecutive5xx: &picker.Consecutive{Failures: 5, Enforcement: 100},
		}
		b, _ := connected(t, c, series(0, 30)...)
		b.flush()
		const rpcs = 20000
		failed := 0
		for range rpcs {
			b.rpcs(t, 1, func(endpoint int, info *balancer.DoneInfo) {
				if endpoint < 3 {
					info.Err = status.Error(codes.Unavailable, "overloaded")
					failed++
				}
			})
			kit.Pass(6 * time.Millisecond)
		}
		if failed < 15 || failed > rpcs/200 {
			t.Errorf("%d of %d RPCs failed, want 15 to %d", failed, rpcs, rpcs/200)
		}
	})
}
