// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/credentials/tls/certprovider"
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

// DemandsTLS reports whether the cluster currently has TLS settings.
func (c *Cluster) DemandsTLS() bool { return c != nil && c.current.Load() != nil }

// A Host is the hostname of an address's endpoint (A101), empty for an endpoint without one.
// Handshakes read it when they start, so a change takes effect without a new SubConn.
type Host struct{ name atomic.Pointer[string] }

// Set sets the hostname.
func (h *Host) Set(name string) { h.name.Store(&name) }

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

// Missing files, for example files to be written by another process of a pod, are polled for a
// while. Then the handshake fails, so that RPCs get the reason.
const (
	lookPause = 100 * time.Millisecond
	patience  = 5 * time.Second
)

// material is the material that a provider instance provides for one purpose. A file_watcher is
// the bootstrap's own CertLoader; other plugins are built when a handshake first needs them, so
// that channels without xDS credentials do not start them.
type material struct {
	picker.CertInstance
	roots    bool
	provider bootstrap.CertProvider

	mu     sync.Mutex
	plugin certprovider.Provider // nil until it is built
	closed bool
}

// material returns the material of an instance, or nil for the zero instance.
func (c *Cluster) material(of picker.CertInstance, roots bool) *material {
	if of.Instance == "" && !roots {
		return nil
	}
	return &material{CertInstance: of, roots: roots, provider: c.providers[of.Instance]}
}

// close closes the plugin.
func (m *material) close() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed = true; m.plugin != nil {
		m.plugin.Close()
	}
}

// loadRoots returns the provider's roots, never the system's.
func (m *material) loadRoots(ctx context.Context, stale func() bool) (roots bootstrap.Roots, err error) {
	if m.provider.Files != nil {
		roots, err = await(ctx, stale, m.provider.Files.LoadRoots)
	} else if km, e := m.keyMaterial(ctx); e != nil {
		err = e
	} else {
		roots = rootsOf(km)
	}
	if err == nil && roots.Pool == nil && roots.TrustDomains == nil {
		err = errors.New("no roots")
	}
	return roots, m.explain(err)
}

// loadIdentity returns the client's certificate and key, or nil if the instance has no
// identity.
func (m *material) loadIdentity(ctx context.Context, stale func() bool) (certs []tls.Certificate, err error) {
	if m.provider.Files != nil {
		cert, e := await(ctx, stale, m.provider.Files.LoadIdentity)
		if err = e; cert != nil {
			certs = []tls.Certificate{*cert}
		}
	} else if km, e := m.keyMaterial(ctx); e != nil {
		err = e
	} else {
		certs = km.Certs
	}
	return certs, m.explain(err)
}

// explain adds the instance and the purpose to an error.
func (m *material) explain(err error) error {
	if err == nil || errors.Is(err, errStale) {
		return err
	}
	purpose := "the client's certificate"
	if m.roots {
		purpose = "the roots"
	}
	return fmt.Errorf("%s of certificate provider instance %q: %w", purpose, m.Instance, err)
}

// errStale means that the settings have changed in the meantime.
var errStale = errors.New("TLS settings have changed")

// await calls load until it succeeds, for a limited time, and once more after that: the process
// may have been stopped since the last call.
func await[T any](ctx context.Context, stale func() bool, load func(context.Context) (T, error)) (T, error) {
	end := time.NewTimer(patience)
	defer end.Stop()
	again := time.NewTicker(lookPause)
	defer again.Stop()
	for over := false; ; {
		v, err := look(ctx, load)
		if err == nil || over {
			return v, err
		}
		select {
		case <-again.C:
		case <-end.C:
			over = true
		case <-ctx.Done():
			return v, err
		}
		if stale() {
			return v, errStale
		}
	}
}

// look calls load, for at most a second: settings may change while a file cannot be read.
func look[T any](ctx context.Context, load func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return load(ctx)
}

// keyMaterial gets the key material from a plugin.
func (m *material) keyMaterial(ctx context.Context) (*certprovider.KeyMaterial, error) {
	plugin, err := m.build()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return plugin.KeyMaterial(ctx)
}

func (m *material) build() (certprovider.Provider, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return nil, errStale
	case m.plugin != nil:
		return m.plugin, nil
	case m.provider.Plugin == "":
		return nil, errors.New("not in the bootstrap")
	}
	config, err := ParsePlugin(m.provider.Plugin, m.provider.Config)
	if err != nil { // err may quote the configuration, and this error becomes that of RPCs
		return nil, fmt.Errorf("plugin %q is not registered, or rejects its configuration", m.provider.Plugin)
	}
	m.plugin, err = config.Build(certprovider.BuildOptions{CertName: m.CertName, WantRoot: m.roots, WantIdentity: !m.roots})
	return m.plugin, err
}

// ParsePlugin parses the configuration of a plugin from grpc-go's registry.
func ParsePlugin(name string, config json.RawMessage) (*certprovider.BuildableConfig, error) {
	return certprovider.ParseConfig(name, config)
}

// rootsOf returns the roots of a plugin.
func rootsOf(km *certprovider.KeyMaterial) bootstrap.Roots {
	if km.SPIFFEBundleMap == nil {
		return bootstrap.Roots{Pool: km.Roots}
	}
	roots := bootstrap.Roots{TrustDomains: make(map[string]*x509.CertPool, len(km.SPIFFEBundleMap))}
	for domain, bundle := range km.SPIFFEBundleMap {
		pool := x509.NewCertPool()
		for _, cert := range bundle.X509Authorities() {
			pool.AddCert(cert)
		}
		roots.TrustDomains[domain] = pool
	}
	return roots
}
