// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import "github.com/xdslb/xdslb/integrate/internal/balancer"

// ErrorDomain is the domain of the google.rpc.ErrorInfo in the statuses of RPCs that xdslb
// ends, for programs that act on the reason:
//
//	for _, d := range status.Convert(err).Details() {
//		if info, ok := d.(*errdetails.ErrorInfo); ok && info.Domain == integrate.ErrorDomain {
//			switch info.Reason { ...
//
// The metadata contains target, listener, authority, node, cluster, service, priority, route,
// category and max_requests, as far as they are known.
//
// RPCs that are refused (the first four reasons) always have the ErrorInfo. The other RPCs fail
// for lack of an endpoint, and gRPC makes their status from a text: the interceptors recognize
// the text and add the ErrorInfo. Channels without the interceptors get only the text.
// grpc.OnFinish also gets only the text if the interceptors do not handle the RPC. In rare
// cases, an RPC that fails while the text changes lacks the ErrorInfo too.
//
// A server that returns such an error from its own handler passes the ErrorInfo on to its
// client, in grpc-status-details-bin.
const ErrorDomain = balancer.ErrorDomain

// The reasons of the ErrorInfo.
const (
	ReasonDropped       = balancer.ReasonDropped       // dropped by a category of EDS
	ReasonBreaker       = balancer.ReasonBreaker       // the circuit breaker of the cluster is at its limit (A32)
	ReasonNoRoute       = balancer.ReasonNoRoute       // no route matches
	ReasonNotForwarding = balancer.ReasonNotForwarding // the route that matches does not forward (A36)
	ReasonNoEndpoints   = balancer.ReasonNoEndpoints   // the control plane has sent no endpoints of the cluster, or only unhealthy ones
	ReasonUnreachable   = balancer.ReasonUnreachable   // the cluster has endpoints, and none is reachable, or outlier detection has ejected them
	ReasonTLS           = balancer.ReasonTLS           // TLS settings cannot be applied, or handshakes fail
	ReasonCluster       = balancer.ReasonCluster       // the Cluster resource is missing or invalid
	ReasonListener      = balancer.ReasonListener      // the target's Listener or its routes are missing or invalid
)
