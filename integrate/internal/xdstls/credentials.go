// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package xdstls provides the connection security configured by the control plane (gRFC A29).
//
//	Cluster resource ─ xds/resource ─► picker.TLS ─ Cluster.Update ─► settings
//	                                                                     │ one atomic pointer
//	balancer ─ Cluster.Secure ─► resolver.Address ─ gRPC ─► Target.Handshake
//	                                                           │
//	bootstrap's certificate_providers ─ material ──────────────┘
//
// A cluster of a channel has one [Cluster] as long as the channel knows the cluster, and each
// address to which the balancer connects carries it, even without TLS settings: a handshake
// uses the settings at its start. An update therefore does not affect existing connections,
// only new ones (T-SEC-1). The same applies to hostnames of endpoints. The balancer replaces
// connections if these are verified.
//
// A handshake never falls back to an insecure connection: the channel's fallback credentials
// are for clusters without TLS settings, not for settings that cannot be applied.
//
// # Verification
//
// The server's certificate is verified by the roots of the provider instance, by the roots of
// its trust domain if the provider has a SPIFFE bundle map (A87), or by the system's if and
// only if the resource selects them (A82). Then its names are verified by the resource's
// matchers or the SNI (handshake.go). The minimum version is TLS 1.2, the protocol is h2.
//
// # Errors
//
// Errors contain the cluster, the provider instance, the subject of the certificate and the
// accepted names. They quote at most a few names of an untrusted certificate and no key
// material. gRPC includes them in the errors of RPCs that fail for lack of a connection.
//
// # How to add a TLS setting of a cluster
//
// decoder.transportSocket in xds/resource/tls.go validates it into picker.TLS. balancer.leaf.adopt
// passes it to the leaf's xdstls.Cluster, which balancer.conn.secured attaches to addresses.
// xdsCredentials.ClientHandshake (integrate/credentials.go) calls Target.Handshake, which uses the
// settings of that moment (credentials.go).
package xdstls

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/credentials"
	xdscreds "google.golang.org/grpc/credentials/xds"
	registry "google.golang.org/grpc/xds/bootstrap"

	"github.com/xdslb/xdslb/xds/bootstrap"
)

// Credentials are those of integrate.NewCredentials.
type Credentials struct {
	fallback, stock credentials.TransportCredentials // stock has the same fallback
	// owner is the cluster whose LB policy has these credentials for channels of its own; nil for
	// those of an application.
	owner *Cluster
}

// NewCredentials returns credentials that use the fallback for clusters without TLS settings.
func NewCredentials(fallback credentials.TransportCredentials) (credentials.TransportCredentials, error) {
	stock, err := xdscreds.NewClientCredentials(xdscreds.ClientOptions{FallbackCreds: fallback})
	if err != nil {
		return nil, err
	}
	return &Credentials{fallback: fallback, stock: stock}, nil
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *Credentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	target, ok := TargetOf(credentials.ClientHandshakeInfoFromContext(ctx).Attributes)
	if !ok {
		return c.handshakeAside(ctx, authority, raw)
	}
	conn, info, plain, err := target.Handshake(ctx, raw)
	if plain {
		return c.fallback.ClientHandshake(ctx, authority, raw)
	}
	return conn, info, err
}

// handshakeAside secures a connection to a server that is not an endpoint of xdslb: as grpc-go's xDS
// configures it on channels of grpc-go's xDS, and by the fallback on others. Channels of an LB policy
// whose cluster demands TLS may carry data of the cluster's RPCs (such as headers, in requests of RLS), so they are refused
// if the fallback gives no security.
func (c *Credentials) handshakeAside(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.stock.ClientHandshake(ctx, authority, raw)
	if err == nil && c.owner.DemandsTLS() && credentials.CheckSecurityLevel(info, credentials.IntegrityOnly) != nil {
		_ = conn.Close()
		return nil, nil, fmt.Errorf("xdslb: cluster %q demands TLS, but its LB policy connects to another server with the fallback of integrate.NewCredentials, which does not use TLS: use a fallback with TLS", c.owner.Name())
	}
	return conn, info, err
}

