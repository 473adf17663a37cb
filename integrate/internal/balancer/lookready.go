// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/integrate/internal/explain"
	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
	"github.com/xdslb/xdslb/picker"
)

// AwaitReady waits until RPCs of the method would be sent, or the balancer is closed. It fails if
// ctx ends before.
func AwaitReady(ctx context.Context, b *Balancer, method string) (closed bool, err error) {
	for {
		published := b.nextPublication()
		if published == nil {
			return true, nil
		}
		if isReady(ctx, b, method) {
			return false, nil
		}
		select {
		case <-published:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// isReady reports whether RPCs of the method would be sent by the latest publication. IDLE
// clusters are connected, as by an RPC.
func isReady(ctx context.Context, b *Balancer, method string) bool {
	s := b.picker.current.Load()
	if s.Snapshot == nil {
		return false
	}
	ok := true
	for cluster := range s.Snapshot.Destinations(ctx, method) {
		if cluster < 0 {
			ok = false
			continue
		}
		switch {
		case s.Snapshot.ClusterErr(int(cluster)) != nil:
			ok = false
		case s.cluster(cluster).status == picker.Idle:
			b.connectIdle(s.Config.Clusters[cluster].Name)
			ok = false
		case s.cluster(cluster).status != picker.Ready:
			ok = false
		}
	}
	return ok
}

// Missing returns why RPCs of the method would not be sent; "" if they would, or if there
// is no configuration yet.
func Missing(ctx context.Context, b *Balancer, method string) string {
	ctx = metadatautil.Detached(ctx)
	b.lock()
	defer b.unlock()
	s := b.picker.current.Load()
	if s.Snapshot == nil {
		return explain.ErrorText(b.fatal)
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
			list = append(list, missingOf(c))
		}
	}
	if list == nil {
		return ""
	}
	return b.id.text(strings.Join(list, "; "))
}

// missingOf returns why the cluster has no endpoint to pick. O(endpoints).
func missingOf(c *cluster) string {
	state := c.status()
	if state == picker.TransientFailure {
		msg, _ := c.failureText()
		return msg
	}
	p := c.inUse
	if p == nil {
		return fmt.Sprintf("xdslb: cluster %q is %s", c.cfg.Name, stateName(state))
	}
	n := p.counts
	msg := fmt.Sprintf("xdslb: cluster %q is %s: of the endpoints of priority %d, %d are connecting, %d idle, %d failed",
		c.cfg.Name, stateName(state), p.index, n[picker.Connecting], n[picker.Idle], n[picker.TransientFailure])
	about, _ := p.failureDetails()
	return msg + about
}
