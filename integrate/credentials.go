// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/credentials"
	xdscreds "google.golang.org/grpc/credentials/xds"

	"github.com/xdslb/xdslb/integrate/internal/xdstls"
	"github.com/xdslb/xdslb/picker"
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
	stock, err := xdscreds.NewClientCredentials(xdscreds.ClientOptions{FallbackCreds: o.Fallback})
	if err != nil {
		return nil, err
	}
	return &xdsCredentials{fallback: o.Fallback, stock: stock}, nil
}

// xdsCredentials are those of NewCredentials.
type xdsCredentials struct {
	fallback, stock credentials.TransportCredentials // stock has the same fallback
	// owner is the cluster whose LB policy has these credentials for channels of its own; nil for
	// those of an application.
	owner *xdstls.Cluster
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *xdsCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	target, ok := xdstls.TargetOf(credentials.ClientHandshakeInfoFromContext(ctx).Attributes)
	if !ok {
		return c.handshakeAside(ctx, authority, raw)
	}
	conn, info, plain, err := target.Handshake(ctx, raw)
	if plain {
		return c.fallback.ClientHandshake(ctx, authority, raw)
	}
	return conn, info, err
}

// handshakeAside secures a connection that is not to an endpoint of xdslb's: by the fallback, or on
// channels of grpc-go's xDS as these have it. Channels of an LB policy whose cluster demands TLS
// may carry what RPCs to the cluster carry (such as headers in requests of RLS), so they are
// refused if the fallback gives no security.
func (c *xdsCredentials) handshakeAside(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.stock.ClientHandshake(ctx, authority, raw)
	if err == nil && c.owner.DemandsTLS() && credentials.CheckSecurityLevel(info, credentials.IntegrityOnly) != nil {
		_ = conn.Close()
		return nil, nil, fmt.Errorf("xdslb: cluster %q demands TLS, and the fallback of integrate.NewCredentials, by which its LB policy connects to another server, is without: use a fallback with TLS", c.owner.Name())
	}
	return conn, info, err
}

// buildOptions returns the channel's options for an LB policy of a cluster. Such a policy may
// open channels of its own, which have credentials with the cluster as their owner.
func (b *channel) buildOptions(owner *xdstls.Cluster) balancer.BuildOptions {
	o := b.buildOpts
	o.DialCreds = ownedBy(o.DialCreds, owner)
	if o.CredsBundle != nil {
		o.CredsBundle = ownedBundle{o.CredsBundle, owner}
	}
	return o
}

// ownedBy returns credentials with an owner, if they are those of NewCredentials.
func ownedBy(creds credentials.TransportCredentials, owner *xdstls.Cluster) credentials.TransportCredentials {
	c, ok := creds.(*xdsCredentials)
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
	owner *xdstls.Cluster
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

// UsesXDS says so, to whoever looks for this method.
func (c *xdsCredentials) UsesXDS() bool { return true }

// Info implements credentials.TransportCredentials. Per-RPC credentials that require
// security are let pass by it, and held up where a connection has none.
func (c *xdsCredentials) Info() credentials.ProtocolInfo { return c.stock.Info() }

// Clone implements credentials.TransportCredentials.
func (c *xdsCredentials) Clone() credentials.TransportCredentials {
	clone := *c
	return &clone
}

// OverrideServerName implements credentials.TransportCredentials.
func (c *xdsCredentials) OverrideServerName(string) error {
	return errors.New("xdslb: names of servers are what the Cluster resource says, not OverrideServerName")
}

// ServerHandshake implements credentials.TransportCredentials.
func (c *xdsCredentials) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("xdslb: the credentials are for clients; servers use google.golang.org/grpc/credentials/xds")
}

// transportCredentials returns those of a channel.
func transportCredentials(o *balancer.BuildOptions) credentials.TransportCredentials {
	if o.DialCreds == nil && o.CredsBundle != nil {
		return o.CredsBundle.TransportCredentials()
	}
	return o.DialCreds
}

// usesXDS reports whether the channel's credentials go by what clusters say about TLS.
func (b *channel) usesXDS() bool { return usesXDSCredentials(&b.buildOpts) }

// usesXDSCredentials reports whether the credentials of a channel are xDS credentials.
func usesXDSCredentials(o *balancer.BuildOptions) bool {
	creds, ok := transportCredentials(o).(interface{ UsesXDS() bool })
	return ok && creds.UsesXDS()
}

// usesForeignXDS reports whether the channel's credentials are another package's xDS
// credentials: these cannot know what our clusters say about TLS, and would take their
// fallback.
func (b *channel) usesForeignXDS() bool {
	_, ours := transportCredentials(&b.buildOpts).(*xdsCredentials)
	return !ours && b.usesXDS()
}

// refuses reports whether the channel's credentials cannot give a leaf the TLS that it
// demands, though they are to (A29): nothing connects to it then.
func (b *channel) refuses(l *picker.Leaf) bool { return l.TLS != nil && b.usesForeignXDS() }

// refuse takes away the endpoints of a leaf that refuses names, and says why.
func (b *channel) refuse(l *picker.Leaf) {
	const why = "the channel's credentials (%T) use xDS, and cannot carry out xdslb's TLS settings: use integrate.NewCredentials, and pass them to the channel unwrapped"
	l.Priorities, l.Outlier = nil, nil
	l.ResolutionNote = plainError(fmt.Sprintf("it demands TLS (transport_socket of the Cluster resource), and "+why, transportCredentials(&b.buildOpts)))
	if _, noted := refusalsNoted.LoadOrStore(b.buildOpts.Target.URL.String(), true); !noted {
		b.rec.write(slog.LevelError, fmt.Sprintf("xdslb: RPCs of a cluster fail, since it demands TLS, and "+why+". This is logged once per target.",
			transportCredentials(&b.buildOpts)), l.Name)
	}
}

// refusalsNoted has the targets for which refuse has logged its line.
var refusalsNoted sync.Map
