// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/balancer/weightedtarget"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/edf"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/ringhash"
)

const ringHosts = 1000

// BenchmarkRing builds rings of so many entries for 1000 hosts, and looks one
// hash up: rows of the aims. change=host replaces one host of the ring.
func BenchmarkRing(b *testing.B) {
	hosts := hashHosts(ringHosts)
	other := hashHosts(ringHosts)
	other[ringHosts/2].Key = "10.255.255.255:80"
	for _, n := range []int{4096, 65536, 1 << 20} {
		if testing.Short() && n > 65536 {
			continue
		}
		size := uint64(n)
		b.Run(fmt.Sprintf("impl=ours/op=build/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			defer charge(b)()
			for b.Loop() {
				must(b, func() (*ringhash.Ring, error) { return ringhash.New(hosts, size, size, ringhash.XXH64) })
			}
		})
		b.Run(fmt.Sprintf("impl=ours_xxh3/op=build/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			defer charge(b)()
			for b.Loop() {
				must(b, func() (*ringhash.Ring, error) { return ringhash.New(hosts, size, size, ringhash.XXH3) })
			}
		})
		ring := must(b, func() (*ringhash.Ring, error) { return ringhash.New(hosts, size, size, ringhash.XXH64) })
		b.Run(fmt.Sprintf("impl=ours/op=change/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			list := [][]ringhash.Host{other, hosts}
			r := ring
			defer charge(b)()
			for i := 0; b.Loop(); i++ {
				r = must(b, func() (*ringhash.Ring, error) { return r.Update(list[i%2]) })
			}
		})
		hashes := randomHashes()
		b.Run(fmt.Sprintf("impl=ours/op=pick/n=%d", n), func(b *testing.B) {
			defer charge(b)()
			for i := 0; b.Loop(); i++ {
				sink += ring.Pick(hashes[i%len(hashes)])
			}
		})
		if stock.ring == nil {
			continue
		}
		newRing := stock.ring(addresses(ringHosts))
		b.Run(fmt.Sprintf("impl=stock/op=build/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			defer charge(b)()
			for b.Loop() {
				newRing(size)
			}
		})
		// gRPC builds a new ring when a host changes.
		b.Run(fmt.Sprintf("impl=stock/op=change/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			defer charge(b)()
			for b.Loop() {
				newRing(size)
			}
		})
		pick := newRing(size)
		b.Run(fmt.Sprintf("impl=stock/op=pick/n=%d", n), func(b *testing.B) {
			defer charge(b)()
			for i := 0; b.Loop(); i++ {
				sink += len(pick(hashes[i%len(hashes)]))
			}
		})
	}
}

// BenchmarkMaglev builds Maglev tables for 1000 hosts and looks one hash up.
func BenchmarkMaglev(b *testing.B) {
	hosts, hashes := hashHosts(ringHosts), randomHashes()
	for _, n := range []int{65537, 1048583} {
		if testing.Short() && n > 65537 {
			continue
		}
		b.Run(fmt.Sprintf("impl=ours/op=build/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			defer charge(b)()
			for b.Loop() {
				must(b, func() (*ringhash.Maglev, error) { return ringhash.NewMaglev(hosts, uint64(n), ringhash.XXH64) })
			}
		})
		table := must(b, func() (*ringhash.Maglev, error) { return ringhash.NewMaglev(hosts, uint64(n), ringhash.XXH64) })
		b.Run(fmt.Sprintf("impl=ours/op=pick/n=%d", n), func(b *testing.B) {
			defer charge(b)()
			for i := 0; b.Loop(); i++ {
				sink += table.Pick(hashes[i%len(hashes)])
			}
		})
	}
}

// BenchmarkWeighted builds weighted pickers: an EDF schedule, new or after one weight has
// changed, and an alias table. For comparison it has the textbook EDF heap and gRPC's random
// WRR.
func BenchmarkWeighted(b *testing.B) {
	for _, n := range sizes(10, 1000, 100_000) {
		weights := skewed(n, "random")
		changed := append([]uint32(nil), weights...)
		changed[n/2] ^= 1
		changed[n/2] = max(changed[n/2], 1)
		run := func(name string, do func()) {
			b.Run(fmt.Sprintf("%s/n=%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				defer charge(b)()
				for b.Loop() {
					do()
				}
			})
		}
		run("impl=ours/op=edf", func() {
			must(b, edf.Config{Weights: weights, Start: 1 << 40}.Schedule)
		})
		s, list, i := must(b, edf.Config{Weights: weights, Start: 1 << 40}.Schedule), [][]uint32{changed, weights}, 0
		run("impl=ours/op=reweigh", func() {
			s = must(b, func() (*edf.Schedule, error) { return s.Reweigh(list[i%2], 0) })
			i++
		})
		run("impl=heap/op=edf", func() { newDeadlines(weights) })
		run("impl=ours/op=alias", func() {
			must(b, func() (*picker.Alias, error) { return picker.NewAlias(weights) })
		})
		run("impl=random/op=alias", func() {
			w := weightedtarget.NewRandomWRR()
			for i, weight := range weights {
				w.Add(i, int64(weight))
			}
		})
	}
}

// BenchmarkSnapshot compiles the snapshot of n endpoints after the connection of
// one has failed or come back.
func BenchmarkSnapshot(b *testing.B) {
	for _, p := range policies {
		for _, n := range sizes(1000, 10_000) {
			b.Run(fmt.Sprintf("impl=ours/policy=%s/n=%d", p.name, n), func(b *testing.B) {
				k := newKernel(b, 5, n, "random", p.ours)
				b.ReportAllocs()
				defer charge(b)()
				for b.Loop() {
					k.flip(b)
				}
			})
		}
	}
}

// sink keeps results from being optimised away.
var sink int

func must[T any](tb testing.TB, f func() (T, error)) T {
	v, err := f()
	kit.Must(tb, err)
	return v
}

func hashHosts(n int) []ringhash.Host {
	hosts := make([]ringhash.Host, n)
	for i := range hosts {
		hosts[i] = ringhash.Host{Key: endpointAddr(i).String(), Weight: 1}
	}
	return hosts
}

// randomHashes are more than a branch predictor can learn.
func randomHashes() []uint64 {
	rng := newRand()
	hashes := make([]uint64, 1<<16)
	for i := range hashes {
		hashes[i] = rng.Uint64()
	}
	return hashes
}
