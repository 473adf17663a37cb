// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/integrate/internal/balancer"
	"github.com/xdslb/xdslb/integrate/report"
)

// Explanation is the result of [Explain].
type Explanation = report.Explanation

// Explain returns where an RPC of a method ("/package.Service/Method") would go if it were made now
// with ctx, and why: the route that matches, and the condition that excludes each earlier route;
// the cluster; the priority; each endpoint with its share, or the reason that it is not picked; and
// the timeout, retries and filters. Headers are the outgoing metadata of ctx, as in picks.
// Interceptors are not run.
//
// It changes nothing: it counts, draws and connects nothing. Random decisions appear as
// probabilities. The explanation is of the latest publication; Pending is set if changes wait for
// the next one, for at most 15 ms.
//
// It fails if the channel is idle, has no configuration, or has another package's resolver. The
// first call for a channel may change service configs: see StatusOf. For each
// route that the RPC may take, it costs O(endpoints of the priorities in use of its clusters), with
// the channel's mutex held: RPCs go on, updates wait.
func Explain(ctx context.Context, cc *grpc.ClientConn, method string) (*Explanation, error) {
	if err := checkMethod(method); err != nil {
		return nil, err
	}
	r := resolverOf(cc)
	if r == nil {
		return nil, whyNoResolver(cc)
	}
	return r.explain(ctx, method)
}

// explain explains an RPC of the resolver's channel.
func (r *xdsResolver) explain(ctx context.Context, method string) (*report.Explanation, error) {
	if b := r.balancer.Load(); b != nil {
		x, err := balancer.Explain(ctx, b, method)
		switch {
		case err == nil:
			x.Patched = patched(r.patches())
			return x, nil
		case err != balancer.ErrNoConfiguration:
			return nil, fmt.Errorf("xdslb: channel %q cannot be served: %w", r.Channel.Target, err)
		}
	}
	if err := r.waiting(); err != nil {
		return nil, fmt.Errorf("xdslb: channel %q has no configuration yet: %w", r.Channel.Target, err)
	}
	return nil, fmt.Errorf("xdslb: channel %q has no configuration yet", r.Channel.Target)
}

// checkMethod validates the name of a method.
func checkMethod(method string) error {
	if !strings.HasPrefix(method, "/") {
		return fmt.Errorf("xdslb: method %q does not begin with a slash: want /package.Service/Method", method)
	}
	return nil
}

// whyNoResolver returns why a channel has no resolver of this package.
func whyNoResolver(cc *grpc.ClientConn) error {
	target := cc.CanonicalTarget()
	switch {
	case !strings.HasPrefix(target, "xds:") && !strings.HasPrefix(target, "xdslb:"):
		return fmt.Errorf("xdslb: channel %q has no xDS: its scheme is neither xds nor xdslb", target)
	case cc.GetState() == connectivity.Idle:
		return fmt.Errorf("xdslb: channel %q is idle and has no configuration: call its Connect, or make an RPC", target)
	case cc.GetState() == connectivity.Shutdown:
		return fmt.Errorf("xdslb: channel %q is closed", target)
	}
	if r := stockResolverOf(cc); r != nil {
		return r.unsupportedError(target)
	}
	return fmt.Errorf("xdslb: channel %q has the resolver of another package, usually google.golang.org/grpc/xds", target)
}
