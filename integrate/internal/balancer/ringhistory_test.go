// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/ringhash"
)

// ringModel is a slow model of a cluster whose policy is ring_hash, by the rules of A42, A61 and
// T-RING-7: the states of the endpoints, and how often each was asked to connect.
type ringModel struct {
	numbers  []int
	draining map[int]bool
	state    map[int]connectivity.State // absent is IDLE without a SubConn
	connects map[int]int                // of the SubConn that there is
}

// hosts returns the hosts of the ring, in order.
func (m *ringModel) hosts() (list []int) {
	for _, n := range m.numbers {
		if !m.draining[n] {
			list = append(list, n)
		}
	}
	return list
}

// in returns the state of an endpoint.
func (m *ringModel) in(n int) connectivity.State {
	if s, ok := m.state[n]; ok {
		return s
	}
	return idle
}

// walk returns the first endpoint from a hash on that has not failed, and -1 if there is none.
func (m *ringModel) walk(t testing.TB, hash uint64) int {
	var hosts []ringhash.Host
	for _, n := range m.numbers {
		h := ringhash.Host{Key: addr(n).String(), Weight: 1}
		if m.draining[n] {
			h.Weight = 0
		}
		hosts = append(hosts, h)
	}
	if len(m.hosts()) == 0 {
		return -1
	}
	r, err := ringhash.New(hosts, 1024, 4096, ringhash.XXH3)
	kit.Must(t, err)
	for i := range r.Walk(hash) {
		if n := m.numbers[i]; m.in(n) != failure {
			return n
		}
	}
	return -1
}

// aggregate is the state of the cluster, and whether an IDLE endpoint has to be woken.
func (m *ringModel) aggregate() (s connectivity.State, wake bool) {
	count := map[connectivity.State]int{}
	for _, n := range m.hosts() {
		count[m.in(n)]++
	}
	switch {
	case count[ready] > 0:
		return ready, false
	case count[failure] >= 2:
		s = failure
	case count[connecting] > 0:
		s = connecting
	case count[failure] == 1 && len(m.hosts()) > 1:
		s = connecting
	case count[idle] > 0:
		return idle, false
	default:
		s = failure
	}
	return s, count[connecting] == 0 && count[idle] > 0
}

// connect is the outcome of a request to connect to an endpoint.
func (m *ringModel) connect(n int) {
	m.connects[n]++
	if m.in(n) != failure { // which it stays in until it is READY (A61)
		m.state[n] = connecting
	}
}

// forget ends the SubConn of an endpoint.
func (m *ringModel) forget(n int) {
	delete(m.state, n)
	delete(m.connects, n)
}

// observe is a state that gRPC reports.
func (m *ringModel) observe(n int, s connectivity.State) {
	switch {
	case s == ready || s == failure && !m.draining[n]:
		m.state[n] = s
	case m.draining[n]:
		m.forget(n) // there is to be no new connection
	case s == idle && m.in(n) == failure:
		m.connect(n) // its back-off is over
	case s == idle:
		m.state[n] = idle
	}
}

// ringTrial drives a balancer and the model through the same history.
type ringTrial struct {
	*kit.Trial
	*ringModel
	*testLB
	cc  *fakeCC
	raw map[int]connectivity.State // that gRPC reported last
}

// update sends other endpoints, some of which drain.
func (tr *ringTrial) update() {
	tr.numbers = tr.Rand.Perm(7)[:1+tr.Rand.IntN(7)]
	list := eps(tr.numbers...)
	for i, n := range tr.numbers {
		drains := tr.Rand.IntN(6) == 0
		if drains && tr.in(n) != ready {
			tr.forget(n)
		}
		tr.draining[n] = drains
		if drains {
			list[i].Health = picker.Draining
		}
	}
	for n := range 7 {
		if !slices.Contains(tr.numbers, n) {
			tr.forget(n)
			tr.draining[n] = false
		}
	}
	tr.Update(configOf(ring(clusterOf("c", prio(list)))))
}

