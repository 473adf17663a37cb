// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"errors"

	"google.golang.org/grpc/credentials"

	"github.com/xdslb/xdslb/integrate/internal/xdstls"
)

// CredentialsOptions are what [NewCredentials] needs.
type CredentialsOptions struct {
	// Fallback secures connections to clusters for which the control plane asks for no
	// TLS, and all connections of channels without xDS, for instance
	// insecure.NewCredentials(). It is required. It is never used because something
	// went wrong with what the control plane asks for.
	Fallback credentials.TransportCredentials
}

// NewCredentials returns credentials that secure the connections of xDS channels as
// the control plane says (A29): what google.golang.org/grpc/credentials/xds is for
// google.golang.org/grpc/xds. On channels of the latter they are the former, so that
// one value serves while a program moves from one to the other, and back.
//
// Certificates come from the bootstrap's certificate_providers: "file_watcher", which
// is built in, and the plugins that the program registers with
// google.golang.org/grpc/credentials/tls/certprovider. Servers are verified by the
// names that the Cluster resource lists, by trust domains if the provider has a SPIFFE
// bundle map (A87), by the system's roots if the resource says so (A82), and by the
// SNI (A101). An update of a cluster changes what connections do that are made after
// it; those that there are stay as they are.
//
// Pass them to the channel unwrapped: the balancer recognizes them by their type. A wrapper
// without a method UsesXDS still gets TLS, but no auto_host_sni. A wrapper that has one is taken
// for another package's xDS credentials, and clusters with TLS fail.
func NewCredentials(o CredentialsOptions) (credentials.TransportCredentials, error) {
	if o.Fallback == nil {
		return nil, errors.New("xdslb: CredentialsOptions.Fallback is required: insecure.NewCredentials() if clusters without TLS are to be connected to in the clear")
	}
	return xdstls.NewCredentials(o.Fallback)
}
