// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
)

// A tlsBuilder builds "tls" channel credentials (A65).
type tlsBuilder struct{ files CertFiles }

func (b tlsBuilder) Build(json.RawMessage) (credentials.Bundle, func(), error) {
	return tlsBundle{&tlsCreds{NewCertLoader(b.files)}}, nil, nil
}

// A tlsBundle is a bundle of transport credentials only.
type tlsBundle struct{ *tlsCreds }

func (b tlsBundle) TransportCredentials() credentials.TransportCredentials { return b.tlsCreds }
func (b tlsBundle) PerRPCCredentials() credentials.PerRPCCredentials       { return nil }
func (b tlsBundle) NewWithMode(string) (credentials.Bundle, error)         { return b, nil }

// tlsCreds is client-side TLS with roots and identity from files that may change. grpc's TLS
// credentials can follow a changing identity, but not changing roots, so each handshake uses
// new credentials made from the current files.
type tlsCreds struct{ certs *CertLoader }

func (c *tlsCreds) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	certs, err := c.certs.load(ctx)
	if err != nil {
		return nil, nil, err
	}
	config := &tls.Config{RootCAs: certs.Roots.Pool}
	if certs.Roots.TrustDomains != nil { // they contain no host names
		config.InsecureSkipVerify = true
		config.VerifyConnection = func(s tls.ConnectionState) error { return certs.Roots.Verify(s.PeerCertificates, false) }
	}
	if certs.Identity != nil {
		config.Certificates = []tls.Certificate{*certs.Identity}
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
}

func (c *tlsCreds) Info() credentials.ProtocolInfo {
	return credentials.NewTLS(&tls.Config{}).Info()
}

// Clone returns c, which is immutable.
func (c *tlsCreds) Clone() credentials.TransportCredentials { return c }

func (c *tlsCreds) OverrideServerName(string) error {
	return errors.New("xdslb: tls credentials of a bootstrap do not support another server name")
}

func (c *tlsCreds) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("xdslb: tls credentials of a bootstrap are for clients")
}
