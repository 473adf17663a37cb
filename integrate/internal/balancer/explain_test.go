// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// explained explains an RPC of /s/m.
func (b *testLB) explained(t testing.TB, ctx context.Context) *report.Explanation {
	t.Helper()
	x, err := Explain(ctx, b.Balancer, "/s/m")
	kit.Must(t, err)
	return x
}

// onlyCluster is the explanation of the only cluster of the last route.
func onlyCluster(t testing.TB, x *report.Explanation) *report.RouteTarget {
	t.Helper()
	r := &x.Routes[len(x.Routes)-1]
	if len(r.Clusters) != 1 {
		t.Fatalf("%d clusters are explained:\n%v", len(r.Clusters), x)
	}
	return &r.Clusters[0]
}

// endpointIn returns the status of an endpoint, or nil.
func endpointIn(c *report.ClusterStatus, n int) *report.EndpointStatus {
	for _, l := range c.Localities() {
		for k := range l.Endpoints {
			if e := &l.Endpoints[k]; e.Address == addr(n).String() || slices.Contains(e.More, addr(n).String()) {
				return e
			}
		}
	}
	return nil
}

// cookie returns a context whose RPC is of a session with an endpoint.
func cookie(n int, cluster string) context.Context {
	value := base64Of(addr(n).String() + ";cluster:" + cluster)
	return metadata.AppendToOutgoingContext(context.Background(), "cookie", "s="+value)
}

// TestExplainNotInSubset: endpoints that the channel leaves to others are named.
func TestExplainNotInSubset(t *testing.T) {
	c := clusterOf("c", prio(eps(1, 2, 3, 4, 5)))
	c.Leaves[0].Policy.Subset = 2
	b, cc := newTestLB(t, Config{})
	b.set(configOf(c))
	got := onlyCluster(t, b.explained(t, context.Background()))
	var want []string
	for n := 1; n <= 5; n++ {
		if !cc.has(n) {
			want = append(want, addr(n).String())
		}
	}
	if !slices.Equal(got.Status.NotInSubset, want) || len(want) != 3 {
		t.Errorf("not in the subset are %v, want %v", got.Status.NotInSubset, want)
	}
}

// TestExplainOutcomes checks the explained outcomes of RPCs.
func TestExplainOutcomes(t *testing.T) {
	up := func(t *testing.T, b *testLB, cc *fakeCC) { b.to(cc.conn(t, 1), ready) }
	down := func(t *testing.T, b *testLB, cc *fakeCC) { b.to(cc.conn(t, 1), failure) }
	with := func(change func(*picker.Leaf)) *picker.Config {
		c := clusterOf("c", prio(eps(1)))
		change(&c.Leaves[0])
		return configOf(c)
	}
	routed := func(r picker.Route) *picker.Config {
		cfg := with(func(*picker.Leaf) {})
		cfg.Routes = []picker.Route{r}
		return cfg
	}
	unhealthy := clusterOf("c", prio(nil))
	unhealthy.Leaves[0].Service, unhealthy.Leaves[0].Unhealthy = "s", make([]picker.Unhealthy, 2)
	rows := []struct {
		name string
		cfg  *picker.Config
		do   func(t *testing.T, b *testLB, cc *fakeCC)
		want string // in the text
	}{
		{"picked", with(func(*picker.Leaf) {}), up, `100 % get an endpoint\n`},
		{"waits", with(func(*picker.Leaf) {}), nil, `100 % wait\n`},
		{"fails", with(func(*picker.Leaf) {}), down, `100 % fail with UNAVAILABLE(.|\n)*failure: xdslb: cluster "c": no endpoint of priority 0 is reachable`},
		{"delegated", configOf(customOf(true, stubA, `{}`, prio(eps(1)))), up, `100 % go to a child policy, which picks the endpoint\n(.|\n)*xdslb_test.A,\s+READY\n.*10.0.0.1:80, READY, picked by the child policy\n`},
		{"waits for one", configOf(ring(clusterOf("c", prio(eps(1))))), nil, `100 % wait\n(.|\n)*10.0.0.1:80 0 %, IDLE, 100 % of RPCs wait for it`},
		{"dropped", with(func(l *picker.Leaf) {
			l.Drops = []picker.Drop{{Category: "a", PerMillion: 500000}, {Category: "b", PerMillion: 500000}}
		}), up, `25 % get an endpoint\n.*75 % are dropped\n(.|\n)*drops: 50 % as "a"\n.*drops: 25 % as "b"`},
		{"breaker", with(func(l *picker.Leaf) { l.MaxRequests = 0 }), up, `0 of 0 RPCs in flight, at its limit`},
		{"no endpoints", configOf(clusterOf("c")), nil, `failure: xdslb: cluster "c": no targets to pick from`},
		{"unhealthy", configOf(unhealthy), nil, `failure: xdslb: cluster "c": no targets to pick from in priority 0; 2(.|\n)*EDS resource "s" are unhealthy`},
		{"last priority is empty", configOf(clusterOf("c", prio(eps(1)), prio(nil))), down, `no endpoint of priority 0 is reachable`},
		{"cluster error", configOf(&picker.Cluster{Name: "c", Err: plainError("no such resource")}), nil, `failure: xdslb: cluster "c": no such resource`},
		{"no route", routed(picker.Route{Path: picker.StringMatch{Kind: picker.MatchExact, Value: "/x/y"}}), nil, `route 0: no match: its path is "/x/y"\n.*no route: 100 % of RPCs fail`},
		{"not forwarding", routed(picker.Route{Name: "n"}), nil, `Route 0 "n"\n.*does not forward`},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			b, cc := newTestLB(t, Config{})
			b.set(row.cfg)
			if row.do != nil {
				row.do(t, b, cc)
			}
			b.flush()
			if text := b.explained(t, context.Background()).String(); !regexp.MustCompile(row.want).MatchString(text) {
				t.Errorf("the explanation lacks %q:\n%s", row.want, text)
			}
		})
	}
}

