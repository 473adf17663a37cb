// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"math/rand/v2"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
)

// This file has fleets in which the number of attempts matters more than their target: attempts
// that hang, an outage of all servers, and overload.

const (
	oneInHundred = "1 % hang"
	totalOutage  = "total outage"
	surge        = "a surge"
)

// retried returns these fleets.
func retried() []Fleet {
	const s = time.Second
	list := []Fleet{
		smaller(oneInHundred, .4, "one attempt in a hundred hangs for a second, on whatever server; 40 % load").with(func(f *Fleet) {
			f.Stalls, f.StallFor = .01, s
			f.Only = []string{"stock round_robin", "ours round_robin", "ours least_request", "ours least_latency", hedged.String()}
		}),
		smaller(totalOutage, .7, "all servers fail for 10 s, 100 ms after they are asked; 5 clients, 70 % load").with(func(f *Fleet) {
			f.Clients, f.FailAfter = 5, 100*time.Millisecond
			f.BadFrom, f.BadTo = 15*s, 25*s
			f.Only = []string{"stock round_robin", "ours round_robin", "stock " + retries, "ours " + retries, "ours " + budgeted}
			f.Script = func(f *Fleet, _ *rand.Rand) []Event {
				list := []Event{{15 * s, "all fail", func(*machines) {}}, {25 * s, "recover", func(*machines) {}}}
				for i := range f.Servers {
					list = append(list, failAt(15*s, "", i, true), failAt(25*s, "", i, false))
				}
				return list
			}
		}),
		smaller(surge, 1, "twice what servers can do for 10 s, 70 % load before and after; RPCs have a second, applications try again once, and servers work on what is over").with(func(f *Fleet) {
			f.Stubborn, f.Timeout, f.Again = true, s, 1
			f.Run, f.BadFrom, f.BadTo = 55*s, 15*s, 25*s
			f.Shape = func(at time.Duration) float64 {
				if at >= f.BadFrom && at < f.BadTo {
					return 2
				}
				return .7
			}
			f.Only = []string{"stock round_robin", "ours round_robin", "stock " + limited, "ours " + limited}
			f.Script = func(*Fleet, *rand.Rand) []Event {
				return []Event{{15 * s, "surge", func(*machines) {}}, {25 * s, "over", func(*machines) {}}}
			}
		}),
	}
	for i := range list {
		list[i].ChannelsOnly, list[i].Repeats = true, true
	}
	return list
}

// The rows with several attempts per RPC.
var hedged = Policy{
	Impl: Ours, Name: "round_robin, hedged", Route: hedge, Only: []string{oneInHundred},
	Config: integrate.Config{Idempotent: func(string) bool { return true }},
}

const (
	retries  = "round_robin, retries"
	budgeted = "round_robin, retry budget"
	limited  = "round_robin, max_requests"
)

// retryRows returns the rows for these fleets only.
func retryRows() []Policy {
	list := []Policy{hedged}
	again := []string{totalOutage}
	return append(list,
		Policy{Impl: Stock, Name: retries, Route: retry, Only: again},
		Policy{Impl: Ours, Name: retries, Route: retry, Only: again},
		Policy{Impl: Ours, Name: budgeted, Route: retry, Only: again, Cluster: []testplane.ClusterOption{retryBudget}},
		Policy{Impl: Stock, Name: limited, Only: []string{surge}, Cluster: []testplane.ClusterOption{testplane.MaxRequests(4)}},
		Policy{Impl: Ours, Name: limited, Only: []string{surge}, Cluster: []testplane.ClusterOption{testplane.MaxRequests(4)}},
	)
}

// hedge starts a second attempt if the first takes longer than 100 ms.
func hedge(r *routev3.RouteAction) {
	r.HedgePolicy = &routev3.HedgePolicy{HedgeOnPerTryTimeout: true}
	r.RetryPolicy = &routev3.RetryPolicy{
		RetryOn: "unavailable", NumRetries: wrapperspb.UInt32(1), PerTryTimeout: durationpb.New(100 * time.Millisecond),
	}
}

// retry allows up to four retries.
func retry(r *routev3.RouteAction) {
	r.RetryPolicy = &routev3.RetryPolicy{RetryOn: "unavailable", NumRetries: wrapperspb.UInt32(4)}
}

// retryBudget limits the retries of a cluster by Envoy's defaults.
func retryBudget(c *clusterv3.Cluster) {
	c.CircuitBreakers.Thresholds[0].RetryBudget = &clusterv3.CircuitBreakers_Thresholds_RetryBudget{}
}
