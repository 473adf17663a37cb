// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	pickfirstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/pick_first/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/credentials/tls/certprovider"
	xdscreds "google.golang.org/grpc/credentials/xds"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/debug"
	"github.com/xdslb/xdslb/xds/csds"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// upstreamTLS makes a cluster demand TLS with a context, or with the roots of the instance
// "default" if context is nil.
func upstreamTLS(t testing.TB, context *tlsv3.UpstreamTlsContext) testplane.ClusterOption {
	t.Helper()
	if context == nil {
		context = &tlsv3.UpstreamTlsContext{CommonTlsContext: rootsFrom("default")}
	}
	config, err := anypb.New(context)
	kit.Must(t, err)
	return func(c *clusterv3.Cluster) {
		c.TransportSocket = &corev3.TransportSocket{
			Name: "envoy.transport_sockets.tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: config},
		}
	}
}

// rootsFrom verifies servers by the roots of a provider instance.
func rootsFrom(instance string) *tlsv3.CommonTlsContext {
	return &tlsv3.CommonTlsContext{ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{
		ValidationContext: &tlsv3.CertificateValidationContext{
			CaCertificateProviderInstance: &tlsv3.CertificateProviderPluginInstance{InstanceName: instance},
		},
	}}
}

// withProviders adds certificate providers to a bootstrap.
func withProviders(bootstrap []byte, providers string) []byte {
	return bytes.Replace(bootstrap, []byte("{"), []byte(`{"certificate_providers":`+providers+`,`), 1)
}

// rootsOnly has an instance whose roots are never read.
const rootsOnly = `{"default":{"plugin_name":"file_watcher","config":{"ca_certificate_file":"/dev/null"}}}`

// eavesdropper accepts connections, and counts them and the bytes sent.
type eavesdropper struct {
	addr        netip.AddrPort
	conns, sent atomic.Int64
}

func newEavesdropper(t *testing.T) *eavesdropper {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	t.Cleanup(func() { _ = lis.Close() })
	e := &eavesdropper{addr: lis.Addr().(*net.TCPAddr).AddrPort()}
	go func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			e.conns.Add(1)
			go func() {
				defer conn.Close()
				b := make([]byte, 4096)
				for {
					n, err := conn.Read(b)
					if e.sent.Add(int64(n)); err != nil {
						return
					}
				}
			}()
		}
	}()
	return e
}

// empty makes an RPC to the route of EmptyCall.
func empty(ctx context.Context, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
	_, err := testgrpc.NewTestServiceClient(cc).EmptyCall(ctx, &testgrpc.Empty{}, opts...)
	return err
}

// stockCredentials are grpc-go's xDS credentials with a fallback to plaintext.
func stockCredentials(t *testing.T) grpc.DialOption {
	t.Helper()
	creds, err := xdscreds.NewClientCredentials(xdscreds.ClientOptions{FallbackCreds: insecure.NewCredentials()})
	kit.Must(t, err)
	return grpc.WithTransportCredentials(creds)
}

// TestForeignXDSCredentials (T-SEC-1): grpc-go's xDS credentials cannot apply the TLS settings of
// our clusters, and would use their fallback. A cluster that demands TLS fails instead, no
// connection to it is made, whatever its policy, and that is logged once; a cluster beside it that
// demands none is served with the fallback.
func TestForeignXDSCredentials(t *testing.T) {
	for name, policy := range map[string]testplane.ClusterOption{
		"ROUND_ROBIN":   func(*clusterv3.Cluster) {},
		"RING_HASH":     testplane.RingHash(8, 8),
		"pick_first":    testplane.Policies(&pickfirstv3.PickFirst{}),
		"custom policy": testplane.Policies(testplane.TypedStruct("weighted_target_experimental_absent", nil), testplane.TypedStruct("round_robin", map[string]any{})),
	} {
		t.Run(name, func(t *testing.T) {
			secret := newEavesdropper(t)
			backends, control := start(t, 1)
			r := xdstest.Service(target)
			r.Routes = []*routev3.RouteConfiguration{xdstest.RouteConfig(target, xdstest.Route("/grpc.testing.TestService/Empty", "secret"), xdstest.Route("", "open"))}
			r.Clusters = []*clusterv3.Cluster{xdstest.Cluster("secret", "", policy, upstreamTLS(t, nil)), xdstest.Cluster("open", "", policy)}
			r.Endpoints = nil
			r.Endpoints = append(r.Endpoints,
				xdstest.Endpoints("secret", xdstest.Locality{Endpoints: []xdstest.Endpoint{{Addr: secret.addr}}}),
				xdstest.Endpoints("open", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)}))
			set(t, control, r)
			cc := dial(t, withProviders(control.Bootstrap("n"), rootsOnly), stockCredentials(t))
			if _, err := call(t, cc); err != nil {
				t.Errorf("a cluster without TLS: %v", err)
			}
			ctx := minute(t)
			err := empty(ctx, cc)
			if status.Code(err) != codes.Unavailable {
				t.Errorf("a cluster with TLS: %v, want UNAVAILABLE", err)
			}
			for _, want := range []string{`cluster "secret"`, "transport_socket", "integrate.NewCredentials"} {
				if !strings.Contains(status.Convert(err).Message(), want) {
					t.Errorf("error %v, want %s in it", err, want)
				}
			}
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			if err := empty(short, cc, grpc.WaitForReady(true)); status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("wait for ready: %v, want it to wait", err)
			}
			if secret.conns.Load() != 0 || secret.sent.Load() != 0 {
				t.Errorf("%d connections were made to the cluster, and %d bytes sent in plaintext", secret.conns.Load(), secret.sent.Load())
			}
		})
	}
	logs.WantOne(t, target, "cluster=secret", "it demands TLS", "integrate.NewCredentials", "once per target")
}

