// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstls_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	xdscreds "google.golang.org/grpc/credentials/xds"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	stock "google.golang.org/grpc/xds"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/internal/xdstls/tlstest"
	"github.com/xdslb/xdslb/xds/xdstest"
)

const target = "mesh.test"

// mesh is a control plane, and a server of grpc-go's xds package that gets mutual TLS
// from it.
type mesh struct {
	testgrpc.UnimplementedTestServiceServer
	t             *testing.T
	control       *xdstest.Server
	files         tlstest.Files // of clients
	server        *xdstest.Endpoint
	serverFiles   tlstest.Files
	client        atomic.Value // the SPIFFE id of the latest client
	listeners     []*listenerv3.Listener
	serverTrouble atomic.Value
}

func (m *mesh) EmptyCall(ctx context.Context, _ *testgrpc.Empty) (*testgrpc.Empty, error) {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && info.SPIFFEID != nil {
			m.client.Store(info.SPIFFEID.String())
		}
	}
	return &testgrpc.Empty{}, nil
}

// anyOf wraps a message.
func anyOf(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	kit.Must(t, err)
	return a
}

// common is mutual TLS by the instance "default", as Istio sends it.
func common(sans ...*matcherv3.StringMatcher) *tlsv3.CommonTlsContext {
	return &tlsv3.CommonTlsContext{
		TlsCertificateProviderInstance: &tlsv3.CertificateProviderPluginInstance{InstanceName: "default", CertificateName: "default"},
		ValidationContextType: &tlsv3.CommonTlsContext_CombinedValidationContext{CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
			DefaultValidationContext: &tlsv3.CertificateValidationContext{
				CaCertificateProviderInstance: &tlsv3.CertificateProviderPluginInstance{InstanceName: "default", CertificateName: "ROOTCA"},
				MatchSubjectAltNames:          sans,
			},
		}},
	}
}

// san matches a whole name.
func san(name string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}}
}

// newMesh starts both. The server's options are added to the required ones.
func newMesh(t *testing.T, ca *tlstest.CA, opts ...grpc.ServerOption) *mesh {
	t.Helper()
	m := &mesh{t: t, control: xdstest.New(t, xdstest.Options{}), files: tlstest.NewFiles(t), serverFiles: tlstest.NewFiles(t)}
	m.write(m.files, ca, "client")
	m.write(m.serverFiles, ca, "server")
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	addr := lis.Addr().(*net.TCPAddr).AddrPort()
	m.server = &xdstest.Endpoint{Addr: addr}
	m.listeners = []*listenerv3.Listener{m.serverListener(addr.Port())}
	m.set(common())
	s, err := stock.NewGRPCServer(append(opts, grpc.Creds(m.stockServerCreds()), stock.BootstrapContentsForTesting(m.bootstrap(m.serverFiles)),
		stock.ServingModeCallback(func(_ net.Addr, args stock.ServingModeChangeArgs) {
			if args.Err != nil {
				m.serverTrouble.Store(args.Err.Error())
			}
		}))...)
	kit.Must(t, err)
	testgrpc.RegisterTestServiceServer(s, m)
	go func() { _ = s.Serve(lis) }()
	t.Cleanup(s.Stop)
	return m
}

func (m *mesh) stockServerCreds() credentials.TransportCredentials {
	creds, err := xdscreds.NewServerCredentials(xdscreds.ServerOptions{FallbackCreds: insecure.NewCredentials()})
	if err != nil {
		m.t.Fatal(err)
	}
	return creds
}

// write makes a new identity.
func (m *mesh) write(f tlstest.Files, ca *tlstest.CA, name string) (key []byte) {
	pair := ca.Issue(tlstest.Names{URIs: []string{"spiffe://td.test/" + name}})
	tlstest.Write(m.t, f.CA, ca.PEM)
	tlstest.Write(m.t, f.Cert, pair.Cert)
	tlstest.Write(m.t, f.Key, pair.Key)
	return pair.Key
}

