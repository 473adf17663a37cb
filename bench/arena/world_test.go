// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
)

// small is a fleet for tests, with a fraction of the work of the published ones.
func small(change func(f *Fleet)) *Fleet {
	f := usual("small", "")
	f.Clients, f.Servers, f.Load, f.Timeout = 4, 6, .6, time.Second
	f.Warm, f.Run = 3*time.Second, 3*time.Second
	f.Methods[0].Mean = 20 * ms
	if change != nil {
		change(&f)
	}
	return &f
}

// played plays a fleet over channels in a bubble.
func played(t *testing.T, f *Fleet, p Policy) *Result {
	t.Helper()
	var r *Result
	synctest.Test(t, func(t *testing.T) {
		var err error
		if r, err = play(f, &p, 1, false); err != nil {
			t.Fatal(err)
		}
	})
	return r
}

func row(t *testing.T, name string) Policy {
	t.Helper()
	for _, p := range Policies() {
		if p.String() == name {
			return p
		}
	}
	t.Fatal("there is no", name)
	return Policy{}
}

// uneven is the small fleet with servers of two speeds.
func uneven(f *Fleet) { f.Speed = func(i int) float64 { return 1 + float64(i%2)/2 } }

// TestChannels checks that every row runs, ours and stock's over their own xDS, and that RPCs
// fail only because of limits. The order of policies is random with so few RPCs: see TestOrder.
func TestChannels(t *testing.T) {
	f := small(uneven)
	for _, p := range Policies() {
		t.Run(p.String(), func(t *testing.T) {
			r := played(t, f, p)
			least := .99
			// The policy rejects RPCs above its limit: a goodput of .6 ± .01 is left with a limit
			// that the clients share.
			if p.Name == limited {
				least = .4
			}
			if r.Goodput < least || r.RPCs < 500 || len(r.Utilisation) != f.Servers {
				t.Errorf("goodput is %v of %d RPCs", r.Goodput, r.RPCs)
			}
		})
	}
}

// TestOrder checks that kernels, which follow the seed in any build, run long enough to order
// policies: the oracle is the best, and least_request is better than random.
func TestOrder(t *testing.T) {
	f := small(func(f *Fleet) { uneven(f); f.Run = 300 * time.Second })
	p99 := map[string]float64{}
	for _, p := range Policies() {
		if p.Kernel == nil {
			continue
		}
		r, err := simulate(f, &p, 1)
		kit.Must(t, err)
		p99[p.String()] = r.P99
	}
	for name, v := range p99 {
		if v < p99["anchor oracle"] {
			t.Errorf("%s beats the oracle: %v ms, %v", name, v, p99["anchor oracle"])
		}
	}
	if p99["ours least_request"] > p99["anchor random"] {
		t.Errorf("least_request is worse than random: %v", p99)
	}
}

// TestKernelsAgree checks that channels and kernels with the same servers and RPCs have the
// same results.
func TestKernelsAgree(t *testing.T) {
	f := small(func(f *Fleet) { f.Timeout = 0; f.Run = 60 * time.Second })
	if testing.Short() || raceEnabled {
		f.Run = 3 * time.Second
	}
	for _, name := range []string{"anchor oracle", "ours least_request", "stock least_request"} {
		p := row(t, name)
		k, err := simulate(f, &p, 1)
		kit.Must(t, err)
		r := played(t, f, p)
		if r.RPCs != k.RPCs {
			t.Errorf("%s: %d RPCs, kernels have %d", name, r.RPCs, k.RPCs)
		}
		if f.Run < time.Minute {
			continue // their results are random
		}
		// Deviations are 1 and 2 % of channels, and of stock's kernel, which does not follow the seed.
		near(t, name+": median", r.P50, k.P50, .15)
		near(t, name+": p99", r.P99, k.P99, .2)
	}
}

