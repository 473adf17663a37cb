// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	pickfirstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/pick_first/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/internal/xdstls/tlstest"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// newCredentials returns the credentials of NewCredentials with a fallback to plaintext.
func newCredentials(t testing.TB) credentials.TransportCredentials {
	t.Helper()
	creds, err := integrate.NewCredentials(integrate.CredentialsOptions{Fallback: insecure.NewCredentials()})
	kit.Must(t, err)
	return creds
}

// trusting returns certificate providers with the instance "default", whose roots are
// the CA.
func trusting(t testing.TB, ca *tlstest.CA) string {
	t.Helper()
	files := tlstest.NewFiles(t)
	tlstest.Write(t, files.CA, ca.PEM)
	return fmt.Sprintf(`{"default":{"plugin_name":"file_watcher","config":{"ca_certificate_file":%q}}}`, files.CA)
}

// tlsBackends are backends that speak TLS only.
func tlsBackends(t testing.TB, n int, config *tls.Config) []*xdstest.Backend {
	t.Helper()
	return xdstest.NewBackends(t, n, xdstest.BackendOptions{Server: []grpc.ServerOption{grpc.Creds(credentials.NewTLS(config))}})
}

// hidden are credentials that do not say that they use xDS.
type hidden struct {
	credentials.TransportCredentials
}

// onBothAddresses gives each endpoint a second address.
func onBothAddresses(cla *endpointv3.ClusterLoadAssignment) {
	endpoints := cla.Endpoints[0].LbEndpoints
	for i, e := range endpoints {
		other := endpoints[(i+1)%len(endpoints)].GetEndpoint().GetAddress().GetSocketAddress()
		addAddress(e, netip.AddrPortFrom(netip.MustParseAddr(other.GetAddress()), uint16(other.GetPortValue())))
	}
	cla.Endpoints[0].LbEndpoints = endpoints[:1]
}

// TestTLSByEveryPolicy (A29): every connection is secured, made by the balancer itself or by a
// child policy, also while policies take over from each other, and also by credentials that are
// wrapped. RPCs see the server's certificate.
func TestTLSByEveryPolicy(t *testing.T) {
	ca := tlstest.NewCA(t, "ca")
	backends := tlsBackends(t, 2, &tls.Config{Certificates: []tls.Certificate{ca.Issue(tlstest.Names{DNS: []string{"b.example"}}).TLS}})
	control := xdstest.New(t, xdstest.Options{})
	boot := withProviders(control.Bootstrap("n"), trusting(t, ca))
	dialAll := func() (channels []*grpc.ClientConn) {
		for _, creds := range []credentials.TransportCredentials{newCredentials(t), hidden{newCredentials(t)}, newCredentials(t).Clone()} {
			channels = append(channels, dial(t, boot, grpc.WithTransportCredentials(creds)))
		}
		return channels
	}
	lasting := dialAll()
	for _, tt := range []struct {
		name   string
		policy testplane.ClusterOption
		change func(*endpointv3.ClusterLoadAssignment)
	}{
		{"ROUND_ROBIN", func(*clusterv3.Cluster) {}, nil},
		{"RING_HASH", testplane.RingHash(8, 8), nil},
		{"custom", testplane.Policies(testplane.TypedStruct("round_robin", map[string]any{})), nil},
		{"pick_first", testplane.Policies(&pickfirstv3.PickFirst{}), nil},
		{"several addresses", func(*clusterv3.Cluster) {}, onBothAddresses},
		{"several addresses, custom", testplane.Policies(testplane.TypedStruct("round_robin", map[string]any{})), onBothAddresses},
	} {
		r := service(backends...)
		r.Clusters = []*clusterv3.Cluster{xdstest.Cluster(target, "", tt.policy, upstreamTLS(t, nil))}
		if tt.change != nil {
			tt.change(r.Endpoints[0])
		}
		set(t, control, r)
		for _, b := range backends { // so that new connections are made
			b.Stop()
			kit.Must(t, b.Start())
		}
		for i, cc := range append(dialAll(), lasting...) {
			p, err := secureCall(t, cc)
			if err != nil {
				t.Fatalf("%s: channel %d: %v", tt.name, i, err)
			}
			if info, ok := p.AuthInfo.(credentials.TLSInfo); !ok || info.State.PeerCertificates[0].DNSNames[0] != "b.example" {
				t.Errorf("%s: channel %d: peer %v", tt.name, i, p.AuthInfo)
			}
		}
	}
}

// secureCall makes RPCs until one succeeds, as the first may meet a connection that
// ends.
func secureCall(t *testing.T, cc *grpc.ClientConn) (p peer.Peer, err error) {
	ctx := minute(t)
	for {
		err = empty(ctx, cc, grpc.WaitForReady(true), grpc.Peer(&p))
		if err == nil || ctx.Err() != nil {
			return p, err
		}
	}
}

