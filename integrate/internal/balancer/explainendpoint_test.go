// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// TestExplainOut: each reason for which an endpoint is out, of endpoint 1.
func TestExplainOut(t *testing.T) {
	bg := context.Background()
	drained := eps(1, 2)
	drained[0].Health = picker.Draining
	policy := func(p picker.Policy, prios ...picker.Priority) *picker.Cluster {
		c := clusterOf("c", prios...)
		c.Leaves[0].Policy = p
		return c
	}
	both := prio(eps(1, 2))
	rows := []struct {
		name    string
		opts    Config
		cluster *picker.Cluster
		do      func(t *testing.T, b *testLB, cc *fakeCC)
		ctx     context.Context
		out     string // a regular expression for all of it
		state   string
		hasty   bool // nothing is published in the end
	}{
		{name: "draining", cluster: clusterOf("c", prio(drained)), out: "draining: .*", state: "IDLE",
			do: func(t *testing.T, b *testLB, cc *fakeCC) { cc.conn(t, 2).to(ready) }},
		{name: "connecting", cluster: clusterOf("c", both), out: "CONNECTING for 3s", state: "CONNECTING",
			do: func(t *testing.T, b *testLB, cc *fakeCC) { cc.conn(t, 2).to(ready); kit.Pass(3 * time.Second) }},
		{name: "failed", cluster: clusterOf("c", both), out: "TRANSIENT_FAILURE for 2s", state: "TRANSIENT_FAILURE",
			do: func(t *testing.T, b *testLB, cc *fakeCC) {
				cc.conn(t, 2).to(ready)
				cc.conn(t, 1).to(failure)
				kit.Pass(2 * time.Second)
			}},
		{name: "ejected", cluster: detecting(clusterOf("c", both)), out: `ejected as an outlier until \d\d:\d\d:\d\dZ, 14s from now, or a little later`, state: "READY",
			do: func(t *testing.T, b *testLB, cc *fakeCC) {
				cc.conn(t, 1).to(ready)
				cc.conn(t, 2).to(ready)
				b.load(t, 40, 1)
				kit.Pass(11 * time.Second)
			}},
		{name: "unhealthy", opts: Config{HealthCheckService: "s"}, cluster: clusterOf("c", both), out: "connected, but its health service does not report SERVING for 0s", state: "CONNECTING", hasty: true,
			do: func(t *testing.T, b *testLB, cc *fakeCC) {
				asked := make(chan struct{})
				t.Cleanup(func() { close(asked) })
				cc.conn(t, 1).healthy = asked
				cc.conn(t, 1).to(ready)
				synctest.Wait()
			}},
		{name: "pick_first", cluster: firstOf(true, false, both), out: "pick_first has selected another endpoint, or none", state: "IDLE",
			do: func(t *testing.T, b *testLB, cc *fakeCC) {
				b.to(cc.conn(t, 1), failure)
				b.to(cc.conn(t, 2), ready)
			}},
		{name: "other hash", cluster: ring(clusterOf("c", both)), ctx: metadatautil.WithHash(bg, hashOf(t, 2)), out: "the RPC's hash selects another endpoint", state: "IDLE"},
		{name: "session", cluster: clusterOf("c", both), ctx: cookie(2, "c"), out: "the RPC's session is with another endpoint", state: "READY",
			do: func(t *testing.T, b *testLB, cc *fakeCC) { cc.conn(t, 1).to(ready); cc.conn(t, 2).to(ready) }},
		{name: "idle", cluster: policy(picker.Policy{}, both), out: "others are READY", state: "IDLE", hasty: true,
			do: func(t *testing.T, b *testLB, cc *fakeCC) {
				cc.conn(t, 2).to(ready)
				b.lock()
				b.clusters["c"].inUse.localities[0].endpoints[0].setState(picker.Idle)
				b.unlock()
			}},
		{name: "not published", cluster: clusterOf("c", both), out: "not READY yet when the configuration was last published", state: "READY", hasty: true,
			do: func(t *testing.T, b *testLB, cc *fakeCC) {
				cc.conn(t, 2).to(ready)
				b.lock()
				b.clusters["c"].inUse.localities[0].endpoints[0].setState(picker.Ready)
				b.unlock()
			}},
		{name: "child picks", cluster: customOf(true, stubA, `{}`, both), out: "", state: "READY",
			do: func(t *testing.T, b *testLB, cc *fakeCC) { b.to(cc.conn(t, 1), ready); b.to(cc.conn(t, 2), ready) }},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, cc := newTestLB(t, row.opts)
				cfg := configOf(row.cluster)
				if row.name == "session" {
					cfg.Filters = []picker.Filter{{Name: "session", Config: &resource.Session{Cookie: "s", Path: "/"}}}
				}
				b.take(cfg)
				b.calm()
				if row.do != nil {
					row.do(t, b, cc)
				}
				if !row.hasty {
					b.flush()
				}
				if row.ctx == nil {
					row.ctx = bg
				}
				c := onlyCluster(t, b.explained(t, row.ctx))
				e := endpointIn(c, addr(1).String())
				if e == nil || !regexp.MustCompile("^("+row.out+")$").MatchString(e.Out) || e.State != row.state || (e.Share > 0) {
					t.Errorf("endpoint 1 is %+v, want out: %s, state %s", e, row.out, row.state)
				}
				if row.name == "failed" && e.Error != "connection refused" {
					t.Errorf("error %q, want that of the connection", e.Error)
				}
			})
		})
	}
}

