// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"maps"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
)

// customPolicy is a custom LB policy (A52), which picks READY endpoints in turn.
const customPolicy = "xdslb_test.turns"

func init() {
	balancer.Register(base.NewBalancerBuilder(customPolicy, turnsBuilder{}, base.Config{}))
}

type turnsBuilder struct{}

func (turnsBuilder) Build(info base.PickerBuildInfo) balancer.Picker {
	if len(info.ReadySCs) == 0 {
		return base.NewErrPicker(balancer.ErrNoSubConnAvailable)
	}
	return &turns{conns: slices.Collect(maps.Keys(info.ReadySCs))}
}

type turns struct {
	conns []balancer.SubConn
	next  atomic.Uint32
}

func (p *turns) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	return balancer.PickResult{SubConn: p.conns[int(p.next.Add(1))%len(p.conns)]}, nil
}
