// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"log/slog"

	"github.com/xdslb/xdslb/picker"
)

// This file updates the probers of a cluster after a publication.

// followProbes probes the endpoints of the cluster, as the i-th cluster of the snapshot
// requires. The snapshot is about to be published.
func (c *cluster) followProbes(s *picker.Snapshot, i int) {
	asks := c.inUse != nil && c.inUse.leaf.cfg.Policy.Kind.Traits().Probes
	if !asks && c.probers == nil {
		return
	}
	olds := c.probers
	c.probers = nil
	for _, g := range s.ProbeGroups(i) {
		p := olds[g.Pool]
		if p == nil {
			p = c.newProber(g.Pool)
		}
		if c.probers == nil {
			c.probers = map[*picker.ProbePool]*prober{}
		}
		c.probers[g.Pool] = p
		p.follow(g, &c.inUse.leaf.cfg.Policy, c.view.results)
	}
	for pool, p := range olds { // which may be published, and must not change
		if c.probers[pool] == nil {
			p.close()
		}
	}
}

// closeProbers ends all probes of the cluster.
func (c *cluster) closeProbers() {
	for _, p := range c.probers {
		p.close()
	}
	c.probers = nil
}

func (c *cluster) newProber(pool *picker.ProbePool) *prober {
	p := &prober{rt: c.rt, rec: &c.rec, cluster: c.cfg.Name, pool: pool, tokens: maxFlying}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	pool.Serve(func() { go p.round() })
	if c.standalone && c.asksForEach() {
		c.rec.write(slog.LevelWarn, msgAsynchronous, c.cfg.Name)
	}
	return p
}

// asksForEach reports whether RPCs of the cluster send probes themselves.
func (c *cluster) asksForEach() bool {
	if c.inUse == nil {
		return false
	}
	p := c.inUse.leaf.cfg.Policy.Prequal
	return p != nil && p.Synchronous > 0
}
