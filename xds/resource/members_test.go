// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
)

// naiveMembers is the oracle of MemberList.
type naiveMembers map[string]Member

func (n naiveMembers) list() (list []picker.Endpoint, unhealthy []picker.Unhealthy) {
	for _, name := range slices.Sorted(maps.Keys(n)) {
		if m := n[name]; m.Usable {
			list = append(list, m.Endpoint)
		} else if m.Unhealthy.Addr.IsValid() {
			unhealthy = append(unhealthy, m.Unhealthy)
		}
	}
	return list, unhealthy
}

// naiveMerge is the oracle of Merger: the first endpoint with an address counts.
func naiveMerge(of *Endpoints, members []naiveMembers) (priorities []picker.Priority, unhealthy []picker.Unhealthy, omitted int) {
	seen := map[netip.AddrPort]bool{}
	left := map[picker.Unhealthy]bool{}
	for _, u := range of.Unhealthy {
		left[u] = true
	}
	for p := range of.Priorities {
		var out picker.Priority
		for i, l := range of.Priorities[p].Localities {
			list := l.Endpoints.Slice()
			for k, c := range of.Collections {
				if c.Priority == p && c.Locality == i {
					var more []picker.Unhealthy
					list, more = members[k].list()
					for _, u := range more {
						left[u] = true
					}
				}
			}
			var kept []picker.Endpoint
			for _, e := range list {
				all := append([]netip.AddrPort{e.Addr}, moreAddrs(&e)...)
				if slices.ContainsFunc(all, func(a netip.AddrPort) bool { return seen[a] }) {
					omitted++
					continue
				}
				for _, a := range all {
					seen[a] = true
				}
				kept = append(kept, e)
			}
			l.Endpoints = picker.ListOf(kept...)
			out.Localities = append(out.Localities, l)
		}
		priorities = append(priorities, out)
	}
	unhealthy = slices.SortedFunc(maps.Keys(left), func(a, b picker.Unhealthy) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Health, b.Health))
	})
	return priorities, unhealthy, omitted
}

// mergeWorld is an assignment with an inline locality and three with collections.
type mergeWorld struct {
	t       *kit.Trial
	of      *Endpoints
	lists   [3]MemberList
	naive   [3]naiveMembers
	members [3]*Members
	merger  Merger
	hosts   int // of few, addresses occur twice
	names   int // of many, a list has several chunks
}

func (w *mergeWorld) endpoint() picker.Endpoint {
	e := picker.Endpoint{Addr: addrPort(w.t.Rand.IntN(w.hosts)), Weight: 1 + w.t.Rand.Uint32N(3)}
	if w.t.Rand.IntN(8) == 0 {
		e.Extra = &picker.EndpointExtra{Addrs: []netip.AddrPort{addrPort(1000 + w.t.Rand.IntN(w.hosts))}}
	}
	return e
}

// member returns a usable member, or one that is left out, perhaps without an address.
func (w *mergeWorld) member() Member {
	e := w.endpoint()
	switch w.t.Rand.IntN(8) {
	case 0:
		return Member{}
	case 1, 2:
		return Member{Unhealthy: picker.Unhealthy{Addr: e.Addr, Health: []string{"TIMEOUT", "UNHEALTHY"}[w.t.Rand.IntN(2)]}}
	}
	return Member{Endpoint: e, Usable: true}
}

func addrPort(i int) netip.AddrPort {
	if name, ok := picker.NameAddr(fmt.Sprintf("h%d.example", i), 80); ok && i%3 == 2 {
		return name
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)
}

// change changes some members of a collection.
func (w *mergeWorld) change(k, n int) {
	t := w.t
	list, naive := &w.lists[k], w.naive[k]
	if w.t.Rand.IntN(30) == 0 {
		list.Clear()
		clear(naive)
	}
	for range n {
		name := fmt.Sprint("m", w.t.Rand.IntN(w.names))
		if w.t.Rand.IntN(3) == 0 {
			list.Remove(name)
			delete(naive, name)
			continue
		}
		m := w.member()
		if err := list.Set(name, m); err != nil {
			t.Fatal(err)
		}
		naive[name] = m
	}
	before := w.members[k]
	if before == nil {
		before = new(Members)
	}
	copied, left := before.Endpoints.Slice(), before.unhealthy.Slice()
	after := list.Commit()
	w.members[k] = after
	if !slices.Equal(copied, before.Endpoints.Slice()) || !slices.Equal(left, before.unhealthy.Slice()) {
		t.Fatal("a version has changed")
	}
	if want, left := naive.list(); !slices.Equal(after.Endpoints.Slice(), want) || !slices.Equal(after.unhealthy.Slice(), left) {
		t.Fatalf("members are\n%v without %v, want\n%v without %v", after.Endpoints, after.unhealthy, want, left)
	}
	sameEndpoints, sameUnhealthy := reflect.DeepEqual(before.Endpoints.Slice(), after.Endpoints.Slice()), persistent.Equal(before.unhealthy, after.unhealthy)
	if before.of != nil && before != after && (sameEndpoints && sameUnhealthy || sameUnhealthy && !before.unhealthy.Same(after.unhealthy)) {
		t.Fatal("another version without a change")
	}
}

