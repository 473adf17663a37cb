// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Command slowpod measures the plainest failure of a service: gRPC servers on loopback, of which one
// becomes slow while callers go on, in the setting of Buoyant's benchmark of June 2026 (five servers
// of 8 ms, one with 200 ms more, 32 callers). For each policy it prints the latencies while all
// servers are healthy, while one is slow, and that server's share of the RPCs when it has recovered.
//
//	go run ./bench/cmd/slowpod [-servers 5] [-callers 32] [-policy xdslb_least_latency] [-svg latencies.svg]
//
// It takes a minute for each policy, and needs a machine that does nothing else.
//
// It has the policies that a channel can use without xDS, except for
//   - pick_first, which uses one server;
//   - xdslb_ring_hash and ring_hash, which pick the server by the RPC's hash, however slow it is;
//   - grpc-go's weighted_round_robin, whose weights follow from the utilization that servers report: these
//     servers sleep, and use no CPU.
//
// All servers answer the probes of xdslb_prequal and count their RPCs, so that they are the same for each policy.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/balancer/leastrequest"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	_ "github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/probe"
)

var (
	servers = flag.Int("servers", 5, "number of servers")
	callers = flag.Int("callers", 32, "number of callers, each with one RPC at a time")
	needs   = flag.Duration("needs", 8*time.Millisecond, "duration of an RPC")
	slower  = flag.Duration("slower", 200*time.Millisecond, "additional duration on the slow server")
	scale   = flag.Float64("scale", 1, "factor for the duration of the phases")
	only    = flag.String("policy", "", "measure only the `policy` of this name")
	svg     = flag.String("svg", "", "write the latencies over time to a `file`")
)

// The policies, by the names in service configs.
var policies = []struct{ name, config string }{
	{"grpc-go round_robin", `{"round_robin": {}}`},
	{"grpc-go least_request", `{"least_request_experimental": {"choiceCount": 2}}`},
	{"xdslb_weighted_round_robin", `{"xdslb_weighted_round_robin": {}}`},
	{"xdslb_least_request", `{"xdslb_least_request": {}}`},
	{"xdslb_least_latency", `{"xdslb_least_latency": {}}`},
	{"xdslb_prequal", `{"xdslb_prequal": {}}`},
}

// The phases. Between the slow server's change and the phase that is measured the clients may learn
// of it.
var phases = []struct {
	name     string
	measured bool
	slow     bool
	length   time.Duration
}{
	{"start", false, false, 2 * time.Second},
	{"healthy", true, false, 10 * time.Second},
	{"change", false, true, 2 * time.Second},
	{"one slow", true, true, 20 * time.Second},
	{"recovery", false, false, 15 * time.Second},
	{"recovered", true, false, 10 * time.Second},
}

type server struct {
	testgrpc.UnimplementedTestServiceServer
	slow atomic.Bool
	rpcs atomic.Int64
}

func (s *server) EmptyCall(ctx context.Context, _ *testgrpc.Empty) (*testgrpc.Empty, error) {
	s.rpcs.Add(1)
	d := *needs
	if s.slow.Load() {
		d += *slower
	}
	time.Sleep(d)
	return &testgrpc.Empty{}, nil
}

func main() {
	flag.Parse()
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "slowpod:", err)
		os.Exit(1)
	}
}

// start starts the servers. stop is never nil.
func start() (list []*server, state resolver.State, stop func(), err error) {
	var running []*grpc.Server
	stop = func() {
		for _, s := range running {
			s.Stop()
		}
	}
	for range *servers {
		lis, err := net.Listen("tcp", "localhost:0")
		if err != nil {
			return nil, state, stop, err
		}
		load, one := probe.NewLoad(), new(server)
		s := grpc.NewServer(load.ServerOption())
		probe.Register(s, load)
		testgrpc.RegisterTestServiceServer(s, one)
		go s.Serve(lis)
		list, running = append(list, one), append(running, s)
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: lis.Addr().String()}}})
	}
	return list, state, stop, nil
}