// TestExplainPriorities: why each priority is in use or not, from start-up over a failover
// and back.
func TestExplainPriorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		b.Update(configOf(clusterOf("c", zone("a", eps(1, 2)), zone("b", eps(3)), zone("c", eps(4)))))
		want := func(when string, reasons ...string) {
			t.Helper()
			b.flush()
			for i, p := range onlyCluster(t, b.explained(t, context.Background())).Status.Leaves[0].Priorities {
				if !regexp.MustCompile("^" + reasons[i] + "$").MatchString(p.Reason) {
					t.Errorf("%s: priority %d: %s, want %s", when, i, p.Reason, reasons[i])
				}
			}
		}
		kit.Pass(4 * time.Second)
		want("at the start", "in use: it has 6s to connect before the next priority is tried", "not needed: never connected", "not needed: never connected")
		cc.conn(t, 1).To(failure)
		kit.Pass(7 * time.Second)
		want("after 11 s", "failed: it did not connect in time, and is still connecting", "in use: it has 9s to connect .*", "not needed: .*")
		cc.conn(t, 2).To(failure)
		cc.conn(t, 3).To(ready)
		want("failed over", "failed: no endpoint can be reached", "in use: the first that can serve", "not needed: .*")
		cc.conn(t, 1).To(ready)
		kit.Pass(time.Minute)
		want("back", "in use: the first that can serve", "not needed; its connections are kept for another 14m0s", "not needed: .*")
		cc.conn(t, 1).To(failure)
		cc.conn(t, 3).To(failure)
		cc.conn(t, 4).To(failure)
		want("all down", "failed: .*", "failed: .*", "in use: no priority can serve, and this is the last")
		cc.conn(t, 3).To(ready)
		b.Update(configOf(clusterOf("c", zone("d", nil), zone("e", eps(9)), zone("b", eps(3)))))
		want("a new one on top", "no endpoints", "connecting, with 10s left .*", "in use: the first that can serve")
	})
}

