// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

// TLS says how connections to a cluster's endpoints are secured (A29): plain data
// that handshakes go by on channels with xDS credentials. Picks ignore it.
type TLS struct {
	// Roots provides the certificates that servers are verified by; zero if
	// SystemRoots says that those of the system do it (A82).
	Roots       CertInstance
	SystemRoots bool
	// Identity provides the client's certificate; zero if it shows none.
	Identity CertInstance
	// SANs are what the server's certificate may be for: one of its names has to
	// match one of these. Without any, all certificates of Roots are accepted.
	SANs []StringMatch

	// A101. ServerName is the SNI to send unless AutoHostName is set and the endpoint
	// has a hostname, which is sent then. MatchServerName says that the certificate is
	// to be for the SNI, if one is sent, instead of SANs.
	ServerName                    string
	AutoHostName, MatchServerName bool
}

// CertInstance names key material of a certificate provider of the bootstrap.
type CertInstance struct {
	Instance string // key of certificate_providers
	CertName string // what to ask the provider for; file_watcher has one only
}

// Matches reports whether s matches (A63), as routes have it.
func (m *StringMatch) Matches(s string) bool { return m.matches(s) }