// bootstrap is one with files as the certificate provider instance "default".
func (m *mesh) bootstrap(f tlstest.Files) []byte {
	return bytes.Replace(m.control.Bootstrap("n"), []byte("{"), fmt.Appendf(nil, `{
		"server_listener_resource_name_template": "server/%%s",
		"certificate_providers": {"default": {"plugin_name": "file_watcher", "config": {
			"certificate_file": %q, "private_key_file": %q, "ca_certificate_file": %q, "refresh_interval": "0.01s"}}},`, f.Cert, f.Key, f.CA), 1)
}

// serverListener has the server at a port ask for certificates.
func (m *mesh) serverListener(port uint16) *listenerv3.Listener {
	tls := &tlsv3.DownstreamTlsContext{RequireClientCertificate: wrapperspb.Bool(true), CommonTlsContext: common()}
	hcm := &hcmv3.HttpConnectionManager{
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{Name: "server", VirtualHosts: []*routev3.VirtualHost{{
			Domains: []string{"*"}, Routes: []*routev3.Route{{
				Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
				Action: &routev3.Route_NonForwardingAction{NonForwardingAction: &routev3.NonForwardingAction{}},
			}},
		}}}},
		HttpFilters: []*hcmv3.HttpFilter{{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: anyOf(m.t, &routerv3.Router{})}}},
	}
	return &listenerv3.Listener{
		Name: fmt.Sprintf("server/127.0.0.1:%d", port),
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
		}}},
		FilterChains: []*listenerv3.FilterChain{{
			Name:    "all",
			Filters: []*listenerv3.Filter{{Name: "hcm", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: anyOf(m.t, hcm)}}},
			TransportSocket: &corev3.TransportSocket{
				Name: "envoy.transport_sockets.tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: anyOf(m.t, tls)},
			},
		}},
	}
}

// set publishes the cluster of clients with TLS settings.
func (m *mesh) set(tls *tlsv3.CommonTlsContext) {
	m.t.Helper()
	r := xdstest.Service(target, xdstest.Locality{Endpoints: []xdstest.Endpoint{*m.server}})
	r.Clusters = []*clusterv3.Cluster{xdstest.Cluster(target, "")}
	if tls != nil {
		r.Clusters[0].TransportSocket = &corev3.TransportSocket{
			Name: "envoy.transport_sockets.tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: anyOf(m.t, &tlsv3.UpstreamTlsContext{CommonTlsContext: tls})},
		}
	}
	r.Listeners = append(r.Listeners, m.listeners...)
	if err := m.control.Set(r); err != nil {
		m.t.Fatal(err)
	}
}

// dial returns a channel of ours.
func (m *mesh) dial(creds credentials.TransportCredentials) *grpc.ClientConn {
	m.t.Helper()
	ours, err := integrate.DialOptions(integrate.Config{Bootstrap: m.bootstrap(m.files), Linger: -1})
	if err != nil {
		m.t.Fatal(err)
	}
	cc, err := grpc.NewClient("xds:///"+target, append(ours, grpc.WithTransportCredentials(creds))...)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = cc.Close() })
	return cc
}

func call(cc *grpc.ClientConn, opts ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := testgrpc.NewTestServiceClient(cc).EmptyCall(ctx, &testgrpc.Empty{}, opts...)
	return err
}

func newCredentials(t *testing.T) credentials.TransportCredentials {
	t.Helper()
	creds, err := integrate.NewCredentials(integrate.CredentialsOptions{Fallback: insecure.NewCredentials()})
	kit.Must(t, err)
	return creds
}

