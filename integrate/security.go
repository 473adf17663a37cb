// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/integrate/internal/xdstls"
	"github.com/xdslb/xdslb/picker"
)

// newSecurity returns how a cluster's connections are secured; nil without xDS. Those
// of channels without xDS credentials get it too: wrapped credentials do not say that
// they use xDS, and are not to fall back for that.
func (b *lb) newSecurity(cluster string) *xdstls.Cluster {
	if b.src == nil || b.src.bootstrap == nil {
		return nil
	}
	return xdstls.NewCluster(cluster, b.src.bootstrap.CertProviders, b.usesXDS())
}

// secured makes connections to the endpoint's addresses secured as its cluster is.
func (e *endpoint) secured(addrs []resolver.Address, cfg *picker.Endpoint) []resolver.Address {
	for i := range addrs {
		e.loc.prio.leaf.security.Secure(&addrs[i], hostname(cfg))
	}
	return addrs
}

// securedLocked is endpoint.secured for addresses of a child policy's choice, which
// may be no endpoint's.
func (c *child) securedLocked(addrs []resolver.Address, e *endpoint) []resolver.Address {
	out := make([]resolver.Address, len(addrs))
	for i, a := range addrs {
		e.loc.prio.leaf.security.Secure(&a, c.targets[a.Addr].hostname)
		out[i] = a
	}
	return out
}

// hostname returns the endpoint's hostname; empty for most.
func hostname(cfg *picker.Endpoint) string {
	if cfg.Extra == nil {
		return ""
	}
	return cfg.Extra.Hostname
}

// renew has the endpoint connect anew after its hostname has changed, which the
// connection may be verified by. Child policies see that as a connection that was lost.
func (e *endpoint) renew(b *lb) {
	if !e.loc.prio.leaf.security.Hostnames() {
		return
	}
	if e.conn != nil && e.conn.child == nil {
		e.disconnect(b)
		e.loc.prio.needsConnect = true
	}
	for g := range e.loc.prio.liveGroups {
		for h := range g.subConns(e) {
			if c := h.conn.Load(); c != nil {
				c.shutdown()
				h.onLost()
			}
		}
	}
}