// TestExplainUnhealthy: an endpoint that EDS reports as unhealthy is named with its health, and so
// is a draining one. Both states are reasons for an endpoint to get no RPCs.
func TestExplainUnhealthy(t *testing.T) {
	for _, left := range [][]picker.Endpoint{eps(1, 2), nil} {
		c := clusterOf("c", prio(left))
		if left == nil {
			c.Leaves[0].Priorities = nil
		} else {
			edit(&c.Leaves[0].Priorities[0], 1, func(e *picker.Endpoint) { e.Health = picker.Draining })
		}
		c.Leaves[0].Unhealthy = []picker.Unhealthy{{Addr: addr(3), Health: "UNHEALTHY"}, {Addr: addr(4), Health: "TIMEOUT"}}
		b, _ := newTestLB(t, Config{})
		b.set(configOf(c))
		x := b.explained(t, context.Background())
		if got := onlyCluster(t, x).Status.LeafInUse().Unhealthy; !slices.Equal(got, []report.UnhealthyEndpoint{{Address: addr(3).String(), Health: "UNHEALTHY"}, {Address: addr(4).String(), Health: "TIMEOUT"}}) {
			t.Errorf("unhealthy are %v", got)
		}
		text := strings.Join(strings.Fields(x.String()), " ")
		want := []string{fmt.Sprintf("EDS excludes 2 endpoints: %v UNHEALTHY, %v TIMEOUT", addr(3), addr(4))}
		if left != nil {
			want = append(want, fmt.Sprintf("%v 0 %%, DRAINING, it gets RPCs of its sessions only", addr(2)))
		}
		for _, want := range want {
			if !strings.Contains(text, want) {
				t.Errorf("the text lacks %q: %s", want, text)
			}
		}
	}
}

// TestExplainWeights: where the weight of an endpoint comes from, and its slow start.
func TestExplainWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		weight := func(c *picker.Cluster, age time.Duration, serve bool) string {
			b, cc := newTestLB(t, Config{})
			edit(&c.Leaves[0].Priorities[0], 0, func(e *picker.Endpoint) { e.Weight = 3 })
			b.set(configOf(c))
			for n := 1; n <= 3; n++ {
				if cc.has(n) {
					b.to(cc.conn(t, n), ready)
				}
			}
			if serve {
				b.serve(t, 6, map[int]float64{1: .5, 2: .25})
				kit.Pass(10 * time.Second)
				b.serve(t, 6, map[int]float64{1: .5, 2: .25})
			}
			kit.Pass(age)
			b.flush()
			e := endpointIn(onlyCluster(t, b.explained(t, context.Background())), addr(1).String())
			return fmt.Sprintf("%d %s %.3g", e.EffectiveWeight, e.WeightFrom, e.SlowStart)
		}
		of := func(p picker.Policy) *picker.Cluster {
			c := clusterOf("c", prio(eps(1, 2, 3)))
			c.Leaves[0].Policy = p
			return c
		}
		slow := picker.Policy{SlowStart: &picker.SlowStart{Window: 10 * time.Second, Aggression: 1}}
		for _, row := range []struct {
			got, want string
		}{
			{weight(of(picker.Policy{}), 0, false), "3 EDS 0"},
			{weight(of(picker.Policy{Kind: picker.PolicyRoundRobin}), 0, false), "1 all equal 0"},
			{weight(of(picker.Policy{Kind: picker.PolicyLeastRequest, Least: &picker.LeastRequest{Choices: 2}}), 0, false), "3 EDS 0"},
			{weight(latency(of(picker.Policy{})), 0, false), "3 EDS 0"},
			{weight(of(slow), 5*time.Second, false), "384 EDS 0.5"},
			{weight(of(slow), 20*time.Second, false), "3 EDS 0"},
			{weight(weighed(of(picker.Policy{})), 2*time.Second, false), "1 all equal: too few reports 0"},
			{weight(weighed(of(picker.Policy{})), 2*time.Second, true), "171 reported 0"},
			{weight(firstOf(true, false, prio(eps(1, 2))), 0, false), "1 the one selected 0"},
		} {
			if row.got != row.want {
				t.Errorf("weight %s, want %s", row.got, row.want)
			}
		}
	})
}
