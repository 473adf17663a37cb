// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/xdslb/xdslb/picker"
)

// Weights 1:2:1 share the words in these proportions. A real caller passes
// rand.Uint64().
func ExampleAlias() {
	a, err := picker.NewAlias([]uint32{1, 2, 1})
	if err != nil {
		panic(err)
	}
	var counts [3]int
	for i := range uint64(1 << 10) {
		counts[a.Pick(i<<54)]++
	}
	fmt.Println(counts)
	// Output: [256 512 256]
}

// The kernel without gRPC: any proxy that fills a Config and keeps track of its
// connections can pick from it.
func ExampleBuild() {
	cfg := &picker.Config{
		Routes: []picker.Route{{Clusters: []picker.WeightedCluster{{Name: "backend", Weight: 1}}}},
		Clusters: []*picker.Cluster{{
			Name: "backend",
			Leaves: []picker.Leaf{{
				MaxRequests: 1024,
				Priorities: []picker.Priority{{Localities: []picker.Locality{{
					Weight: 1,
					Endpoints: picker.ListOf(
						picker.Endpoint{Addr: netip.MustParseAddrPort("10.0.0.1:443"), Weight: 1},
						picker.Endpoint{Addr: netip.MustParseAddrPort("10.0.0.2:443"), Weight: 1},
						picker.Endpoint{Addr: netip.MustParseAddrPort("10.0.0.3:443"), Weight: 1},
					),
				}}}},
			}},
		}},
	}

	// State that outlives snapshots: the counters, and the endpoints bound to them.
	var (
		breaker   picker.Breaker
		load      picker.ClusterLoad
		local     = load.Locality(picker.LocalityID{})
		endpoints = picker.StateSlice{{}, {}, {}}
	)
	for _, e := range endpoints {
		e.Bind(picker.NewBinding(local, &breaker, false))
	}
	endpoints[0].Connectivity = picker.Ready
	endpoints[1].Connectivity = picker.Connecting
	endpoints[2].Connectivity = picker.Ready

	snapshot, err := picker.Build(nil, cfg, []picker.ClusterState{{
		Version:    1, // to be changed with anything below, or in cfg
		Localities: []picker.LocalityState{{Load: local, Endpoints: endpoints}},
		Breaker:    &breaker,
		Overload:   load.Overload(),
	}}, picker.Env{})
	if err != nil {
		panic(err)
	}

	var picks [3]int
	for range 10 {
		result := snapshot.Pick(context.Background(), "/package.Service/Method", 0)
		if result.Outcome == picker.Picked {
			picks[result.Index]++
			endpoints[result.Index].Finish(picker.CallOK) // at the end of the RPC
		}
	}
	fmt.Println("picks:", picks)
	fmt.Printf("load: %+v\n", local.Snapshot())
	// Output:
	// picks: [5 0 5]
	// load: {Issued:10 OK:10 Failed:0 InProgress:0}
}

// headerKey is the context key of an RPC's header, which in gRPC is metadata.
type headerKey string

// Endpoints of a policy that hashes are connected on demand: until then the outcome of an RPC
// is QueueConnect, and it waits.
func ExampleSnapshot_Pick() {
	cfg := &picker.Config{
		Routes: []picker.Route{{
			Hash:     []picker.HashPolicy{{Header: "user"}},
			Clusters: []picker.WeightedCluster{{Name: "cache", Weight: 1}},
		}},
		Clusters: []*picker.Cluster{{
			Name: "cache",
			Leaves: []picker.Leaf{{
				Policy: picker.Policy{
					Kind: picker.PolicyRingHash,
					Flat: true,
					Ring: &picker.RingPolicy{MinSize: 1024, MaxSize: 4096, XXH64: true},
				},
				MaxRequests: 1024,
				Priorities: []picker.Priority{{Localities: []picker.Locality{{
					Weight: 1,
					Endpoints: picker.ListOf(
						picker.Endpoint{Addr: netip.MustParseAddrPort("10.0.0.1:443"), Weight: 1},
						picker.Endpoint{Addr: netip.MustParseAddrPort("10.0.0.2:443"), Weight: 1},
					),
				}}}},
			}},
		}},
	}
	var (
		breaker   picker.Breaker
		load      picker.ClusterLoad
		local     = load.Locality(picker.LocalityID{})
		endpoints = picker.StateSlice{{}, {}} // both are Idle
		state     = picker.ClusterState{
			Localities: []picker.LocalityState{{Load: local, Endpoints: endpoints}},
			Breaker:    &breaker,
			Overload:   load.Overload(),
		}
		env = picker.Env{Header: func(ctx context.Context, name string) []string {
			return []string{ctx.Value(headerKey(name)).(string)}
		}}
		snapshot *picker.Snapshot
	)
	for _, e := range endpoints {
		e.Bind(picker.NewBinding(local, &breaker, false))
	}
	for _, user := range []string{"ann", "ann", "bob", "eve", "ann"} {
		state.Version++
		next, err := picker.Build(snapshot, cfg, []picker.ClusterState{state}, env)
		if err != nil {
			panic(err)
		}
		snapshot = next
		ctx := context.WithValue(context.Background(), headerKey("user"), user)
		switch result := snapshot.Pick(ctx, "/package.Service/Method", 0); result.Outcome {
		case picker.Picked:
			fmt.Println(user, "goes to", cfg.Clusters[0].Leaves[0].Priorities[0].Localities[0].Endpoints.At(int(result.Index)).Addr)
			endpoints[result.Index].Finish(picker.CallOK)
		case picker.QueueConnect:
			fmt.Println(user, "waits")
			endpoints[result.Index].Connectivity = picker.Ready // which takes longer in real life
		}
	}
	// Output:
	// ann waits
	// ann goes to 10.0.0.2:443
	// bob waits
	// eve goes to 10.0.0.2:443
	// ann goes to 10.0.0.2:443
}