// report has gRPC report a state that may follow the latest one.
func (tr *ringTrial) report() {
	n := tr.Rand.IntN(7)
	if !tr.cc.has(n) {
		return
	}
	next := map[connectivity.State][]connectivity.State{
		connecting: {ready, ready, failure},
		ready:      {idle},
		failure:    {idle},
	}[tr.raw[n]]
	if next == nil {
		return
	}
	s := next[tr.Rand.IntN(len(next))]
	tr.raw[n] = s
	tr.cc.conn(tr, n).To(s)
	tr.observe(n, s)
}

// rpc makes an RPC, and checks its pick.
func (tr *ringTrial) rpc() {
	hash := tr.Rand.Uint64()
	n := tr.walk(tr, hash)
	got, err := tr.pickHash(hash)
	waits := errors.Is(err, balancer.ErrNoSubConnAvailable)
	switch {
	case n < 0:
		if err == nil || waits {
			tr.Fatalf("Pick = %q, %v with all endpoints failed", got, err)
		}
	case tr.in(n) == ready:
		if got != addr(n).String() {
			tr.Fatalf("Pick = %q, %v, want endpoint %d", got, err, n)
		}
	case !waits:
		tr.Fatalf("Pick = %q, %v, want to wait for endpoint %d", got, err, n)
	case tr.in(n) == idle:
		tr.connect(n)
	}
}

// settle lets the balancer come to rest, and compares it with the model.
func (tr *ringTrial) settle() {
	synctest.Wait()
	tr.flush()
	synctest.Wait()
	_, wake := tr.aggregate()
	var woken []int
	for n := range 7 {
		made := 0
		if tr.cc.has(n) {
			made = tr.cc.conn(tr, n).Connects
		}
		if made == tr.connects[n]+1 && tr.in(n) == idle && wake {
			woken = append(woken, n)
			tr.connect(n)
		} else if made != tr.connects[n] {
			tr.Fatalf("endpoint %d was asked to connect %d times, want %d; %v, draining %v", n, made, tr.connects[n], tr.state, tr.draining)
		}
		switch {
		case !tr.cc.has(n):
			delete(tr.raw, n)
		case tr.raw[n] == idle && tr.in(n) != idle, tr.in(n) == connecting:
			tr.raw[n] = connecting
		}
	}
	if wake != (len(woken) == 1) {
		tr.Fatalf("endpoints %v were woken, want one: %t; %v", woken, wake, tr.state)
	}
	if state, _ := tr.aggregate(); tr.cc.Now.ConnectivityState != state {
		tr.Fatalf("the channel is %v, want %v; %v, draining %v", tr.cc.Now.ConnectivityState, state, tr.state, tr.draining)
	}
}

// TestLazyRingHistories: after any sequence of connections, RPCs and updates, each RPC is sent to
// the endpoint that a walk round the ring finds, endpoints are asked to connect as often as the
// rules require and no more, and the channel has the resulting state (A42, A61, T-RING-7).
func TestLazyRingHistories(t *testing.T) {
	runs := 150
	if testing.Short() {
		runs = 30
	}
	m := kit.Model{Steps: 150, Run: func(k *kit.Trial) {
		b, cc := newTestLB(k, Config{})
		tr := &ringTrial{
			Trial:     k,
			ringModel: &ringModel{draining: map[int]bool{}, state: map[int]connectivity.State{}, connects: map[int]int{}},
			testLB:    b, cc: cc, raw: map[int]connectivity.State{},
		}
		tr.update()
		tr.settle()
		for range k.Steps() {
			switch k.Rand.IntN(12) {
			case 0:
				tr.update()
			case 1, 2, 3, 4:
				tr.rpc()
			default:
				tr.report()
			}
			tr.settle()
		}
	}}
	m.Test(t, runs)
}
