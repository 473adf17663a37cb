// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestOtherSchemes checks that without a bootstrap, targets of other schemes work as with
// grpc.NewClient, with and without a Config, so that one helper can make all channels of a
// program. Targets of schemes xds and xdslb are refused.
func TestOtherSchemes(t *testing.T) {
	t.Setenv("GRPC_XDS_BOOTSTRAP", "")
	t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", "")
	creds := grpc.WithTransportCredentials(insecure.NewCredentials())
	addr := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})[0].Addr().String()
	for name, dial := range map[string]func(string, ...grpc.DialOption) (*grpc.ClientConn, error){
		"NewClient": integrate.NewClient, "Config.NewClient": integrate.Config{IgnoreEndpointWeights: true}.NewClient,
	} {
		for _, target := range []string{"dns:///" + addr, "passthrough:///" + addr, addr} {
			cc, err := dial(target, creds)
			if err != nil {
				t.Errorf("%s: %s: %v", name, target, err)
				continue
			}
			if _, err := call(t, cc); err != nil {
				t.Errorf("%s: %s: %v", name, target, err)
			}
			_ = cc.Close()
		}
		for _, target := range []string{"xds:///x", "XDS:///x", "xdslb:///x", "xds://authority/x"} {
			if _, err := dial(target, creds); err == nil || !strings.Contains(err.Error(), "GRPC_XDS_BOOTSTRAP") {
				t.Errorf("%s: %s without a bootstrap: %v", name, target, err)
			}
		}
	}
}

// TestNewClientOfConfig checks that Config.NewClient applies the Config and adds the
// interceptors: with IgnoreEndpointWeights, endpoints of unequal weights have equal shares.
func TestNewClientOfConfig(t *testing.T) {
	for ignore, want := range map[bool]uint64{false: 10, true: 20} {
		inBubble(t, func(t *testing.T, b *bubble) {
			control, backends := b.control(), b.backends(2)
			endpoints := xdstest.BackendEndpoints(backends...)
			endpoints[0].Weight, endpoints[1].Weight = 1, 3
			set(t, control, xdstest.Service(target, xdstest.Locality{Endpoints: endpoints}))
			cfg := b.config(control)
			cfg.IgnoreEndpointWeights = ignore
			cc := b.dial(cfg)
			cc.Connect()
			synctest.Wait()
			for range 40 {
				if _, err := call(t, cc); err != nil {
					t.Fatal(err)
				}
			}
			if n := backends[0].Calls(); n < want-1 || n > want+1 {
				t.Errorf("IgnoreEndpointWeights %v: the endpoint of weight 1 of 4 gets %d of 40 RPCs, want %d", ignore, n, want)
			}
			if s := statusOf(t, cc); len(s.Unapplied) > 0 {
				t.Errorf("not applied: %v", s.Unapplied)
			}
		})
	}
}

// TestBuilderHasOneScheme: a builder of NewBuilder, which serves scheme xds, does not serve scheme
// xdslb: an RPC fails, and the log names the remedy.
func TestBuilderHasOneScheme(t *testing.T) {
	t.Setenv("GRPC_XDS_BOOTSTRAP", "")
	t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", "")
	b, err := integrate.NewBuilder(integrate.Config{Bootstrap: xdstest.New(t, xdstest.Options{}).Bootstrap("n")})
	kit.Must(t, err)
	cc, err := grpc.NewClient("xdslb:///x", grpc.WithResolvers(b), grpc.WithTransportCredentials(insecure.NewCredentials()))
	kit.Must(t, err)
	defer func() { _ = cc.Close() }()
	if _, err := call(t, cc); err == nil || !strings.Contains(err.Error(), "integrate.DialOptions") {
		t.Errorf("RPC of a channel of scheme xdslb with a builder of scheme xds: %v", err)
	}
	logs.WantOne(t, "scheme xdslb", "integrate.NewBuilder", "integrate.DialOptions")
}

// TestResolverOfOthers: a channel that has our interceptors, and the resolver of another package
// for scheme xds, logs that once, and its RPCs pass.
func TestResolverOfOthers(t *testing.T) {
	theirs := manual.NewBuilderWithScheme("xds")
	theirs.InitialState(resolver.State{Addresses: []resolver.Address{{Addr: xdstest.NewBackends(t, 1, xdstest.BackendOptions{})[0].Addr().String()}}})
	cc, err := grpc.NewClient("xds:///others.log.test", grpc.WithResolvers(theirs), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(integrate.UnaryInterceptor))
	kit.Must(t, err)
	defer func() { _ = cc.Close() }()
	kit.WaitFor(t, "READY", func() bool {
		cc.Connect()
		return cc.GetState() == connectivity.Ready
	})
	for range 2 {
		if _, err := call(t, cc); err != nil {
			t.Error(err)
		}
	}
	logs.WantOne(t, "others.log.test", "resolver of another package")
}
