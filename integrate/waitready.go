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
// connects an idle channel, and one endpoint of a cluster whose endpoints connect on demand
// (ring_hash); RPCs with other hashes may still wait for their endpoints.
//
// Routes are matched with the outgoing metadata of ctx. If a route has several clusters, or is
// for a fraction of RPCs, all clusters that an RPC may go to must be ready. RPCs that would be
// dropped, refused by the circuit breaker, or ended by an injected fault count as ready. No
// counter changes. HTTP filters and interceptors that change headers are not run.
//
// If ctx ends first, the error wraps ctx.Err() and names the missing part: a resource and the
// server that should send it, a route, or a cluster and the states of its endpoints. WaitReady
// fails at once if the channel is closed or cannot be served, for example without a bootstrap.
//
// For a channel with the resolver of another package, such as one that the environment has handed
// to google.golang.org/grpc/xds, or one of scheme dns, WaitReady waits for the state READY. Other
// endpoints than those of the method's cluster may be ready then.
//
// A channel may become unready later. Use WaitReady for a program's start, not for its
// readiness probe: an outage of backends would take down their callers.
func WaitReady(ctx context.Context, cc *grpc.ClientConn, method string) error {
	for {
		r := resolverOf(cc)
		if r == nil {
			link.ExitIdle(ctx, cc)
			r = resolverOf(cc)
		}
		if r == nil {
			if again, err := awaitOther(ctx, cc); !again {
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

// awaitOther waits until a channel without a resolver of this package is READY. again is true if
// the state of the channel has changed, so that it may have such a resolver.
func awaitOther(ctx context.Context, cc *grpc.ClientConn) (again bool, err error) {
	state := cc.GetState()
	stock := stockResolverOf(cc)
	switch {
	case state == connectivity.Shutdown:
		return false, fmt.Errorf("xdslb: channel %q is closed", cc.Target())
	case stock != nil && stock.err != nil:
		return false, stock.err
	case resolverOf(cc) != nil:
		return true, nil
	case state == connectivity.Ready:
		return false, nil
	}
	cc.Connect()
	if cc.WaitForStateChange(ctx, state) {
		return true, nil
	}
	about := errNotXDSLB.Error()
	if stock != nil {
		about = "it uses google.golang.org/grpc/xds: " + stock.rollout.Why()
	}
	return false, fmt.Errorf("xdslb: channel %q is %v: %w: %s", cc.Target(), state, ctx.Err(), about)
}

// waitReady is WaitReady for a channel with a resolver. again is true if the resolver was closed,
// since the channel may get another one.
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
	return fmt.Errorf("xdslb: target %q is not ready for %s: %w: %s", r.Channel.Target, method, ctx.Err(), missing)
}
