// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// oracle records the configurations of the control plane, when each took effect, and when each
// backend was reachable, and reports whether the outcome of an RPC or a connection is allowed. It
// does not use the code under test. Its knowledge is of periods: from when something began to be
// possible until it certainly was over. An RPC that overlaps several configurations may be served
// by any of them, but it may fail only if one of them is a reason to.
type oracle struct {
	lag time.Duration // from an ACK until RPCs certainly follow it
	// recovery is how long a backend that is back may wait for the client's next
	// attempt to connect.
	recovery time.Duration

	mu     sync.Mutex
	epochs []*epoch
	first  time.Time           // when a configuration was in effect
	faults map[string][]*fault // by address
	served map[string]int      // RPCs that succeeded, by cluster
	failed int
	wrong  []string
	// ailing has the backends whose health service reports NOT_SERVING, since when.
	ailing  map[string]time.Time
	limited int // attempts whose time was checked
}

// epoch is a configuration: pushed at one time, in effect alone from another on.
type epoch struct {
	plan    *plan
	pushed  time.Time
	settled time.Time // zero while it is not acknowledged
}

// fault is a period in which a backend was dead or could not be reached.
type fault struct{ from, to time.Time } // to is zero until it is over

func newOracle(lag, recovery time.Duration) *oracle {
	return &oracle{lag: lag, recovery: recovery, faults: map[string][]*fault{}, ailing: map[string]time.Time{}, served: map[string]int{}}
}

// push records that a configuration is served from now on.
func (o *oracle) push(p *plan) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.epochs = append(o.epochs, &epoch{plan: p, pushed: time.Now()})
}

// settle records that the latest configuration has been acknowledged.
func (o *oracle) settle() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e := o.epochs[len(o.epochs)-1]; e.settled.IsZero() {
		e.settled = time.Now().Add(o.lag)
		if o.first.IsZero() {
			o.first = e.settled
		}
	}
}

// down and up say that a backend cannot be reached any more, or can be again.
func (o *oracle) down(addr string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.faults[addr] = append(o.faults[addr], &fault{from: time.Now()})
}

func (o *oracle) up(addr string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.faults[addr]
	list[len(list)-1].to = time.Now()
}

// unhealthy records the time since which a backend reports NOT_SERVING; zero ends that.
func (o *oracle) unhealthy(addr string, since time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ailing[addr] = since; since.IsZero() {
		delete(o.ailing, addr)
	}
}

// faulty reports whether a backend could not be reached at some time; mu is held.
func (o *oracle) faulty(addr string, from, to time.Time) bool {
	return slices.ContainsFunc(o.faults[addr], func(f *fault) bool {
		return !f.from.After(to) && (f.to.IsZero() || !f.to.Before(from))
	})
}

// anyFaulty reports whether a backend of a configuration that has RPCs retried could not be
// reached while an RPC was under way; mu is held.
func (o *oracle) anyFaulty(plans []*plan, c outcome) bool {
	for _, p := range plans {
		for _, cluster := range p.clusters {
			if p.retries() && slices.ContainsFunc(cluster.endpoints, func(e placed) bool { return o.faulty(e.addr, c.begin, c.end) }) {
				return true
			}
		}
	}
	return false
}

// possible returns the configurations that may have been in effect at some time;
// mu is held.
func (o *oracle) possible(from, to time.Time) (list []*plan) {
	for _, e := range slices.Backward(o.epochs) {
		if e.pushed.After(to) {
			continue
		}
		list = append(list, e.plan)
		if !e.settled.IsZero() && !e.settled.After(from) {
			break
		}
	}
	return list
}

// outcome is the outcome of an RPC.
type outcome struct {
	who        string
	begin, end time.Time
	peer       string // that it was sent to last, if any
	backend    string // that answered, if any
	header     metadata.MD
	err        error
}

// judge accepts an RPC or records a violation.
func (o *oracle) judge(c outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	plans := o.possible(c.begin, c.end)
	if c.err == nil {
		name := o.clusterOf(c.backend)
		if !routedTo(plans, name) || !slices.ContainsFunc(o.of(name, plans, c), func(p *plan) bool { return p.takes(c.backend) }) {
			o.accuse("%s: an RPC went to %s, but configurations were %v", c.who, c.backend, plans)
		}
		o.served[name]++
		o.judgeHeaders(c, name, plans)
		o.judgeHealth(c, name)
		return
	}
	o.failed++
	if o.first.IsZero() || o.first.After(c.begin) {
		return // there was nothing to succeed by
	}
	if code := status.Code(c.err); code != codes.Unavailable && code != codes.DeadlineExceeded && code != codes.Canceled {
		o.accuse("%s: an RPC failed with %v", c.who, c.err)
		return
	}
	if c.peer != "" && o.faulty(c.peer, c.begin, c.end) {
		return // its backend died under it
	}
	if code := status.Code(c.err); code == codes.DeadlineExceeded && o.anyFaulty(plans, c) {
		return // an earlier attempt may have been kept by that one
	}
	// Routes and endpoints arrive apart, so each may be of any of the plans.
	for _, p := range plans {
		for name := range p.routed {
			for _, q := range o.of(name, plans, c) {
				if !o.good(q.clusters[name], c.begin.Add(-o.recovery), c.end) {
					return // that cluster had no endpoint to send it to
				}
			}
		}
	}
	o.accuse("%s: an RPC that could succeed failed after %v at %q: %v; configurations %v", c.who, c.end.Sub(c.begin), c.peer, c.err, plans)
}