// TestUnknownProvider (A29): TLS settings that cannot be carried out are refused, so
// that the control plane learns of them, and RPCs say which field it is.
func TestUnknownProvider(t *testing.T) {
	secret := newEavesdropper(t)
	control := xdstest.New(t, xdstest.Options{})
	r := xdstest.Service(target, xdstest.Locality{Endpoints: []xdstest.Endpoint{{Addr: secret.addr}}})
	upstreamTLS(t, nil)(r.Clusters[0])
	set(t, control, r)
	for providers, want := range map[string]string{
		`{}`:                                  "root certificate provider instance name \"default\" missing in bootstrap configuration",
		`{"default":{"plugin_name":"alien"}}`: `plugin "alien" is not registered`,
		`{"default":{"plugin_name":"file_watcher","config":{"certificate_file":"a","private_key_file":"b"}}}`: "must be an instance with ca_certificate_file",
	} {
		for _, creds := range []grpc.DialOption{stockCredentials(t), grpc.WithTransportCredentials(newCredentials(t))} {
			_, err := call(t, dial(t, withProviders(control.Bootstrap("n"), providers), creds))
			if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "ca_certificate_provider_instance.instance_name") {
				t.Errorf("%s: %v, want %s", providers, err, want)
			}
		}
	}
	if secret.conns.Load() != 0 {
		t.Errorf("%d connections were made", secret.conns.Load())
	}
}

// forwarding wraps credentials, and reports like them that they use xDS.
type forwarding struct {
	credentials.TransportCredentials
}

func (forwarding) UsesXDS() bool { return true }

// TestForwardingWrapper: credentials of NewCredentials in a wrapper that forwards UsesXDS cannot be
// distinguished from another package's. Clusters with TLS fail, and the error has the remedy.
func TestForwardingWrapper(t *testing.T) {
	control := xdstest.New(t, xdstest.Options{})
	secret := newEavesdropper(t)
	r := xdstest.Service(target, xdstest.Locality{Endpoints: []xdstest.Endpoint{{Addr: secret.addr}}})
	upstreamTLS(t, nil)(r.Clusters[0])
	set(t, control, r)
	_, err := call(t, dial(t, withProviders(control.Bootstrap("n"), rootsOnly), grpc.WithTransportCredentials(forwarding{newCredentials(t)})))
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "unwrapped") || secret.conns.Load() != 0 {
		t.Errorf("error %v after %d connections, want unwrapped in it, and none", err, secret.conns.Load())
	}
}

// leakyPlugin is a certificate provider plugin that quotes its configuration in errors.
type leakyPlugin struct{}

func (leakyPlugin) Name() string { return "leaky" }
func (leakyPlugin) ParseConfig(config any) (*certprovider.BuildableConfig, error) {
	return nil, fmt.Errorf("cannot parse %s", config)
}

// TestPluginErrorsStay (A29): the error of a certificate provider plugin about its configuration,
// which may quote secrets, is logged once and goes nowhere else: not to the control plane or
// to callers, nor into status, CSDS and the debug page.
func TestPluginErrorsStay(t *testing.T) {
	certprovider.Register(leakyPlugin{})
	control := xdstest.New(t, xdstest.Options{})
	r := xdstest.Service(target, xdstest.Locality{Endpoints: []xdstest.Endpoint{{Addr: newEavesdropper(t).addr}}})
	upstreamTLS(t, &tlsv3.UpstreamTlsContext{CommonTlsContext: rootsFrom("vault")})(r.Clusters[0])
	set(t, control, r)
	var lines kit.Logs
	cc := dialConfig(t, integrate.Config{
		Bootstrap: withProviders(control.Bootstrap("n"), `{"vault":{"plugin_name":"leaky","config":{"token":"SECRET"}}}`),
		Linger:    -1, Logger: slog.New(&lines),
	}, grpc.WithTransportCredentials(newCredentials(t)))
	_, err := call(t, cc)
	kit.Must(t, control.Wait(t.Context(), func() bool { return control.Stats(xdstest.CDS).LastError != "" }))
	texts := map[string]string{"error": fmt.Sprint(err), "NACK": control.Stats(xdstest.CDS).LastError}
	statuses, err := json.Marshal(integrate.Status())
	kit.Must(t, err)
	texts["status"] = string(statuses)
	clients, err := csds.NewServer().FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{})
	kit.Must(t, err)
	texts["CSDS"] = clients.String()
	page := httptest.NewRecorder()
	debug.Handler().ServeHTTP(page, httptest.NewRequest("GET", "http://localhost/", nil))
	texts["page"] = page.Body.String()
	for name, text := range texts {
		if strings.Contains(text, "SECRET") || !strings.Contains(text, "leaky") {
			t.Errorf("%s: %s", name, text)
		}
	}
	lines.WantOne(t, "certificate provider cannot be used", "instance=vault", "SECRET")
}