func run(out io.Writer) error {
	list, state, stop, err := start()
	defer stop()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d servers of %v, one of them %v slower for a while, %d callers; milliseconds\n\n", *servers, *needs, *slower, *callers)
	fmt.Fprintf(out, "| policy | healthy p50 | p99 | p99.9 | one slow p50 | p99 | p99.9 | share of the slow one | share after its recovery |\n|---|---|---|---|---|---|---|---|---|\n")
	var pictures []picture
	for _, p := range policies {
		if *only != "" && p.name != *only {
			continue
		}
		r := manual.NewBuilderWithScheme("pods")
		r.InitialState(state)
		cc, err := grpc.NewClient("pods:///pods", grpc.WithResolvers(r), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [`+p.config+`]}`))
		if err != nil {
			return err
		}
		m, err := measure(cc, list)
		cc.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		h, s, a := m.results["healthy"], m.results["one slow"], m.results["recovered"]
		fmt.Fprintf(out, "| %s | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.2f %% | %.1f %% |\n", p.name,
			h.quantile(.5), h.quantile(.99), h.quantile(.999), s.quantile(.5), s.quantile(.99), s.quantile(.999), 100*s.share, 100*a.share)
		pictures = append(pictures, picture{p.name, m.seconds})
	}
	if len(pictures) == 0 {
		return fmt.Errorf("there is no policy %q", *only)
	}
	if *svg == "" {
		return nil
	}
	return os.WriteFile(*svg, []byte(draw(pictures)), 0o644)
}

// A measurement is the result of one policy.
type measurement struct {
	results map[string]*phase
	seconds []float64 // the 99th percentile of the RPCs that began in each second, in milliseconds
}

// A phase has the sorted latencies of its RPCs and the slow server's share of them.
type phase struct {
	took  []time.Duration
	share float64
}

// quantile returns a quantile of the latencies in milliseconds.
func (p *phase) quantile(q float64) float64 {
	if len(p.took) == 0 {
		return 0
	}
	return float64(p.took[min(int(q*float64(len(p.took))), len(p.took)-1)]) / 1e6
}

type sample struct{ begin, took time.Duration }

func measure(cc *grpc.ClientConn, list []*server) (*measurement, error) {
	client := testgrpc.NewTestServiceClient(cc)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := client.EmptyCall(ctx, &testgrpc.Empty{}, grpc.WaitForReady(true)); err != nil {
		return nil, err
	}
	var stop atomic.Bool
	var all sync.WaitGroup
	start := time.Now()
	samples := make([][]sample, *callers)
	errs := make([]error, *callers)
	for i := range samples {
		all.Go(func() {
			for !stop.Load() {
				begin := time.Since(start)
				if _, err := client.EmptyCall(context.Background(), &testgrpc.Empty{}); err != nil {
					errs[i] = err
					return
				}
				samples[i] = append(samples[i], sample{begin, time.Since(start) - begin})
			}
		})
	}
	type span struct{ from, to time.Duration }
	spans := make([]span, len(phases))
	m := &measurement{results: map[string]*phase{}}
	for i, p := range phases {
		list[0].slow.Store(p.slow)
		before := counts(list)
		from := time.Since(start)
		time.Sleep(time.Duration(float64(p.length) * *scale))
		spans[i] = span{from, time.Since(start)}
		if p.measured {
			after, total := counts(list), int64(0)
			for k := range after {
				total += after[k] - before[k]
			}
			m.results[p.name] = &phase{share: float64(after[0]-before[0]) / float64(max(total, 1))}
		}
	}
	stop.Store(true)
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	bySecond := make([][]time.Duration, int(spans[len(spans)-1].to/time.Second)+1)
	for _, s := range slices.Concat(samples...) {
		for i, p := range phases {
			if p.measured && s.begin >= spans[i].from && s.begin < spans[i].to {
				m.results[p.name].took = append(m.results[p.name].took, s.took)
			}
		}
		if k := int(s.begin / time.Second); k < len(bySecond) {
			bySecond[k] = append(bySecond[k], s.took)
		}
	}
	for _, p := range m.results {
		slices.Sort(p.took)
	}
	for _, took := range bySecond {
		slices.Sort(took)
		m.seconds = append(m.seconds, (&phase{took: took}).quantile(.99))
	}
	return m, nil
}

func counts(list []*server) (n []int64) {
	for _, s := range list {
		n = append(n, s.rpcs.Load())
	}
	return n
}

// A picture is one curve: latencies by second.
type picture struct {
	name    string
	seconds []float64
}

// colors are those of the curves.
var colors = []string{"#757575", "#6d4c41", "#1565c0", "#2e7d32", "#c62828", "#6a1b9a"}

// draw returns an SVG of the curves, one below the other, with the time in which a server is slow
// shaded.
func draw(list []picture) string {
	const width, height, left, top = 640, 60, 170, 24
	total, from, to := 0., 0., 0.
	for _, p := range phases {
		d := p.length.Seconds() * *scale
		if p.slow && from == 0 {
			from = total
		}
		if total += d; p.slow {
			to = total
		}
	}
	most := 1.
	for _, p := range list {
		most = max(most, slices.Max(p.seconds))
	}
	x := func(s float64) float64 { return left + s/total*width }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", left+width+60, top+(height+14)*len(list)+24)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/><rect x="%.0f" y="%d" width="%.0f" height="%d" fill="#fbe9e7"/>`+"\n", x(from), top, x(to)-x(from), (height+14)*len(list))
	fmt.Fprintf(&b, `<text x="%.0f" y="16">one of %d servers is %v slower</text>`+"\n", x(from), *servers, *slower)
	for i, p := range list {
		base := float64(top + (height+14)*i + height)
		fmt.Fprintf(&b, `<text x="4" y="%.0f">%s</text><line x1="%d" x2="%d" y1="%.0f" y2="%.0f" stroke="#999"/><text x="%d" y="%.0f" fill="#666">%.0f ms</text>`+"\n", base-height/2, p.name, left, left+width, base, base, left+width+4, base-height+10, most)
		fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="`, colors[i%len(colors)])
		for s, v := range p.seconds {
			fmt.Fprintf(&b, "%.1f,%.1f ", x(min(float64(s), total)), base-v/most*height)
		}
		b.WriteString("\"/>\n")
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#666">99th percentile of the latency by second, over %.0f s</text></svg>`+"\n", left, top+(height+14)*len(list)+16, total)
	return b.String()
}
