// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package arena finds out which load-balancing policy is best where: it plays
// fleets of clients and servers with each policy, ours and those of
// google.golang.org/grpc/xds, and compares what users would see.
//
//	make arena                                      # everything that is published
//	make arena ARENA="-fleets slow -policies least" # some of it
//	go run ./bench/cmd/arena -from bench/out/arena.json
//
// # Problem
//
// A pick costs fifty nanoseconds; sending an RPC to the wrong server costs fifty
// milliseconds. Which server is wrong cannot be measured on one machine in real
// time: two processors cannot play thirty servers at 80 % load, and what they can
// play is drowned by their own noise. Simulations of policies can, but they
// simulate the policies as well, and these are what is to be judged: with their
// timers, their connections, and whatever is wrong with them.
//
// # Structure
//
// So clients are real and servers are not. Channels are gRPC's, with the balancer of
// the policy, connected in memory to gRPC servers, each of which asks a model (Server)
// how long an RPC takes: a number of workers, a queue, a speed. All of it is in a bubble of
// testing/synctest, where time passes only when nothing else can happen. A second of
// a fleet takes as long as its RPCs take to compute, and latencies have nothing of
// the machine in them.
//
//	arrivals (seed) ──→ client's channel ──→ balancer ──→ SubConn ──→ gRPC server ──→ Server
//	                    ours, stock, anchor    of the policy    in memory       queue, workers, speed
//	control plane ──→ xDS                                                        ↑
//	                                                   events (seed): slow, stalled, gone ...
//
// The same servers and arrivals can be played without channels, as a list of events
// (Kernel): package picker's snapshots pick, or stock's balancers on a fake channel, about eighty
// times as fast. That is for long runs, for theory (TestRandomIsMM1, TestWorkersAreMMc), and to tell what is
// the policy's from what is the channel's. One fleet is played over TCP in real time as
// well, to see that policies come out in the same order.
//
// # Files
//
//	policy.go   the rows: Policies
//	fleet.go    the fleets: Fleets, Calibration, LoopbackFleet, and their events
//	load.go     what RPCs there are: arrivals, methods, distributions
//	server.go   the model of a server
//	zones.go    clients in zones, and the policies that mind
//	streams.go  RPCs that stay open
//	retries.go  how often RPCs are sent: hedging, an outage, a surge
//	prequal.go  probes that are on their way for as long as in a network
//	anchor.go   random and the oracle, as balancers; peakewma.go is what others do with latency
//	node.go     a gRPC server around a model; xdstest.Network connects it
//	world.go    a run with channels
//	kernel.go   a run without; staged.go has stock's balancers there
//	clock.go    the time of both
//	score.go    from RPCs to a Result; report.go has verdicts, text.go tables
//	compare.go  figures that were known before; the order of policies in real time
//	cell.go     all runs, by name, for bench/cmd/arena, which makes them
//	seed_on.go  has random choices follow the seed
//
// # How a policy gets a row
//
// An entry in Policies is enough; every fleet then plays it.
//
//   - A policy of clusters: Impl is Ours or Stock, Cluster is what the control plane
//     says, xdstest.Policies(xdstest.TypedStruct("xdslb_...", ...)) for instance.
//   - A policy by name, without xDS: ServiceConfig. Endpoints have their nominal
//     speed as weight. Impl is Ours, or Anchor for what is only compared with.
//   - A part on servers, as probes need it: Server returns options and services for
//     the gRPC server, given the model. Options that the clients need are
//     DialOptions. Messages of any method but the arena's own count as extra.
//   - A kernel, if the policy can pick without a channel: snapshots for those of
//     package picker, staged for balancers of gRPC's registry that do not look at the
//     time. A Kernel is told of the run's time, since there is no other.
//   - Only limits the row to some fleets. A fleet has an Only as well.
//
// A policy draws from math/rand/v2 and reads time from package time, or its figures do
// not follow the seed.
//
// # The score
//
// RPCs are an open loop: they are sent when they are due, whether or not others are
// back, and latencies count from then. What policies do is compared by the 99th
// percentile,
//
//	regret = (p99 − oracle) / (random − oracle)
//
// where random picks at random, and the oracle sees all queues, speeds and failures
// and picks the server at which the RPC would end first. It comes within a tenth of one
// queue for all servers (TestOracleNearCentralQueue), but it is greedy and no bound:
// where RPCs differ much in what they need, one could do better.
//
// An RPC that fails counts with its timeout, or refusing RPCs would be a way to have
// low latencies. One that has not ended at the end of the run counts with the time
// until then. Beside that there are the part of the RPCs that succeeded (goodput), the part that
// was sent to the servers that were bad while they were, or to another zone than the
// client's, attempts for an RPC, the part of what servers can do that was delivered in bad times
// and how long it took to recover from them, the utilisation of the busiest
// server to the mean, messages for an RPC beside it (probes, reports), and the
// processor time of the whole process for an RPC, which is mostly gRPC's, on both
// sides.
//
// ± is half of a 95 % confidence interval of the 99th percentile, from the scatter
// over tenths of the run. It is large: at 80 % load a queue forgets in a second or so,
// and a run of 20 s with 30 servers has seen a few hundred independent states of a
// queue. Differences of rows are surer than that, since all rows are given the same
// RPCs; but a policy that is better by 5 % in one run is not better. Kernels, which play
// for a minute, are for that.
//
// # The same seed
//
// Arrivals, what RPCs need and events are drawn from the seed beforehand. Policies
// draw from math/rand/v2; with the build tag seeded and the linker's -checklinkname=0
// the arena gives that package a source of its own, and connects clients one after
// the other. Then anchors and ours repeat to the last digit (TestSeed), however busy the machine
// is. What happens at the same time does so in any order: where servers stop they repeat within
// some percent, and prequal, whose probes come back together, as well as ± says. So do stock's
// policies, which have their endpoints in the order of a Go map that nobody can seed.
//
// # Caveats
//
// Time is virtual, so processor time takes none of it: a policy that computes for a
// millisecond looks as good as one that does not. CPU is there for that, and the
// scoreboard. The network has no delay either, so what a policy has been told is never
// out of date by more than it makes itself. Servers are fair queues without timeouts of
// their own; memory, threads and garbage collection are not modelled. A worker that has begun goes on
// after the client has given up, as most servers do, and some begin all the same (Fleet.Stubborn).
//
// All clients are in one process. Circuit breakers and retry budgets are those of a process, so
// where RPCs are sent again each client has a service of its own.
//
// Utilisation, and with it what servers report to client_wrr, is that of workers of
// the model. It is 1 for a server that is full, however long the queue.
//
// # Rejected
//
// A simulation of stock's policies would be fast, and a judgement about a simulation.
// Delays in the network would take three timers for each message. Closed loops stop
// asking where answers are slow. The mean of latencies hides what users complain of, and
// quantiles above p99 need runs that are ten times as long.
package arena
