// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
)

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
func (r *xdsResolver) explain(ctx context.Context, method string) (*Explanation, error) {
	b := r.balancer.Load()
	if b == nil || b.picker.current.Load().Snapshot == nil {
		return nil, r.whyNoConfiguration(b)
	}
	return b.explain(ctx, method)
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

// whyNoConfiguration says why a channel of ours has no configuration. b may be nil.
func (r *xdsResolver) whyNoConfiguration(b *lb) error {
	if b != nil {
		if err := b.picker.current.Load().Err; err != nil {
			return fmt.Errorf("xdslb: channel %q cannot be served: %w", r.Link.Target, err)
		}
	}
	if err := r.waiting(); err != nil {
		return fmt.Errorf("xdslb: channel %q has no configuration yet: %w", r.Link.Target, err)
	}
	return fmt.Errorf("xdslb: channel %q has no configuration yet", r.Link.Target)
}

// errNoConfiguration is for a configuration that is lost while it is explained.
var errNoConfiguration = errors.New("xdslb: the channel has no configuration any more")

// explain explains an RPC of the channel.
func (b *lb) explain(ctx context.Context, method string) (*Explanation, error) {
	ctx = withoutUserCode(ctx)
	for tries := 0; ; tries++ {
		s := b.picker.current.Load()
		if s.Snapshot == nil {
			return nil, errNoConfiguration
		}
		x := explainer{ctx: ctx, table: &s.Table, applied: s.Link == nil || s.Link.HasInterceptors()}
		x.begin(method)
		if s.Link != nil {
			x.Target, x.NotApplied = s.Link.Target, append(s.Link.Unapplied(&s.Table), ignored(s.Config)...)
		}
		b.lock()
		// A publication in between is another thing to explain. Where they come thick and
		// fast, this one is explained as far as the balancer still knows its clusters.
		if b.picker.current.Load() != s && tries < 3 {
			b.unlock()
			continue
		}
		x.Pending = b.pending != nil || b.rt.Waiting() || b.cfg != s.Config
		x.clusters(func(name string, version uint64) *cluster {
			if c := b.clusters[name]; c != nil && c.state.Version == version {
				return c
			}
			return nil
		})
		b.unlock()
		return &x.Explanation, nil
	}
}

// withoutUserCode returns a context with what picks read of ctx, whose methods may be
// anybody's code.
func withoutUserCode(ctx context.Context) context.Context {
	plain := context.Background()
	if hash, ok := requestHash(ctx); ok {
		plain = WithRequestHash(plain, hash)
	}
	seen, ok := metadata.FromOutgoingContext(ctx)
	if !ok {
		return plain
	}
	for name := range seen {
		seen[name] = metadatautil.OutgoingValues(ctx, name) // as picks do
	}
	return metadata.NewOutgoingContext(plain, seen)
}
