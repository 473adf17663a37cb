// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"net/netip"
	"reflect"
	"slices"

	"github.com/xdslb/xdslb/picker"
)

// A revision is the list of a locality's endpoints in the making. As long as it
// is the start of the previous list it takes no memory.
type revision struct {
	prev []picker.Endpoint
	list []picker.Endpoint // nil as long as the revision is prev[:n]
	n    int               // length
	most int               // bound of the final length
	// moved says that the first difference is another address, so that the
	// list may be the previous one in another order.
	moved bool
}

// old returns the endpoint of the previous list that is in the place of the next
// one of the new, or nil.
func (r *revision) old() *picker.Endpoint {
	if r.n < len(r.prev) {
		return &r.prev[r.n]
	}
	return nil
}

func (r *revision) soFar() []picker.Endpoint {
	if r.list == nil {
		return r.prev[:r.n]
	}
	return r.list
}

func (r *revision) add(e picker.Endpoint) {
	if old := r.old(); r.list == nil && (old == nil || *old != e) {
		r.moved = old != nil && old.Addr != e.Addr
		r.list = append(make([]picker.Endpoint, 0, r.most), r.prev[:r.n]...)
	}
	if r.list != nil {
		r.list = append(r.list, e)
	}
	r.n++
}

// done returns the list: the previous one if it has the same endpoints. places
// maps the addresses of the new list to their places in it, if r.moved.
func (r *revision) done(places map[addrKey]int32) []picker.Endpoint {
	switch {
	case r.n == len(r.prev) && (r.list == nil || r.moved && r.permuted(places)):
		return r.prev
	case r.n == 0:
		return nil
	case r.n < r.most-r.most/4 || r.list == nil:
		return slices.Clone(r.soFar())
	}
	return r.list
}

// permuted reports whether each endpoint of the previous list is in the new one,
// which is of the same length. It is O(n), and ends at the first that is not.
func (r *revision) permuted(places map[addrKey]int32) bool {
	for i := range r.prev {
		place, ok := places[keyOf(r.prev[i].Addr)]
		if !ok || int(place) >= r.n || !sameEndpoint(&r.list[place], &r.prev[i]) {
			return false
		}
	}
	return true
}

func moreAddrs(e *picker.Endpoint) []netip.AddrPort {
	if e.Extra == nil {
		return nil
	}
	return e.Extra.Addrs
}

func sameAddrs(a, b *picker.Endpoint) bool {
	return a.Addr == b.Addr && (a.Extra == b.Extra || slices.Equal(moreAddrs(a), moreAddrs(b)))
}

// sameEndpoint reports whether a and b say the same.
func sameEndpoint(a, b *picker.Endpoint) bool {
	x, y := a.Extra, b.Extra
	return a.Weight == b.Weight && a.Health == b.Health && sameAddrs(a, b) && (x == y || x != nil && y != nil &&
		x.Hostname == y.Hostname && x.HashKey == y.HashKey && sameMetadata(x.Metadata, y.Metadata))
}

// sameSlice reports whether a and b are one and the same.
func sameSlice[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// sameMetadata reports whether a and b are one and the same, as those of equal
// encodings are.
func sameMetadata(a, b picker.Metadata) bool {
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
}