// TestSeed checks that the same seed gives the same results, and another seed different ones.
func TestSeed(t *testing.T) {
	f := small(nil)
	p := row(t, "ours least_request")
	same := func(a, b *Result) bool { return a.P50 == b.P50 && a.P99 == b.P99 && a.P999 == b.P999 }
	var kernels []*Result
	for _, seed := range []uint64{1, 1, 2} {
		r, err := simulate(f, &p, seed)
		kit.Must(t, err)
		kernels = append(kernels, r)
	}
	if !same(kernels[0], kernels[1]) || same(kernels[0], kernels[2]) {
		t.Error("kernels do not follow the seed")
	}
	if !Seeded {
		t.Skip("channels follow the seed with -tags seeded -ldflags=-checklinkname=0")
	}
	played(t, f, row(t, "ours round_robin")) // the first channel of a process checks properties of gRPC, which takes random numbers
	for _, name := range []string{"anchor random", "anchor oracle", "ours round_robin", "ours least_request", "ours client_wrr"} {
		if a, b := played(t, f, row(t, name)), played(t, f, row(t, name)); !same(a, b) {
			t.Errorf("%s: p99 is %v ms, and %v", name, a.P99, b.P99)
		}
	}
}

// TestServerGone checks that a stopped server gets no RPCs, whether or not it announced the
// stop, that RPCs are lost only if it did not, and that it gets its share again after a
// restart.
func TestServerGone(t *testing.T) {
	for _, gracefully := range []bool{false, true} {
		f := small(func(f *Fleet) {
			f.Run = 12 * time.Second
			f.Bad, f.BadFrom, f.BadTo = []int{0}, 4500*ms, 7*time.Second
			f.Script = func(*Fleet, *rand.Rand) []Event {
				return []Event{stopAt(4*time.Second, "stops", 0, gracefully), startAt(7*time.Second, "starts", 0, false)}
			}
		})
		for _, name := range []string{"anchor oracle", "stock round_robin", "ours round_robin"} {
			r := played(t, f, row(t, name))
			if r.BadShare > 0 {
				t.Errorf("%s: a server that was stopped got %v of the RPCs", name, r.BadShare)
			}
			// About three RPCs of 2200 were in flight and are lost; if RPCs were still sent
			// there, 90.
			if lost := 1 - r.Goodput; lost > .02 || gracefully && lost > 0 {
				t.Errorf("%s: %v of the RPCs failed, gracefully %t", name, lost, gracefully)
			}
			if u := r.Utilisation[0]; u < .15 || u > .65 { // .36 ± .03; .05 if it does not come back
				t.Errorf("%s: the server's utilisation was %v", name, u)
			}
		}
	}
}

// TestFailingDrawsRPCs: the trap is there: the arena shows how many RPCs go to a
// server that refuses them at once.
func TestFailingDrawsRPCs(t *testing.T) {
	f := small(func(f *Fleet) {
		f.Bad, f.BadFrom, f.BadTo = []int{0}, 4*time.Second, 6*time.Second
		f.Script = func(*Fleet, *rand.Rand) []Event { return []Event{failAt(4*time.Second, "fails", 0, true)} }
	})
	oracle, least := played(t, f, row(t, "anchor oracle")), played(t, f, row(t, "ours least_request"))
	if oracle.BadShare != 0 || oracle.Goodput < .999 {
		t.Errorf("the oracle sends %v of the RPCs to a server that fails", oracle.BadShare)
	}
	if least.BadShare == 0 || least.P999 < 1000 {
		t.Errorf("a failure counts %v ms, want the timeout; %v of the RPCs go to the server that fails", least.P999, least.BadShare)
	}
	// Kernels follow the seed in any build. A client alone has RPCs enough in flight to compare.
	f.Clients, f.Load = 1, .8
	p := row(t, "ours least_request")
	for seed := range uint64(3) {
		k, err := simulate(f, &p, 1+seed)
		kit.Must(t, err)
		if k.BadShare < 1.5/6 || k.Goodput > .83 {
			t.Errorf("seed %d: least_request sends %v of the RPCs to a server that fails, goodput %v; a sixth is its share", 1+seed, k.BadShare, k.Goodput)
		}
	}
}

