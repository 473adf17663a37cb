// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstls

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/xdslb/xdslb/xds/bootstrap"
)

// Handshake secures a new connection to the target. Without TLS settings it does nothing and
// plain is true, so the caller must use the fallback credentials.
func (t Target) Handshake(ctx context.Context, raw net.Conn) (conn net.Conn, info credentials.AuthInfo, plain bool, err error) {
	for {
		s := t.cluster.current.Load()
		if s == nil {
			return nil, nil, true, nil
		}
		config, err := s.config(ctx, t, func() bool { return t.cluster.current.Load() != s })
		if err != nil && t.cluster.current.Load() != s {
			continue
		}
		if err != nil {
			return nil, nil, false, fmt.Errorf("xdslb: TLS to cluster %q: %w", s.cluster, err)
		}
		conn, info, err := s.handshake(ctx, raw, config)
		return conn, info, false, err
	}
}

// config returns the configuration for crypto/tls. stale reports whether the settings have been
// replaced.
func (s *settings) config(ctx context.Context, t Target, stale func() bool) (*tls.Config, error) {
	sni := s.ServerName
	if s.AutoHostName {
		if !t.cluster.hostnames {
			return nil, errors.New("auto_host_sni is set, but hostnames are unknown: the channel's credentials do not identify themselves as xDS credentials: " +
				"pass those of integrate.NewCredentials to it unwrapped")
		}
		if host := t.hostname(); host != "" {
			sni = host
		}
	}
	config := &tls.Config{
		ServerName: sni,
		NextProtos: []string{"h2"},
		MinVersion: tls.VersionTLS12,
		// verify does it instead, since names are matched differently than in crypto/tls
		InsecureSkipVerify: true,
	}
	var roots bootstrap.Roots
	var err error
	if s.roots != nil {
		if roots, err = s.roots.loadRoots(ctx, stale); err != nil {
			return nil, err
		}
	}
	if s.identity != nil {
		if config.Certificates, err = s.identity.loadIdentity(ctx, stale); err != nil {
			return nil, err
		}
	}
	// Not VerifyPeerCertificate, which is not called for resumed connections.
	config.VerifyConnection = func(state tls.ConnectionState) error {
		slow := time.Now().Add(lookPause)
		return s.verify(ctx, state.PeerCertificates, roots, sni, func() error {
			if ctx.Err() == nil && time.Now().After(slow) && stale() {
				return errStale
			}
			return ctx.Err()
		})
	}
	return config, nil
}

// withoutPort returns the host of a hostname with optional port (A101).
func withoutPort(hostname string) string {
	if host, _, err := net.SplitHostPort(hostname); err == nil {
		return host
	}
	return hostname
}

func (s *settings) handshake(ctx context.Context, raw net.Conn, config *tls.Config) (net.Conn, credentials.AuthInfo, error) {
	conn := tls.Client(raw, config)
	err := conn.HandshakeContext(ctx)
	if err == nil && conn.ConnectionState().NegotiatedProtocol != "h2" && enforceALPN() {
		err = errors.New("the server does not negotiate the protocol h2 (ALPN), and GRPC_ENFORCE_ALPN_ENABLED is true")
	}
	if err != nil {
		_ = conn.Close()
		return nil, nil, fmt.Errorf("xdslb: TLS to cluster %q: %w", s.cluster, s.explain(err, config.Certificates))
	}
	state := conn.ConnectionState()
	info := credentials.TLSInfo{State: state, CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
	if uris := state.PeerCertificates[0].URIs; len(uris) == 1 && bootstrap.IsSPIFFEID(uris[0]) {
		info.SPIFFEID = uris[0]
	}
	secured := securedConn{conn, s, config.Certificates}
	if sc, ok := raw.(syscall.Conn); ok {
		return socketConn{secured, sc}, info, nil
	}
	return secured, info, nil
}

// enforceALPN reports whether servers that do not negotiate a protocol are rejected. By default
// they are accepted, as by grpc-go's xDS credentials. (crypto/tls rejects other protocols.)
func enforceALPN() bool { return strings.EqualFold(os.Getenv("GRPC_ENFORCE_ALPN_ENABLED"), "true") }

// explain adds details to an error with which the server rejects the client's certificate.
func (s *settings) explain(err error, shown []tls.Certificate) error {
	var remote *net.OpError
	switch {
	case !errors.As(err, &remote) || remote.Op != "remote error" || !strings.Contains(remote.Err.Error(), "certificate"):
		return err
	case s.identity == nil:
		return fmt.Errorf("%w: the Cluster resource names no tls_certificate_provider_instance, so the client sent none", err)
	case len(shown) == 0:
		return fmt.Errorf("%w: certificate provider instance %q has no certificate, so the client sent none", err, s.identity.Instance)
	case shown[0].Leaf == nil:
		return fmt.Errorf("%w: the server rejected the client's certificate of certificate provider instance %q", err, s.identity.Instance)
	default:
		return fmt.Errorf("%w: the server rejected the client's certificate (%s) of certificate provider instance %q", err, describe(shown[0].Leaf), s.identity.Instance)
	}
}

// securedConn is a connection that explains why the server rejects it: in TLS 1.3 the first
// read returns that error.
type securedConn struct {
	*tls.Conn
	settings *settings
	shown    []tls.Certificate
}

// Read implements net.Conn.
func (c securedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		if explained := c.settings.explain(err, c.shown); explained != err {
			return n, fmt.Errorf("xdslb: TLS to cluster %q: %w", c.settings.cluster, explained)
		}
	}
	return n, err
}

// socketConn is a connection that gives gRPC access to its socket options.
type socketConn struct {
	securedConn
	socket syscall.Conn
}

// SyscallConn implements syscall.Conn.
func (c socketConn) SyscallConn() (syscall.RawConn, error) { return c.socket.SyscallConn() }
