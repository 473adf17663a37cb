// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A Fleet is a set of clients and servers, with events.
type Fleet struct {
	Name  string
	About string

	Clients, Servers int
	Workers          int // of each server
	QueueLimit       int // of each server, in addition to its workers; 0 means no limit
	Zones            int // servers are distributed over zones; 0 means one zone
	// ClientZones are the fractions of the clients in the servers' zones; nil means that
	// clients have no zones.
	ClientZones []float64

	Methods []Method
	Need    Distribution // needs of RPCs relative to their method's mean
	// Load is the offered load as a fraction of the fleet's capacity while Shape is 1.
	Load float64
	// Shape, if not nil, is the rate of RPCs over time, where 1 means Load.
	Shape func(at time.Duration) float64
	// Speed, if not nil, is the speed of a server that is known to its operator, where 1 is the
	// speed assumed by Methods.
	Speed func(server int) float64
	// Stalls is the fraction of the attempts that hang for StallFor before their server accepts
	// them.
	Stalls   float64
	StallFor time.Duration
	// FailAfter is the time after which failing servers return an error.
	FailAfter time.Duration
	// Stubborn servers also work on RPCs that the client has given up, including queued ones.
	Stubborn bool
	// Keys is the number of keys of RPCs that servers cache; 0 means no caches.
	Keys int
	// Joins means that the control plane does not have the last server before it starts.
	Joins bool
	// Timeout is the timeout of RPCs; 0 means no timeout. The latency of a failed RPC is the timeout,
	// so that failing fast is not an advantage.
	Timeout time.Duration
	// Again is the number of times that applications repeat failed RPCs with new ones.
	Again int

	Warm, Run time.Duration // before the score starts, and after

	// Script, if not nil, draws the events.
	Script func(f *Fleet, rng *rand.Rand) []Event
	// Bad are the servers whose share is reported, between BadFrom and BadTo, or during the
	// run after Warm if both are 0. BadBears is the fraction of the RPCs that they can handle.
	Bad            []int
	BadFrom, BadTo time.Duration
	BadBears       float64
	// ChannelsOnly means that the fleet needs channels: servers stop, RPCs are retried, or
	// streams stay open.
	ChannelsOnly bool
	// Repeats means that RPCs may be sent more than once, which is reported.
	Repeats bool
	// Only, if not nil, names the rows that run; nil means all.
	Only []string
}

// An Event is a change of servers.
type Event struct {
	At    time.Duration
	Label string // empty for minor events
	do    func(m *machines)
}

// machines are the targets of events.
type machines struct {
	servers []*Server
	// stop ends a server's process and its connections: immediately, or after it has notified
	// its clients and finished its RPCs. start starts it.
	stop  func(server int, gracefully bool)
	start func(server int)
}

func speedAt(at time.Duration, label string, server int, factor float64) Event {
	return Event{at, label, func(m *machines) {
		s := m.servers[server]
		s.setSpeed(s.Nominal * factor)
	}}
}

func failAt(at time.Duration, label string, server int, failing bool) Event {
	return Event{at, label, func(m *machines) { m.servers[server].setFailing(failing) }}
}

func stopAt(at time.Duration, label string, server int, gracefully bool) Event {
	return Event{at, label, func(m *machines) { m.stop(server, gracefully) }}
}

// startAt starts a server, optionally with a cold cache.
func startAt(at time.Duration, label string, server int, cold bool) Event {
	return Event{at, label, func(m *machines) {
		if cold {
			m.servers[server].chill()
		}
		m.start(server)
	}}
}

// usual returns the default fleet of the calibration, on which other fleets are based.
func usual(name, about string) Fleet {
	return Fleet{
		Name: name, About: about,
		Clients: 100, Servers: 30, Workers: 1,
		Methods: []Method{{Share: 1, Mean: 10 * time.Millisecond}}, Need: Exponential, Load: .8,
		Warm: 5 * time.Second, Run: 15 * time.Second,
	}
}

// smaller is a fleet of 60 clients and 12 servers, in which a pair has about one RPC a second,
// as in the usual one. It runs for longer, and has a timeout.
func smaller(name string, load float64, about string) Fleet {
	return usual(name, about).with(func(f *Fleet) {
		f.Clients, f.Servers, f.Load = 60, 12, load
		f.Run, f.Timeout = 30*time.Second, 2*time.Second
	})
}

// with returns a modified copy of a fleet.
func (f Fleet) with(change func(f *Fleet)) Fleet {
	change(&f)
	return f
}

// slowed slows down the first n servers by a factor from the start, unknown to the operator.
// The rate remains the same fraction of the remaining capacity.
func slowed(n int, by float64) func(f *Fleet) {
	var list []int
	for i := range n {
		list = append(list, i)
	}
	return slowedServers(by, list...)
}

