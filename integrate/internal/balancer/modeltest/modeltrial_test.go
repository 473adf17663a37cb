// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"math/rand/v2"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	lb "github.com/xdslb/xdslb/integrate/internal/balancer"
)

// trial is one history under way: the control plane, gRPC's side, the balancer
// between them, and the RPCs.
type trial struct {
	*kit.Trial
	plane   *plane
	grpc    *modelChannel
	lb      *lb.Balancer
	source  resolver.Resolver
	servers *loadServers
	options integrate.Config
	creds   credentials.TransportCredentials // of the channel; nil does not use xDS, as far as one can see

	rpcs      int      // made so far
	ends      []func() // of their contexts
	sleepers  []*modelRPC
	holding   []*modelRPC // have picked, and use it after the next step
	inFlight  []*modelRPC
	counts    map[account]int
	loads     map[account]*loads // of RPCs that have ended, as they are to be reported
	lossy     map[string]bool    // CDS clusters whose reports cannot be complete
	published []*lb.PublishedCluster
	sky       sky
	drained   map[*modelConn]int // connects of SubConns when their endpoint was found draining
	hosts     map[int]*modelHost
	updating  bool // picks may use an earlier configuration than the latest

	before struct{ breakers, policies int } // of other histories, which went wrong
}

// randomOptions draws the options of the channel. Intervals of A56 that many trials
// reach the end of find more than those of 15 minutes do.
func randomOptions(rng *rand.Rand) integrate.Config {
	var o integrate.Config
	if rng.IntN(16) > 0 {
		o.FailoverTimeout, o.RetireAfter = 3*time.Second, []time.Duration{10 * time.Second, 30 * time.Second}[rng.IntN(2)]
	}
	if rng.IntN(4) == 0 {
		o.HealthCheckService = "s"
	}
	o.Idempotent = func(string) bool { return true }
	o.ReconnectOnTLSChange = rng.IntN(4) > 0
	return o
}

func newTrial(k *kit.Trial) *trial {
	rng := k.Rand
	t := &trial{
		Trial: k, plane: newPlane(rng), options: randomOptions(rng),
		servers: &loadServers{sums: map[account]*loads{}},
		counts:  map[account]int{}, loads: map[account]*loads{}, lossy: map[string]bool{}, drained: map[*modelConn]int{}, hosts: map[int]*modelHost{},
	}
	t.plane.detectConsecutive(rand.New(rand.NewPCG(k.Seed, 2)))
	if rng.IntN(2) == 0 {
		t.creds = modelCredentials()
	}
	t.before.breakers, t.before.policies = breakersInUse(), int(livePolicies.Load())
	t.start()
	t.sayPlane()
	return t
}

func (t *trial) sayPlane() {
	for _, c := range t.plane.clusters {
		for _, l := range c.leaves {
			t.Logf("    %v", l)
		}
	}
}

// start is a channel that leaves idle mode: another balancer, and the first
// configuration.
func (t *trial) start() {
	t.grpc = &modelChannel{backends: newModelHealth(), settings: func(number int) int { return t.leafOf(number).sentTLS }, shake: t.handshake}
	t.lb, t.source = newModelBalancer(t.grpc, t.options, t.creds, t.servers.intercept)
	t.grpc.called = t.lookFrom(t.lb)
	b := t.lb
	t.sky.plans = func() bool { return b.Table().Plans != nil }
	t.push()
}

// stop is a channel that goes idle, or is closed.
func (t *trial) stop() {
	t.sky.cancel()
	t.lb.Close()
	t.source.Close()
}

// lend marks the SubConns whose policy in force has children.
func (t *trial) lend() {
	for _, conn := range t.grpc.open() {
		conn.lent = conn.lent || delegates(&t.leafOf(conn.number).sent)
	}
}

// push sends the configuration.
func (t *trial) push() {
	t.lend()
	cfg := t.plane.config()
	t.lb.Update(cfg)
	t.lend()
	for _, c := range t.plane.clusters {
		for _, l := range c.leaves {
			t.lossy[l.name] = t.lossy[l.name] || l.moved
		}
	}
}

// rest lets everything settle that does not wait for a timer of some length: what
// gRPC says soon, and what the balancer has yet to publish.
func (t *trial) rest() {
	for {
		synctest.Wait()
		switch {
		case t.grpc.deliver():
		case t.lb.IsPending():
			kit.Pass(2 * lb.PublishPause)
		case t.control():
		default:
			return
		}
	}
}

// loseReports notes that the RPCs in flight are not reported by those who began.
func (t *trial) loseReports() {
	for a, n := range t.counts {
		if n > 0 {
			t.lossy[a.cluster] = true
		}
	}
}

// clusterNamed and leafOf find what a name or a number belongs to.
func (t *trial) clusterNamed(name string) *planeCluster {
	for _, c := range t.plane.clusters {
		if c.name == name {
			return c
		}
	}
	return nil
}

// leafOf returns the leaf whose endpoints have numbers such as this one, whether or
// not the configuration has the endpoint.
func (t *trial) leafOf(number int) *planeLeaf {
	for _, c := range t.plane.clusters {
		for _, l := range c.leaves {
			if k := number - l.first; k >= 0 && k < leafStride {
				return l
			}
		}
	}
	return nil
}
