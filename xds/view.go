// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"time"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// viewKey names a target.
type viewKey struct{ listener, authority string }

// view is what one target sees of the cache (A74): it watches the resources
// that the target depends on, and puts them together to a configuration.
//
// It is driven by state, not by events: whoever changes a resource pokes the
// view, whose goroutine then looks at everything again. However many changes
// come in the meantime, the view takes one look, so nothing queues up and
// callbacks cannot be late, doubled or out of order. A look at a view with n
// clusters costs O(n) map look-ups, and copies nothing that did not change.
//
// Everything is guarded by Client.mu.
type view struct {
	c   *Client
	key viewKey

	watches  map[*watch]struct{}
	lingerer *time.Timer // runs while there are none
	closed   bool
	wake     chan struct{} // holds a token if there is something to look at
	// settled is closed when everything up to the latest poke has been looked
	// at and delivered; nil if it has been already.
	settled chan struct{}

	// look numbers the looks. What a look comes by has its number, what has
	// an older number afterwards is not needed any more.
	look     uint64
	deps     map[*entry]uint64
	clusters map[string]*cluster
	leaves   map[string]*leaf

	last *plan // the latest wanted
	live *plan // in use, nil if none is

	// The outcome of the latest look that had a new one: one of the two.
	config  *picker.Config
	err     error
	outcome uint64 // its number
}

// watch is one Watcher of a view.
type watch struct {
	watcher Watcher
	seen    uint64 // number of the outcome that it was told
}

// view returns the view of a target, making it if there is none; mu is held.
func (c *Client) view(key viewKey) *view {
	v := c.views[key]
	if v == nil {
		v = &view{
			c:        c,
			key:      key,
			watches:  map[*watch]struct{}{},
			wake:     make(chan struct{}, 1),
			deps:     map[*entry]uint64{},
			clusters: map[string]*cluster{},
			leaves:   map[string]*leaf{},
		}
		c.views[key] = v
		c.tasks.Go(v.run)
	}
	return v
}

// poke makes the view look again, and returns what is closed after that.
func (v *view) poke() (settled chan struct{}) {
	if v.settled == nil {
		v.settled = make(chan struct{})
	}
	select {
	case v.wake <- struct{}{}:
	default:
	}
	return v.settled
}

// linger starts the time that a view without watchers is kept up to date.
func (v *view) linger() {
	if v.c.opts.Linger < 0 {
		v.close()
		return
	}
	var t *time.Timer
	t = time.AfterFunc(v.c.opts.Linger, func() {
		v.c.mu.Lock()
		defer v.c.unlock()
		if v.lingerer == t {
			v.close()
		}
	})
	v.lingerer = t
}

// close ends the view; its goroutine does the rest.
func (v *view) close() {
	if v.closed {
		return
	}
	v.closed = true
	if v.lingerer != nil {
		v.lingerer.Stop()
		v.lingerer = nil
	}
	clear(v.watches)
	delete(v.c.views, v.key)
	v.look++
	v.sweep()
	v.poke()
}

// run is the view's goroutine: it looks and delivers until the view is closed.
func (v *view) run() {
	for closed := false; !closed; {
		<-v.wake
		v.c.mu.Lock()
		settled := v.settled
		v.settled = nil
		closed = v.closed
		if !closed {
			v.evaluate()
		}
		v.c.unlock()
		for v.deliver() {
		}
		if settled != nil {
			close(settled)
		}
	}
}

// deliver tells one watcher that has not heard of the outcome, and reports
// whether there was one.
func (v *view) deliver() bool {
	v.c.mu.Lock()
	config, err := v.config, v.err
	var next *watch
	for w := range v.watches {
		if w.seen != v.outcome {
			next = w
			w.seen = v.outcome
			break
		}
	}
	v.c.unlock()
	switch {
	case next == nil:
		return false
	case err != nil:
		next.watcher.Error(err)
	default:
		next.watcher.Update(config)
	}
	return true
}

// use returns a resource, which the view watches from now on.
func (v *view) use(typ resource.Type, name string) *entry {
	e := v.c.entry(typ, name)
	_, watched := v.deps[e]
	v.deps[e] = v.look
	if !watched {
		v.c.watch(e, v)
	}
	return e
}

// sweep drops what the latest look did not come by.
func (v *view) sweep() {
	for e, look := range v.deps {
		if look != v.look {
			delete(v.deps, e)
			v.c.unwatch(e, v)
		}
	}
	for name, c := range v.clusters {
		if c.look != v.look {
			delete(v.clusters, name)
		}
	}
	for name, l := range v.leaves {
		if l.look != v.look {
			delete(v.leaves, name)
		}
	}
}
