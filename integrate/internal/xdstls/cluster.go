// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstls

import (
	"fmt"
	"reflect"
	"sync/atomic"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/bootstrap"
)

// A Cluster has the connection security of a channel's cluster. It must be made by NewCluster.
// Handshakes read it concurrently; calls of Update, Secure and Close must be serialized. The
// methods of a nil Cluster do nothing.
type Cluster struct {
	name      string
	providers map[string]bootstrap.CertProvider
	hostnames bool
	plain     *attributes.Attributes   // for addresses without a Host
	current   atomic.Pointer[settings] // nil if the cluster has no TLS settings
}

// settings are the settings of one version of the Cluster resource.
type settings struct {
	picker.TLS
	cluster         string
	roots, identity *material // nil for the system's roots, and for no identity
}

// NewCluster returns a Cluster without TLS settings. The providers are the bootstrap's.
// hostnames reports whether the channel's credentials identify themselves as xDS credentials.
// Only then addresses carry the hostnames of endpoints, so that other channels do not pay for
// hostnames.
func NewCluster(name string, providers map[string]bootstrap.CertProvider, hostnames bool) *Cluster {
	c := &Cluster{name: name, providers: providers, hostnames: hostnames}
	c.plain = attributes.New(targetKey{}, Target{cluster: c})
	return c
}

// Name returns the cluster's name.
func (c *Cluster) Name() string { return c.name }

// Update is Swap, and then releases the old providers.
func (c *Cluster) Update(t *picker.TLS) { c.Swap(t)() }

// Swap sets new settings for future handshakes; nil removes them. Handshakes in progress may
// restart, as long as nothing has been sent. release must be called afterwards. It closes the
// plugins of the old settings, which may take time.
func (c *Cluster) Swap(t *picker.TLS) (release func()) {
	if c == nil {
		return func() {}
	}
	old := c.current.Load()
	switch {
	case old == nil && t == nil:
		return func() {}
	case old != nil && t != nil && reflect.DeepEqual(old.TLS, *t):
		return func() {}
	case t == nil:
		c.current.Store(nil)
	default:
		s := &settings{TLS: *t, cluster: c.name, identity: c.material(t.Identity, false)}
		if !t.SystemRoots {
			s.roots = c.material(t.Roots, true)
		}
		c.current.Store(s)
	}
	return old.close // called after new settings may have acquired the same plugin: grpc-go keeps it while it is in use
}

// Close releases the providers. Later handshakes fail, unless the cluster has no TLS settings.
func (c *Cluster) Close() {
	if c != nil {
		c.current.Load().close()
	}
}

func (s *settings) close() {
	if s != nil {
		s.roots.close()
		s.identity.close()
	}
}

// Hostnames reports whether addresses carry the hostnames of endpoints.
func (c *Cluster) Hostnames() bool { return c != nil && c.hostnames }

// VerifiesHostnames reports whether new connections use the hostnames of endpoints
// (auto_host_sni), so that an endpoint whose hostname has changed needs a new connection.
func (c *Cluster) VerifiesHostnames() bool {
	if !c.Hostnames() {
		return false
	}
	s := c.current.Load()
	return s != nil && s.AutoHostName
}

// DemandsTLS reports whether the cluster currently has TLS settings.
func (c *Cluster) DemandsTLS() bool { return c != nil && c.current.Load() != nil }

// A Host is the hostname of an address's endpoint (A101), empty for an endpoint without one.
// Handshakes read it when they start, so a change takes effect without a new SubConn.
type Host struct{ name atomic.Pointer[string] }

// Set sets the hostname, and reports whether it has changed.
func (h *Host) Set(name string) (changed bool) {
	was := h.name.Swap(&name)
	return was == nil && name != "" || was != nil && *was != name
}

// Secure attaches the cluster's security settings to an address. host is the address's
// hostname, or nil. All addresses without a Host share their attributes.
func (c *Cluster) Secure(a *resolver.Address, host *Host) {
	switch {
	case c == nil:
	case host == nil && a.Attributes == nil:
		a.Attributes = c.plain
	default:
		a.Attributes = a.Attributes.WithValue(targetKey{}, Target{cluster: c, host: host})
	}
}

// A Target is the attribute of an address.
type Target struct {
	cluster *Cluster
	host    *Host // nil if the address has no hostname
}

// hostname returns the endpoint's hostname, without its port.
func (t Target) hostname() string {
	if t.host == nil {
		return ""
	}
	if name := t.host.name.Load(); name != nil {
		return withoutPort(*name)
	}
	return ""
}

// String describes the target in logs of the address.
func (t Target) String() string { return fmt.Sprintf("of cluster %q", t.cluster.name) }

type targetKey struct{}

// String describes the key in logs of the address.
func (targetKey) String() string { return "TLS" }

// TargetOf returns the Target that Secure attached. a may be nil.
func TargetOf(a *attributes.Attributes) (t Target, ok bool) {
	t, ok = a.Value(targetKey{}).(Target)
	return t, ok
}
