// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/buraksezer/consistent"
	"github.com/dgryski/go-jump"
	"github.com/golang/groupcache/consistenthash"
	"github.com/serialx/hashring"

	"github.com/xdslb/xdslb/ringhash"
)

// replicas is how many places in the ring a host has.
const replicas = 40

var sink int

// BenchmarkHash builds the tables of n hosts for picks by a string key, replaces one host, and
// picks, including the hash of the key. Jump hashing has no table, and can remove only the last
// host.
func BenchmarkHash(b *testing.B) {
	for _, n := range []int{10, 1000} {
		names := hosts(n)
		other := append([]string{}, names...)
		other[n/2] = "10.255.255.255:80"
		keys := keys()
		run := func(impl, op string, do func(i int)) {
			b.Run(fmt.Sprintf("impl=%s/op=%s/n=%d", impl, op, n), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					do(i)
				}
			})
		}

		size := uint64(n * replicas)
		ring := newRing(b, names, size)
		run("ours", "build", func(int) { newRing(b, names, size) })
		run("ours", "change", func(i int) {
			var err error
			if ring, err = ring.Update(members([][]string{other, names}[i%2])); err != nil {
				b.Fatal(err)
			}
		})
		run("ours", "pick", func(i int) { sink += ring.Pick(ringhash.XXH64.Sum(keys[i%len(keys)])) })

		table := newTable(b, names)
		run("ours_maglev", "build", func(int) { newTable(b, names) })
		run("ours_maglev", "pick", func(i int) { sink += table.Pick(ringhash.XXH64.Sum(keys[i%len(keys)])) })

		weights := make(map[string]int) // its word for replicas
		for _, name := range names {
			weights[name] = replicas
		}
		h := hashring.NewWithWeights(weights)
		run("hashring", "build", func(int) { h = hashring.NewWithWeights(weights) })
		run("hashring", "change", func(int) { h.RemoveNode(names[n/2]).AddWeightedNode(other[n/2], replicas) })
		run("hashring", "pick", func(i int) {
			node, _ := h.GetNode(keys[i%len(keys)])
			sink += len(node)
		})

		g := newGroupcache(names)
		run("groupcache", "build", func(int) { g = newGroupcache(names) })
		run("groupcache", "change", func(int) { newGroupcache(other) }) // it has no other way
		run("groupcache", "pick", func(i int) { sink += len(g.Get(keys[i%len(keys)])) })

		c := newConsistent(names)
		run("consistent", "build", func(int) { newConsistent(names) })
		run("consistent", "change", func(int) {
			c.Remove(names[n/2])
			c.Add(host(names[n/2]))
		})
		run("consistent", "pick", func(i int) { sink += len(c.LocateKey([]byte(keys[i%len(keys)])).String()) })

		run("jump", "pick", func(i int) { sink += int(jump.Hash(ringhash.XXH64.Sum(keys[i%len(keys)]), n)) })
	}
}

func newRing(b *testing.B, names []string, size uint64) *ringhash.Ring {
	r, err := ringhash.New(members(names), size, size, ringhash.XXH64)
	if err != nil {
		b.Fatal(err)
	}
	return r
}

func newTable(b *testing.B, names []string) *ringhash.Maglev {
	m, err := ringhash.NewMaglev(members(names), 65537, ringhash.XXH64)
	if err != nil {
		b.Fatal(err)
	}
	return m
}

func newGroupcache(names []string) *consistenthash.Map {
	m := consistenthash.New(replicas, nil)
	m.Add(names...)
	return m
}

// newConsistent returns a ring with bounded loads of partitions, 23 for each host.
func newConsistent(names []string) *consistent.Consistent {
	list := make([]consistent.Member, len(names))
	for i, name := range names {
		list[i] = host(name)
	}
	return consistent.New(list, consistent.Config{Hasher: hasher{}, PartitionCount: 23*len(names) + 1, ReplicationFactor: replicas, Load: 1.25})
}

type host string

func (h host) String() string { return string(h) }

type hasher struct{}

func (hasher) Sum64(key []byte) uint64 { return ringhash.XXH64.Sum(string(key)) }

func members(names []string) []ringhash.Host {
	list := make([]ringhash.Host, len(names))
	for i, n := range names {
		list[i] = ringhash.Host{Key: n, Weight: 1}
	}
	return list
}

func hosts(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("10.0.%d.%d:80", i>>8, i&255)
	}
	return names
}

// keys are more than a branch predictor can learn.
func keys() []string {
	rng := rand.New(rand.NewPCG(1, 2))
	list := make([]string, 1<<12)
	for i := range list {
		list[i] = fmt.Sprintf("user-%015d", rng.Uint64N(1e15))
	}
	return list
}
