// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package demo provides the scenario of `make demo`: a control plane, nine backends and a
// client, all real and on loopback, and the observed behavior of the client. Every sentence it
// prints is checked; a claim that does not hold is an error.
package demo

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// Options configure the demo.
type Options struct {
	Out  io.Writer
	Live bool // Out is a terminal
	// Still runs the fleet and the RPCs until the context is done, without the scenario.
	Still bool
	// Picks compares the cost of a pick with stock grpc-go.
	Picks bool
	// Measure is the duration of measurements of shares; 0 means 2.5 s.
	Measure time.Duration
}

const (
	workers = 8
	rate    = 250 // RPCs per second and worker

	// patience is the timeout of every wait in the demo. It affects nothing else, so that a
	// busy machine may be slow.
	patience = 2 * time.Minute
)

// scene is the running demo.
type scene struct {
	*show
	fleet   *fleet
	cc      *grpc.ClientConn
	load    *load
	measure time.Duration
}

// Run runs the scenario once. It returns an error if a step fails or a claim does not hold, and
// leaves no resources behind. If ctx is done before the end, Run prints its progress and
// returns ctx's error.
func Run(ctx context.Context, opt Options) (err error) {
	s := &scene{show: &show{out: opt.Out, live: opt.Live, begin: time.Now()}, measure: opt.Measure}
	if s.measure == 0 {
		s.measure = 2500 * time.Millisecond
	}
	if !opt.Still {
		fmt.Fprint(opt.Out, "An ADS control plane, nine backends in three localities and a client, all\n"+
			"real and on loopback. Whatever is claimed is checked. This takes 30 s.\n")
	}
	if s.fleet, err = startFleet(); err != nil {
		return err
	}
	defer s.fleet.stop()
	cc, err := dial(s.fleet)
	if err != nil {
		return err
	}
	defer func() { _ = cc.Close() }() // the error is irrelevant
	s.cc = cc
	s.load = startLoad(cc, workers, rate, func(err error) bool { return strings.Contains(err.Error(), "demo-throttle") })
	defer s.load.stop()
	if opt.Still {
		<-ctx.Done()
		return ctx.Err()
	}
	err = s.play(ctx, s.parts(cc, opt.Picks))
	if ctx.Err() != nil {
		made, held := s.sum()
		fmt.Fprintf(s.out, "\nStopped after %.1f s, in act %d of %d: so far %s.\n", s.elapsed(), len(s.acts), s.total, verdict(made, held))
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	made, held := s.sum()
	fmt.Fprintf(s.out, "\nAfter %.1f s %s.\n", s.elapsed(), verdict(made, held))
	if held < made {
		return fmt.Errorf("demo: %d claims do not hold", made-held)
	}
	return nil
}

// A part is the action of an act.
type part struct {
	title string
	play  func(context.Context) error
}

func (s *scene) parts(cc *grpc.ClientConn, picks bool) []part {
	list := []part{
		{"Localities and endpoints get their weights' shares", s.shares},
		{"Weights change under load", s.shift},
		{"A priority dies, the next takes over; it returns", s.failover},
		{"A drop category", s.drops},
		{"The control plane dies and returns", s.outage},
	}
	if picks {
		list = append(list, part{"A pick beside stock grpc-go's", func(ctx context.Context) error { return s.picks(ctx, cc) }})
	}
	return list
}

func (s *scene) play(ctx context.Context, parts []part) error {
	s.total = len(parts)
	for _, p := range parts {
		s.open(p.title)
		if err := p.play(ctx); err != nil {
			return err
		}
	}
	return nil
}

func dial(f *fleet) (*grpc.ClientConn, error) {
	opts, err := integrate.DialOptions(integrate.Config{Bootstrap: f.control.Bootstrap("demo"), Linger: -1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	return grpc.NewClient("xds:///"+target, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
}

// watch polls the load until cond holds.
func (s *scene) watch(ctx context.Context, what string, cond func(total, dropped int64, served map[string]int64) bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		total, dropped, served := s.load.seen()
		if cond(total, dropped, served) {
			return nil
		}
		s.status("%s: %d RPCs; %s", what, total, s.zones(served))
		select {
		case <-tick.C:
		case <-deadline:
			return fmt.Errorf("demo: %s: not within %v (%d RPCs, by zone %s)", what, patience, total, s.zones(served))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *scene) zones(served map[string]int64) string {
	var out []string
	for _, l := range s.fleet.localities {
		_, n := l.served(served)
		out = append(out, fmt.Sprintf("%s %d", l.zone, n))
	}
	return strings.Join(out, ", ")
}

// pushed serves the current fleet, and returns when new RPCs use it: soon after the client has
// accepted it.
func (s *scene) pushed(ctx context.Context) error {
	if err := s.fleet.push(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := s.fleet.control.WaitACK(ctx, xdstest.EDS); err != nil {
		return err
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for want := s.fleet.picture(); ; {
		x, err := integrate.Explain(ctx, s.cc, testgrpc.TestService_UnaryCall_FullMethodName)
		if err == nil && picture(x) == want {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("demo: the client has not applied the accepted configuration after %v: %v, %v; want %s", patience, x, err, want)
		}
	}
}

// observe counts RPCs for the measuring time from now on.
func (s *scene) observe(ctx context.Context, what string) (*counts, error) {
	s.load.take()
	end := time.Now().Add(s.measure)
	err := s.watch(ctx, what, func(total, _ int64, _ map[string]int64) bool {
		return total > 500 && time.Now().After(end)
	})
	return s.load.take(), err
}

// sevenSigma is the maximum deviation of a randomly drawn share.
func sevenSigma(p float64, n int64) float64 { return 7 * math.Sqrt(p*(1-p)/float64(n)) }

// claimShares compares the shares of the backends with the weights of priority 0.
func (s *scene) claimShares(c *counts) {
	var sum uint32
	for _, l := range s.fleet.localities {
		if l.priority == 0 {
			sum += l.weight
		}
	}
	answered := s.fleet.atPriority(0, c.served)
	for _, l := range s.fleet.localities {
		each, all := l.served(c.served)
		if l.priority > 0 {
			s.count("RPCs to "+l.zone+", priority 1", 0, all)
			continue
		}
		want := float64(l.weight) / float64(sum)
		s.share(fmt.Sprintf("%s, weight %d", l.zone, l.weight), want, float64(all)/float64(answered), sevenSigma(want, answered))
		var of uint32
		for _, w := range l.weights {
			of += w
		}
		for i, n := range each {
			// EDF is exact within n·w/W picks of a locality; this leaves room for the RPCs in
			// flight at both ends.
			want := float64(l.weights[i]) / float64(of)
			s.share(fmt.Sprintf("  its endpoint %d, weight %d of %d", i, l.weights[i], of),
				want, float64(n)/float64(all), float64(2*workers)/float64(all))
		}
	}
	s.count("failed RPCs", 0, c.failed)
}

func (s *scene) shares(ctx context.Context) error {
	s.note("east-a to east-b is 3 to 1; their endpoints are 1, 2, 3 and 1, 1, 1; west-a has priority 1 and waits")
	if err := s.watch(ctx, "first RPCs", func(_, _ int64, served map[string]int64) bool {
		ready := 0
		for _, l := range s.fleet.localities {
			each, _ := l.served(served)
			for _, n := range each {
				if n > 0 {
					ready++
				}
			}
		}
		return ready == 6
	}); err != nil {
		return err
	}
	c, err := s.observe(ctx, "shares")
	if err != nil {
		return err
	}
	s.note("%d RPCs were made", c.total)
	s.claimShares(c)
	return nil
}

func (s *scene) shift(ctx context.Context) error {
	s.note("east-b goes to 3, as much as east-a, whose endpoints go to 8, 1, 1")
	s.load.take()
	a := s.fleet.locality("east-a")
	a.weights = []uint32{8, 1, 1}
	s.fleet.locality("east-b").weight = 3
	if err := s.pushed(ctx); err != nil {
		return err
	}
	during := s.load.take()
	c, err := s.observe(ctx, "shifted weights")
	if err != nil {
		return err
	}
	s.note("%d RPCs were made", c.total)
	s.claimShares(c)
	s.count("failed RPCs while the weights shifted", 0, during.failed)
	return nil
}

func (s *scene) failover(ctx context.Context) error {
	s.note("the six backends of priority 0 are killed")
	s.load.take()
	begin, atMost := time.Now(), 0
	for _, l := range s.fleet.localities[:2] {
		for _, b := range l.backends {
			b.Stop()
			atMost += workers // each may have one RPC there
		}
	}
	if err := s.watch(ctx, "failover", func(_, _ int64, served map[string]int64) bool { return s.fleet.atPriority(1, served) > 100 }); err != nil {
		return err
	}
	took := time.Since(begin)
	cut := s.load.take()
	s.note("priority 1 took over within %v", took.Round(time.Millisecond))
	s.claim(cut.failed <= int64(atMost), "failed RPCs, in flight when they were killed", fmt.Sprintf("<= %d", atMost), fmt.Sprint(cut.failed))
	c, err := s.observe(ctx, "priority 1 serves")
	if err != nil {
		return err
	}
	s.count("RPCs to priority 0 while it is down", 0, s.fleet.atPriority(0, c.served))
	s.count("failed RPCs while it is down", 0, c.failed)
	s.note("the six backends start again")
	for _, l := range s.fleet.localities[:2] {
		for _, b := range l.backends {
			if err := b.Start(); err != nil {
				return err
			}
		}
	}
	if err := s.watch(ctx, "failback", func(_, _ int64, served map[string]int64) bool {
		for _, l := range s.fleet.localities[:2] {
			each, _ := l.served(served)
			for _, n := range each {
				if n == 0 {
					return false
				}
			}
		}
		return true
	}); err != nil {
		return err
	}
	back := s.load.take()
	s.count("failed RPCs while it came back", 0, back.failed)
	c, err = s.observe(ctx, "priority 0 serves again")
	if err != nil {
		return err
	}
	s.note("priority 0 recovered; %d RPCs were made", c.total)
	s.count("RPCs to priority 1 after failback", 0, s.fleet.atPriority(1, c.served))
	s.count("failed RPCs after failback", 0, c.failed)
	return nil
}

func (s *scene) drops(ctx context.Context) error {
	s.note("a drop category of 10%% is configured")
	s.fleet.drop = 100_000
	if err := s.pushed(ctx); err != nil {
		return err
	}
	if err := s.watch(ctx, "drops", func(_, dropped int64, _ map[string]int64) bool { return dropped > 0 }); err != nil {
		return err
	}
	c, err := s.observe(ctx, "drop category")
	if err != nil {
		return err
	}
	s.note("%d RPCs were made", c.total)
	s.share("dropped by demo-throttle", 0.1, float64(c.dropped)/float64(c.total), sevenSigma(0.1, c.total))
	s.count("failed for other reasons", 0, c.failed)
	s.fleet.drop = 0
	if err := s.pushed(ctx); err != nil {
		return err
	}
	return nil
}

func (s *scene) outage(ctx context.Context) error {
	s.note("the control plane is killed")
	s.load.take()
	s.fleet.control.Stop()
	c, err := s.observe(ctx, "control plane is down")
	if err != nil {
		return err
	}
	s.note("%d RPCs were made without it", c.total)
	s.count("failed RPCs without a control plane", 0, c.failed)
	s.note("it starts again, and has new weights: 1, 1, 2 for east-a's endpoints")
	if err := s.fleet.control.Restart(); err != nil {
		return err
	}
	s.fleet.locality("east-a").weights = []uint32{1, 1, 2}
	if err := s.pushed(ctx); err != nil {
		return err
	}
	back := s.load.take()
	s.count("failed RPCs while it came back", 0, back.failed)
	c, err = s.observe(ctx, "control plane is back")
	if err != nil {
		return err
	}
	s.note("its weights are applied; %d RPCs were made", c.total)
	s.claimShares(c)
	return nil
}
