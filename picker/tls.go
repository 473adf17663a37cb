// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

// TLS describes how connections to a cluster's endpoints are secured (A29). It is plain data
// for handshakes on channels with xDS credentials. Picks ignore it.
type TLS struct {
	// Roots provides the certificates for verifying servers; zero if SystemRoots selects the
	// system's certificates (A82).
	Roots       CertInstance
	SystemRoots bool
	// Identity provides the client's certificate; zero without one.
	Identity CertInstance
	// SANs are matchers for the names in the server's certificate, at least one of which must
	// match. If empty, all certificates signed by Roots are accepted.
	SANs []StringMatch

	// A101. ServerName is the SNI to send, unless AutoHostName is set and the endpoint has a
	// hostname, which is then sent. MatchServerName means that the certificate must be valid
	// for the SNI, if one is sent, instead of SANs.
	ServerName                    string
	AutoHostName, MatchServerName bool
}

// CertInstance names a certificate of a certificate provider in the bootstrap.
type CertInstance struct {
	Instance string // key of certificate_providers
	CertName string // name passed to the provider; file_watcher has a single certificate
}

// Matches reports whether s matches (A63), as in routes.
func (m *StringMatch) Matches(s string) bool { return m.matches(s) }
