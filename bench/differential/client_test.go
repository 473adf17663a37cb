// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"encoding/json"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/xds"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// The two implementations.
const (
	stock = "stock"
	ours  = "ours"
)

var both = []string{stock, ours}

// A side is one of the two clients, and the control plane that serves it. The two
// control planes always serve the same; there are two so that each client's
// requests are counted apart.
type side struct {
	name    string
	control *xdstest.Server
	checker *testplane.Checker // of the control plane
	net     *xdstest.Network
	cfg     integrate.Config // of ours

	mu       sync.Mutex
	rejected map[string]string // error_detail of a NACK since forget, by type
}

// newSide starts a control plane.
func newSide(t testing.TB, name string, n *xdstest.Network) *side {
	s := &side{name: name, net: n, rejected: map[string]string{}}
	s.checker = testplane.NewChecker(nil)
	s.control = xdstest.New(t, xdstest.Options{Listen: n.Listen, OnRequest: s.onRequest, Server: []grpc.ServerOption{s.checker.ServerOption()}})
	return s
}

// onRequest records NACKs. The control plane answers a NACK with the rejected resource, and
// stock answers that with a NACK, immediately: without a pause virtual time would never
// advance.
func (s *side) onRequest(_ int64, req *discoveryv3.DiscoveryRequest) {
	if req.GetErrorDetail() == nil {
		return
	}
	s.mu.Lock()
	s.rejected[req.GetTypeUrl()] = req.GetErrorDetail().GetMessage()
	s.mu.Unlock()
	time.Sleep(time.Second)
}

// forget discards the recorded NACKs.
func (s *side) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.rejected)
}

// answer returns whether there was a NACK of a type, and its detail.
func (s *side) answer(url string) (rejected bool, detail string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	detail, rejected = s.rejected[url]
	return rejected, detail
}

// bootstrap names the side's control plane.
func (s *side) bootstrap(t testing.TB) []byte {
	type object = map[string]any
	b, err := json.Marshal(object{
		"node": object{"id": s.name},
		"xds_servers": []object{{
			"server_uri":    s.control.Addr(),
			"channel_creds": []object{s.net.Creds()},
		}},
	})
	kit.Must(t, err)
	return b
}

// xdsOptions are the dial options that make a channel the side's.
func (s *side) xdsOptions(t testing.TB) []grpc.DialOption {
	if s.name == stock {
		b, err := xds.NewXDSResolverWithConfigForTesting(s.bootstrap(t))
		kit.Must(t, err)
		return []grpc.DialOption{grpc.WithResolvers(b)}
	}
	cfg := s.cfg
	cfg.Bootstrap, cfg.Linger = s.bootstrap(t), -1
	opts, err := integrate.DialOptions(cfg)
	kit.Must(t, err)
	return opts
}

// transportOptions are the same for both.
func (s *side) transportOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(s.net.Dial),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, MaxDelay: time.Second},
			MinConnectTimeout: 2 * time.Second,
		}),
		grpc.WithIdleTimeout(0),
	}
}

// dial returns a channel to a service.
func (s *side) dial(t testing.TB, service string, opts ...grpc.DialOption) *grpc.ClientConn {
	all := append(s.xdsOptions(t), s.transportOptions()...)
	cc, err := grpc.NewClient("xds:///"+service, append(all, opts...)...)
	kit.Must(t, err)
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}
