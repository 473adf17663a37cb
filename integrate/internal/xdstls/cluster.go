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

// A Cluster is how a channel's connections to a cluster are secured. It is made by
// NewCluster. Handshakes read it at any time; Update, Secure and Close are called one
// at a time. The methods of a nil Cluster do nothing.
type Cluster struct {
	name      string
	providers map[string]bootstrap.CertProvider
	hostnames bool
	plain     *attributes.Attributes   // of addresses without a Host
	current   atomic.Pointer[settings] // nil while the cluster has no TLS settings
}

// settings are those of one version of the Cluster resource.
type settings struct {
	picker.TLS
	cluster         string
	roots, identity *material // nil for the system's roots, for no identity
}

// NewCluster returns a Cluster without TLS settings. The providers are the bootstrap's.
// hostnames reports whether the channel's credentials identify themselves as xDS credentials.
// Addresses carry the hostnames of endpoints only then, so that other channels do not pay
// for hostnames.
func NewCluster(name string, providers map[string]bootstrap.CertProvider, hostnames bool) *Cluster {
	c := &Cluster{name: name, providers: providers, hostnames: hostnames}
	c.plain = attributes.New(targetKey{}, Target{cluster: c})
	return c
}

// Name returns the cluster's name.
func (c *Cluster) Name() string { return c.name }

// Update is Swap, and releases what is not needed any more.
func (c *Cluster) Update(t *picker.TLS) { c.Swap(t)() }

// Swap has handshakes that begin from now on go by other settings, nil for none.
// Those that are under way may begin again, as long as nothing has been sent. release,
// to be called after it, ends providers of the old settings: plugins, which may take
// their time.
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
	return old.close // after others may have the same plugin: grpc-go keeps what is in use
}

// Close releases the providers. Handshakes fail from now on, unless the cluster has no
// TLS settings.
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

// VerifiesHostnames reports whether new connections are made by the hostnames of endpoints
// (auto_host_sni), so that an endpoint whose hostname has changed needs another connection.
func (c *Cluster) VerifiesHostnames() bool {
	if !c.Hostnames() {
		return false
	}
	s := c.current.Load()
	return s != nil && s.AutoHostName
}

// DemandsTLS reports whether the cluster has TLS settings now.
func (c *Cluster) DemandsTLS() bool { return c != nil && c.current.Load() != nil }

// A Host is the hostname of an address's endpoint (A101), empty if the endpoint has none.
// Handshakes read it when they begin, so a change takes effect without another SubConn.
type Host struct{ name atomic.Pointer[string] }

// Set changes the hostname, and reports whether it was another one before.
func (h *Host) Set(name string) (changed bool) {
	was := h.name.Swap(&name)
	return was == nil && name != "" || was != nil && *was != name
}

// Secure makes connections to an address secured as the cluster is. host is nil, or the
// address's hostname. All addresses without a Host share their attributes.
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
	host    *Host // nil if the address has none
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

// String is for logs that have the address.
func (targetKey) String() string { return "TLS" }

// TargetOf returns what Secure has put into attributes, which may be nil.
func TargetOf(a *attributes.Attributes) (t Target, ok bool) {
	t, ok = a.Value(targetKey{}).(Target)
	return t, ok
}
