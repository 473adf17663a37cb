// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/bench/fakegrpc"
	"github.com/xdslb/xdslb/integrate/internal/proberpc"
)

// modelChannel is gRPC's side of a balancer, and modelConn one of its SubConns.
type (
	modelChannel = fakegrpc.CC[endpointData]
	modelConn    = fakegrpc.SubConn[endpointData]
)

// endpointData is what the model knows of the endpoint of a SubConn.
type endpointData struct {
	number    int                    // of the address
	target    *attributes.Attributes // of the address
	failed    bool                   // since it was READY
	delegated bool                   // to a custom policy or pick_first, now or earlier
	hostname  string                 // that it was connected with
	// unwatched are the services that the backend did not know, since the SubConn was READY.
	unwatched []string
}

func newModelChannel(t testing.TB) *modelChannel {
	cc := fakegrpc.NewCC[endpointData](t.Errorf)
	cc.NameOf = func(addr string) string { return strconv.Itoa(numberAt(addr)) }
	cc.OnNew = func(c *modelConn, addrs []resolver.Address) {
		c.Data.number, c.Data.target = numberAt(c.Addr), addrs[0].Attributes
	}
	cc.Backend = func(c *modelConn) grpc.ClientConnInterface { return randomBackend{conn: c} }
	return cc
}

// newChannel returns the channel of a history, with health services.
func (t *history) newChannel() *modelChannel {
	cc := newModelChannel(t)
	t.backends = newModelHealth()
	cc.Backend = func(c *modelConn) grpc.ClientConnInterface { return randomBackend{conn: c, health: t.backends} }
	cc.OnMove = t.moved
	return cc
}

// moved follows a SubConn to its state, of which the balancer does not know yet.
func (t *history) moved(c *modelConn) {
	switch c.State {
	case connectivity.TransientFailure:
		c.Data.failed = true
	case connectivity.Ready:
		c.Data.failed = false
	}
	if c.State != connectivity.Ready {
		if t.backends.end(c) {
			synctest.Wait() // gRPC may report the end of streams first
		}
		c.Data.unwatched = nil
	}
	if c.State == connectivity.Connecting {
		t.handshake(c)
	}
}

// isDown reports whether the endpoint is in TRANSIENT_FAILURE, which lasts until it is READY (A62).
// Of a connection that another policy had before, the balancer knows only the state.
func isDown(c *modelConn) bool {
	return c.State == connectivity.TransientFailure || c.Data.failed && !c.Data.delegated
}

// randomBackend is a connection to a server that answers probes at random. Load reports out of band
// are never answered.
type randomBackend struct {
	fakegrpc.Silent
	conn   *modelConn
	health *modelHealth // nil if it has no health service
}

func (m randomBackend) Invoke(ctx context.Context, method string, in, out any, opts ...grpc.CallOption) error {
	switch rand.IntN(8) {
	case 0:
		return status.Error(codes.Unimplemented, "unknown service")
	case 1:
		return m.Silent.Invoke(ctx, method, in, out, opts...)
	}
	*out.(*proberpc.Report) = proberpc.Report{
		InFlight: rand.Uint32N(5), LatencyNs: rand.Uint64N(1e9), FailingPPM: rand.Uint32N(1_000_001),
		Weight: rand.Float64(), GoingAway: rand.IntN(8) == 0,
	}
	return nil
}
