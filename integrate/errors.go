// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import "github.com/xdslb/xdslb/integrate/internal/balancer"

// ErrorDomain is the domain of the google.rpc.ErrorInfo that the statuses of RPCs carry
// which this package ends, for programs that act on the reason:
//
//	for _, d := range status.Convert(err).Details() {
//		if info, ok := d.(*errdetails.ErrorInfo); ok && info.Domain == integrate.ErrorDomain {
//			switch info.Reason { ...
//
// The metadata has, where they are known, target, listener, authority, node, cluster,
// service, priority, route, category, max_requests and filter.
//
// RPCs that are refused for good (the first six reasons) have it always. The others
// fail because there is nothing to send them to, and gRPC makes their status of a text:
// the interceptors recognize the text and add the ErrorInfo, so channels that lack the
// interceptors have the text alone, as has grpc.OnFinish where no interceptor has
// something to do. So does, rarely, an RPC that fails while the text changes.
//
// A server that returns such an error from its own handler passes the ErrorInfo on to
// its client, in grpc-status-details-bin, as it does the text.
const ErrorDomain = balancer.ErrorDomain

// The reasons of the ErrorInfo.
const (
	ReasonDropped       = balancer.ReasonDropped       // by a drop category of EDS
	ReasonBreaker       = balancer.ReasonBreaker       // the cluster has as many RPCs in flight as it may (A32)
	ReasonNoRoute       = balancer.ReasonNoRoute       // no route matches
	ReasonNotForwarding = balancer.ReasonNotForwarding // the route that matches does not forward (A36)
	ReasonAdmission     = balancer.ReasonAdmission     // by an admission control filter, since too many RPCs fail
	ReasonConcurrency   = balancer.ReasonConcurrency   // by an adaptive concurrency filter, since as many RPCs are in flight as should be
	ReasonNoEndpoints   = balancer.ReasonNoEndpoints   // the cluster has none, or none can be reached
	ReasonTLS           = balancer.ReasonTLS           // what the cluster says about TLS cannot be done, or handshakes fail
	ReasonCluster       = balancer.ReasonCluster       // the Cluster resource is missing or invalid
	ReasonTarget        = balancer.ReasonTarget        // the target cannot be served: Listener or routes are missing or invalid
)
