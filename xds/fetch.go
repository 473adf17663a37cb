// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"

	"github.com/xdslb/xdslb/picker"
)

// Fetch returns the configuration of a target when all of its resources are known, possibly as
// missing, or the error of the target. Unlike a Watcher it also waits for optional resources
// (Options.LocalCluster). It watches the target until then, or until ctx ends.
func (c *Client) Fetch(ctx context.Context, listener, authority string) (*picker.Config, error) {
	w := make(signal, 1)
	defer c.Watch(listener, authority, w)()
	var evaluated chan struct{}
	for {
		select {
		case <-w:
		case <-evaluated:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		var cfg *picker.Config
		var err error
		if cfg, evaluated, err = c.settled(targetKey{listener, authority}); cfg != nil || err != nil {
			return cfg, err
		}
	}
}

// settled returns the outcome of a target that is watched: see targets.settledLocked.
func (c *Client) settled(key targetKey) (cfg *picker.Config, evaluated chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.targets.settledLocked(key)
}

// signal is a Watcher that signals outcomes.
type signal chan struct{}

// Update implements Watcher.
func (s signal) Update(*picker.Config) { s.Error(nil) }

// Error implements Watcher.
func (s signal) Error(error) {
	select {
	case s <- struct{}{}:
	default:
	}
}
