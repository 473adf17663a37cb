// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package ringhash_test

import (
	"fmt"

	"github.com/xdslb/xdslb/ringhash"
)

var hosts = []ringhash.Host{
	{Key: "10.0.0.1:8080", Weight: 1},
	{Key: "10.0.0.2:8080", Weight: 1},
	{Key: "10.0.0.3:8080", Weight: 2},
}

func Example() {
	ring, err := ringhash.New(hosts, 1024, 4096, ringhash.XXH64)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, user := range []string{"alice", "bob", "carol"} {
		host := ring.Pick(ringhash.XXH64.Sum(user))
		fmt.Println(user, hosts[host].Key)
	}
	// Output:
	// alice 10.0.0.3:8080
	// bob 10.0.0.3:8080
	// carol 10.0.0.2:8080
}

// A view skips failed hosts and moves no other request. If all of them have failed it reports
// that, and the host whose error applies.
func ExampleRing_Restrict() {
	ring, err := ringhash.New(hosts, 1024, 4096, ringhash.XXH64)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, usable := range [][]bool{{true, true, true}, {true, true, false}, {false, false, false}} {
		view := ring.Restrict(usable)
		alice, ok := view.Pick(ringhash.XXH64.Sum("alice"))
		carol, _ := view.Pick(ringhash.XXH64.Sum("carol"))
		fmt.Println(alice, carol, ok)
	}
	// Output:
	// 2 1 true
	// 1 1 true
	// 2 1 false
}

// An update returns the ring that New would, at a lower cost: hosts keep their requests under
// their new indexes.
func ExampleRing_Update() {
	ring, err := ringhash.New(hosts, 1024, 4096, ringhash.XXH64)
	if err != nil {
		fmt.Println(err)
		return
	}
	alice := ringhash.XXH64.Sum("alice")
	fmt.Println("host", ring.Pick(alice), "of", len(hosts))

	fewer := hosts[1:]
	ring, err = ring.Update(fewer)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("host", ring.Pick(alice), "of", len(fewer))
	// Output:
	// host 2 of 3
	// host 1 of 2
}

// Bounded loads: no host takes more than 1.25 times the mean, as with Envoy's
// hash_balance_factor of 125.
func ExampleProbe() {
	const requests = 12
	table, err := ringhash.NewMaglev(hosts[:2], 65537, ringhash.XXH3)
	if err != nil {
		fmt.Println(err)
		return
	}
	active := make([]int, 2)
	bound := requests * 125 / 100 / len(active)
	hot := ringhash.XXH3.Sum("one key that all requests have")
	for range requests {
		for k := range 8 {
			host := table.Pick(ringhash.Probe(hot, k))
			if active[host] < bound {
				active[host]++
				break
			}
		}
	}
	fmt.Println(active)
	// Output: [7 5]
}
