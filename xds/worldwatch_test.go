// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"sync"

	"github.com/xdslb/xdslb/picker"
)

// worldWatch is a Watcher that records its calls in a step.
type worldWatch struct {
	target              int
	view                View
	listener, authority string
	cancel              func()
	whole               bool // it had a configuration without any fault

	mu    sync.Mutex
	heard []outcome
	last  outcome
}

// outcome is a call of a Watcher.
type outcome struct {
	config *picker.Config
	err    error
}

func (w *worldWatch) Update(c *picker.Config) { w.hear(outcome{config: c}) }
func (w *worldWatch) Error(err error)         { w.hear(outcome{err: err}) }
func (w *worldWatch) hear(o outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard, w.last = append(w.heard, o), o
}

// fault returns the error in a call, or "".
func (o outcome) fault() string {
	if o.err != nil {
		return o.err.Error()
	}
	for _, c := range o.config.Clusters {
		if c.Err != nil {
			return c.Err.Error()
		}
		if len(c.Leaves) != 1 || c.Leaves[0].ResolutionNote != nil || len(c.Leaves[0].Priorities) != 1 {
			return fmt.Sprintf("cluster %q: %+v", c.Name, c.Leaves)
		}
	}
	return ""
}
