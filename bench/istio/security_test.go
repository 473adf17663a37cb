// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// secureMesh starts a mesh with mutual TLS by certificates in files, and services orders and
// prices. The backend of prices runs as another account than the configured one.
func secureMesh(t *testing.T, n int) (*mesh, []*xdstest.Backend) {
	t.Helper()
	m, ca := newMesh(t), newAuthority(t)
	ca.write(m, ca.workload(account))
	backends := xdstest.NewBackends(t, n, xdstest.BackendOptions{Server: []grpc.ServerOption{ca.server("orders")}})
	m.service("orders", "orders", backends...)
	m.service("prices", "prices", backends[0])
	m.mutualTLS("orders")
	m.mutualTLS("prices")
	m.startPilot()
	m.startAgent()
	return m, backends
}

// secure is a dial option for a channel that applies the TLS settings of clusters.
func secure(t testing.TB) grpc.DialOption {
	t.Helper()
	creds, err := integrate.NewCredentials(integrate.CredentialsOptions{Fallback: insecure.NewCredentials()})
	kit.Must(t, err)
	return grpc.WithTransportCredentials(creds)
}

// mutualTLS: RPCs are encrypted, and a backend without the service's identity gets none.
func mutualTLS(t *testing.T, delta bool) result {
	m, _ := secureMesh(t, 1)
	cfg := m.config(delta)
	orders := dial(t, cfg, "orders", secure(t))
	wantIdentity(t, orders)
	f := send(t, "orders", orders)
	prices, err := cfg.NewClient(target("prices"), secure(t))
	kit.Must(t, err)
	defer prices.Close()
	if _, err := call(prices); err == nil || !strings.Contains(err.Error(), identity("orders").String()) {
		t.Errorf("an RPC to a backend with another identity returned %v, want an error that names it", err)
	}
	f.more(300)
	return result{total(t, f), "the other identity is refused"}
}

// wantIdentity checks that an RPC is encrypted, and that the backend has the identity of orders.
func wantIdentity(t testing.TB, cc *grpc.ClientConn) {
	t.Helper()
	var p peer.Peer
	if _, err := call(cc, grpc.Peer(&p)); err != nil {
		t.Fatal(err)
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		t.Fatalf("the connection has %T, want TLS", p.AuthInfo)
	}
	if got, want := identities(info.State.PeerCertificates), []string{identity("orders").String()}; !slices.Equal(got, want) {
		t.Errorf("the backend's identities are %q, want %q", got, want)
	}
}

// identities returns the URIs of a certificate chain's leaf.
func identities(chain []*x509.Certificate) (all []string) {
	if len(chain) > 0 {
		for _, u := range chain[0].URIs {
			all = append(all, u.String())
		}
	}
	return all
}

// direct: without the agent, RPCs succeed and updates arrive when the control plane has ended the
// stream, which it does 10 s after its maximum age. The control plane is authenticated by TLS and
// the client by a token. A token of another service account is refused.
func direct(t *testing.T, delta bool) result {
	m, ca, tokens := newMesh(t), newAuthority(t), newIssuer(t)
	ca.write(m, ca.controlPlane())
	addr := freeAddr(t)
	m.pilotEnv = []string{"JWT_RULE=" + tokens.rule()}
	m.pilotArgs = []string{
		"--secureGRPCAddr=" + addr, "--tlsCertFile=" + m.path("certs/cert-chain.pem"), "--tlsKeyFile=" + m.path("certs/key.pem"),
		"--caCertFile=" + m.path("certs/root-cert.pem"), "--keepaliveMaxServerConnectionAge=1s",
	}
	backends := xdstest.NewBackends(t, 3, xdstest.BackendOptions{})
	m.service("orders", "orders", backends[0])
	m.service("prices", "prices", backends[1])
	m.startPilot()
	m.write("token", tokens.token(account))
	cfg := m.directConfig(delta, addr, "token")
	first, second := send(t, "orders", dial(t, cfg, "orders")), send(t, "prices", dial(t, cfg, "prices"))
	kit.WaitFor(t, "the end of the stream", func() bool { return len(m.pilot.output.With("terminated")) > 0 })
	m.service("orders", "orders", backends[2])
	arrived := first.reaches(backends[2])
	sum := total(t, first, second)

	m.write("other", tokens.token("other"))
	cc, err := m.directConfig(delta, addr, "other").NewClient(target("orders"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	kit.Must(t, err)
	defer cc.Close()
	cc.Connect()
	kit.WaitFor(t, "a log line about the other account's token", func() bool { return len(m.logs.With("authorization failed")) > 0 })
	return result{sum, fmt.Sprintf("update %s after the end of the stream; the other account's token is refused", rounded(arrived))}
}

// directConfig returns a Config that uses the control plane's secure port, with a token.
func (m *mesh) directConfig(delta bool, addr, token string) integrate.Config {
	m.t.Helper()
	return integrate.Config{Delta: delta, Logger: newLogger(&m.logs), Bootstrap: encode(m.t, map[string]any{
		"xds_servers": []any{map[string]any{
			"server_uri":      addr,
			"channel_creds":   []any{map[string]any{"type": "tls", "config": map[string]string{"ca_certificate_file": m.path("certs/root-cert.pem")}}},
			"call_creds":      []any{map[string]any{"type": "jwt_token_file", "config": map[string]string{"jwt_token_file": m.path(token)}}},
			"server_features": []string{"xds_v3"},
		}},
		"node": map[string]any{
			"id": "sidecar~" + clientIP + "~" + account + "." + namespace + "~" + namespace + ".svc.cluster.local",
			"metadata": map[string]string{
				"GENERATOR": "grpc", "CLUSTER_ID": "Kubernetes", "NAMESPACE": namespace, "SERVICE_ACCOUNT": account,
			},
		},
	})}
}
