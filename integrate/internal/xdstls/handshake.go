// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/xdslb/xdslb/picker"
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

// verify verifies that the first certificate of the server chains to the roots, and that it has
// a name accepted by the control plane (A29, A101). ctx and interrupted are for
// acceptsNamesWithin.
func (s *settings) verify(ctx context.Context, chain []*x509.Certificate, roots bootstrap.Roots, sni string, interrupted func() error) error {
	if len(chain) == 0 {
		return errors.New("the server sent no certificate")
	}
	leaf := chain[0]
	if err := roots.Verify(chain, s.SystemRoots); err != nil {
		by := "the system's roots"
		if s.roots != nil {
			by = fmt.Sprintf("the roots of certificate provider instance %q", s.roots.Instance)
		}
		return fmt.Errorf("the server's certificate (%s) is not accepted by %s: %w", describe(leaf), by, err)
	}
	if s.MatchServerName && sni != "" {
		if !isFor(leaf, sni) {
			return fmt.Errorf("the server's certificate (%s) has names that do not match the SNI %.200q (auto_sni_san_validation)", describe(leaf), sni)
		}
		return nil
	}
	if len(s.SANs) == 0 {
		return nil
	}
	if ok, err := s.acceptsNamesWithin(ctx, leaf, interrupted); err != nil {
		return fmt.Errorf("matching the names of the server's certificate (match_subject_alt_names): %w", err)
	} else if !ok {
		return fmt.Errorf("the server's certificate (%s) has names that do not match any of the accepted SANs (match_subject_alt_names): %s", describe(leaf), describeMatchers(s.SANs))
	}
	return nil
}

// isFor reports whether a certificate is valid for a server name.
func isFor(cert *x509.Certificate, name string) bool {
	if ip := net.ParseIP(name); ip != nil {
		return slices.ContainsFunc(cert.IPAddresses, ip.Equal)
	}
	return slices.ContainsFunc(cert.DNSNames, func(san string) bool { return matchDNS(name, san) })
}

// maxName is the maximum length of a name that is matched: SPIFFE IDs have at most 2048 bytes,
// DNS names 255. The time of regular expressions is proportional to it.
const maxName = 2048

// acceptsNamesWithin is acceptsNames, except that it returns when ctx ends. A match that takes
// longer continues in the background.
func (s *settings) acceptsNamesWithin(ctx context.Context, cert *x509.Certificate, interrupted func() error) (bool, error) {
	var ok bool
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		ok, err = s.acceptsNames(cert, interrupted)
	}()
	select {
	case <-done:
		return ok, err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// acceptsNames reports whether one of a certificate's names matches. Only exact matchers are
// compared with DNS names by DNS rules, including wildcards. Names that are too long do not
// match. interrupted is called between matches, and returns an error to stop matching.
func (s *settings) acceptsNames(cert *x509.Certificate, interrupted func() error) (bool, error) {
	names := slices.AppendSeq(slices.Clone(cert.DNSNames), otherNames(cert))
	for i := range s.SANs {
		m := &s.SANs[i]
		for k, san := range names {
			if err := interrupted(); err != nil {
				return false, err
			}
			match := m.Matches
			if k < len(cert.DNSNames) && m.Kind == picker.MatchExact {
				match = func(san string) bool { return matchDNS(m.Value, san) }
			}
			if len(san) <= maxName && match(san) {
				return true, nil
			}
		}
	}
	return false, nil
}

// otherNames iterates over the names of a certificate other than DNS names, as text.
func otherNames(cert *x509.Certificate) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, u := range cert.URIs {
			if !yield(u.String()) {
				return
			}
		}
		for _, a := range cert.EmailAddresses {
			if !yield(a) {
				return
			}
		}
		for _, ip := range cert.IPAddresses {
			if !yield(ip.String()) {
				return
			}
		}
	}
}

// matchDNS reports whether a DNS name of a certificate covers a host. It is case-insensitive,
// and ignores a final dot. The first label of the name may be "*", which matches one label if
// further labels follow; a star has no special meaning elsewhere (RFC 6125, section 6.4.3).
func matchDNS(host, san string) bool {
	host, san = strings.ToLower(strings.TrimSuffix(host, ".")), strings.ToLower(strings.TrimSuffix(san, "."))
	if host == "" || san == "" {
		return false
	}
	parent, wild := strings.CutPrefix(san, "*.")
	if !wild {
		return host == san && !strings.Contains(san, "*")
	}
	label, rest, ok := strings.Cut(host, ".")
	return ok && label != "" && parent != "" && rest == parent && !strings.Contains(parent, "*")
}

// maxNames is the maximum number of names of a certificate or matchers in an error.
const maxNames = 8

// describe identifies a certificate in errors.
func describe(cert *x509.Certificate) string {
	var names []string
	for _, san := range cert.DNSNames {
		names = append(names, "DNS "+quote(san))
		if len(names) > maxNames {
			break
		}
	}
	for san := range otherNames(cert) {
		if len(names) > maxNames {
			break
		}
		names = append(names, quote(san))
	}
	if names == nil {
		names = []string{"no name"}
	}
	return fmt.Sprintf("subject %s, issuer %s, valid from %s to %s, for %s", quote(cert.Subject.String()), quote(cert.Issuer.String()),
		cert.NotBefore.UTC().Format(time.RFC3339), cert.NotAfter.UTC().Format(time.RFC3339), list(names))
}

// describeMatchers lists the accepted names.
func describeMatchers(matchers []picker.StringMatch) string {
	var texts []string
	for i := range matchers[:min(len(matchers), maxNames+1)] {
		m := &matchers[i]
		kind := [...]string{picker.MatchPrefix: "prefix ", picker.MatchExact: "", picker.MatchSuffix: "suffix ", picker.MatchContains: "containing ", picker.MatchRegex: "regex "}[m.Kind]
		value := m.Value
		if m.Kind == picker.MatchRegex {
			value = m.Regex.String()
		}
		texts = append(texts, kind+quote(value))
	}
	return list(texts)
}

// list joins texts, limited to the maximum of an error.
func list(texts []string) string {
	if len(texts) > maxNames {
		texts = append(texts[:maxNames:maxNames], "…")
	}
	return strings.Join(texts, ", ")
}

// quote quotes an untrusted text, truncated if it is long.
func quote(s string) string {
	if len(s) > 128 {
		return strconv.Quote(s[:128]) + "…"
	}
	return strconv.Quote(s)
}
