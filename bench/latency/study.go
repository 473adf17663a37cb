// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package latency

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/metrics"
	"time"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/bench/cputime"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// A Study says how long and how hard to measure.
type Study struct {
	Rate     float64       // RPCs per second
	Duration time.Duration // of each run
	// Progress, if not nil, is told what is being done, out of how much.
	Progress func(done, total int, what string)

	net *xdstest.Network // nil is loopback; of tests, in a bubble
}

const (
	rpcTimeout = time.Second
	warmUp     = 600 * time.Millisecond // clients weigh by load after some reports
)

// Run does the study. What an implementation refuses to do is in the report,
// not an error.
func (s Study) Run(ctx context.Context) (*Report, error) {
	var jobs []job
	for _, p := range policies {
		for _, impl := range []Impl{Plain, Stock, Ours} {
			if impl == Plain && p.name != "round_robin" || impl == Stock && p.weighted {
				continue // it has no such policy
			}
			jobs = append(jobs, job{impl: impl, policy: p})
		}
	}
	for i := range events {
		for _, impl := range []Impl{Stock, Ours} {
			jobs = append(jobs, job{impl: impl, policy: policies[0], event: &events[i]})
		}
	}
	r := &Report{Rate: s.Rate, Seconds: s.Duration.Seconds()}
	for i, j := range jobs {
		if s.Progress != nil {
			s.Progress(i, len(jobs), j.String())
		}
		run := Run{Impl: string(j.impl), Policy: j.policy.name}
		if j.event != nil {
			run.Event = j.event.name
		}
		if err := s.measure(ctx, j, &run); err != nil {
			run.Error = err.Error()
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if j.event != nil {
			r.Events = append(r.Events, run)
		} else {
			r.Policies = append(r.Policies, run)
		}
	}
	return r, nil
}

// A job is a run to be made.
type job struct {
	impl   Impl
	policy policy
	event  *event // nil is none
}

func (j job) String() string {
	if j.event != nil {
		return fmt.Sprintf("%s: %s", j.impl, j.event.name)
	}
	return fmt.Sprintf("%s: %s", j.impl, j.policy.name)
}

// A world is what a run needs.
type world struct {
	fleet   []*node
	control *xdstest.Server
	policy  policy
}

// measure makes a run.
func (s Study) measure(ctx context.Context, j job, run *Run) (err error) {
	w := &world{policy: j.policy}
	if w.fleet, err = startFleet(j.event == nil, s.listen()); err != nil {
		return err
	}
	defer stopFleet(w.fleet)
	if w.control, err = xdstest.Start(xdstest.Options{Listen: s.listen()}); err != nil {
		return err
	}
	defer w.control.Stop()
	resources := j.policy.flat(w.fleet)
	if j.event != nil {
		resources = j.event.resources(w)
	}
	if err := w.control.Set(resources); err != nil {
		return err
	}
	cc, err := s.dial(j.impl, w.control, w.fleet)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cc.Close()) }()
	do := caller(cc)
	first, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := cc.Invoke(first, testgrpc.TestService_EmptyCall_FullMethodName, &testgrpc.Empty{}, &testgrpc.Empty{}, grpc.WaitForReady(true)); err != nil {
		return fmt.Errorf("the first RPC: %w", err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	send(ctx, schedule(s.Rate, warmUp, rng), do)

	at := schedule(s.Rate, s.Duration, rng)
	before := readUsage()
	played := make(chan error, 1)
	if j.event != nil {
		run.Marks = j.event.marks(s.Duration)
		go func() { played <- j.event.play(ctx, w, s.Duration) }()
	} else {
		played <- nil
	}
	calls := send(ctx, at, do)
	err = <-played
	after := readUsage()
	run.CPU = (after.process - before.process) * 1e6 / float64(max(1, len(calls)))
	run.GC = 100 * (after.gc - before.gc) / max(after.busy-before.busy, 1e-9)
	run.summarise(calls, w.fleet)
	if j.event != nil {
		run.divide(calls, w.fleet)
	}
	return err
}

// caller makes RPCs on a channel.
func caller(cc *grpc.ClientConn) func(ctx context.Context, i int) (string, error) {
	client := testgrpc.NewTestServiceClient(cc)
	return func(ctx context.Context, i int) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
		defer cancel()
		ctx = metadata.AppendToOutgoingContext(ctx, hashHeader, fmt.Sprint("user-", i*7919%1_000_003))
		resp, err := client.UnaryCall(ctx, &testgrpc.SimpleRequest{})
		return resp.GetHostname(), err
	}
}

// A usage is processor time so far, in seconds.
type usage struct {
	process float64 // by the kernel's account
	busy    float64 // by the runtime's, which counts a thread that waits for a processor as busy
	gc      float64 // of busy
}

func readUsage() usage {
	var u usage
	u.process = cputime.Process().Seconds()
	samples := []metrics.Sample{
		{Name: "/cpu/classes/total:cpu-seconds"}, {Name: "/cpu/classes/idle:cpu-seconds"},
		{Name: "/cpu/classes/gc/total:cpu-seconds"}, {Name: "/cpu/classes/gc/mark/idle:cpu-seconds"},
	}
	metrics.Read(samples)
	value := func(i int) float64 {
		if samples[i].Value.Kind() != metrics.KindFloat64 {
			return 0
		}
		return samples[i].Value.Float64()
	}
	// The collector's work on a processor that would be idle is nobody's loss.
	u.gc = value(2) - value(3)
	u.busy = value(0) - value(1) - value(3)
	return u
}