// TestZoneLost: the fleets that are published, with a part of their clients.
func TestZoneLost(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("takes seconds")
	}
	for _, f := range stormy() {
		f.Clients = 6
		for _, name := range []string{"anchor oracle", "ours least_request"} {
			r := played(t, &f, row(t, name))
			if r.Goodput < .9 || name == "anchor oracle" && r.Goodput < .98 {
				t.Errorf("%s, %s: goodput is %v", f.Name, name, r.Goodput)
			}
		}
	}
}

// TestExtraMessages checks that messages to the server side of a policy are counted, and that
// the arena's own RPCs are not.
func TestExtraMessages(t *testing.T) {
	p := row(t, "ours round_robin")
	p.Server = func(s *Server) ([]grpc.ServerOption, func(grpc.ServiceRegistrar)) {
		return nil, func(r grpc.ServiceRegistrar) {
			probe := serviceDesc
			probe.ServiceName = "probe"
			r.RegisterService(&probe, &node{model: newServer(systemClock{time.Now()}, 0, 1, 0, 1), world: &world{fleet: small(nil), policy: &Policy{}, work: []arrival{{}}, calls: make([]call, 1)}})
		}
	}
	var calls atomic.Int32
	p.DialOptions = []grpc.DialOption{grpc.WithUnaryInterceptor(func(ctx context.Context, m string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if m == method && calls.Add(1)%2 == 0 {
			if err := cc.Invoke(ctx, "/probe/Do", wrapperspb.UInt32(0), new(wrapperspb.UInt32Value)); err != nil {
				return err
			}
		}
		return invoke(ctx, m, req, reply, cc, opts...)
	})}
	if r := played(t, small(nil), p); r.Extra < .9 || r.Extra > 1.1 {
		t.Errorf("%v extra messages for an RPC, want one: half a probe, there and back", r.Extra)
	}
}

// TestPlay checks that cells are found, and that errors are reported.
func TestPlay(t *testing.T) {
	if r := Play(t, Cell{Mode: Channels, Fleet: "none", Policy: "anchor random"}); r.Error == "" {
		t.Error("there is a result of a fleet that there is not")
	}
	r := Play(t, Cell{Mode: Kernels, Fleet: fewClients, Policy: "anchor oracle", Seed: 1})
	if r.Error != "" || r.P99 < 30 || r.Mode != Kernels {
		t.Errorf("the result is %+v", r)
	}
	seen := map[Cell]bool{}
	for _, c := range Cells(1) {
		if seen[c] {
			t.Errorf("%v is there twice", c)
		}
		seen[c] = true
		if _, _, err := c.find(); err != nil {
			t.Error(err)
		}
	}
}

// TestZones: clients are in zones as their parts say, and RPCs to other zones are counted.
func TestZones(t *testing.T) {
	f := small(func(f *Fleet) { f.Clients, f.Zones, f.ClientZones = 10, 3, []float64{.5, .3, .2} })
	var counts [3]int
	for i := range f.Clients {
		counts[f.clientZone(i)]++
	}
	if counts != [3]int{5, 3, 2} {
		t.Fatalf("clients in zones: %v", counts)
	}
	// Two thirds and a sixth are expected of 540 RPCs, give or take ten deviations.
	if r := played(t, f, row(t, "ours round_robin")); r.Foreign < .45 || r.Foreign > .87 {
		t.Errorf("%v of the RPCs leave their zone by a policy that does not mind", r.Foreign)
	}
	if r := played(t, f, row(t, "ours round_robin, zone-aware")); r.Foreign < .02 || r.Foreign > .32 {
		t.Errorf("%v of the RPCs leave their zone by one that does", r.Foreign)
	}
}
