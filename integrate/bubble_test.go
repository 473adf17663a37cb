// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// A bubble is the environment of tests that measure durations: control planes, backends and
// channels in virtual time, connected in memory. The machine's load takes no virtual time.
type bubble struct {
	t   *testing.T
	net *xdstest.Network
}

// inBubble runs a test in a bubble of its own.
func inBubble(t *testing.T, test func(t *testing.T, b *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, &bubble{t, xdstest.NewNetwork()}) })
}

func (b *bubble) backends(n int) []*xdstest.Backend {
	return xdstest.NewBackends(b.t, n, xdstest.BackendOptions{Listen: b.net.Listen})
}

func (b *bubble) control() *xdstest.Server {
	return xdstest.New(b.t, xdstest.Options{Listen: b.net.Listen})
}

// config leads a channel to a control plane of the bubble.
func (b *bubble) config(control *xdstest.Server) integrate.Config {
	return integrate.Config{
		Bootstrap: control.Bootstrap(b.t.Name()), Linger: -1,
		ControlPlaneDialOptions: []grpc.DialOption{grpc.WithContextDialer(b.net.Dialer("control"))},
	}
}

// dial returns a channel with everything, as NewClient makes it.
func (b *bubble) dial(cfg integrate.Config, opts ...grpc.DialOption) *grpc.ClientConn {
	return b.dialTo(cfg, target, opts...)
}

func (b *bubble) dialTo(cfg integrate.Config, name string, opts ...grpc.DialOption) *grpc.ClientConn {
	b.t.Helper()
	cc, err := cfg.NewClient("xds:///"+name, append(b.dialer(), opts...)...)
	return b.closing(cc, err)
}

// dialBare returns a channel without interceptors, unless opts have some.
func (b *bubble) dialBare(cfg integrate.Config, opts ...grpc.DialOption) *grpc.ClientConn {
	b.t.Helper()
	builder, err := integrate.NewBuilder(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	cc, err := grpc.NewClient("xds:///"+target, append(append(b.dialer(), grpc.WithResolvers(builder)), opts...)...)
	return b.closing(cc, err)
}

func (b *bubble) dialer() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(b.net.Dialer("client"))}
}

func (b *bubble) closing(cc *grpc.ClientConn, err error) *grpc.ClientConn {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = cc.Close() })
	return cc
}
