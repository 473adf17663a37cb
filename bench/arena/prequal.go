// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/probe"
)

// prequal probes servers: synchronous of them before each RPC, or if that is 0, the given
// number of probes per RPC on average, some of whose answers are removed unused.
func prequal(synchronous int, probes, removed float64) testplane.ClusterOption {
	return testplane.Policies(testplane.TypedStruct(integrate.Prequal, map[string]any{
		"synchronous": synchronous, "probesPerRpc": probes, "removePerRpc": removed,
	}))
}

// probeDelay is the delay of probes in each direction. The arena's network has no delay, so
// answers would be unrealistically recent.
const probeDelay = 250 * time.Microsecond

// answersProbes makes servers answer probes, with the delay of a network.
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
