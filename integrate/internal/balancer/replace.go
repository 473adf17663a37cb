// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"log/slog"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/picker"
)

// This file replaces connections whose cluster has different TLS settings than they were made
// with (Config.ReconnectOnTLSChange), or whose endpoint has a different hostname than the one
// verified (auto_host_sni). A new connection takes the place of the old one when it is READY.
// The old connection is shut down only then, and its RPCs finish. See conn for the states.

// replaceConns replaces the leaf's connections, including the connections of child policies.
func (l *leaf) replaceConns() {
	l.replacementFailed = false
	seen := map[*conn]bool{}
	for _, p := range l.priorities {
		for _, loc := range p.localities {
			for i, e := range loc.endpoints {
				if e.conn != nil {
					seen[e.conn] = true
					e.conn.replace(loc.cfg.At(i))
				}
			}
		}
	}
	// The connections of children, including connections of endpoints that the same update
	// removed: a child that still has the address keeps the connection.
	for _, p := range l.priorities {
		for g := range p.liveGroups {
			for c := range g.children {
				for h := range c.conns {
					if own := h.conn.Load(); own != nil && !seen[own] {
						own.replace(nil)
					}
				}
			}
		}
	}
}

// replace makes a connection by the latest settings, to replace this one. An idle or failed
// connection needs no replacement, as its next attempt uses the latest settings. A connection
// that is still connecting may use the old ones. A draining endpoint gets no new connection
// (A27-CLA-8); its connection is replaced if the endpoint comes back. cfg is the endpoint's;
// the connections of child policies have addresses of their own.
func (c *conn) replace(cfg *picker.Endpoint) {
	c.dropReplacement()
	if c.outdated = c.endpoint.Draining; c.outdated || !c.mayBeConnecting() && c.state != picker.Ready {
		return
	}
	next := &conn{leaf: c.leaf, replacement: true}
	c.linkReplacement(next)
	var err error
	if c.child != nil {
		if err = next.dialFor(c.child); err == nil {
			next.connect()
		}
	} else {
		err = next.dial(cfg)
	}
	if err != nil { // only while the channel is closing
		c.unlinkReplacement()
	}
}

// counterpart returns the connection's replacement, or the connection that it is to replace; nil if
// there is neither.
func (c *conn) counterpart() *conn { return c.leaf.replacements[c] }

// linkReplacement makes next the connection's replacement.
func (c *conn) linkReplacement(next *conn) {
	if c.leaf.replacements == nil {
		c.leaf.replacements = map[*conn]*conn{}
	}
	c.leaf.replacements[c], c.leaf.replacements[next] = next, c
}

// unlinkReplacement removes the link between a connection and its replacement.
func (c *conn) unlinkReplacement() {
	other := c.counterpart()
	delete(c.leaf.replacements, other)
	delete(c.leaf.replacements, c)
	if len(c.leaf.replacements) == 0 {
		c.leaf.replacements = nil // it may have been large before
		c.leaf.rec.resolve(stateKey{name: stateTLS, cluster: c.leaf.cluster}, msgTLSWorks)
	}
	c.replacement, other.replacement = false, false
}

// mayBeConnecting reports whether a handshake may be in progress, or about to start. pick_first
// reports TRANSIENT_FAILURE until one of several addresses is READY.
func (c *conn) mayBeConnecting() bool {
	return c.connectRequested || c.state == picker.Connecting || c.state == picker.TransientFailure && c.multiAddress()
}

// dropReplacement drops the replacement, if there is one. The replacement is shut down with the next
// publication.
func (c *conn) dropReplacement() (had bool) {
	c.outdated = false
	next := c.counterpart()
	if next == nil {
		return false
	}
	c.unlinkReplacement()
	next.end()
	return true
}

// followDraining drops the replacement when the endpoint starts to drain, and makes it when
// draining ends.
func (c *conn) followDraining(cfg *picker.Endpoint) {
	switch draining := c.endpoint.Draining; {
	case draining && c.dropReplacement():
		c.outdated = true
	case !draining && c.outdated:
		c.replace(cfg)
	}
}

// onReplacementState handles a state of a replacement. The previous connection stays in use
// until the replacement is connected and its backend is healthy (A17).
func (c *conn) onReplacementState(s balancer.SubConnState) {
	old := c.counterpart()
	switch s.ConnectivityState {
	case connectivity.Ready:
		if c.leaf.checksHealth() && old.child == nil && !c.multiAddress() && !c.leaf.delegates() {
			c.checkHealth()
			return
		}
		c.takeOver(s)
	case connectivity.Idle:
		c.connect()
	case connectivity.TransientFailure:
		c.leaf.noteReplacementFailed(s.ConnectionError)
	}
}

// recheckReplacements applies a changed health check, or its end, to READY replacements.
func (l *leafState) recheckReplacements() {
	for c := range l.replacements {
		if c.replacement && c.state == picker.Ready {
			c.stopHealthWatch()
			c.onReplacementState(balancer.SubConnState{ConnectivityState: connectivity.Ready})
		}
	}
}

// takeOver puts a READY replacement into force, and shuts the previous connection down. The
// change is invisible to a child policy, unless it has a producer on the connection. The
// producer ends with the connection, so the policy sees a connection that was lost and is back.
func (c *conn) takeOver(s balancer.SubConnState) {
	old := c.counterpart()
	c.unlinkReplacement()
	e, h := old.endpoint, old.child
	c.endpoint, c.child = e, h
	old.endpoint, old.child = nil, nil
	if e.conn == old {
		e.conn = c
		e.loc.tally.note(picks)
	}
	old.end()
	switch {
	case h != nil:
		h.conn.Store(c)
		c.onTakenOver(old.state == picker.Ready, s)
	case c.leaf.delegates():
	case e.Connectivity == picker.Ready:
		e.startOOB()
	default:
		e.observe(connectivity.Ready, nil)
	}
	c.leaf.out.publish = true
}

// onTakenOver is called when the replacement of a child policy's connection is in force. ready
// reports whether the previous connection was READY.
func (c *conn) onTakenOver(ready bool, s balancer.SubConnState) {
	h := c.child
	switch listener := h.healthListener; {
	case !ready:
		h.onState(s)
	case h.hasProducer:
		h.inherited = true
		h.forget()
		h.notify(balancer.SubConnState{ConnectivityState: connectivity.Idle})
	case listener != nil:
		sc := c.subConn()
		c.leaf.rt.Call(func() { sc.RegisterHealthListener(listener) })
	}
}

// noteReplacementFailed logs, once after each change, that the settings fail.
func (l *leafState) noteReplacementFailed(err error) {
	if l.replacementFailed {
		return
	}
	l.replacementFailed = true
	l.rec.begin(stateKey{name: stateTLS, cluster: l.cluster}, msgTLSFails, slog.String("error", err.Error()))
}