// judgeHeaders checks the headers that a backend received; mu is held. The headers and the authority may
// be of different configurations.
func (o *oracle) judgeHeaders(c outcome, cluster string, plans []*plan) {
	got := func(name string) string { return strings.Join(c.header["echo-"+name], ",") }
	if !slices.ContainsFunc(plans, func(p *plan) bool {
		return got("authority") == p.authority() || p.authority() == "" && strings.HasPrefix(got("authority"), "chaos")
	}) {
		o.accuse("%s: an RPC has the authority %q, but configurations were %v", c.who, got("authority"), plans)
	}
	if !slices.ContainsFunc(plans, func(p *plan) bool {
		if !p.changesHeaders() {
			return got("x-plan") == "" && got("x-cluster") == "" && got("user") != "same"
		}
		return got("x-plan") == fmt.Sprint(p.number) && got("user") == "same" && (strings.HasSuffix(got("x-cluster"), cluster) || len(plans) > 1 && got("x-cluster") != "")
	}) {
		o.accuse("%s: an RPC to cluster %s has the headers %v, but configurations were %v", c.who, cluster, c.header, plans)
	}
}

// judgeHealth checks that a backend that answers is not known to be unhealthy; mu is held.
func (o *oracle) judgeHealth(c outcome, cluster string) {
	since, ailing := o.ailing[c.backend]
	earlier := c.begin.Add(-o.lag)
	if ailing && since.Before(earlier) && !slices.ContainsFunc(o.of(cluster, o.possible(earlier, c.end), c), func(p *plan) bool { return !p.clusters[cluster].checked }) {
		o.accuse("%s: an RPC went to %s, which reports NOT_SERVING since %v", c.who, c.backend, since)
	}
}

// of returns the possible configurations by which an RPC to a cluster may be routed. If no route
// led to the cluster for a while, its last version may be in use until the server has answered the
// new request (T-WATCH-3); mu is held.
func (o *oracle) of(cluster string, plans []*plan, c outcome) []*plan {
	if earlier := o.possible(c.begin.Add(-20*time.Second), c.end); slices.ContainsFunc(earlier, func(p *plan) bool { return p.routed[cluster] == 0 }) {
		return earlier
	}
	return plans
}

// clusterOf returns the cluster that a backend is in, or was; mu is held.
func (o *oracle) clusterOf(addr string) string {
	for _, e := range o.epochs {
		if name := e.plan.clusterOf(addr); name != "" {
			return name
		}
	}
	return ""
}

func routedTo(plans []*plan, cluster string) bool {
	return slices.ContainsFunc(plans, func(p *plan) bool { return p.routed[cluster] > 0 })
}

// good reports whether a cluster had an endpoint that could be reached all the
// time, in a priority that counts as failed only if all of it has. That of ring hash
// does so with the second failure already (A42); mu is held.
func (o *oracle) good(c *clusterPlan, from, to time.Time) bool {
	var alive, failed [2]int
	for _, e := range c.endpoints {
		switch {
		case e.draining:
		case o.faulty(e.addr, from, to):
			failed[e.priority]++
		default:
			alive[e.priority]++
		}
	}
	for p := range alive {
		if alive[p] > 0 && (c.policy != ringHash || failed[p] < 2) {
			return true
		}
	}
	return false
}

// ended is called when a channel closed a healthy connection, which it may do only if the endpoint
// was removed meanwhile.
func (o *oracle) ended(who, addr string, opened time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := time.Now(); !o.faulty(addr, opened.Add(-o.recovery), now) && o.kept(addr, opened, now) {
		o.accuse("%s closed its connection to %s, which stayed configured", who, addr)
	}
}

// opened is called when a channel connects to an address that it has connections to.
func (o *oracle) opened(who, addr string, others int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if long := now.Add(-time.Minute); others > 0 && !o.faulty(addr, long, now) && o.kept(addr, long, now) {
		o.accuse("%s has %d connections to %s and opens another", who, others, addr)
	}
}

// kept reports whether an address was configured all the time; mu is held.
func (o *oracle) kept(addr string, from, to time.Time) bool {
	return !slices.ContainsFunc(o.possible(from, to), func(p *plan) bool {
		return p.routed[p.clusterOf(addr)] == 0
	})
}

// accuse records a violation; mu is held.
func (o *oracle) accuse(format string, args ...any) {
	if len(o.wrong) < 10 {
		o.wrong = append(o.wrong, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
	}
}

// violations returns the violations so far, and clears them.
func (o *oracle) violations() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.wrong
	o.wrong = nil
	return list
}

// counts returns how many RPCs succeeded, by cluster, and failed.
func (o *oracle) counts() (served map[string]int, failed int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.served, o.failed
}