func slowedServers(by float64, list ...int) func(f *Fleet) {
	return func(f *Fleet) {
		whole, n := float64(f.Servers), float64(len(list))
		left := whole - n*(1-1/by)
		f.Load *= left / whole
		f.Bad, f.BadBears = list, n/by/left
		f.Script = func(*Fleet, *rand.Rand) (events []Event) {
			for _, i := range list {
				events = append(events, speedAt(0, "", i, 1/by))
			}
			return events
		}
	}
}

// The fleets of the calibration, which the sketch of a simulation used before there were
// channels.
const (
	homogeneous = "homogeneous"
	threeSlow   = "3 of 30 slow"
	fewClients  = "5 clients"
	fewAndSlow  = "5 clients, 3 slow"
	generations = "three generations" // the one with weights

	oneFailsFast   = "one fails fast"
	rollingRestart = "rolling restart"
)

// Calibration returns the fleets whose figures are known (Known), with runs of a minute for
// kernels. The published runs, for channels and kernels, are shorter.
func Calibration() []Fleet {
	list := calibrated()
	for i := range list {
		list[i].Warm, list[i].Run = 10*time.Second, time.Minute
	}
	return list
}

func calibrated() []Fleet {
	return []Fleet{
		usual(homogeneous, "all servers are the same, 80 % load"),
		usual(threeSlow, "three servers are four times slower, which nobody knows").with(slowed(3, 4)),
		usual(fewClients, "all servers are the same, 80 % load, from 5 clients").with(func(f *Fleet) { f.Clients = 5 }),
		usual(fewAndSlow, "5 clients, and three servers are four times slower").with(func(f *Fleet) { f.Clients = 5 }).with(slowed(3, 4)),
	}
}

// Fleets returns the published fleets.
func Fleets() []Fleet {
	return slices.Concat(calibrated(), calm(), zoned(), streamed(), stormy(), compared(), retried(), combined())
}

// LoopbackFleet is small enough to run in real time, with all policies at once, on a small
// machine. It also runs with channels in virtual time.
func LoopbackFleet() Fleet {
	return smaller("loopback", .45, "5 clients, 20 servers, two of which are two times slower, 40 ms; 45 % load").with(func(f *Fleet) {
		f.Clients, f.Servers, f.Run = 5, 20, 40*time.Second
		f.Methods = []Method{{Share: 1, Mean: 40 * time.Millisecond}}
	}).with(slowed(2, 2))
}

// calm returns fleets without events.
func calm() []Fleet {
	const s = time.Second
	return []Fleet{
		smaller(generations, .8, "servers of speeds 0.5, 1 and 1.5, which the operator knows").with(func(f *Fleet) {
			f.Speed = func(i int) float64 { return .5 + .5*float64(i%3) }
		}),
		smaller("8 workers", .8, "servers have eight workers, and RPCs take eight times as long").with(func(f *Fleet) {
			f.Workers, f.Methods = 8, []Method{{Share: 1, Mean: 80 * time.Millisecond}}
		}),
		smaller("fixed cost", .8, "all RPCs need 10 ms").with(func(f *Fleet) { f.Need = Fixed }),
		smaller("heavy tail", .6, "what RPCs need is of a Pareto distribution with α = 1.8; 60 % load").with(func(f *Fleet) { f.Need = Pareto(1.8) }),
		smaller("two methods", .7, "nine of ten RPCs need 2 ms, one needs 82 ms; 70 % load").with(func(f *Fleet) {
			f.Methods = []Method{{Share: .9, Mean: 2 * time.Millisecond}, {Share: .1, Mean: 82 * time.Millisecond}}
			f.Need = Fixed
		}),
		smaller("bursts", 1, "twice the capacity for 200 ms in each 2 s, 50 % load between").with(func(f *Fleet) {
			f.Shape = bursts(2*s, 200*time.Millisecond, .5, 2)
		}),
		smaller("a day", 1, "load from 20 to 95 % and back").with(func(f *Fleet) { f.Shape = day(f.Run, .2, .95) }),
		smaller("overload", 1.3, "130 % load; servers queue 20 RPCs at most").with(func(f *Fleet) { f.QueueLimit = 20 }),
	}
}

