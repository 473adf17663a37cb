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
//	rpc_test.go          an RPC from its first pick to its end, the load reports, and session
//	                     affinity (A55)
//	intercepted_test.go  RPCs sent through the interceptors
//	routes_test.go       RPCs by routes that change while RPCs are bound, and header mutations
//	failures_test.go     retries and their budgets, and ejections by consecutive failures
//	pushback_test.go     servers that push back (A6)
//	health_test.go       the health services of backends (A17)
//	names_test.go        hostnames: authorities (A81, A111) and TLS handshakes (A101)
//	status_test.go       Status, WaitReady and Explain, compared with the model
//	checks_test.go       the checks after every step
//	end_test.go          the checks at the end, once every connection attempt succeeds
//	priorities_test.go   an oracle of gRFC A56's priority policy

// TestModel runs the random model: ops and controlPlane.mutate are the events, and checkAll,
// checkConverged and closeAndCheck the checks.
func TestModel(t *testing.T) {
	runs := 500
	if testing.Short() {
		runs = 100
	}
	// Picks draw at random, and goroutines of custom policies take turns in any order.
	m := kit.Model{Steps: 60, Retries: 4, Kind: kindOf, Run: func(k *kit.Trial) {
		t := newHistory(k)
		defer func() {
			t.stop()
			kit.Pass(time.Minute) // for goroutines that end later
		}()
		t.checkAll()
		for range t.Steps() {
			t.step()
		}
		t.checkConverged()
		t.closeAndCheck()
	}}
	m.Test(t, runs)
}

// kindOf returns the text that failures of the same kind share, without numbers and states of
// SubConns.
func kindOf(failure string) string { return details.ReplaceAllString(failure, "") }

var details = regexp.MustCompile(`(?s)\d|to [ab]|"[ab]\d?\.\d+"|\([A-Z].*?\)|map\[.*?\]|\n.*`)

// history is a running history: the control plane, gRPC's side, the balancer between them, and the
// RPCs.
type history struct {
	*kit.Trial
	controlPlane *controlPlane
	grpc         *modelChannel
	backends     *modelHealth
	lb           *lb.Balancer
	source       resolver.Resolver
	servers      *loadServers
	options      integrate.Config
	creds        credentials.TransportCredentials // of the channel; nil if the balancer cannot see xDS credentials

	rpcs       int      // made so far
	ends       []func() // of their contexts
	waiting    []*modelRPC
	holding    []*modelRPC // have picked, and use the connection after the next step
	inFlight   []*modelRPC
	counts     map[account]int
	loads      map[account]*loads // expected reports of RPCs that have ended
	incomplete map[string]bool    // CDS clusters whose reports cannot be complete
	published  []*lb.PublishedCluster
	tracker    tracker
	drained    map[*modelConn]int // modelConn.Connects when the endpoint began to drain
	hosts      map[int]*modelHost
	updating   bool // picks may use an earlier configuration than the latest

	before struct{ breakers, policies int } // left by other histories that failed
}

// randomOptions draws the options of the channel. Most histories have short intervals of A56, so
// that timers fire often.
func randomOptions(rng *rand.Rand) integrate.Config {
	var o integrate.Config
	if rng.IntN(16) > 0 {
		o.FailoverTimeout, o.RetireAfter = 3*time.Second, []time.Duration{10 * time.Second, 30 * time.Second}[rng.IntN(2)]
	}
	if rng.IntN(4) == 0 {
		o.HealthCheckService = "s"
	}
	o.Idempotent = func(string) bool { return true }
	return o
}

func newHistory(k *kit.Trial) *history {
	rng := k.Rand
	t := &history{
		Trial: k, controlPlane: newControlPlane(rng), options: randomOptions(rng),
		servers: &loadServers{sums: map[account]*loads{}},
		counts:  map[account]int{}, loads: map[account]*loads{}, incomplete: map[string]bool{}, drained: map[*modelConn]int{}, hosts: map[int]*modelHost{},
	}
	t.controlPlane.detectConsecutive(rand.New(rand.NewPCG(k.Seed, 2)))
	if rng.IntN(2) == 0 {
		t.creds = modelCredentials()
	}
	t.before.breakers, t.before.policies = breakersInUse(), int(livePolicies.Load())
	t.start()
	t.logClusters()
	return t
}

func (t *history) logClusters() {
	for _, c := range t.controlPlane.clusters {
		for _, l := range c.leaves {
			t.Logf("    %v", l)
		}
	}
}

// start is a channel that leaves idle mode: a new balancer, and the first configuration.
func (t *history) start() {
	t.grpc = t.newChannel()
	t.lb, t.source = newModelBalancer(t.grpc, t.options, t.creds, t.servers.intercept)
	t.grpc.OnCall = t.queryFrom(t.lb)
	b := t.lb
	t.tracker.plans = func() bool { return b.Table().Plans != nil }
	t.push()
}

// stop is a channel that enters idle mode, or is closed.
func (t *history) stop() {
	t.tracker.cancel()
	t.lb.Close()
	t.source.Close()
}

// markDelegated marks the SubConns of policies with child balancers.
func (t *history) markDelegated() {
	for _, conn := range t.grpc.Open() {
		conn.Data.delegated = conn.Data.delegated || delegates(&t.leafOf(conn.Data.number).sent)
	}
}

// push sends the configuration.
func (t *history) push() {
	t.markDelegated()
	cfg := t.controlPlane.config()
	t.lb.Update(cfg)
	t.markDelegated()
	for _, c := range t.controlPlane.clusters {
		for _, l := range c.leaves {
			t.incomplete[l.name] = t.incomplete[l.name] || l.moved
		}
	}
}

// drainEvents waits until there is no work left except timers: calls that gRPC makes soon, and
// updates that the balancer has yet to publish.
func (t *history) drainEvents() {
	for {
		synctest.Wait()
		switch {
		case t.grpc.Deliver():
		case t.lb.IsPending():
			kit.Pass(2 * lb.PublishPause)
		case t.handleEvents():
		default:
			return
		}
	}
}

// markIncomplete records that the load of the RPCs in flight will not be reported, since the
// reporter changes.
func (t *history) markIncomplete() {
	for a, n := range t.counts {
		if n > 0 {
			t.incomplete[a.cluster] = true
		}
	}
}

// clusterNamed returns the cluster with a name.
func (t *history) clusterNamed(name string) *modelCluster {
	for _, c := range t.controlPlane.clusters {
		if c.name == name {
			return c
		}
	}
	return nil
}

// leafOf returns the leaf with an endpoint number, whether or not the configuration has the
// endpoint.
func (t *history) leafOf(number int) *modelLeaf {
	for _, c := range t.controlPlane.clusters {
		for _, l := range c.leaves {
			if k := number - l.first; k >= 0 && k < leafStride {
				return l
			}
		}
	}
	return nil
}
