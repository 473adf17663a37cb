// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"bytes"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestCredentialsStay (LB-SEC-1, T-SEC-1): a channel that does not use xDS credentials secures its
// connections with the application's credentials, whatever TLS settings a cluster has: nothing
// turns TLS on where it is off, or off where it is on.
func TestCredentialsStay(t *testing.T) {
	backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
	control := xdstest.New(t, xdstest.Options{})
	secured := xdstest.Service("secured", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})
	tls, err := anypb.New(&tlsv3.UpstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{
		ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			CaCertificateProviderInstance: &tlsv3.CertificateProviderPluginInstance{InstanceName: "default"},
		}},
	}})
	kit.Must(t, err)
	secured.Clusters[0].TransportSocket = &corev3.TransportSocket{
		Name: "envoy.transport_sockets.tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: tls},
	}
	plain := xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})
	bootstrap := bytes.Replace(control.Bootstrap("n"), []byte("{"),
		[]byte(`{"certificate_providers":{"default":{"plugin_name":"file_watcher","config":{"ca_certificate_file":"/dev/null"}}},`), 1)

	for _, clusters := range []xdstest.Resources{plain, secured} {
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