// stormy returns fleets with events.
func stormy() []Fleet {
	const s = time.Second
	return []Fleet{
		smaller(oneFailsFast, .7, "one server refuses everything at once for 20 s; 70 % load").with(func(f *Fleet) {
			f.Bad, f.BadFrom, f.BadTo = []int{0}, 15*s, 35*s
			f.Script = func(*Fleet, *rand.Rand) []Event {
				return []Event{failAt(15*s, "fails", 0, true), failAt(35*s, "recovers", 0, false)}
			}
		}),
		smaller("one stalls", .7, "one server stands still for 10 s; 70 % load").with(func(f *Fleet) {
			f.Bad, f.BadFrom, f.BadTo = []int{0}, 15*s, 25*s
			f.Script = func(*Fleet, *rand.Rand) []Event {
				return []Event{speedAt(15*s, "stalls", 0, 0), speedAt(25*s, "goes on", 0, 1)}
			}
		}),
		smaller("antagonists", .7, "two servers have half their CPU taken for 5 s, then two others; 70 % load").with(func(f *Fleet) {
			f.Script = antagonists(2, 5*s)
		}),
		smaller("cold caches", .6, "every 5 s two servers lose their caches; 60 % load").with(func(f *Fleet) {
			f.Script = func(f *Fleet, rng *rand.Rand) []Event {
				var list []Event
				for k, i := range rng.Perm(f.Servers) {
					at := f.Warm + time.Duration(k/2)*5*s
					list = append(list, Event{at, "", func(m *machines) { m.servers[i].chill() }})
				}
				return list
			}
		}),
		smaller(rollingRestart, .6, "every 2.4 s a server drains, and comes back 2 s later with a cold cache; 60 % load").with(restarts(true)),
		smaller("a zone lost", .55, "a third of the servers is gone for 10 s; 55 % load").with(func(f *Fleet) {
			f.Zones, f.ChannelsOnly = 3, true
			for i := 0; i < f.Servers; i += 3 {
				f.Bad = append(f.Bad, i)
			}
			f.BadFrom, f.BadTo = 20*s, 30*s
			f.Script = func(f *Fleet, _ *rand.Rand) []Event {
				list := []Event{{20 * s, "zone lost", func(*machines) {}}, {30 * s, "zone back", func(*machines) {}}}
				for _, i := range f.Bad {
					list = append(list, stopAt(20*s, "", i, false), startAt(30*s, "", i, false))
				}
				return list
			}
		}),
	}
}

// compared returns variants of stormy fleets with fewer or no events. They show the effect of
// the events on a policy, and the part of it that no policy can avoid.
func compared() []Fleet {
	only := []string{"ours prequal", "ours prequal, synchronous"}
	list := []Fleet{
		smaller("calm at 60 %", .6, "the fleet of *rolling restart*, to which nothing happens"),
		smaller("calm at 70 %", .7, "the fleet of *antagonists*, to which nothing happens"),
		smaller("warm restart", .6, "*rolling restart* where caches stay warm").with(restarts(false)),
	}
	for i := range list {
		list[i].Only, list[i].ChannelsOnly = only, true // kernels do not probe
	}
	return list
}

// restarts drains and restarts one server after the other, each once.
func restarts(cold bool) func(f *Fleet) {
	return func(f *Fleet) {
		f.ChannelsOnly = true
		f.Script = func(f *Fleet, rng *rand.Rand) []Event {
			var list []Event
			for k, i := range rng.Perm(f.Servers) {
				at := f.Warm + time.Duration(k)*2400*time.Millisecond
				list = append(list, stopAt(at, "", i, true), startAt(at+2*time.Second, "", i, cold))
			}
			return list
		}
	}
}

// antagonists take half of the CPU of n random servers for d, and then, within a second, of
// other servers.
func antagonists(n int, d time.Duration) func(f *Fleet, rng *rand.Rand) []Event {
	return func(f *Fleet, rng *rand.Rand) []Event {
		var list []Event
		for at := time.Duration(0); at < f.end(); at += d + time.Second {
			for _, i := range rng.Perm(f.Servers)[:n] {
				from := at + time.Duration(rng.Int64N(int64(time.Second)))
				list = append(list, speedAt(from, "", i, .5), speedAt(from+d, "", i, 1))
			}
		}
		return list
	}
}

// check returns an error if a fleet is invalid.
func (f *Fleet) check() error {
	switch {
	case f.Clients < 1 || f.Servers < 1 || f.Workers < 1:
		return fmt.Errorf("arena: fleet %q: there must be clients, servers and workers", f.Name)
	case len(f.Methods) == 0 || f.Need == nil || f.mean() <= 0:
		return fmt.Errorf("arena: fleet %q: nothing says what RPCs need", f.Name)
	case f.Load <= 0 || f.Run <= 0:
		return fmt.Errorf("arena: fleet %q: there must be load, and time", f.Name)
	case f.Timeout == 0 && slices.ContainsFunc(f.Methods, func(m Method) bool { return m.Open > 0 }):
		return fmt.Errorf("arena: fleet %q: streams need a timeout", f.Name)
	case f.Warm%slot != 0 || f.Run%slot != 0 || f.BadFrom%slot != 0 || f.BadTo%slot != 0:
		return fmt.Errorf("arena: fleet %q: times must be multiples of %v", f.Name, slot)
	}
	return nil
}
