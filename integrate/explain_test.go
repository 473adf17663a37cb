// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// explained explains an RPC of /s/m.
func (b *testLB) explained(t testing.TB, ctx context.Context) *Explanation {
	t.Helper()
	x, err := b.explain(ctx, "/s/m")
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// only is the explanation of the only cluster of the last route.
func (x *Explanation) only(t testing.TB) *ExplainedCluster {
	t.Helper()
	r := &x.Routes[len(x.Routes)-1]
	if len(r.Clusters) != 1 {
		t.Fatalf("%d clusters are explained:\n%v", len(r.Clusters), x)
	}
	return &r.Clusters[0]
}

// find returns the explanation of the endpoint with an address.
func (c *ExplainedCluster) find(address string) *ExplainedEndpoint {
	for i := range c.Localities {
		for k := range c.Localities[i].Endpoints {
			if e := &c.Localities[i].Endpoints[k]; e.Address == address || slices.Contains(e.More, address) {
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
			do: func(t *testing.T, b *testLB, cc *fakeCC) { cc.conn(t, 2).to(ready); pass(3 * time.Second) }},
		{name: "failed", cluster: clusterOf("c", both), out: "TRANSIENT_FAILURE for 2s", state: "TRANSIENT_FAILURE",
			do: func(t *testing.T, b *testLB, cc *fakeCC) {
				cc.conn(t, 2).to(ready)
				cc.conn(t, 1).to(failure)
				pass(2 * time.Second)
			}},
		{name: "ejected", cluster: detecting(clusterOf("c", both)), out: `ejected as an outlier until \d\d:\d\d:\d\dZ, 14s from now, or a little later`, state: "READY",
			do: func(t *testing.T, b *testLB, cc *fakeCC) {
				cc.conn(t, 1).to(ready)
				cc.conn(t, 2).to(ready)
				b.load(t, 40, 1)
				pass(11 * time.Second)
			}},
		{name: "unhealthy", opts: Config{HealthCheckService: "s"}, cluster: clusterOf("c", both), out: "connected, and its health service does not say SERVING for 0s", state: "CONNECTING", hasty: true,
			do: func(t *testing.T, b *testLB, cc *fakeCC) {
				asked := make(chan struct{})
				t.Cleanup(func() { close(asked) })
				cc.conn(t, 1).healthy = asked
				cc.conn(t, 1).to(ready)
				synctest.Wait()
			}},
		{name: "pick_first", cluster: firstOf(true, false, both), out: "pick_first has selected another, or none", state: "IDLE",
			do: func(t *testing.T, b *testLB, cc *fakeCC) {
				b.to(cc.conn(t, 1), failure)
				b.to(cc.conn(t, 2), ready)
			}},
		{name: "other hash", cluster: ring(clusterOf("c", both)), ctx: WithRequestHash(bg, hashOf(t, 2)), out: "the RPC belongs to another endpoint", state: "IDLE"},
		{name: "session", cluster: clusterOf("c", both), ctx: cookie(2, "c"), out: "the RPC's session is with another endpoint", state: "READY",
			do: func(t *testing.T, b *testLB, cc *fakeCC) { cc.conn(t, 1).to(ready); cc.conn(t, 2).to(ready) }},
		{name: "idle", cluster: policy(picker.Policy{}, both), out: "IDLE: others are READY", state: "IDLE", hasty: true,
			do: func(t *testing.T, b *testLB, cc *fakeCC) {
				cc.conn(t, 2).to(ready)
				b.lock()
				b.clusters["c"].inUse.localities[0].endpoints[0].setState(picker.Idle)
				b.unlock()
			}},
		{name: "not published", cluster: clusterOf("c", both), out: "READY since the latest publication only", state: "READY", hasty: true,
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
				c := b.explained(t, row.ctx).only(t)
				e := c.find(addr(1).String())
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

// TestExplainUnhealthy: what EDS calls unhealthy is named with its health, and so is what
// drains. Both are why an endpoint gets nothing.
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
		if got := x.only(t).Unhealthy; !slices.Equal(got, []UnhealthyEndpoint{{addr(3).String(), "UNHEALTHY"}, {addr(4).String(), "TIMEOUT"}}) {
			t.Errorf("unhealthy are %v", got)
		}
		text := strings.Join(strings.Fields(x.String()), " ")
		want := []string{fmt.Sprintf("2 endpoints get no RPCs, since EDS says that they are not healthy: %v UNHEALTHY, %v TIMEOUT", addr(3), addr(4))}
		if left != nil {
			want = append(want, fmt.Sprintf("%v out: draining: it gets RPCs of its sessions only", addr(2)))
		}
		for _, want := range want {
			if !strings.Contains(text, want) {
				t.Errorf("the text lacks %q: %s", want, text)
			}
		}
	}
}

// TestExplainNotInSubset: endpoints that the channel leaves to others are named.
func TestExplainNotInSubset(t *testing.T) {
	c := clusterOf("c", prio(eps(1, 2, 3, 4, 5)))
	c.Leaves[0].Policy.Subset = 2
	b, cc := newTestLB(t, Config{})
	b.set(configOf(c))
	got := b.explained(t, context.Background()).only(t)
	var want []string
	for n := 1; n <= 5; n++ {
		if !cc.has(n) {
			want = append(want, addr(n).String())
		}
	}
	if !slices.Equal(got.NotInSubset, want) || len(want) != 3 {
		t.Errorf("not in the subset are %v, want %v", got.NotInSubset, want)
	}
}

// TestExplainOutcomes: what becomes of RPCs.
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
	rows := []struct {
		name string
		cfg  *picker.Config
		do   func(t *testing.T, b *testLB, cc *fakeCC)
		want string // in the text
	}{
		{"picked", with(func(*picker.Leaf) {}), up, `100 % get an endpoint\n`},
		{"waits", with(func(*picker.Leaf) {}), nil, `100 % wait\n`},
		{"fails", with(func(*picker.Leaf) {}), down, `100 % fail UNAVAILABLE(.|\n)*failure: xds: cluster "c": no endpoint of priority 0 is reachable`},
		{"delegated", configOf(customOf(true, stubA, `{}`, prio(eps(1)))), up, `100 % go to a child policy, which picks\n(.|\n)*xdslb_test.A,\s+READY\n.*10.0.0.1:80 if the child policy picks it, READY\n`},
		{"waits for one", configOf(ring(clusterOf("c", prio(eps(1))))), nil, `100 % wait\n(.|\n)*10.0.0.1:80 100 % wait for it, IDLE`},
		{"dropped", with(func(l *picker.Leaf) {
			l.Drops = []picker.Drop{{Category: "a", PerMillion: 500000}, {Category: "b", PerMillion: 500000}}
		}), up, `drops 50 % of them as "a"\n.*drops 25 % of them as "b"`},
		{"breaker", with(func(l *picker.Leaf) { l.MaxRequests = 0 }), up, `0 RPCs in flight of 0: it refuses the next one`},
		{"no endpoints", configOf(clusterOf("c")), nil, `failure: xds: cluster "c": no targets to pick from`},
		{"cluster error", configOf(&picker.Cluster{Name: "c", Err: plainError("no such resource")}), nil, `failure: xds: cluster "c": no such resource`},
		{"no route", routed(picker.Route{Path: picker.StringMatch{Kind: picker.MatchExact, Value: "/x/y"}}), nil, `route 0: no: its path is "/x/y"\n.*no route: 100 % of RPCs fail`},
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
		in := func(zone string, numbers ...int) picker.Priority {
			p := prio(eps(numbers...))
			p.Localities[0].ID.Zone = zone
			return p
		}
		b.Update(configOf(clusterOf("c", in("a", 1, 2), in("b", 3), in("c", 4))))
		want := func(when string, reasons ...string) {
			t.Helper()
			b.flush()
			for i, p := range b.explained(t, context.Background()).only(t).Priorities {
				if !regexp.MustCompile("^" + reasons[i] + "$").MatchString(p.Reason) {
					t.Errorf("%s: priority %d: %s, want %s", when, i, p.Reason, reasons[i])
				}
			}
		}
		pass(4 * time.Second)
		want("at the start", "in use: it has 6s to connect until the next gets its turn", "not needed: nothing was connected", "not needed: nothing was connected")
		cc.conn(t, 1).to(failure)
		pass(7 * time.Second)
		want("after 11 s", "failed: it has not connected in time, and still tries", "in use: it has 9s to connect .*", "not needed: .*")
		cc.conn(t, 2).to(failure)
		cc.conn(t, 3).to(ready)
		want("failed over", "failed: no endpoint can be reached", "in use: the first that can serve", "not needed: .*")
		cc.conn(t, 1).to(ready)
		pass(time.Minute)
		want("back", "in use: the first that can serve", "not needed; its connections are kept for another 14m0s", "not needed: .*")
		cc.conn(t, 1).to(failure)
		cc.conn(t, 3).to(failure)
		cc.conn(t, 4).to(failure)
		want("all down", "failed: .*", "failed: .*", "in use, since none can serve: the last")
		cc.conn(t, 3).to(ready)
		b.Update(configOf(clusterOf("c", in("d"), in("e", 9), in("b", 3))))
		want("a new one on top", "no endpoints", "connecting, with 10s left .*", "in use: the first that can serve")
	})
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
				pass(10 * time.Second)
				b.serve(t, 6, map[int]float64{1: .5, 2: .25})
			}
			pass(age)
			b.flush()
			e := b.explained(t, context.Background()).only(t).find(addr(1).String())
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

func base64Of(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// hashOf returns a hash that belongs to endpoint n on the ring of endpoints 1 and 2.
func hashOf(t *testing.T, n int) uint64 {
	b, _ := newTestLB(t, Config{})
	b.set(configOf(ring(clusterOf("c", prio(eps(1, 2))))))
	for hash := uint64(0); ; hash += 1 << 56 {
		if b.explained(t, WithRequestHash(context.Background(), hash)).only(t).Hash.Places[0].Order[0] == addr(n).String() {
			return hash
		}
	}
}

// TestExplainChangesNothing: nothing is connected, announced, published, counted or noted
// for an explanation, whatever the policy; IDLE endpoints stay so.
func TestExplainChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]*picker.Cluster{
			"round robin": clusterOf("c", prio(eps(1, 2)), prio(eps(3))),
			"ring":        ring(clusterOf("c", prio(eps(1, 2)))),
			"latency":     latency(clusterOf("c", prio(eps(1, 2)))),
			"pick_first":  firstOf(true, false, prio(eps(1, 2))),
			"custom":      customOf(false, stubA, `{}`, prio(eps(1), eps(2))),
		} {
			c.Leaves[0].Drops = []picker.Drop{{Category: "d", PerMillion: 500000}}
			b, cc := newTestLB(t, Config{})
			b.set(configOf(c))
			for round := range 2 {
				before := b.footprint(cc)
				for range 5 {
					b.explained(t, context.Background())
					b.explained(t, WithRequestHash(context.Background(), 7))
				}
				synctest.Wait()
				if after := b.footprint(cc); after != before {
					t.Errorf("%s, round %d: explaining changed\n%s to\n%s", name, round, before, after)
				}
				if cc.has(1) {
					b.to(cc.conn(t, 1), ready)
				}
				b.flush()
			}
		}
	})
}

