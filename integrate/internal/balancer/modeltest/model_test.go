// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"math/rand/v2"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	lb "github.com/xdslb/xdslb/integrate/internal/balancer"
)

// The random model runs histories of a balancer between a simulated control plane and a simulated
// gRPC. Package kit runs and shrinks them. The files are
//
//	model_test.go        TestModel, and the history under way
//	ops_test.go          the events of a history, alone and combined
//	plane_test.go        the configuration, how it changes at random, and look-ups in it
//	policies_test.go     random LB policies, and custom policies, correct and faulty ones
//	channel_test.go      gRPC's side of the balancer, with SubConns that follow gRPC's rules
//	balancer_test.go     the balancer and its resolver, as gRPC builds them, and channels that the
//	                     roll-out variables give to grpc-go's resolver
//	rpc_test.go          an RPC from its first pick to its end, and the load reports
//	intercepted_test.go  RPCs sent through the interceptors
//	routes_test.go       RPCs by routes that change while RPCs are bound, and header mutations
//	failures_test.go     retries and their budgets, and ejections by consecutive failures
//	health_test.go       the health services of backends (A17)
//	names_test.go        hostnames: authorities (A81, A111) and TLS handshakes (A101)
//	sessions_test.go     session affinity (A55)
//	status_test.go       Status, WaitReady and Explain, compared with the model
//	checks_test.go       the checks after every step
//	end_test.go          the checks at the end, once every connection attempt succeeds
//	priorities_test.go   an oracle of gRFC A56's priority policy

// TestModel is the random model of everything: see ops and plane.mutate for what
// happens in it, and audit, converge and finish for what a balancer promises.
func TestModel(t *testing.T) {
	runs := 500
	if testing.Short() {
		runs = 100
	}
	// Picks draw at random, and goroutines of custom policies take turns in any order.
	m := kit.Model{Steps: 60, Retries: 4, Kind: kindOf, Run: func(k *kit.Trial) {
		t := newTrial(k)
		defer func() {
			t.stop()
			kit.Pass(time.Minute) // for those who finish in their own time
		}()
		t.audit()
		for range t.Steps() {
			t.step()
		}
		t.converge()
		t.finish()
	}}
	m.Test(t, runs)
}

// kindOf returns what failures of the same kind have in common: all but the numbers and
// the states of SubConns.
func kindOf(failure string) string { return details.ReplaceAllString(failure, "") }

var details = regexp.MustCompile(`(?s)\d|to [ab]|"[ab]\d?\.\d+"|\([A-Z].*?\)|map\[.*?\]|\n.*`)

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
