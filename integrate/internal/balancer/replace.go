// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/integrate/internal/xdstls"
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

// newSecurity returns how a cluster's connections are secured; nil without xDS. Channels
// without xDS credentials get it too: wrapped credentials do not report that they use xDS, and
// must not fall back for that reason.
func (ch *channel) newSecurity(cluster string) *xdstls.Cluster {
	if ch.bootstrap == nil {
		return nil
	}
	return xdstls.NewCluster(cluster, ch.bootstrap.CertProviders, ch.usesXDS())
}

// secured returns addresses whose connections are secured as the endpoint's cluster requires.
// hostname returns the hostname of an address's endpoint, if it has an endpoint.
func (c *conn) secured(addrs []resolver.Address, hostname func(addr string) (string, bool)) []resolver.Address {
	security := c.leaf.security
	addrs = slices.Clone(addrs)
	for i := range addrs {
		a := &addrs[i]
		if !security.Hostnames() {
			security.Secure(a, nil)
			continue
		}
		h := c.host(a.Addr)
		if name, ok := hostname(a.Addr); ok {
			h.Set(name)
		}
		security.Secure(a, h)
	}
	return addrs
}

// host returns the hostname of an address of the connection.
func (c *conn) host(addr string) *xdstls.Host {
	l := c.leaf
	if l.hosts == nil {
		l.hosts = map[*conn]map[string]*xdstls.Host{}
	}
	if l.hosts[c] == nil {
		l.hosts[c] = make(map[string]*xdstls.Host, 1)
	}
	h := l.hosts[c][addr]
	if h == nil {
		h = new(xdstls.Host)
		l.hosts[c][addr] = h
	}
	return h
}

// setHostnames sets the hostnames for handshakes of the connection and of its replacement. It
// reports whether a hostname has changed that was used to make the connection, so that it needs
// a replacement.
func (c *conn) setHostnames(hostname func(addr string) (string, bool)) (outdated bool) {
	for _, c := range []*conn{c, c.counterpart()} {
		if c == nil {
			continue
		}
		for addr, h := range c.leaf.hosts[c] {
			if name, ok := hostname(addr); ok && h.Set(name) {
				outdated = true
			}
		}
	}
	return outdated && c.leaf.security.VerifiesHostnames()
}

// hostnameOf returns the hostname of the endpoint with an address. It reports false if the
// child has no such endpoint, or if the endpoint is draining.
func (c *child) hostnameOf(addr string) (hostname string, ok bool) {
	t, ok := c.targets[addr]
	return t.hostname, ok
}

// hostname returns the endpoint's hostname; empty for most.
func hostname(cfg *picker.Endpoint) string {
	if cfg.Extra == nil {
		return ""
	}
	return cfg.Extra.Hostname
}

// hostnameFor returns hostname for each address of the endpoint.
func hostnameFor(cfg *picker.Endpoint) func(addr string) (string, bool) {
	return func(string) (string, bool) { return hostname(cfg), true }
}

// renameConn applies a change of the endpoint's hostname. The connections of child policies are
// updated with the child's next list of endpoints (child.retarget).
func (e *endpoint) renameConn(cfg *picker.Endpoint) {
	if c := e.conn; c != nil && c.child == nil && c.setHostnames(hostnameFor(cfg)) {
		c.replace(cfg)
	}
}

// usesXDS reports whether the channel's credentials use the TLS configuration of clusters.
func (b *channel) usesXDS() bool { return xdstls.UsesXDS(&b.buildOpts) }

// refuses reports whether the channel's credentials cannot provide the TLS that a leaf
// requires, although they must (A29). The leaf's endpoints are not connected in this case.
func (b *channel) refuses(l *picker.Leaf) bool {
	return l.TLS != nil && xdstls.UsesForeign(&b.buildOpts)
}

// refuse removes the endpoints of a leaf whose names are refused, and sets the reason.
func (b *channel) refuse(l *picker.Leaf) {
	const why = "the channel's credentials (%T) use xDS, and do not support xdslb's TLS settings: use integrate.NewCredentials, and pass them to the channel unwrapped"
	l.Priorities, l.Outlier = nil, nil
	l.ResolutionNote = plainError(fmt.Sprintf("it demands TLS (transport_socket of the Cluster resource), and "+why, xdstls.Of(&b.buildOpts)))
	if _, noted := refusalsNoted.LoadOrStore(b.buildOpts.Target.URL.String(), true); !noted {
		b.rec.write(slog.LevelError, fmt.Sprintf("xdslb: RPCs of a cluster fail, since it demands TLS, and "+why+". This is logged once per target.",
			xdstls.Of(&b.buildOpts)), l.Name)
	}
}

// refusalsNoted has the targets for which refuse has logged a line.
var refusalsNoted sync.Map