// footprint is all that an explanation could change.
func (b *testLB) footprint(cc *fakeCC) string {
	b.lock()
	defer b.unlock()
	cc.mu.Lock()
	defer cc.mu.Unlock()
	text := fmt.Sprintln(cc.opened, cc.closed, cc.announced, cc.state, b.version, b.journal.added, b.nextPublish, len(b.callbacks), b.picker.waiting.Load(), b.picker.current.Load())
	for _, a := range slices.Sorted(maps.Keys(cc.conns)) {
		text += fmt.Sprintln(a, cc.conns[a].connects)
	}
	for _, l := range b.live() {
		drops, overload := l.dropCounters()
		text += fmt.Sprintln(l.breaker.InFlight(), drops[0].Load(), overload.Load())
		for _, p := range l.priorities {
			text += fmt.Sprintln(p.phase, p.counts, p.next, p.needsConnect)
			for _, loc := range p.localities {
				text += fmt.Sprintln(loc.load.Snapshot())
			}
		}
	}
	return text
}

// TestExplainDuringUpdates: explanations and updates do not get into each other's way, and
// an explanation that comes in between is whole all the same.
func TestExplainDuringUpdates(t *testing.T) {
	b, cc := newTestLB(t, Config{})
	sets := [][]int{{1, 2, 3}, {3, 4}, {5, 1}, {2}}
	b.set(configOf(clusterOf("c", prio(eps(sets[0]...)))))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 300 {
			b.set(configOf(clusterOf("c", prio(eps(sets[i%len(sets)]...)))))
			for _, n := range sets[i%len(sets)] {
				if sc := cc.find(n); sc != nil && n%2 == 1 {
					sc.to(ready)
				}
			}
		}
	}()
	for n := 0; ; n++ {
		x := b.explained(t, context.Background())
		c := x.only(t)
		sum := c.Waits + c.Fails
		for i := range c.Localities {
			sum += c.Localities[i].Share
		}
		if c.Note == "" && math.Abs(sum-1) > 1e-9 {
			t.Fatalf("shares add up to %v:\n%v", sum, x)
		}
		select {
		case <-done:
			return
		default:
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
	for n := 1; n <= 4; n++ {
		cc.conn(t, n).to(ready)
	}
	want := func(ctx context.Context, shares map[int]float64) {
		t.Helper()
		b.flush()
		r := b.explained(t, ctx).Routes[0]
		for n := 1; n <= 4; n++ {
			got := 0.
			for i := range r.Clusters {
				if e := r.Clusters[i].find(addr(n).String()); e != nil {
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
	cc.conn(t, 4).to(failure)
	want(cookie(4, "d"), map[int]float64{3: 1})
}

// TestExplainShares: priorities that share the load are in use both, with their shares.
func TestExplainShares(t *testing.T) {
	b, cc := newTestLB(t, Config{OverprovisioningFactor: 100})
	p, q := prio(eps(1, 2)), prio(eps(3))
	q.Localities[0].ID.Zone = "q"
	b.Update(configOf(clusterOf("c", p, q)))
	cc.conn(t, 1).to(ready)
	cc.conn(t, 2).to(failure)
	cc.conn(t, 3).to(ready)
	b.flush()
	c := b.explained(t, context.Background()).only(t)
	for i, want := range []string{"0.5 shares the load, since too many endpoints have failed", "0.5 shares the load, since too many endpoints have failed"} {
		if got := fmt.Sprint(c.Priorities[i].Share, " ", c.Priorities[i].Reason); got != want {
			t.Errorf("priority %d: %s, want %s", i, got, want)
		}
	}
	for n, want := range []float64{1: .5, 2: 0, 3: .5} {
		if e := c.find(addr(n).String()); n > 0 && (e == nil || math.Abs(e.Share-want) > 1e-6) {
			t.Errorf("endpoint %d: %+v, want a share of %v", n, e, want)
		}
	}
}