// TestTLSComesLater (T-SEC-1): TLS settings of a cluster that had none close nothing. The
// connection that there is goes on; when it is lost, the same SubConn's next one is
// secured. So it is the other way round.
func TestTLSComesLater(t *testing.T) {
	ca := tlstest.NewCA(t, "ca")
	plain := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})[0]
	control := xdstest.New(t, xdstest.Options{})
	publish := func(opts ...testplane.ClusterOption) {
		r := service(plain)
		r.Clusters = []*clusterv3.Cluster{xdstest.Cluster(target, "", opts...)}
		set(t, control, r)
	}
	publish()
	cc := dial(t, withProviders(control.Bootstrap("n"), trusting(t, ca)), grpc.WithTransportCredentials(newCredentials(t)))
	succeed(t, cc)
	acks := control.Stats(xdstest.CDS).ACKs
	publish(upstreamTLS(t, nil))
	kit.Must(t, control.Wait(t.Context(), func() bool { return control.Stats(xdstest.CDS).ACKs > acks }))
	if _, err := call(t, cc); err != nil {
		t.Errorf("after the update: %v", err)
	}
	plain.Stop()
	secure, err := xdstest.StartBackends(1, xdstest.BackendOptions{
		Listen: func(string) (net.Listener, error) { return net.Listen("tcp", plain.Addr().String()) },
		Server: []grpc.ServerOption{grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{ca.Issue(tlstest.Names{}).TLS}}))},
	})
	kit.Must(t, err)
	if p, err := secureCall(t, cc); err != nil || p.AuthInfo.AuthType() != "tls" {
		t.Errorf("after the connection was lost: %v, %v", p.AuthInfo, err)
	}
	publish()
	secure[0].Stop()
	kit.Must(t, plain.Start())
	if p, err := secureCall(t, cc); err != nil || p.AuthInfo.AuthType() != "insecure" {
		t.Errorf("without TLS again: %v, %v", p.AuthInfo, err)
	}
}

// TestAutoHostName (A101): handshakes ask for the hostname of the endpoint and verify it. After a change
// the next connection does so; it fails if the backend has no certificate for the hostname.
func TestAutoHostName(t *testing.T) {
	ca := tlstest.NewCA(t, "ca")
	var mu sync.Mutex
	var asked string
	certs := map[string]*tls.Certificate{}
	for _, name := range []string{"one.example", "two.example", ""} {
		pair := ca.Issue(tlstest.Names{DNS: []string{cmp.Or(name, "none.example")}})
		certs[name] = &pair.TLS
	}
	backends := tlsBackends(t, 1, &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		asked = h.ServerName
		return certs[asked], nil
	}})
	control := xdstest.New(t, xdstest.Options{})
	cc := dial(t, withProviders(control.Bootstrap("n"), trusting(t, ca)), grpc.WithTransportCredentials(newCredentials(t)))
	for _, hostname := range []string{"", "one.example", "two.example:8080", "three.example", "one.example"} {
		r := service(backends...)
		upstreamTLS(t, &tlsv3.UpstreamTlsContext{CommonTlsContext: rootsFrom("default"), AutoHostSni: true, AutoSniSanValidation: true})(r.Clusters[0])
		r.Endpoints[0].Endpoints[0].LbEndpoints[0].GetEndpoint().Hostname = hostname
		set(t, control, r)
		want, _, _ := strings.Cut(hostname, ":")
		kit.WaitFor(t, fmt.Sprintf("a handshake by hostname %q, and RPCs by its certificate, if there is one", hostname), func() bool {
			var p peer.Peer
			_, err := call(t, cc, grpc.Peer(&p))
			mu.Lock()
			got := asked
			mu.Unlock()
			switch {
			case err != nil:
				return got == want && certs[want] == nil
			case got == want && p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0].DNSNames[0] == cmp.Or(want, "none.example"):
				return true
			}
			backends[0].Stop() // the connection was made before the change
			kit.Must(t, backends[0].Start())
			return false
		})
	}
}

// secret are per-RPC credentials that want security.
type secret struct{}

func (secret) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"token": "x"}, nil
}
func (secret) RequireTransportSecurity() bool { return true }

// TestTokensNeedTLS (T-SEC-1): per-RPC credentials that want security are sent to a
// cluster with TLS, and not to one that has the fallback.
func TestTokensNeedTLS(t *testing.T) {
	ca := tlstest.NewCA(t, "ca")
	safe := tlsBackends(t, 1, &tls.Config{Certificates: []tls.Certificate{ca.Issue(tlstest.Names{}).TLS}})
	open := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
	control := xdstest.New(t, xdstest.Options{})
	r := service(safe...)
	upstreamTLS(t, nil)(r.Clusters[0])
	r.Add(xdstest.Resources{
		Clusters:  []*clusterv3.Cluster{xdstest.Cluster("open", "")},
		Endpoints: []*endpointv3.ClusterLoadAssignment{xdstest.Endpoints("open", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(open...)})},
	})
	r.Routes[0] = xdstest.RouteConfig(target, xdstest.Route("/grpc.testing.TestService/Empty", "open"), xdstest.Route("", target))
	set(t, control, r)
	cc := dial(t, withProviders(control.Bootstrap("n"), trusting(t, ca)), grpc.WithTransportCredentials(newCredentials(t)))
	if _, err := call(t, cc, grpc.PerRPCCredentials(secret{})); err != nil {
		t.Errorf("to the cluster with TLS: %v", err)
	}
	ctx := minute(t)
	client := testgrpc.NewTestServiceClient(cc)
	if _, err := client.EmptyCall(ctx, &testgrpc.Empty{}); err != nil {
		t.Errorf("to the cluster without TLS: %v", err)
	}
	if _, err := client.EmptyCall(ctx, &testgrpc.Empty{}, grpc.PerRPCCredentials(secret{})); status.Code(err) != codes.Unauthenticated {
		t.Errorf("with a token, to the cluster without TLS: %v", err)
	}
}

// TestNewCredentials: the fallback is required, and serves where there is no xDS.
func TestNewCredentials(t *testing.T) {
	if _, err := integrate.NewCredentials(integrate.CredentialsOptions{}); err == nil || !strings.Contains(err.Error(), "Fallback") {
		t.Errorf("without a fallback: %v", err)
	}
	b := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})[0]
	cc, err := grpc.NewClient("passthrough:///"+b.Addr().String(), grpc.WithTransportCredentials(newCredentials(t)))
	kit.Must(t, err)
	defer cc.Close()
	if _, err := call(t, cc); err != nil {
		t.Error(err)
	}
}
