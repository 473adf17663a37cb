// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/balancer"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/ringhash"
)

// hashless is RPCs of a channel that have nothing to hash. As in gRPC each has a context of its
// own, until it ends.
type hashless struct {
	b       *testLB
	waiting []context.Context
	got     map[string]int
	ends    []func()
}

// begin makes RPCs. RPCs that find no connection wait.
func (h *hashless) begin(t *testing.T, n int) {
	for range n {
		ctx, end := context.WithCancel(t.Context())
		h.waiting, h.ends = append(h.waiting, ctx), append(h.ends, end)
	}
	h.repick(t)
}

// repick picks for all that wait, as gRPC does when it gets a new picker.
func (h *hashless) repick(t *testing.T) {
	t.Helper()
	h.b.flush()
	var left []context.Context
	for _, ctx := range h.waiting {
		res, err := h.b.picker.Pick(balancer.PickInfo{FullMethodName: "/s/m", Ctx: ctx})
		switch {
		case errors.Is(err, balancer.ErrNoSubConnAvailable):
			left = append(left, ctx)
		case err != nil:
			t.Fatal(err)
		default:
			res.Done(balancer.DoneInfo{BytesReceived: true})
			h.got[res.SubConn.(*fakeConn).addr]++
		}
	}
	h.waiting = left
	synctest.Wait()
}

// end ends all RPCs.
func (h *hashless) end() {
	for _, end := range h.ends {
		end()
	}
}

// TestLazyRingHashless: an RPC that has nothing to hash waits for the connection of the endpoint
// which its random hash leads to, and connects no other (A42, T-RING-6). The state of the RPC is
// deleted when it ends.
func TestLazyRingHashless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		numbers := make([]int, n)
		for i := range numbers {
			numbers[i] = i
		}
		for range 10 {
			b, cc := newTestLB(t, Config{})
			b.Update(configOf(ring(clusterOf("c", prio(eps(numbers...))))))
			rpc := &hashless{b: b, got: map[string]int{}}
			rpc.begin(t, 1)
			open := cc.open(n)
			if len(open) != 1 {
				t.Fatalf("the RPC connects endpoints %v, want one", open)
			}
			first := cc.conn(t, open[0])
			first.to(connecting)
			rpc.repick(t)
			if open := cc.open(n); len(rpc.waiting) != 1 || len(open) != 1 {
				t.Fatalf("the RPC connects endpoints %v, want to wait for the first", open)
			}
			first.to(ready)
			rpc.repick(t)
			if rpc.got[first.addr] != 1 {
				t.Fatalf("the RPC went to %v with %s READY", rpc.got, first.addr)
			}
			rpc.end()
			synctest.Wait()
			b.randomHashes.byDone.Range(func(any, any) bool {
				t.Error("the hash of an RPC is kept beyond its end")
				return false
			})
			if n := b.randomHashes.count.Load(); n != 0 {
				t.Errorf("%d hashes are counted, and no RPC is left", n)
			}
			b.Close()
			synctest.Wait()
		}
	})
}

// ringShares returns the share of each endpoint in a ring of ring's size, which is about its share
// of the weights.
func ringShares(t *testing.T, list []picker.Endpoint) []float64 {
	var hosts []ringhash.Host
	for _, e := range list {
		hosts = append(hosts, ringhash.Host{Key: e.Addr.String(), Weight: e.Weight})
	}
	r, err := ringhash.New(hosts, 1024, 4096, ringhash.XXH3)
	kit.Must(t, err)
	const points = 1 << 16
	shares := make([]float64, len(hosts))
	for i := range uint64(points) {
		shares[r.Pick(i*(math.MaxUint64/points))] += 1. / points
	}
	return shares
}

// TestHashlessShares: from the first RPC on, RPCs that have nothing to hash are shared by the
// weights of the endpoints, though some connect before others. One endpoint that does not answer
// delays its own share and nothing else (A42).
func TestHashlessShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cc := newTestLB(t, Config{})
		list := eps(0, 1, 2, 3)
		for i, weight := range []uint32{1, 1, 2, 4} {
			list[i].Weight = weight
		}
		b.Update(configOf(ring(clusterOf("c", prio(list)))))
		const silent, each = 2, 200
		rpcs := &hashless{b: b, got: map[string]int{}}
		for _, n := range []int{0, 3, 1} {
			rpcs.begin(t, each)
			cc.conn(t, n).to(ready)
			rpcs.repick(t)
		}
		for range 20 {
			rpcs.begin(t, each)
		}
		const made = 23 * each
		rpcs.got[addr(silent).String()] = len(rpcs.waiting)
		for n, share := range ringShares(t, list) {
			got := float64(rpcs.got[addr(n).String()]) / made
			if sigma := math.Sqrt(share * (1 - share) / made); math.Abs(got-share) > 7*sigma {
				t.Errorf("endpoint %d has %.3f of all RPCs, or has them wait, want its share of the ring, %.3f", n, got, share)
			}
		}
		rpcs.end()
		synctest.Wait()
	})
}
