// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package perrpc does what xDS routes ask for besides the choice of a
// connection: timeouts, retries, HTTP filters, and that all attempts of an RPC go
// to one cluster (A31).
//
// # Structure
//
//	table.go        Table: what a publication of the balancer says about RPCs
//	plan.go         Plans: what is to be done for each route, made when routes change
//	methodconfig.go the part that gRPC's service config can say (D6)
//	link.go         Link: how a *grpc.ClientConn leads to the tables of its channel
//	links.go        all Links of the process, and those of a target
//	wake.go         whose wish it is that an idle channel connects
//	interceptor.go  UnaryInterceptor and StreamInterceptor, which do the rest
//	call.go         Call: an RPC's binding to a route, from the interceptor to the picks
//	filter.go       HTTP filters (A39), also those of users
//	fault.go        fault injection (A33)
//	asking.go       RPCs that ask endpoints before they are sent (Prequal)
//	admission.go    admission control: RPCs are refused while too many fail
//	concurrency.go  adaptive concurrency: RPCs are refused while too many are in flight
//	session.go      session affinity by cookie (A55, A60); the picker keeps to it
//	retry.go        retries (A44), of unary RPCs
//	retrystream.go  and of streams, which are replayed
//	wiresize.go     how much a request counts of what is kept for that
//	attemptcreds.go the header that says how many attempts were made before
//	tried.go        Tried: the connections that attempts were given, which others avoid
//	budget.go       how many retries of a cluster's RPCs may be under way
//	throttle.go     and how many those of a channel (A6's retryThrottling)
//	hedge.go        further attempts while one takes long
//	results.go      what attempts leave for the options of their RPC
//	details.go      details of errors, for programs
//	explain.go      what a route says, for Explain
//	unapplied.go    what a channel without interceptors does not do, and says so
//
// # One RPC
//
// The interceptor finds the channel's Link, and through it the Table in force. It
// matches route and cluster, puts a Call with them into the RPC's context, and applies
// the plan of the route. That is, from outside in: the timeout, the filters, hedges or
// retries, and for each attempt the probes. Each attempt comes to a pick, which finds the Call in the
// context. The first pick settles the cluster: that of the route, unless headers
// have changed since (D13). The others go to the same one. A Call holds no Snapshot,
// so that a stream that lasts for days keeps no old one alive (D9).
//
// A target whose routes ask for nothing has no Plans; its RPCs get no Call, and
// its picks do not look for one.
//
// # Concurrency
//
// A Table is immutable. A Link's methods may be called by any goroutine, except
// NoteFailure and ForgetFailures, whose calls the balancer serialises. This
// package takes no lock of the balancer. It starts a goroutine for each attempt at an RPC that
// is hedged, which ends with the attempt.
package perrpc