// TestMembers compares collections, and their merged assignments, with oracles, in random
// histories; and checks that unchanged parts are shared.
func TestMembers(t *testing.T) {
	(&kit.Model{Steps: 150, Run: func(t *kit.Trial) {
		w := &mergeWorld{t: t, hosts: []int{20, 100, 4000}[t.Seed%3], names: []int{60, 60, 600}[t.Seed%3]}
		inline := picker.Locality{ID: picker.LocalityID{Zone: "i"}, Weight: 1, Endpoints: picker.ListOf(w.endpoint())}
		w.of = &Endpoints{Name: "cla", Priorities: []picker.Priority{
			{Localities: []picker.Locality{{ID: picker.LocalityID{Zone: "a"}, Weight: 1}, inline, {ID: picker.LocalityID{Zone: "b"}, Weight: 2}}},
			{Localities: []picker.Locality{{ID: picker.LocalityID{Zone: "c"}, Weight: 1}}},
		}, Collections: []Collection{{Name: "a"}, {Name: "b", Locality: 2}, {Name: "c", Priority: 1}},
			Unhealthy: []picker.Unhealthy{{Addr: addrPort(3), Health: "UNHEALTHY"}}}
		for k := range w.naive {
			w.naive[k] = naiveMembers{}
		}
		var before *Endpoints
		for range t.Steps() {
			var changed [3]*Members
			copy(changed[:], w.members[:])
			for range t.Rand.IntN(4) {
				w.change(t.Rand.IntN(3), []int{1, 1, 3, 80}[t.Rand.IntN(4)])
			}
			if t.Rand.IntN(20) == 0 {
				again := *w.of
				w.of = &again
			}
			got, omitted := w.merger.Merge(w.of, w.members[:])
			want, unhealthy, wantOmitted := naiveMerge(w.of, w.naive[:])
			if !slices.Equal(got.Unhealthy, unhealthy) {
				t.Fatalf("unhealthy are\n%v, want\n%v", got.Unhealthy, unhealthy)
			}
			if !reflect.DeepEqual(normal(got.Priorities), normal(want)) || omitted != wantOmitted {
				t.Fatalf("merged to\n%v (%d omitted), want\n%v (%d)", got.Priorities, omitted, want, wantOmitted)
			}
			if before != nil {
				w.checkShared(before, got, changed)
			}
			before = got
		}
	}}).Test(t, 60)
}

// normal returns priorities whose lists of endpoints have chunks of the same sizes.
func normal(list []picker.Priority) []picker.Priority {
	list = slices.Clone(list)
	for p := range list {
		list[p].Localities = slices.Clone(list[p].Localities)
		for i := range list[p].Localities {
			l := &list[p].Localities[i]
			l.Endpoints = picker.ListOf(l.Endpoints.Slice()...)
		}
	}
	return list
}

// checkShared checks that equal parts of two versions are the same, if the collection has not
// changed in between.
func (w *mergeWorld) checkShared(before, after *Endpoints, members [3]*Members) {
	t := w.t
	t.Helper()
	if w.members == members && before != after {
		t.Fatal("an equal assignment is not the same")
	}
	for k, c := range w.of.Collections {
		old, list := before.Priorities[c.Priority].Localities[c.Locality].Endpoints, after.Priorities[c.Priority].Localities[c.Locality].Endpoints
		if w.members[k] == members[k] && persistent.Equal(old, list) && !old.Same(list) {
			t.Fatalf("equal endpoints of collection %d are a copy", k)
		}
	}
	if slices.Equal(before.Unhealthy, after.Unhealthy) && !persistent.SameSlice(before.Unhealthy, after.Unhealthy) {
		t.Fatal("equal unhealthy endpoints are a copy")
	}
	old, list := before.Priorities[0].Localities[1].Endpoints, after.Priorities[0].Localities[1].Endpoints
	if persistent.Equal(old, list) && !old.Same(list) {
		t.Fatal("equal endpoints beside collections are a copy")
	}
}

