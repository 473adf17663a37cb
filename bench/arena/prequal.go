// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/probe"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// prequal has clients ask servers: some before each RPC if that is not 0, or else so many
// for an RPC on average, whose answers are removed unused in part.
func prequal(synchronous int, probes, removed float64) xdstest.ClusterOption {
	return xdstest.Policies(xdstest.TypedStruct(integrate.Prequal, map[string]any{
		"synchronous": synchronous, "probesPerRpc": probes, "removePerRpc": removed,
	}))
}

// probeDelay is how long probes are on their way in each direction. The arena's network has
// no delay, by which answers would be better than they can be.
const probeDelay = 250 * time.Microsecond

// answersProbes has servers answer probes, as fast as a network would let them.
func answersProbes(*Server) (opts []grpc.ServerOption, register func(grpc.ServiceRegistrar)) {
	load := probe.NewLoad()
	delay := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if info.FullMethod != probe.Method {
			return handler(ctx, req)
		}
		time.Sleep(probeDelay)
		answer, err := handler(ctx, req)
		time.Sleep(probeDelay)
		return answer, err
	}
	return []grpc.ServerOption{load.ServerOption(), grpc.UnaryInterceptor(delay)}, func(s grpc.ServiceRegistrar) { probe.Register(s, load) }
}
