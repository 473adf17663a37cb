// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package rpc has the client interceptors, which apply everything of a route except the choice
// of an endpoint: timeouts, retries, hedging, HTTP filters and sessions. It also keeps all
// attempts of an RPC on one cluster (A31).
//
// # One RPC
//
// The interceptor (interceptor.go) finds the Channel, and through it the Table in force
// (waiting.go before the first configuration). Bind (call.go) matches route and
// cluster, and puts a Call with them into the RPC's context. The RPC then passes these stages,
// as far as the plan of its route (plan.go) has them:
//
//	timeout    interceptor.go
//	filters    filter.go: fault.go, session.go, and filters of users
//	attempts   hedge.go, or retry.go, within its limits; streams are replayed (retrystream.go)
//	probe      Call.probe, for clusters that plan.go finds
//
// Each attempt (attempt.go) leads to a pick, which finds the Call in the context. The first
// pick commits the RPC to a cluster: the cluster of the route, unless headers have changed since (D13).
// Later picks use the same cluster. A Call holds no Snapshot, so that a stream that lasts for
// days does not keep an old Snapshot alive (D9).
//
// A target whose routes need no interceptor has no Plans. Its RPCs get no Call, and its picks
// do not look for one.
//
// # One hedged attempt
//
//  1. unaryRPC.attempts in interceptor.go selects unaryRPC.hedge if the plan has hedges and
//     unaryRPC.mayHedge permits that: the method is idempotent, and the messages are protobuf
//     and fit into gRPC's retry buffer. Other RPCs are retried (unaryRPC.retry).
//  2. hedgedCall.launch in hedge.go starts the first attempt. hedgedCall.run waits for attempts
//     and the timer, and has hedgedCall.again launch a further attempt when the timer expires or
//     an attempt fails. hedgedCall.again needs room in the retry Budget.
//  3. retries.begin numbers the attempt and gives it options of its own, so that gRPC stores
//     headers, trailers and the peer in the attempt. Headers of an attempt belong in
//     attempt.options, as withPreviousAttempts does, since a context is also used for other
//     RPCs. RPCs without a retry policy and gRPC's own retries do not pass here: only picks see
//     each attempt (pick.result). Later attempts have copies of the messages. A goroutine runs
//     unaryRPC.attempt, the last stage, and reports the end to the hedgedCall.
//  4. The pick is the same as for any RPC with a Call. Call.Picked wraps Done, so that the
//     endpoint does not count a canceled attempt as a failure. If the retry policy avoids
//     previous hosts, it adds the connection to Tried.
//  5. hedgedCall.end applies retries.after, the rules of retries: codes, backoff, pushback,
//     throttling. The first good answer or fatal code decides the RPC. A refusal by a pick, a
//     pushback or the maximum number of attempts only prevents further attempts. Attempts that
//     are left are canceled with ErrHedgeSuperseded.
//  6. hedgedCall.deliver waits for the first attempt, which uses the application's messages, and
//     copies the winner's results.
//
// # Concurrency
//
// A Table is immutable. This package takes no lock of the balancer. It starts a goroutine for
// each attempt at an RPC that is hedged, which ends with the attempt.
//
// # How to add an HTTP filter
//
// Users add filters with integrate.RegisterHTTPFilter. A built-in filter needs its messages and a
// converter in resource.builtin, as resource.newFault, and a case in interceptorFor. Routes share
// interceptors (filterSet). The model is fault.go. overrideOf resolves overrides. The comment of
// integrate.HTTPFilter lists the built-in filters. Sessions, which change picks, are in
// integrate/internal/balancer/pick.go.
//
// # How to add a retry condition
//
//   - A status code or name in retry_on: resource.retryCodes.
//   - Another condition, such as a trailer (attempts with response headers are final): a field
//     of picker.RetryPolicy, decoded in resource.retryPolicy, which drops policies without
//     codes. It is checked in retries.after for unary RPCs, streams (retriedStream) and hedges;
//     hedgedCall.end decides whether it stops active hedges. methodconfig.Compile must leave
//     such routes to the interceptors, as it does with hedged ones, since the service config
//     cannot express the condition. explain.retryStatus shows it, as a field of
//     report.RetryStatus.
//   - Never retried: an RPC for which a pick returned a status (Call.Failed).
package rpc
