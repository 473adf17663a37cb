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

// Explanation is where an RPC would go, and why nowhere else.
type Explanation = report.Explanation

// Explain says where an RPC of a method ("/package.Service/Method") would go if it were
// made now with ctx, and why nowhere else: the route that matches and what fails of those
// before, the cluster, the priority, each endpoint with its share or the reason that it is
// out, and what is done for the RPC besides. Headers are those of the outgoing metadata in
// ctx, as the pick sees them; interceptors that would add others are not run.
//
// It changes nothing: nothing is counted, drawn or connected. Where a pick draws, the
// explanation has probabilities. It goes by what picks read; Pending says that changes wait
// to be published, which takes 15 ms at most.
//
// A channel that is idle, that is not ours or that has no configuration is an error. One
// without our interceptors that was never asked for before is found by its service config,
// which changes for a while: see StatusOf. The cost is, for each route that the RPC may take,
// O(endpoints of the priorities in use of its clusters), with the channel's mutex held: RPCs
// go on, updates wait.
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
			return x, nil
		case err != balancer.ErrNoConfiguration:
			return nil, fmt.Errorf("xdslb: channel %q cannot be served: %w", r.Link.Target, err)
		}
	}
	if err := r.waiting(); err != nil {
		return nil, fmt.Errorf("xdslb: channel %q has no configuration yet: %w", r.Link.Target, err)
	}
	return nil, fmt.Errorf("xdslb: channel %q has no configuration yet", r.Link.Target)
}

// checkMethod says what is wrong with the name of a method.
func checkMethod(method string) error {
	if !strings.HasPrefix(method, "/") {
		return fmt.Errorf("xdslb: method %q does not begin with a slash: want /package.Service/Method", method)
	}
	return nil
}

// whyNoResolver says why a channel has no resolver of ours.
func whyNoResolver(cc *grpc.ClientConn) error {
	target := cc.CanonicalTarget()
	switch {
	case !strings.HasPrefix(target, "xds:") && !strings.HasPrefix(target, "xdslb:"):
		return fmt.Errorf("xdslb: channel %q has no xDS: its scheme is neither xds nor xdslb", target)
	case cc.GetState() == connectivity.Idle:
		return fmt.Errorf("xdslb: channel %q is idle, so it has no configuration: its Connect, or an RPC, ends that", target)
	case cc.GetState() == connectivity.Shutdown:
		return fmt.Errorf("xdslb: channel %q is closed", target)
	}
	if r := stockResolverOf(cc); r != nil {
		return r.notOurs(target)
	}
	return fmt.Errorf("xdslb: channel %q has the resolver of another package, usually google.golang.org/grpc/xds", target)
}