// TestStockServer (A29) checks mutual TLS between our channel and a server of grpc-go's xds
// package, from one control plane; the server authenticates the client. The same credentials
// work on a channel of grpc-go's own. An update of the accepted names affects new connections,
// and their errors are in the RPC's error.
func TestStockServer(t *testing.T) {
	m := newMesh(t, tlstest.NewCA(t, "ca"))
	m.set(common(san("spiffe://td.test/server")))
	creds := newCredentials(t)
	cc := m.dial(creds)
	var p peer.Peer
	if err := call(cc, grpc.WaitForReady(true), grpc.Peer(&p)); err != nil {
		t.Fatalf("%v; the server's error: %v", err, m.serverTrouble.Load())
	}
	if info, ok := p.AuthInfo.(credentials.TLSInfo); !ok || info.SPIFFEID.String() != "spiffe://td.test/server" || info.SecurityLevel != credentials.PrivacyAndIntegrity {
		t.Errorf("the server is %+v", p.AuthInfo)
	}
	if got := m.client.Load(); got != "spiffe://td.test/client" {
		t.Errorf("the server knows the client as %v", got)
	}

	builder, err := stock.NewXDSResolverWithConfigForTesting(m.bootstrap(m.files))
	kit.Must(t, err)
	theirs, err := grpc.NewClient("xds:///"+target, grpc.WithResolvers(builder), grpc.WithTransportCredentials(creds))
	kit.Must(t, err)
	defer theirs.Close()
	p = peer.Peer{}
	if err := call(theirs, grpc.WaitForReady(true), grpc.Peer(&p)); err != nil {
		t.Errorf("on a channel of stock: %v", err)
	} else if info, ok := p.AuthInfo.(credentials.TLSInfo); !ok || info.SPIFFEID.String() != "spiffe://td.test/server" {
		t.Errorf("on a channel of stock the server is %+v", p.AuthInfo)
	}

	m.set(common(san("spiffe://td.test/other")))
	next := m.dial(creds)
	end := time.Now().Add(time.Minute)
	for err = call(next); err == nil && time.Now().Before(end); err = call(m.dial(creds)) {
	}
	for _, want := range []string{`cluster "mesh.test"`, "accepted SANs (match_subject_alt_names): ", "spiffe://td.test/other", "spiffe://td.test/server"} {
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), want) {
			t.Errorf("other names: %v, want %s", err, want)
		}
	}
	if err := call(cc); err != nil {
		t.Errorf("a connection from before: %v", err)
	}
}

// refused makes connections until one fails with the server's rejection: the server may not be
// ready yet, and the client may be writing when it is rejected.
func (m *mesh) refused() (err error) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if err = call(m.dial(newCredentials(m.t))); err != nil && strings.Contains(err.Error(), "remote error") {
			break
		}
	}
	return err
}

