// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
)

// The anchors are policies in gRPC's registry.
const (
	randomPolicy = "arena_random"
	oraclePolicy = "arena_oracle"
)

func init() {
	balancer.Register(base.NewBalancerBuilder(randomPolicy, anchorBuilder{false}, base.Config{}))
	balancer.Register(base.NewBalancerBuilder(oraclePolicy, anchorBuilder{true}, base.Config{}))
}

// modelKey is the attribute of an address that identifies its server.
type modelKey struct{}

// withModel gives the oracle access to the server behind an address, and to the needs of RPCs.
func withModel(a resolver.Address, s *Server, mean time.Duration) resolver.Address {
	a.BalancerAttributes = a.BalancerAttributes.WithValue(modelKey{}, &model{s, mean})
	return a
}

type model struct {
	server *Server
	mean   time.Duration
}

// anchorBuilder builds the pickers of random and of the oracle.
type anchorBuilder struct{ oracle bool }

// Build implements base.PickerBuilder.
func (b anchorBuilder) Build(info base.PickerBuildInfo) balancer.Picker {
	if len(info.ReadySCs) == 0 {
		return base.NewErrPicker(balancer.ErrNoSubConnAvailable)
	}
	p := &anchorPicker{list: inOrder(info)}
	p.oracle = b.oracle && p.list[0].model != nil
	return p
}

// inOrder returns the connections ordered by address.
func inOrder(info base.PickerBuildInfo) (list []anchored) {
	for sc, at := range info.ReadySCs {
		m, _ := at.Address.BalancerAttributes.Value(modelKey{}).(*model)
		list = append(list, anchored{m, balancer.PickResult{SubConn: sc}, at.Address.Addr})
	}
	slices.SortFunc(list, func(a, b anchored) int { return cmp.Compare(a.addr, b.addr) })
	return list
}

type anchored struct {
	*model
	result balancer.PickResult
	addr   string
}

// anchorPicker picks at random, or the server at which an RPC is expected to end first.
type anchorPicker struct {
	list   []anchored
	oracle bool
}

// Pick implements balancer.Picker.
func (p *anchorPicker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	i := rand.IntN(len(p.list))
	if p.oracle {
		i = shortest(len(p.list), i, func(i int) float64 {
			m := p.list[i].model
			return m.server.wait(m.mean) + m.server.extraWait(info.Ctx, m.mean)
		})
	}
	return p.list[i].result, nil
}

// shortest returns the index below n with the shortest wait. Ties are broken by the order from
// start.
func shortest(n, start int, wait func(int) float64) int {
	best, least := start, math.Inf(1)
	for k := range n {
		i := (start + k) % n
		if w := wait(i); w < least {
			best, least = i, w
		}
	}
	return best
}

// session returns an RPC's context with its own hash.
func session(ctx context.Context, hash string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, hashHeader, hash)
}