// TestMembersWeight checks that the weights of a collection are limited like those of a
// locality.
func TestMembersWeight(t *testing.T) {
	var l MemberList
	e := func(i int, weight uint32) Member {
		return Member{Endpoint: picker.Endpoint{Addr: addrPort(i), Weight: weight}, Usable: true}
	}
	for i, tt := range []struct {
		name   string
		weight uint32
		ok     bool
	}{{"a", math.MaxUint32 - 5, true}, {"b", 5, true}, {"c", 1, false}, {"b", 6, false}, {"b", 4, true}, {"c", 1, true}} {
		if err := l.Set(tt.name, e(i, tt.weight)); (err == nil) != tt.ok {
			t.Errorf("step %d: weight %d of %s: %v", i, tt.weight, tt.name, err)
		} else if err != nil && !strings.Contains(err.Error(), "load_balancing_weight: must be at most") {
			t.Errorf("step %d: %v", i, err)
		}
	}
	if err := l.Set("a", Member{}); err != nil { // unhealthy, so its weight is free
		t.Error(err)
	}
	if err := l.Set("d", e(9, math.MaxUint32-5)); err != nil {
		t.Error(err)
	}
	l.Clear()
	if err := l.Set("e", e(10, math.MaxUint32)); err != nil || l.Commit().Endpoints.Len() != 1 {
		t.Error(err)
	}
}

func TestGlobOf(t *testing.T) {
	const at = "xdstp://a/envoy.config.endpoint.v3.LbEndpoint/"
	for member, want := range map[string]string{
		at + "c/m": at + "c/*", at + "c/d/m": at + "c/d/*", at + "m": at + "*", at + "c/m?x=y": at + "c/*?x=y",
		at + "c/*": "", at + "c/": "", "m": "", "a/m": "", "xdstp://a/envoy.config.cluster.v3.Cluster/c/m": "",
		"xdstp:envoy.config.endpoint.v3.LbEndpoint/m": "xdstp:envoy.config.endpoint.v3.LbEndpoint/*",
	} {
		if got := GlobOf(member); got != want {
			t.Errorf("GlobOf(%q) = %q, want %q", member, got, want)
		}
	}
}

// TestMemberDecoder: members are read by the rules of endpoints.
func TestMemberDecoder(t *testing.T) {
	var d MemberDecoder
	const labels = `"metadata": {"filterMetadata": {"envoy.lb": {"hash_key": "k"}}}`
	decode := func(text string) (Member, error) {
		return d.Decode("n", fromJSON(t, LbEndpointType, text))
	}
	const at = `"endpoint": {"address": {"socketAddress": {"address": "10.0.0.1", "portValue": 80}}`
	a, err := decode("{" + at + "}, " + labels + "}")
	b, errB := decode("{" + at + `}, "healthStatus": "DRAINING", "loadBalancingWeight": 7, ` + labels + "}")
	if err != nil || errB != nil || a.Endpoint.Extra != b.Endpoint.Extra || !a.Usable {
		t.Errorf("%+v, %v and %+v, %v: equal metadata are not shared", a, err, b, errB)
	}
	if want := (picker.Endpoint{Addr: netip.MustParseAddrPort("10.0.0.1:80"), Weight: 7, Health: picker.Draining, Extra: a.Endpoint.Extra}); b.Endpoint != want {
		t.Errorf("%+v, want %+v", b.Endpoint, want)
	}
	if m, err := decode(`{"healthStatus": "UNHEALTHY", "loadBalancingWeight": 0}`); m != (Member{}) || err != nil {
		t.Errorf("an unhealthy member: %+v, %v", m, err)
	}
	m, err := decode("{" + at + `}, "healthStatus": "TIMEOUT", "loadBalancingWeight": 0}`)
	if want := (Member{Unhealthy: picker.Unhealthy{Addr: a.Endpoint.Addr, Health: "TIMEOUT"}}); m != want || err != nil {
		t.Errorf("%+v, %v, want %+v", m, err, want)
	}
	for text, want := range map[string]string{
		"{}": `LbEndpoint "n": endpoint: must be set`,
		"{" + at + `}, "loadBalancingWeight": 0}`: `LbEndpoint "n": load_balancing_weight: must be at least 1 (it is 0)`,
		"{" + at + `, "additionalAddresses": [{"address": {"socketAddress": {"address": "10.0.0.1", "portValue": 80}}}]}}`: `LbEndpoint "n": endpoint: must not contain an address twice`,
	} {
		if _, err := decode(text); err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
	name := strings.Replace("{"+at+"}}", "10.0.0.1", "a.example", 1)
	if _, err := decode(name); err == nil || !strings.Contains(err.Error(), "unless Config.Resources.AcceptHostnames is set") {
		t.Error(err)
	}
	d.AcceptHostnames = true
	if m, err := decode(name); err != nil || picker.AddrText(m.Endpoint.Addr) != "a.example:80" {
		t.Errorf("%s: %v, %v", name, m, err)
	}
	if _, err := d.Decode("n", []byte{1}); err == nil || !strings.Contains(err.Error(), "malformed") {
		t.Error(err)
	}
}
