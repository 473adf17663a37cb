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
	"sync"
	"time"

	"google.golang.org/grpc/credentials/tls/certprovider"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/bootstrap"
)

// Files that are not there yet, as when another process of a pod writes them, are looked
// for every so often, for a while: then the handshake fails, so that RPCs get to know why.
const (
	lookPause = 100 * time.Millisecond
	patience  = 5 * time.Second
)

// material is what a provider instance gives for one purpose. A file_watcher is the
// bootstrap's own CertLoader; other plugins are built when a handshake needs them
// first, so that channels without xDS credentials leave them alone.
type material struct {
	picker.CertInstance
	roots    bool
	provider bootstrap.CertProvider

	mu     sync.Mutex
	plugin certprovider.Provider // nil while it is not built
	closed bool
}

// material returns what an instance gives; nil for the zero instance.
func (c *Cluster) material(of picker.CertInstance, roots bool) *material {
	if of.Instance == "" && !roots {
		return nil
	}
	return &material{CertInstance: of, roots: roots, provider: c.providers[of.Instance]}
}

// close lets go of the plugin.
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

// loadRoots returns the roots, which are not the system's.
func (m *material) loadRoots(ctx context.Context, stale func() bool) (roots bootstrap.Roots, err error) {
	if m.provider.Files != nil {
		roots, err = await(ctx, stale, m.provider.Files.LoadRoots)
	} else if km, e := m.keyMaterial(ctx); e != nil {
		err = e
	} else {
		roots = rootsOf(km)
	}
	if err == nil && roots.Pool == nil && roots.TrustDomains == nil {
		err = errors.New("it has no roots")
	}
	return roots, m.explain(err)
}

// loadIdentity returns the client's certificate and key; none if the instance has none.
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

// explain adds to an error which instance and purpose it is about.
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

// errStale says that the settings have changed meanwhile.
var errStale = errors.New("the settings have changed")

// await calls load until it succeeds, for a while, and once more when that is over: the process
// may have stood still since the latest call.
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

// look calls load, for a second at most: settings may change while a file cannot be read.
func look[T any](ctx context.Context, load func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return load(ctx)
}

// keyMaterial asks a plugin.
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
		return nil, errors.New("the bootstrap has no such instance")
	}
	config, err := ParsePlugin(m.provider.Plugin, m.provider.Config)
	if err != nil { // which may quote the configuration, and this error becomes that of RPCs
		return nil, fmt.Errorf("plugin %q is not registered, or rejects its configuration", m.provider.Plugin)
	}
	m.plugin, err = config.Build(certprovider.BuildOptions{CertName: m.CertName, WantRoot: m.roots, WantIdentity: !m.roots})
	return m.plugin, err
}

// ParsePlugin parses the configuration of a plugin of grpc-go's registry.
func ParsePlugin(name string, config json.RawMessage) (*certprovider.BuildableConfig, error) {
	return certprovider.ParseConfig(name, config)
}

// rootsOf returns the roots that a plugin gave.
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