// TestNoClientCertificate checks a server that requests a certificate from a client without
// one, because of the control plane's configuration.
func TestNoClientCertificate(t *testing.T) {
	m := newMesh(t, tlstest.NewCA(t, "ca"))
	tls := common()
	tls.TlsCertificateProviderInstance = nil
	m.set(tls)
	// In TLS 1.3 the server sends the error after the client's handshake.
	err := m.refused()
	for _, want := range []string{`cluster "mesh.test"`, "certificate required", "names no tls_certificate_provider_instance"} {
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	m.set(nil) // and the fallback, to a server that wants TLS
	if err := call(m.dial(newCredentials(t))); status.Code(err) != codes.Unavailable {
		t.Errorf("without TLS settings: %v", err)
	}
}

// TestRefusedByServer checks a server that rejects the client's certificate: the RPC's error
// names the certificate.
func TestRefusedByServer(t *testing.T) {
	ca := tlstest.NewCA(t, "ca")
	m := newMesh(t, ca)
	stranger := tlstest.NewCA(t, "stranger").Issue(tlstest.Names{URIs: []string{"spiffe://td.test/stranger"}})
	tlstest.Write(t, m.files.Cert, stranger.Cert)
	tlstest.Write(t, m.files.Key, stranger.Key)
	err := m.refused()
	for _, want := range []string{`cluster "mesh.test"`, "the server rejected the client's certificate", `provider instance \"default\"`, "spiffe://td.test/stranger", "CN=stranger"} {
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// writeOrders are all orders of roots, certificate and key, that of Istio's agent first,
// which writes the key before the certificate.
var writeOrders = [][3]int{{2, 1, 0}, {0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}}

// load makes RPCs at a rate, and counts them.
type load struct {
	made, failed atomic.Int64
	server       atomic.Value // the latest server's certificate, []byte
	stop         func()
}

// A machine that is too busy for perSecond has maxInFlight of them, which is less than the
// circuit breaker allows, and makes as many as it can.
const perSecond, maxInFlight = 1000, 256

func startLoad(t *testing.T, cc *grpc.ClientConn) *load {
	l, done, inFlight := &load{}, make(chan struct{}), make(chan struct{}, maxInFlight)
	var rpcs, ticks sync.WaitGroup
	ticks.Go(func() {
		for start := time.Now(); ; {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
			}
			for due := int64(time.Since(start) * perSecond / time.Second); l.made.Load() < due; {
				l.made.Add(1)
				inFlight <- struct{}{}
				rpcs.Go(func() {
					defer func() { <-inFlight }()
					var p peer.Peer
					if err := call(cc, grpc.Peer(&p)); err != nil {
						l.failed.Add(1)
						t.Error(err)
						return
					}
					l.server.Store(p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0].Raw)
				})
			}
		}
	})
	l.stop = func() {
		close(done)
		ticks.Wait()
		rpcs.Wait()
	}
	return l
}

// TestRotationUnderLoad (A29) checks that no RPC fails while CA, certificate and key are
// replaced on both sides, one file after the other in every order, while the server closes its
// connections repeatedly and 1000 RPCs are made per second, if the machine is fast enough. The
// roots of each side are the previous, the current and the next ones, as required for replacing
// a CA.
//
// It sleeps: both sides read the files periodically, without notification. Files and sockets do
// not work in a bubble.
func TestRotationUnderLoad(t *testing.T) {
	rounds, pause := len(writeOrders), 40*time.Millisecond
	if testing.Short() {
		rounds, pause = 2, 20*time.Millisecond
	}
	cas := []*tlstest.CA{tlstest.NewCA(t, "ca")}
	m := newMesh(t, cas[0], grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: 20 * time.Millisecond, MaxConnectionAgeGrace: time.Minute}))
	m.set(common(san("spiffe://td.test/server")))
	for i := range rounds + 1 {
		cas = append(cas, tlstest.NewCA(t, fmt.Sprint("ca", i)))
	}
	for _, files := range []tlstest.Files{m.files, m.serverFiles} {
		tlstest.Write(t, files.CA, append(bytes.Clone(cas[0].PEM), cas[1].PEM...))
	}
	letLook()
	cc := m.dial(newCredentials(t))
	kit.Must(t, call(cc, grpc.WaitForReady(true)))
	l := startLoad(t, cc)
	start := time.Now()
	for i := range rounds {
		roots := slices.Concat(cas[i].PEM, cas[i+1].PEM, cas[i+2].PEM)
		id := fmt.Sprint("spiffe://td.test/client", i)
		client, server := cas[i+1].Issue(tlstest.Names{URIs: []string{id}}), cas[i+1].Issue(tlstest.Names{URIs: []string{"spiffe://td.test/server"}})
		for k := range 3 {
			of, and := writeOrders[i][k], writeOrders[len(writeOrders)-1-i][k]
			tlstest.Write(t, [3]string{m.files.CA, m.files.Cert, m.files.Key}[of], [3][]byte{roots, client.Cert, client.Key}[of])
			time.Sleep(pause / 2)
			tlstest.Write(t, [3]string{m.serverFiles.CA, m.serverFiles.Cert, m.serverFiles.Key}[and], [3][]byte{roots, server.Cert, server.Key}[and])
			time.Sleep(pause / 2)
		}
		for end := time.Now().Add(time.Minute); m.client.Load() != id || !bytes.Equal(l.server.Load().([]byte), server.TLS.Certificate[0]); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the server knows the client as %v, and the client sees the new server: %v", m.client.Load(), bytes.Equal(l.server.Load().([]byte), server.TLS.Certificate[0]))
			}
		}
		letLook() // so that both have the latest roots
	}
	l.stop()
	t.Logf("%d RPCs, %.0f per second, %d failed, %d rounds", l.made.Load(), float64(l.made.Load())/time.Since(start).Seconds(), l.failed.Load(), rounds)
}

// letLook has client and server look at their files many times, though the process stand still
// for a while in between.
func letLook() {
	for range 10 {
		time.Sleep(50 * time.Millisecond)
	}
}
