// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// handshakes records the authorities of handshakes.
type handshakes struct {
	credentials.TransportCredentials
	authorities chan string
}

func (h handshakes) ClientHandshake(ctx context.Context, authority string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	h.authorities <- authority
	return h.TransportCredentials.ClientHandshake(ctx, authority, c)
}

func (h handshakes) Clone() credentials.TransportCredentials { return h }

// TestHostnames: an EDS resource whose addresses are DNS names is rejected, or with
// AcceptHostnames the dialer gets the names.
func TestHostnames(t *testing.T) {
	backends := xdstest.NewBackends(t, 2, xdstest.BackendOptions{})
	r := statefulService(t, false, backends)
	var names []string
	for i, e := range r.Endpoints[0].Endpoints[0].LbEndpoints {
		at := e.GetEndpoint()
		at.Address.GetSocketAddress().Address = "localhost"
		names = append(names, fmt.Sprintf("localhost:%d", backends[i].Addr().Port()))
	}
	at := r.Endpoints[0].Endpoints[0].LbEndpoints[0].GetEndpoint()
	at.AdditionalAddresses = []*endpointv3.Endpoint_AdditionalAddress{{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
		SocketAddress: &corev3.SocketAddress{Address: "nowhere.invalid", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 1}}}}}}
	control := xdstest.New(t, xdstest.Options{})
	set(t, control, r)

	_, err := call(t, dial(t, control.Bootstrap("n")))
	if want := `must be an IPv4 or IPv6 address without a zone, unless Config.Resources.AcceptHostnames is set (it is "localhost")`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("RPC error is %v, want %q", err, want)
	}

	dialed, authorities := make(chan string, 8), make(chan string, 8)
	cfg := integrate.Config{Bootstrap: control.Bootstrap("n"), Linger: -1, Resources: integrate.ResourceOptions{AcceptHostnames: true}}
	cc := dialConfig(t, cfg, grpc.WithTransportCredentials(handshakes{insecure.NewCredentials(), authorities}),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			dialed <- addr
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}))
	sessions := map[string]string{}
	for begin := time.Now(); len(sessions) < len(backends) && time.Since(begin) < time.Minute; {
		backend, cookie := inSession(t, cc, "")
		sessions[backend] = cookie
	}
	for i, b := range backends {
		cookie := sessions[b.Addr().String()]
		text, _ := base64.StdEncoding.DecodeString(cookie)
		want := names[i] + ";cluster:" + target
		if i == 0 {
			want = names[i] + ",nowhere.invalid:1;cluster:" + target
		}
		if again, _ := inSession(t, cc, cookie); string(text) != want || again != b.Addr().String() {
			t.Errorf("the cookie of %s is %q, want %q; an RPC with it went to %s", b.Addr(), text, want, again)
		}
		if addr, authority := <-dialed, <-authorities; !slices.Contains(names, addr) || authority != target {
			t.Errorf("dialed %q with authority %q, want one of %q with %q", addr, authority, names, target)
		}
	}
	x, err := integrate.Explain(t.Context(), cc, "/grpc.testing.TestService/UnaryCall")
	kit.Must(t, err)
	for _, name := range names {
		if text := x.String(); !strings.Contains(text, name) || strings.Contains(text, "[::%") {
			t.Errorf("the explanation lacks %s, or shows its internal form:\n%s", name, text)
		}
	}
}
