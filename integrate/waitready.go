// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/integrate/internal/balancer"
	"github.com/xdslb/xdslb/integrate/internal/link"
)

// WaitReady waits until an RPC of a method ("/package.Service/Method") would be sent to an
// endpoint at once: until each cluster that the RPC may go to has an endpoint to pick. It
// connects the channel if that is idle, and one endpoint of a cluster whose endpoints
// connect on demand (ring_hash); an RPC of a certain hash may still wait for its own.
//
// Outgoing metadata of ctx counts for routes as it does for RPCs. Where a route has several
// clusters, or is for a fraction of RPCs, all that an RPC may lead to count. An RPC that
// would be dropped, refused by the circuit breaker, or ended by a fault counts as ready: it
// is answered. No counter moves. HTTP filters and interceptors that change headers are not
// asked.
//
// If ctx ends before, the error, which wraps ctx.Err(), says what is missing: a resource
// and the server that should send it, a route, or a cluster and what is wrong with its
// endpoints. It fails at once for channels whose resolver is not of this package, or could
// not be made, and for those that are closed. Of a channel that the environment has handed to
// stock's xDS it waits for the state READY, which may be that of another cluster.
//
// A channel that was ready may cease to be. Do not tie a program's own readiness to it for
// longer than its start: an outage of backends would take down whoever calls them.
func WaitReady(ctx context.Context, cc *grpc.ClientConn, method string) error {
	for {
		r := resolverOf(cc)
		if r == nil {
			link.Wake(ctx, cc)
			r = resolverOf(cc)
		}
		if r == nil {
			if again, err := awaitResolver(ctx, cc); !again {
				return err
			}
			continue
		}
		again, err := r.waitReady(ctx, method)
		if !again {
			return err
		}
	}
}

// awaitResolver waits until a channel without a resolver of ours may have one: again is
// true then.
func awaitResolver(ctx context.Context, cc *grpc.ClientConn) (again bool, err error) {
	state := cc.GetState()
	stock := stockResolverOf(cc)
	switch {
	case state == connectivity.Shutdown:
		return false, fmt.Errorf("xdslb: channel %q is closed", cc.Target())
	case stock != nil && state == connectivity.Ready:
		return false, nil
	case stock != nil: // it may get ready
		cc.Connect()
	case !usesXDS(cc.CanonicalTarget()):
		return false, fmt.Errorf("xdslb: channel %q: %w", cc.Target(), errForeign)
	case state == connectivity.Idle:
		cc.Connect() // it went idle again
	case state != connectivity.Connecting:
		if resolverOf(cc) != nil {
			return true, nil
		}
		return false, fmt.Errorf("xdslb: channel %q: %w, or could not be made", cc.Target(), errForeign)
	}
	if !cc.WaitForStateChange(ctx, state) {
		if stock != nil {
			return false, fmt.Errorf("xdslb: channel %q, which is google.golang.org/grpc/xds's since %s, is %v: %w", cc.Target(), stock.why, state, ctx.Err())
		}
		return false, fmt.Errorf("xdslb: channel %q is %v: %w", cc.Target(), state, ctx.Err())
	}
	return true, nil
}

// waitReady is WaitReady for a channel that has a resolver. again is true if the resolver
// was closed: the channel may have another one.
func (r *xdsResolver) waitReady(ctx context.Context, method string) (again bool, err error) {
	select {
	case <-r.started:
	case <-ctx.Done():
		return false, r.notReady(ctx, method, "its LB policy is not started")
	}
	b := r.balancer.Load()
	if b == nil {
		return true, nil
	}
	closed, err := balancer.AwaitReady(ctx, b, method)
	if err != nil {
		return false, r.notReady(ctx, method, balancer.Missing(ctx, b, method))
	}
	return closed, nil
}

// notReady returns the error of WaitReady when ctx has ended.
func (r *xdsResolver) notReady(ctx context.Context, method, missing string) error {
	if missing == "" {
		missing = "it has become ready just now"
		if err := r.waiting(); err != nil {
			missing = err.Error()
		}
	}
	return fmt.Errorf("xdslb: target %q is not ready for %s: %w: %s", r.Link.Target, method, ctx.Err(), missing)
}
