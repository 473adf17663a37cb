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
	plain     *attributes.Attributes   // of addresses without a hostname
	current   atomic.Pointer[settings] // nil while the cluster has no TLS settings
}

// settings are those of one version of the Cluster resource.
type settings struct {
	picker.TLS
	cluster         string
	roots, identity *material // nil for the system's roots, for no identity
}

// NewCluster returns a Cluster without TLS settings. The providers are the bootstrap's.
// hostnames says that the channel has xDS credentials, as far as one can see, so that
// addresses carry the hostnames of endpoints: it is all that they cost others.
func NewCluster(name string, providers map[string]bootstrap.CertProvider, hostnames bool) *Cluster {
	c := &Cluster{name: name, providers: providers, hostnames: hostnames}
	c.plain = attributes.New(targetKey{}, Target{cluster: c})
	return c
}

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

// Hostnames reports whether addresses carry the hostnames of endpoints, so that a
// change needs another connection.
func (c *Cluster) Hostnames() bool { return c != nil && c.hostnames }

// Secure makes connections to an address secured as the cluster is. All addresses
// without a hostname share what they carry.
func (c *Cluster) Secure(a *resolver.Address, hostname string) {
	switch {
	case c == nil:
	case hostname != "" && c.hostnames:
		a.Attributes = a.Attributes.WithValue(targetKey{}, Target{cluster: c, hostname: hostname})
	case a.Attributes == nil:
		a.Attributes = c.plain
	default:
		a.Attributes = a.Attributes.WithValue(targetKey{}, Target{cluster: c})
	}
}

// A Target is what an address carries.
type Target struct {
	cluster  *Cluster
	hostname string // of the endpoint (A101); empty if it has none
}

// String says it for logs that have the address.
func (t Target) String() string {
	text := fmt.Sprintf("of cluster %q", t.cluster.name)
	if t.hostname != "" {
		text += fmt.Sprintf(", hostname %q", t.hostname)
	}
	return text
}

type targetKey struct{}

// String is for logs that have the address.
func (targetKey) String() string { return "TLS" }

// TargetOf returns what Secure has put into attributes, which may be nil.
func TargetOf(a *attributes.Attributes) (t Target, ok bool) {
	t, ok = a.Value(targetKey{}).(Target)
	return t, ok
}
