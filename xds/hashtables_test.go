// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// maglev makes a cluster ask for a Maglev table of a size.
func maglev(name string, size uint64) *clusterv3.Cluster {
	c := xdstest.Cluster(name, "e")
	c.LbPolicy = clusterv3.Cluster_MAGLEV
	c.LbConfig = &clusterv3.Cluster_MaglevLbConfig_{MaglevLbConfig: &clusterv3.Cluster_MaglevLbConfig{TableSize: wrapperspb.UInt64(size)}}
	return c
}

// ringOf makes a cluster ask for a ring of at most a size.
func ringOf(name string, size uint64) *clusterv3.Cluster {
	c := xdstest.Cluster(name, "e")
	c.LbPolicy = clusterv3.Cluster_RING_HASH
	c.LbConfig = &clusterv3.Cluster_RingHashLbConfig_{RingHashLbConfig: &clusterv3.Cluster_RingHashLbConfig{
		MinimumRingSize: wrapperspb.UInt64(1), MaximumRingSize: wrapperspb.UInt64(size),
	}}
	return c
}

// TestHashBounds checks the sizes of rings and tables that clusters get, whatever
// they ask for: each is bounded, and all of a target's together are, by making the
// largest smaller and leaving the others as they are (T-SEC-2).
func TestHashBounds(t *testing.T) {
	many := func(n int, size uint64) (clusters []*clusterv3.Cluster) {
		for i := range n {
			clusters = append(clusters, maglev(fmt.Sprint("m", i), size))
		}
		return clusters
	}
	type bytes = uint64
	for _, tt := range []struct {
		name     string
		opts     Options
		clusters []*clusterv3.Cluster
		largest  uint64 // table
		least    bytes  // of all tables and rings
		most     bytes
	}{
		{"one table", Options{}, many(1, 5000011), 65537, 131074, 131074},
		{"bound between primes", Options{TargetOptions: TargetOptions{MaxHashBytes: 200}}, many(1, 65537), 61, 122, 122},
		{"a thousand tables", Options{}, many(1000, 5000011), 32749, 32 << 20, 64 << 20},
		{"a small one stays", Options{TargetOptions: TargetOptions{MaxHashBytes: 1 << 20}}, append(many(40, 65537), maglev("small", 101)), 8191, 1 << 19, 1 << 20},
		{"rings", Options{TargetOptions: TargetOptions{MaxHashBytes: 1 << 20}}, append(many(8, 65537), ringOf("r0", 8<<20), ringOf("r1", 8<<20), ringOf("r2", 2)), 32749, 1 << 19, 1 << 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h, cp := only(t, tt.opts)
				var names []string
				all := []proto.Message{endpointsAt("e", 1, 2, 3)}
				for _, c := range tt.clusters {
					names = append(names, c.Name)
					all = append(all, c)
				}
				cp.serve(append(all, listenerTo("svc", "r"), routesTo("r", names...))...)
				w := h.watch("svc")
				advance(time.Second)
				var largest, sum uint64
				for _, c := range w.must(t).Clusters {
					p := &c.Leaves[0].Policy
					if p.Kind == picker.PolicyRingHash {
						sum += 16 * min(p.Ring.MaxSize, 4096)
						continue
					}
					if size := p.Ring.MinSize; c.Name == "small" && size != 101 || !new(big.Int).SetUint64(size).ProbablyPrime(0) {
						t.Errorf("cluster %q has a table of %d slots", c.Name, size)
					}
					largest = max(largest, p.Ring.MinSize)
					sum += 2 * p.Ring.MinSize
				}
				if largest != tt.largest || sum < tt.least || sum > tt.most {
					t.Errorf("the largest table has %d slots, all have %d bytes; want %d, and %d to %d", largest, sum, tt.largest, tt.least, tt.most)
				}
			})
		})
	}
}

// TestHashBoundsLocalities checks that rings which each locality has for itself
// count, however many localities an EDS resource makes up (T-SEC-2).
func TestHashBoundsLocalities(t *testing.T) {
	ring := &picker.RingPolicy{MinSize: 1024, MaxSize: 8 << 20}
	localities := make([]picker.Locality, 40000)
	for _, flat := range []bool{true, false} {
		p := &picker.Policy{Kind: picker.PolicyRingHash, Flat: flat, Ring: ring}
		want := uint64(4096 * 16)
		if !flat {
			want *= 40000
		}
		if got := hashBytes(hashNeedOf(p, &resource.Endpoints{Priorities: []picker.Priority{{Localities: localities}}}), 0); got != want {
			t.Errorf("flat %v: %d bytes, want %d", flat, got, want)
		}
	}
}
