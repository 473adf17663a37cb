// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/internal/xdstls/tlstest"
	"github.com/xdslb/xdslb/xds/overlay"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// istioDocument returns the JSON document in docs/istio.md that has a text.
func istioDocument(t testing.TB, text string) string {
	t.Helper()
	page, err := os.ReadFile("docs/istio.md")
	kit.Must(t, err)
	for _, m := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		if strings.Contains(m[1], text) {
			return m[1]
		}
	}
	t.Fatalf("docs/istio.md has no JSON with %q", text)
	return ""
}

// TestIstioOverlay applies the overlay of docs/istio.md to clusters as Istio sends them.
func TestIstioOverlay(t *testing.T) {
	o, err := overlay.Parse("docs/istio.md", []byte(istioDocument(t, `"patches"`)))
	kit.Must(t, err)
	used := map[int]bool{}
	for name, typ := range map[string]clusterv3.Cluster_DiscoveryType{
		"outbound|7070||cart.shop.svc.cluster.local": clusterv3.Cluster_EDS,
		"outbound|443||api.partner.example.com":      clusterv3.Cluster_LOGICAL_DNS,
	} {
		sent, err := proto.Marshal(xdstest.Cluster(name, name))
		kit.Must(t, err)
		r := o.Select("xds:///cart.shop.svc.cluster.local:7070").Apply(resource.ClusterType, name, sent, func(b []byte) (any, error) {
			return resource.Decode(resource.ClusterType, b, resource.Options{})
		})
		for _, of := range r.Outcomes {
			if of.Err != nil || !of.Changed {
				t.Errorf("%s: %v has no effect: %v", name, of.Patch, of.Err)
			}
			used[of.Patch.Index] = true
		}
		var patched clusterv3.Cluster
		if err := proto.Unmarshal(r.Bytes, &patched); err != nil || patched.GetType() != typ {
			t.Errorf("%s has type %v, want %v: %v", name, patched.GetType(), typ, err)
		}
		if typ == clusterv3.Cluster_EDS && (patched.GetLbPolicy() != clusterv3.Cluster_LEAST_REQUEST || patched.GetOutlierDetection() == nil || patched.GetCircuitBreakers() == nil) {
			t.Errorf("%s lacks settings of the patch: %v", name, &patched)
		}
	}
	if len(used) != len(o.Patches()) {
		t.Errorf("of %d patches %v apply", len(o.Patches()), used)
	}
}

// jwt returns a signed token that expires in an hour.
func jwt(key ed25519.PrivateKey) string {
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"EdDSA"}`)) + "." + encode(fmt.Appendf(nil, `{"aud":["istio-ca"],"exp":%d}`, time.Now().Add(time.Hour).Unix()))
	return text + "." + encode(ed25519.Sign(key, []byte(text)))
}

// verifyJWT is an interceptor that refuses streams without a token that the key has signed.
func verifyJWT(key ed25519.PublicKey) grpc.ServerOption {
	return grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		md, _ := metadata.FromIncomingContext(stream.Context())
		token := strings.TrimPrefix(strings.Join(md.Get("authorization"), ""), "Bearer ")
		dot := strings.LastIndexByte(token, '.')
		signature, err := base64.RawURLEncoding.DecodeString(token[dot+1:])
		if dot < 0 || err != nil || !ed25519.Verify(key, []byte(token[:dot]), signature) {
			return status.Error(codes.Unauthenticated, "the token is invalid")
		}
		return handler(srv, stream)
	})
}

// TestWithoutAgent uses the bootstrap of docs/istio.md, whose files and address are replaced, with
// a control plane that has TLS and verifies the token.
func TestWithoutAgent(t *testing.T) {
	const istiod = "istiod.istio-system.svc"
	ca, dir := tlstest.NewCA(t, "ca"), t.TempDir()
	public, key, err := ed25519.GenerateKey(nil)
	kit.Must(t, err)
	_, other, err := ed25519.GenerateKey(nil)
	kit.Must(t, err)
	leaf := ca.Issue(tlstest.Names{DNS: []string{istiod}}).TLS
	control := xdstest.New(t, xdstest.Options{Server: []grpc.ServerOption{grpc.Creds(credentials.NewServerTLSFromCert(&leaf)), verifyJWT(public)}})
	backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
	set(t, control, xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)}))
	tlstest.Write(t, filepath.Join(dir, "root-cert.pem"), ca.PEM)
	boot := strings.NewReplacer(istiod+":15012", "passthrough:///"+istiod+":15012",
		"/var/run/secrets/istio", dir, "/var/run/secrets/tokens", dir).Replace(istioDocument(t, "call_creds"))
	cfg := integrate.Config{Bootstrap: []byte(boot), Linger: -1, ControlPlaneDialOptions: []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			if addr != istiod+":15012" {
				t.Errorf("the control plane is dialed at %q", addr)
			}
			return new(net.Dialer).DialContext(ctx, "tcp", control.Addr())
		})}}
	t.Run("token of another issuer", func(t *testing.T) {
		tlstest.Write(t, filepath.Join(dir, "istio-token"), []byte(jwt(other)))
		if _, err := call(t, dialConfig(t, cfg)); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the token is invalid") {
			t.Errorf("RPC returned %v, want UNAVAILABLE because of the token", err)
		}
	})
	t.Run("valid token", func(t *testing.T) {
		tlstest.Write(t, filepath.Join(dir, "istio-token"), []byte(jwt(key)))
		if _, err := call(t, dialConfig(t, cfg)); err != nil {
			t.Errorf("RPC returned %v", err)
		}
	})
}
