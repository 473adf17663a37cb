// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstls

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/credentials"
	xdscreds "google.golang.org/grpc/credentials/xds"
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
