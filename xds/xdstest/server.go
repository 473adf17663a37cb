// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	lrsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
)

// Options configures a Server. The zero value is ready to use.
type Options struct {
	// Listen replaces net.Listen on TCP, for in-memory connections. Its argument is the result
	// of Addr, or "127.0.0.1:0" the first time.
	Listen func(addr string) (net.Listener, error)
	// OnRequest, if not nil, is called with every ADS request before it is handled, in order
	// for each stream. The request must not be modified.
	OnRequest func(stream int64, req *discoveryv3.DiscoveryRequest)
	// OnDeltaRequest is OnRequest for incremental streams.
	OnDeltaRequest func(stream int64, req *discoveryv3.DeltaDiscoveryRequest)
	// OnLoadRequest is OnRequest for LRS. The first request of each stream has the client's node,
	// and no load.
	OnLoadRequest func(req *lrsv3.LoadStatsRequest)
	// LoadInterval is the interval of load reports. The default is one second. See
	// Server.ConfigureLoads for more.
	LoadInterval time.Duration
	// SingleStream has each new ADS stream end the previous one in order, whichever client opened
	// it, as Istio's agent does.
	SingleStream bool
	// Server are options of the gRPC server, such as credentials and interceptors. Bootstrap does
	// not have the client's part of them.
	Server []grpc.ServerOption
}

// A Server is a control plane: ADS and LRS on one address.
//
// A Server must be made by Start or New. It is safe for concurrent use.
type Server struct {
	opts   Options
	events events
	store  store
	ads    ads
	loads  loads

	mu   sync.Mutex // held across Start, Stop and Restart
	port port
	addr string
	grpc *grpc.Server // nil when stopped
	done chan struct{}
}

// Start returns a Server that accepts connections and has no resources yet. It runs until Stop.
func Start(opts Options) (*Server, error) {
	s := &Server{opts: opts, addr: anyPort}
	s.store.init()
	s.ads.init(&s.store, &s.events, &s.opts)
	s.loads.init(&s.events, &s.opts)
	if err := s.start(); err != nil {
		return nil, err
	}
	return s, nil
}

// Addr returns the address for clients. It stays the same after Restart.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// Stop closes the listener and all connections, so that streams end abruptly, and returns when
// their handlers have returned. It may be called repeatedly.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
}

// Restart stops the server if it is running, and starts it on the same address with the same
// resources and versions.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
	return s.start()
}

// BreakStreams ends the open ADS and LRS streams with UNAVAILABLE. Connections
// stay open.
func (s *Server) BreakStreams() {
	s.ads.breakStreams()
	s.loads.breakStreams()
}

// Wait returns nil once cond returns true, or an error when ctx is done. It calls cond, which
// may use s, after each event of s, such as a request, a stream or a load report.
func (s *Server) Wait(ctx context.Context, cond func() bool) error {
	return s.events.wait(ctx, "a condition", cond)
}

// Bootstrap returns a bootstrap configuration (A27, JSON) with only the server.
func (s *Server) Bootstrap(nodeID string) []byte {
	type object = map[string]any
	b, err := json.Marshal(object{
		"node": object{"id": nodeID},
		"xds_servers": []object{{
			"server_uri":      s.Addr(),
			"channel_creds":   []object{{"type": "insecure"}},
			"server_features": []string{"xds_v3"},
		}},
	})
	if err != nil {
		return nil // encoding strings cannot fail
	}
	return b
}

// start must be called with mu held, or before s is shared.
func (s *Server) start() error {
	lis, err := listen(s.opts.Listen, &s.port, s.addr)
	if err != nil {
		return fmt.Errorf("xdstest: start the control plane: %w", err)
	}
	s.addr = lis.Addr().String()
	s.grpc, s.done = grpc.NewServer(append([]grpc.ServerOption{grpc.WaitForHandlers(true)}, s.opts.Server...)...), make(chan struct{})
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s.grpc, &s.ads)
	lrsv3.RegisterLoadReportingServiceServer(s.grpc, &s.loads)
	go serve(s.grpc, lis, s.done)
	return nil
}

// stop must be called with mu held.
func (s *Server) stop() {
	if s.grpc == nil {
		return
	}
	s.grpc.Stop()
	<-s.done
	s.grpc = nil
}

// listen listens on addr with f, or on TCP if f is nil; then p reserves the port.
func listen(f func(addr string) (net.Listener, error), p *port, addr string) (net.Listener, error) {
	if f != nil {
		return f(addr)
	}
	return net.Listen("tcp", p.hold(addr))
}

// serve runs a server until it is stopped, then closes done. The error only indicates that it
// was stopped.
func serve(s *grpc.Server, lis net.Listener, done chan<- struct{}) {
	defer close(done)
	_ = s.Serve(lis)
}