func base64Of(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// hashOf returns a hash that belongs to endpoint n on the ring of endpoints 1 and 2.
func hashOf(t *testing.T, n int) uint64 {
	b, _ := newTestLB(t, Config{})
	b.set(configOf(ring(clusterOf("c", prio(eps(1, 2))))))
	for hash := uint64(0); ; hash += 1 << 56 {
		if onlyCluster(t, b.explained(t, metadatautil.WithHash(context.Background(), hash))).Hash.Places[0].Order[0] == addr(n).String() {
			return hash
		}
	}
}

// TestExplainSession: an RPC of a session goes to its endpoint, in its cluster, unless that
// cannot be reached; without interceptors there are no sessions.
func TestExplainSession(t *testing.T) {
	b, cc := newTestLB(t, Config{})
	cfg := configOf(clusterOf("c", prio(eps(1, 2))), clusterOf("d", prio(eps(3, 4))))
	cfg.Routes[0].Clusters = append(cfg.Routes[0].Clusters, picker.WeightedCluster{Name: "d", Weight: 9})
	cfg.Filters = []picker.Filter{{Name: "session", Config: &resource.Session{Cookie: "s", Path: "/"}}}
	b.take(cfg)
	b.ready(t, 1, 2, 3, 4)
	want := func(ctx context.Context, shares map[int]float64) {
		t.Helper()
		b.flush()
		r := b.explained(t, ctx).Routes[0]
		for n := 1; n <= 4; n++ {
			got := 0.
			for i := range r.Clusters {
				if e := endpointIn(r.Clusters[i].Status, n); e != nil {
					got += r.Clusters[i].Share * e.Share
				}
			}
			if math.Abs(got-shares[n]) > 1e-9 {
				t.Errorf("endpoint %d gets %v, want %v:\n%+v", n, got, shares[n], r)
			}
		}
	}
	want(context.Background(), map[int]float64{1: .05, 2: .05, 3: .45, 4: .45})
	want(cookie(2, "c"), map[int]float64{2: 1})
	want(cookie(4, "d"), map[int]float64{4: 1})
	want(cookie(4, "e"), map[int]float64{1: .05, 2: .05, 4: .9})
	cc.conn(t, 4).To(failure)
	want(cookie(4, "d"), map[int]float64{3: 1})
}

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
			do: func(t *testing.T, b *testLB, cc *fakeCC) { cc.conn(t, 2).To(ready) }},
		{name: "connecting", cluster: clusterOf("c", both), out: "CONNECTING for 3s", state: "CONNECTING",
			do: func(t *testing.T, b *testLB, cc *fakeCC) { cc.conn(t, 2).To(ready); kit.Pass(3 * time.Second) }},
		{name: "failed", cluster: clusterOf("c", both), out: "TRANSIENT_FAILURE for 2s", state: "TRANSIENT_FAILURE",
			do: func(t *testing.T, b *testLB, cc *fakeCC) {
				cc.conn(t, 2).To(ready)
				cc.conn(t, 1).To(failure)
				kit.Pass(2 * time.Second)
			}},
		{name: "ejected", cluster: detecting(clusterOf("c", both)), out: `ejected as an outlier until \d\d:\d\d:\d\dZ, 14s from now, or a little later`, state: "READY",
			do: func(t *testing.T, b *testLB, cc *fakeCC) {
				b.ready(t, 1, 2)
				b.load(t, 40, 1)
				kit.Pass(11 * time.Second)
			}},
		{name: "unhealthy", opts: Config{HealthCheckService: "s"}, cluster: clusterOf("c", both), out: "connected, but its health service does not report SERVING for 0s", state: "CONNECTING", hasty: true,
			do: func(t *testing.T, b *testLB, cc *fakeCC) {
				cc.conn(t, 1).Unserved = true
				cc.conn(t, 1).To(ready)
				synctest.Wait()
			}},
		{name: "pick_first", cluster: firstOf(true, false, both), out: "pick_first has selected another endpoint, or none", state: "IDLE",
			do: func(t *testing.T, b *testLB, cc *fakeCC) {
				b.to(cc.conn(t, 1), failure)
				b.to(cc.conn(t, 2), ready)
			}},
		{name: "other hash", cluster: ring(clusterOf("c", both)), ctx: metadatautil.WithHash(bg, hashOf(t, 2)), out: "the RPC's hash selects another endpoint", state: "IDLE"},
		{name: "session", cluster: clusterOf("c", both), ctx: cookie(2, "c"), out: "the RPC's session is with another endpoint", state: "READY",
			do: func(t *testing.T, b *testLB, cc *fakeCC) { cc.conn(t, 1).To(ready); cc.conn(t, 2).To(ready) }},
		{name: "idle", cluster: policy(picker.Policy{}, both), out: "others are READY", state: "IDLE", hasty: true,
			do: func(t *testing.T, b *testLB, cc *fakeCC) {
				cc.conn(t, 2).To(ready)
				b.lock()
				b.clusters["c"].inUse.localities[0].endpoints[0].setState(picker.Idle)
				b.unlock()
			}},
		{name: "not published", cluster: clusterOf("c", both), out: "not READY yet when the configuration was last published", state: "READY", hasty: true,
			do: func(t *testing.T, b *testLB, cc *fakeCC) {
				cc.conn(t, 2).To(ready)
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
				e := endpointIn(c.Status, 1)
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
			e := endpointIn(onlyCluster(t, b.explained(t, context.Background())).Status, 1)
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
