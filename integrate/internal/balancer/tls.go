// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/integrate/internal/xdstls"
	"github.com/xdslb/xdslb/picker"
)

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

// setHostnames sets the hostnames for the next handshakes of the connection.
func (c *conn) setHostnames(hostname func(addr string) (string, bool)) {
	for addr, h := range c.leaf.hosts[c] {
		if name, ok := hostname(addr); ok {
			h.Set(name)
		}
	}
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
	if c := e.conn; c != nil && c.child == nil {
		c.setHostnames(hostnameFor(cfg))
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
