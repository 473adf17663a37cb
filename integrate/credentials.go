// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"errors"

	"google.golang.org/grpc/credentials"

	"github.com/xdslb/xdslb/integrate/internal/xdstls"
)

// CredentialsOptions are the options of [NewCredentials].
type CredentialsOptions struct {
	// Fallback secures connections to clusters without TLS settings, and all connections of
	// channels without xDS, for instance insecure.NewCredentials(). It is required. It is never
	// used as a replacement for TLS settings that cannot be applied.
	Fallback credentials.TransportCredentials
}

// NewCredentials returns credentials that secure the connections of xDS channels by the TLS settings
// of clusters (A29), as google.golang.org/grpc/credentials/xds does for google.golang.org/grpc/xds.
// On channels of that package they behave as its credentials, so that a program can move from one
// package to the other, and back, with one value.
//
// Certificates come from the bootstrap's certificate_providers: the built-in "file_watcher", and
// plugins registered with google.golang.org/grpc/credentials/tls/certprovider. Servers are verified
// by the names in the Cluster resource, by trust domains if the provider has a SPIFFE bundle map
// (A87), by the system's roots if the resource demands it (A82), and by the SNI (A101). An update
// of a cluster applies to new connections; existing ones stay unchanged.
//
// Pass them to the channel unwrapped: the balancer recognizes them by their type. A wrapper without
// a method UsesXDS gets TLS, but no auto_host_sni. A wrapper with that method is treated as another
// package's xDS credentials, and clusters with TLS settings fail.
func NewCredentials(o CredentialsOptions) (credentials.TransportCredentials, error) {
	if o.Fallback == nil {
		return nil, errors.New("xdslb: CredentialsOptions.Fallback is required: use insecure.NewCredentials() to connect to clusters without TLS in plaintext")
	}
	return xdstls.NewCredentials(o.Fallback)
}
