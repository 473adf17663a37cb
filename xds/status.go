// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
)

// Clients returns the clients of the process, oldest first, including clients that linger.
// They belong to the callers of Acquire, and must not be released by the caller of Clients.
func Clients() []*Client {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	var all []*Client
	for _, clients := range registry.clients {
		all = append(all, clients...)
	}
	slices.SortFunc(all, func(a, b *Client) int { return cmp.Compare(a.number, b.number) })
	return all
}

// nodeID returns the node id, which identifies the client in control planes.
func (c *Client) nodeID() string { return c.node.GetId() }

// Node returns a copy of the node in requests.
func (c *Client) Node() *corev3.Node { return proto.CloneOf(c.node) }

// Target identifies the target of a Watch.
type Target struct{ Listener, Authority string }

// Targets returns the targets that are watched, or were less than Options.Linger ago, in order.
func (c *Client) Targets() []Target {
	c.mu.Lock()
	all := make([]Target, 0, len(c.targets.managers))
	for key := range c.targets.managers {
		all = append(all, Target{key.listener, key.authority})
	}
	c.mu.Unlock()
	slices.SortFunc(all, func(a, b Target) int {
		return cmp.Or(cmp.Compare(a.Listener, b.Listener), cmp.Compare(a.Authority, b.Authority))
	})
	return all
}

// Resources returns the status of every resource, by type and name. The iteration is over a copy.
func (c *Client) Resources() iter.Seq[ResourceStatus] {
	c.mu.Lock()
	all := c.statusesLocked(maps.Values(c.cache.entries), len(c.cache.entries))
	c.mu.Unlock()
	return inOrder(all)
}

// CountResources returns the number of resources of each kind. The caller must not
// change the map. It takes O(resources) if the state of the client has changed since the
// last call, and O(1) otherwise, so that each target can report the count of its client (A78).
func (c *Client) CountResources() map[ResourceKind]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counted == nil || c.countedAt != c.changes {
		c.counted, c.countedAt = map[ResourceKind]int{}, c.changes
		for _, s := range c.statusesLocked(maps.Values(c.cache.entries), len(c.cache.entries)) {
			c.counted[s.kind()]++
		}
	}
	return c.counted
}

// Servers returns the servers of the bootstrap that the client has used, in the order of the
// bootstrap; servers of authorities follow, by the names of the authorities.
func (c *Client) Servers() []serverStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pool.statusesLocked()
}
