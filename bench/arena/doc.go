// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package arena provides a comparison of load-balancing policies: it runs fleets of clients and
// servers with each policy, ours and the policies of google.golang.org/grpc/xds, and compares
// the latencies and errors that users would see.
//
//	make arena                                      # everything that is published
//	make arena ARENA="-fleets slow -policies least" # some of it
//	go run ./bench/cmd/arena -from bench/out/arena.json
//
// # Problem
//
// A pick costs fifty nanoseconds; sending an RPC to the wrong server costs fifty milliseconds.
// Which server is wrong cannot be measured on one machine in real time: two processors cannot
// run thirty servers at 80 % load, and a smaller fleet is dominated by noise of the machine.
// Simulations of policies can, but they simulate the policies as well, which are the subject of
// the comparison, with their timers, their connections, and their defects.
//
// # Structure
//
// So clients are real and servers are not. Channels are gRPC's, with the balancer of the
// policy, connected in memory to gRPC servers. Each server has a model (Server) that determines
// the duration of RPCs: a number of workers, a queue, a speed. Everything runs in a bubble of
// testing/synctest, where time advances only when all goroutines are blocked. A second of a
// fleet takes as long as its RPCs take to compute, and latencies do not depend on the machine.
//
//	arrivals (seed) ──→ client's channel ──→ balancer ──→ SubConn ──→ gRPC server ──→ Server
//	                    ours, stock, anchor    of the policy    in memory       queue, workers, speed
//	control plane ──→ xDS                                                        ↑
//	                                                   events (seed): slow, stalled, gone ...
//
// The same servers and arrivals can also run without channels, as a list of events (Kernel):
// package picker's snapshots pick, or stock's balancers on a fake channel, about eighty times
// as fast. That is for long runs, for theory (TestRandomIsMM1, TestWorkersAreMMc), and to
// distinguish effects of the policy from effects of the channel. One fleet also runs over TCP
// in real time, to check that policies have the same order.
//
// # Files
//
//	policy.go   the rows: Policies
//	fleet.go    the fleets: Fleets, Calibration, LoopbackFleet, and their events
//	load.go     the RPCs: arrivals, methods, distributions
//	server.go   the model of a server
//	zones.go    clients in zones, and zone-aware policies
//	streams.go  RPCs that stay open
//	retries.go  RPCs with several attempts: hedging, an outage, a surge
//	caches.go   combinations of features: caches by key and slow start, failing fast and outlier detection
//	prequal.go  probes with the delay of a network
//	anchor.go   random and the oracle, as balancers; peakewma.go is a common latency policy
//	node.go     a gRPC server around a model; xdstest.Network connects it
//	world.go    a run with channels
//	kernel.go   a run without; balancerkernel.go has stock's balancers there
//	clock.go    the time of both
//	score.go    from RPCs to a Result; report.go has verdicts, text.go tables
//	compare.go  previously known figures; the order of policies in real time
//	cell.go     all runs, by name, for bench/cmd/arena, which executes them
//	seed_on.go  makes random choices follow the seed
//
// # Adding a policy
//
// An entry in Policies is sufficient; it then runs in every fleet.
//
//   - A policy of clusters: Impl is Ours or Stock, Cluster is the configuration of the
//     control plane, for example testplane.Policies(testplane.TypedStruct("xdslb_...", ...)).
//   - A policy by name, without xDS: ServiceConfig. Endpoints have their nominal
//     speed as weight. Impl is Ours, or Anchor for a policy that is only compared with.
//   - A server side, as for probes: Server returns options and services for
//     the gRPC server, given the model. DialOptions are options for the
//     clients. Messages of any method but the arena's own count as extra.
//   - A kernel, if the policy can pick without a channel: snapshots for policies of
//     package picker, newBalancerKernel for balancers of gRPC's registry that do not read
//     the time. A Kernel is given the run's time, since there is no other.
//   - Only limits the row to some fleets. A fleet has an Only as well.
//
// A policy must draw from math/rand/v2 and read time from package time, otherwise its figures
// do not follow the seed.
//
// # Score
//
// RPCs are an open loop: they are sent when they are due, whether or not earlier RPCs have
// ended, and latencies are measured from then. Policies are compared by the 99th percentile,
//
//	regret = (p99 − oracle) / (random − oracle)
//
// where random picks at random, and the oracle knows all queues, speeds and failures and picks
// the server at which the RPC would end first. It is within a tenth of a single queue for all
// servers (TestOracleNearCentralQueue), but it is greedy and not a bound: if the needs of RPCs
// vary widely, a better policy is possible.
//
// The latency of a failed RPC is its timeout, otherwise rejecting RPCs would reduce latencies.
// The latency of an RPC that has not ended by the end of the run is the time until then. Further
// figures are the fraction of the RPCs that succeeded (goodput), the fraction sent to bad servers while
// they were bad, or to a zone other than the client's, attempts per RPC, the fraction of the
// servers' capacity that was delivered in bad times and the time of recovery, the utilization
// of the busiest server relative to the mean, additional messages per RPC (probes, reports),
// and the processor time of the whole process per RPC, which is mostly gRPC's, on both sides.
//
// ± is half of a 95 % confidence interval of the 99th percentile, from the variance over tenths
// of the run. It is large: at 80 % load the state of a queue is correlated over about a second,
// so a run of 20 s with 30 servers has a few hundred independent samples. Differences between
// rows are more reliable than that, since all rows have the same RPCs; but a policy that is
// better by 5 % in one run is not necessarily better. Kernels, which run for a minute, are more
// accurate.
//
// # Reproducibility
//
// Arrivals, needs of RPCs and events are drawn from the seed in advance. Policies draw from
// math/rand/v2. With the build tag seeded and the linker's -checklinkname=0 the arena replaces
// that package's source, and connects clients one after the other. Then anchors and ours repeat
// exactly (TestSeed), regardless of the load of the machine. Simultaneous events occur in any
// order: with servers that stop, figures repeat within some percent, and prequal, whose probes
// return simultaneously, repeats within ±. So do stock's policies, which iterate over endpoints
// in the order of a Go map, which cannot be seeded.
//
// # Caveats
//
// Time is virtual, so processor time takes no time: a policy that computes for a millisecond
// looks as good as one that does not. CPU and the scoreboard measure that. The network has no
// delay either, so the information of a policy is outdated only by its own delays. Servers are
// fair queues without timeouts of their own; memory, threads and garbage collection are not
// modeled. A worker continues a job after the client has given up, as most servers do, and some
// also start such jobs (Fleet.Stubborn).
//
// All clients are in one process. Circuit breakers and retry budgets are per process, so where
// RPCs are repeated each client has its own service.
//
// Utilization, including the load reports to client_wrr, is that of workers of the model. It is
// 1 for a full server, regardless of the length of its queue.
//
// # Rejected designs
//
// A simulation of stock's policies would be fast, but the result would be about the simulation.
// Delays in the network would take three timers for each message. Closed loops send fewer RPCs
// while responses are slow. The mean of latencies hides the latencies that users complain
// about, and quantiles above p99 need runs that are ten times as long.
package arena