// ownDialer is an LB policy with the options that it was built with, by which policies such as RLS
// open channels of their own.
type ownDialer struct {
	balancer.Builder
	built chan balancer.BuildOptions
}

func (d *ownDialer) Name() string { return "xdslb_test.dialer" }
func (d *ownDialer) Build(cc balancer.ClientConn, o balancer.BuildOptions) balancer.Balancer {
	d.built <- o
	return d.Builder.Build(cc, o)
}

// bundle is transport credentials in the shape of a bundle.
type bundle struct {
	creds credentials.TransportCredentials
}

func (b bundle) TransportCredentials() credentials.TransportCredentials { return b.creds }
func (b bundle) PerRPCCredentials() credentials.PerRPCCredentials       { return nil }
func (b bundle) NewWithMode(string) (credentials.Bundle, error)         { return b, nil }

// TestChannelsOfPolicies (T-SEC-1): channels that the LB policy of a cluster with TLS opens itself
// are not without TLS by the fallback, since they may carry headers of RPCs. Channels of policies
// of a cluster without TLS have the fallback.
func TestChannelsOfPolicies(t *testing.T) {
	d := &ownDialer{balancer.Get("round_robin"), make(chan balancer.BuildOptions, 16)}
	balancer.Register(d)
	server := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})[0]
	for _, bundled := range []bool{false, true} {
		for _, demandsTLS := range []bool{false, true} {
			control := xdstest.New(t, xdstest.Options{})
			r := service(server)
			r.Clusters = []*clusterv3.Cluster{xdstest.Cluster(target, "", testplane.Policies(testplane.TypedStruct(d.Name(), map[string]any{})))}
			if demandsTLS {
				upstreamTLS(t, nil)(r.Clusters[0])
			}
			set(t, control, r)
			creds := grpc.WithTransportCredentials(newCredentials(t))
			if bundled {
				creds = grpc.WithCredentialsBundle(bundle{newCredentials(t)})
			}
			ours, err := integrate.DialOptions(integrate.Config{Bootstrap: withProviders(control.Bootstrap("n"), rootsOnly), Linger: -1})
			kit.Must(t, err)
			cc, err := grpc.NewClient("xds:///"+target, append(ours, creds)...)
			kit.Must(t, err)
			cc.Connect()
			o := <-d.built
			var own grpc.DialOption
			if bundled {
				b, err := o.CredsBundle.NewWithMode("any")
				kit.Must(t, err)
				own = grpc.WithCredentialsBundle(b)
			} else {
				own = grpc.WithTransportCredentials(o.DialCreds.Clone())
			}
			lookups, err := grpc.NewClient("passthrough:///"+server.Addr().String(), own)
			kit.Must(t, err)
			_, err = call(t, lookups)
			_ = lookups.Close()
			_ = cc.Close()
			if demandsTLS != (err != nil) || err != nil && !strings.Contains(err.Error(), "demands TLS, but its LB policy connects to another server") {
				t.Errorf("TLS %v, in a bundle %v: an RPC of the policy's own channel: %v", demandsTLS, bundled, err)
			}
		}
	}
}

// TestCredentialsStay (LB-SEC-1, T-SEC-1): a channel that does not use xDS credentials secures its
// connections with the application's credentials, whatever TLS settings a cluster has: nothing
// turns TLS on where it is off, or off where it is on.
func TestCredentialsStay(t *testing.T) {
	backends, control := start(t, 1)
	secured := xdstest.Service("secured", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})
	upstreamTLS(t, nil)(secured.Clusters[0])
	bootstrap := withProviders(control.Bootstrap("n"), rootsOnly)
	for _, clusters := range []xdstest.Resources{service(backends...), secured} {
		resources := clusters
		resources.Listeners = []*listenerv3.Listener{xdstest.Listener(target, resources.Routes[0].GetName())}
		set(t, control, resources)
		if _, err := call(t, dial(t, bootstrap), grpc.WaitForReady(true)); err != nil {
			t.Errorf("without TLS, to cluster %q: %v", resources.Clusters[0].GetName(), err)
		}
		cc := dial(t, bootstrap, grpc.WithTransportCredentials(credentials.NewTLS(nil)))
		if _, err := call(t, cc); status.Code(err) != codes.Unavailable {
			t.Errorf("with TLS, to cluster %q, which has none: %v", resources.Clusters[0].GetName(), err)
		}
	}
}