// Owned returns a channel's options for an LB policy of a cluster. Such a policy may open channels
// of its own, whose credentials have the cluster as their owner.
func Owned(o balancer.BuildOptions, owner *Cluster) balancer.BuildOptions {
	o.DialCreds = ownedBy(o.DialCreds, owner)
	if o.CredsBundle != nil {
		o.CredsBundle = ownedBundle{o.CredsBundle, owner}
	}
	return o
}

// ownedBy returns credentials with an owner, if they are those of NewCredentials.
func ownedBy(creds credentials.TransportCredentials, owner *Cluster) credentials.TransportCredentials {
	c, ok := creds.(*Credentials)
	if !ok {
		return creds
	}
	owned := *c
	owned.owner = owner
	return &owned
}

// ownedBundle is a bundle whose credentials have an owner.
type ownedBundle struct {
	credentials.Bundle
	owner *Cluster
}

// TransportCredentials implements credentials.Bundle.
func (b ownedBundle) TransportCredentials() credentials.TransportCredentials {
	return ownedBy(b.Bundle.TransportCredentials(), b.owner)
}

// NewWithMode implements credentials.Bundle.
func (b ownedBundle) NewWithMode(mode string) (credentials.Bundle, error) {
	other, err := b.Bundle.NewWithMode(mode)
	if err != nil || other == nil {
		return other, err
	}
	return ownedBundle{other, b.owner}, nil
}

// UsesXDS reports that these are xDS credentials.
func (c *Credentials) UsesXDS() bool { return true }

// Info implements credentials.TransportCredentials. With it, gRPC
// allows per-RPC credentials that require security on the channel, and fails their RPCs on
// connections without security.
func (c *Credentials) Info() credentials.ProtocolInfo { return c.stock.Info() }

// Clone implements credentials.TransportCredentials.
func (c *Credentials) Clone() credentials.TransportCredentials {
	clone := *c
	return &clone
}

// OverrideServerName implements credentials.TransportCredentials.
func (c *Credentials) OverrideServerName(string) error {
	return errors.New("xdslb: OverrideServerName is not supported: the Cluster resource determines the server names")
}

// ServerHandshake implements credentials.TransportCredentials.
func (c *Credentials) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("xdslb: the credentials are for clients; servers use google.golang.org/grpc/credentials/xds")
}

// Of returns the credentials of a channel.
func Of(o *balancer.BuildOptions) credentials.TransportCredentials {
	if o.DialCreds == nil && o.CredsBundle != nil {
		return o.CredsBundle.TransportCredentials()
	}
	return o.DialCreds
}

// UsesXDS reports whether the credentials of a channel are xDS credentials.
func UsesXDS(o *balancer.BuildOptions) bool {
	creds, ok := Of(o).(interface{ UsesXDS() bool })
	return ok && creds.UsesXDS()
}

// UsesForeign reports whether the credentials of a channel are another package's xDS credentials,
// which cannot apply the TLS settings of clusters and would use their fallback.
func UsesForeign(o *balancer.BuildOptions) bool {
	_, ours := Of(o).(*Credentials)
	return !ours && UsesXDS(o)
}

// BootstrapParser returns a parser that also accepts the credentials of gRPC's registry, where users
// add their own, and certificate plugins.
func BootstrapParser() bootstrap.Parser {
	return bootstrap.Parser{
		ChannelCreds: func(name string) bootstrap.ChannelBuilder { return registry.GetChannelCredentials(name) },
		CallCreds:    func(name string) bootstrap.CallBuilder { return registry.GetCallCredentials(name) },
		CertPlugin: func(name string, config json.RawMessage) error {
			_, err := ParsePlugin(name, config)
			return err
		},
	}
}
