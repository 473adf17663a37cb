// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"github.com/xdslb/xdslb/picker"
)

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
