// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/integrate/internal/perrpc"
	"github.com/xdslb/xdslb/picker"
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
			perrpc.Wake(ctx, cc)
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
	for {
		published := b.nextPublication()
		if published == nil {
			return true, nil
		}
		if b.ready(ctx, method) {
			return false, nil
		}
		select {
		case <-published:
		case <-ctx.Done():
			return false, r.notReady(ctx, method, b.missing(ctx, method))
		}
	}
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

// nextPublication returns a channel that is closed by the next publication, or when the
// balancer is closed; nil if it is.
func (b *lb) nextPublication() <-chan struct{} {
	b.lock()
	defer b.unlock()
	if b.rt.Closed() {
		return nil
	}
	if b.publication == nil {
		b.publication = make(chan struct{})
	}
	return b.publication
}

// notifyPublicationLocked wakes those who wait for a publication.
func (b *lb) notifyPublicationLocked() {
	if b.publication != nil {
		close(b.publication)
		b.publication = nil
	}
}

// ready reports whether RPCs of the method would be sent, as of what is published. Clusters
// that wait for an RPC before they connect are asked to.
func (b *lb) ready(ctx context.Context, method string) bool {
	s := b.picker.current.Load()
	if s.Snapshot == nil {
		return false
	}
	ready := true
	for cluster := range s.Snapshot.Destinations(ctx, method) {
		if cluster < 0 {
			ready = false
			continue
		}
		switch {
		case s.Snapshot.ClusterErr(int(cluster)) != nil:
			ready = false
		case s.cluster(cluster).status == picker.Idle:
			b.connectIdle(s.Config.Clusters[cluster].Name)
			ready = false
		case s.cluster(cluster).status != picker.Ready:
			ready = false
		}
	}
	return ready
}

// connectIdle connects an endpoint of a cluster that is IDLE, as an RPC to it would. It
// publishes nothing if the cluster stays IDLE for now, as a child policy may be: whoever
// waits for a publication would come back for nothing.
func (b *lb) connectIdle(cluster string) {
	b.lock()
	defer b.unlock()
	if c := b.clusters[cluster]; !b.rt.Closed() && c != nil && c.status() == picker.Idle {
		c.inUse.connectOneIdle()
		if c.onChange(c.inUse); c.status() != picker.Idle {
			b.publishSoonLocked()
		}
	}
}

// missing says why RPCs of the method would not be sent; "" if the balancer does not know,
// or if they would.
func (b *lb) missing(ctx context.Context, method string) string {
	ctx = withoutUserCode(ctx)
	b.lock()
	defer b.unlock()
	s := b.picker.current.Load()
	if s.Snapshot == nil {
		return errorText(b.fatal)
	}
	var list []string
	for cluster, outcome := range s.Snapshot.Destinations(ctx, method) {
		switch {
		case outcome == picker.NoRoute:
			list = append(list, status.Convert(s.routeErrs.noRoute).Message())
			continue
		case outcome == picker.NotForwarding:
			list = append(list, status.Convert(s.routeErrs.stale).Message())
			continue
		case s.Snapshot.ClusterErr(int(cluster)) != nil:
			list = append(list, s.cluster(cluster).failed.Error())
			continue
		}
		if c := b.clusters[s.Config.Clusters[cluster].Name]; c != nil && c.status() != picker.Ready {
			list = append(list, c.missing())
		}
	}
	if list == nil {
		return ""
	}
	return b.textLocked(strings.Join(list, "; "))
}

// missing says why the cluster has no endpoint to pick: O(endpoints).
func (c *cluster) missing() string {
	state := c.status()
	if state == picker.TransientFailure {
		msg, _ := c.failureText()
		return msg
	}
	p := c.inUse
	if p == nil {
		return fmt.Sprintf("xds: cluster %q is %s", c.cfg.Name, stateName(state))
	}
	n := p.counts
	msg := fmt.Sprintf("xds: cluster %q is %s: of the endpoints of priority %d, %d are connecting, %d idle, %d failed",
		c.cfg.Name, stateName(state), p.index, n[picker.Connecting], n[picker.Idle], n[picker.TransientFailure])
	about, _ := p.trouble("")
	return msg + about
}
