// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package ringhash

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Host is one host of a [Ring] or [Maglev]. Hosts are identified by their index in the list
// passed by the caller.
type Host struct {
	// Key determines the position of the host: the endpoint's hash_key (gRFC A76), or
	// its first address as "ip:port" if it has no hash_key (T-RING-2). Hosts with the same key
	// have the same points; see the package documentation.
	Key string

	// Weight is the host's share relative to the sum of all weights, which must
	// not exceed 2^32-1. A host of weight zero is never picked.
	Weight uint32
}

// member is a host of positive weight.
type member struct {
	key    string
	host   uint32 // index in the caller's list
	weight uint32
	count  uint32 // entries in the ring
}

// rank returns the hosts of positive weight in the order in which they are placed, and the sum
// of their weights. O(n log n).
//
// The order is that of the keys, as in grpc-go, and not the caller's, as in Envoy: it decides
// which host gets the odd entry when shares are not whole numbers (T-RING-4), and the same set
// of hosts must give the same ring in any order in which a control plane sends it. Ties are
// broken by weight so that this holds for hosts with the same key, too.
func rank(hosts []Host) (members []member, sum uint64, err error) {
	if len(hosts) == 0 {
		return nil, 0, errors.New("ringhash: no hosts")
	}
	order := make([]sortKey, 0, len(hosts))
	skip := commonPrefix(hosts)
	for i, h := range hosts {
		if h.Weight != 0 {
			sum += uint64(h.Weight)
			order = append(order, sortKey{head(h.Key[skip:]), uint32(i)})
		}
	}
	if sum == 0 {
		return nil, 0, fmt.Errorf("ringhash: all %d hosts have weight 0", len(hosts))
	}
	if sum > math.MaxUint32 {
		return nil, 0, fmt.Errorf("ringhash: sum of host weights %d exceeds %d", sum, uint32(math.MaxUint32))
	}
	slices.SortFunc(order, func(a, b sortKey) int {
		if a.head != b.head {
			return cmp.Compare(a.head, b.head)
		}
		x, y := &hosts[a.host], &hosts[b.host]
		return cmp.Or(strings.Compare(x.Key, y.Key), cmp.Compare(y.Weight, x.Weight), cmp.Compare(a.host, b.host))
	})
	members = make([]member, len(order))
	for i, a := range order {
		members[i] = member{key: hosts[a.host].Key, host: a.host, weight: hosts[a.host].Weight}
	}
	return members, sum, nil
}

// sortKey represents a host while sorting. Host keys of a cluster tend to have a common prefix,
// so the eight bytes after it are mostly enough to compare, and swaps move no pointers.
type sortKey struct {
	head uint64
	host uint32
}

// head returns the first eight bytes of s in the order of strings. Missing bytes are zeros:
// strings with different heads compare like their heads.
func head(s string) uint64 {
	var b [8]byte
	copy(b[:], s)
	return binary.BigEndian.Uint64(b[:])
}

// commonPrefix returns the length of the longest common prefix of the host keys.
func commonPrefix(hosts []Host) int {
	prefix := hosts[0].Key
	for _, h := range hosts[1:] {
		n := 0
		for n < min(len(prefix), len(h.Key)) && prefix[n] == h.Key[n] {
			n++
		}
		prefix = prefix[:n]
	}
	return len(prefix)
}

// apportion sets the counts of members and returns their sum. O(n); does not allocate.
//
// The scale is chosen such that the lightest host gets a whole number of entries and the ring
// has at least minSize, unless that would exceed maxSize. Hosts then take entries while the
// running sum of entries is below the running sum of shares, so that rounding errors do not
// accumulate (T-RING-1, gRFC A42). All computations are in float64 and in this order because
// other implementations do so: their rounding is part of the placement. It can even take the
// ring one entry beyond maxSize, as with 1000 equal hosts and a maximum of 8388608.
func apportion(members []member, sum, minSize, maxSize uint64) int {
	minShare := 1.0
	for _, m := range members {
		minShare = min(minShare, float64(m.weight)/float64(sum))
	}
	scale := min(math.Ceil(minShare*float64(minSize))/minShare, float64(maxSize))

	var current, target float64
	for i := range members {
		share := float64(members[i].weight) / float64(sum)
		// The conversion prevents the compiler from fusing the product and the sum into one
		// rounding, which it does on arm64 and which moves entries.
		target += float64(scale * share)
		// The result of incrementing current one entry at a time while it is below target.
		next := math.Ceil(target)
		members[i].count = uint32(next - current)
		current = next
	}
	return int(current)
}
