// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package latency is a study of what users of a service see: how long RPCs take
// when backends differ in speed, by policy and implementation, and while
// weights shift, backends fail and the control plane is away.
//
// # Open loop
//
// RPCs are sent at times that were drawn beforehand, at a fixed mean rate,
// whether or not earlier ones have come back, and an RPC's latency counts from
// the time at which it should have been sent. A closed loop, which sends the next RPC
// after the last one's answer, stops asking just when answers are slow, and so
// leaves out the latencies that matter (coordinated omission). How late the
// generator itself is, is reported next to the results.
//
// # Backends
//
// They are real gRPC servers on loopback in the same process. Each has a number
// of workers and a service time, so it queues when it gets more than its share:
// one of ten has a quarter of the others' capacity. That is what a policy can
// be good or bad at; the work itself is a timer, or else two processors could not
// play ten backends.
//
// Processor time is the whole process's, servers and generator included, which
// are the same for all.
package latency
