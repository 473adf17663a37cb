// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
)

// TestIncrementalDecoding follows histories of random changes of a resource with several chunks of
// endpoints, valid and invalid. Each version is decoded with the previous one and without: the
// results are equal, apart from the order in which the endpoints of the previous one are kept, and
// so are the texts of errors.
func TestIncrementalDecoding(t *testing.T) {
	runs := 40
	if testing.Short() {
		runs = 8
	}
	var total, kept, invalid int
	for run := range runs {
		a, b, c := decodeHistory(t, rand.New(rand.NewPCG(uint64(run), 7)), run, 40)
		total, kept, invalid = total+a, kept+b, invalid+c
	}
	t.Logf("%d of %d endpoints shared, %d invalid versions", kept, total, invalid)
	if kept < total/4 || kept > total*9/10 || invalid < runs*3 {
		t.Errorf("%d of %d endpoints shared, %d invalid versions of %d: the changes are too rare or too frequent", kept, total, invalid, 40*runs)
	}
}

// decodeHistory follows a history of random changes. It returns how many endpoints there were, how
// many were shared with the previous version, and how many versions were invalid.
func decodeHistory(t *testing.T, rnd *rand.Rand, run, steps int) (total, kept, invalid int) {
	t.Helper()
	e := &assignmentEdits{rnd: rnd, m: assignment(10+rnd.IntN(pick(rnd, 90, 900)), nil), next: 50_000}
	for _, l := range e.m.Endpoints {
		for i, ep := range l.LbEndpoints {
			if run%2 == 1 {
				workload(i*(1+run%3*99), ep)
			}
			if run%5 == 1 && rnd.IntN(20) == 0 {
				ep.HealthStatus = corev3.HealthStatus_UNHEALTHY
			}
		}
	}
	var prev *Endpoints
	for step := range steps {
		valid := proto.CloneOf(e.m)
		for range rnd.IntN(4) {
			e.edit()
		}
		opt := Options{AcceptHostnames: rnd.IntN(8) == 0}
		b := encode(t, e.m)
		switch rnd.IntN(12) {
		case 0:
			b = mutate(rnd, b)
		case 1: // which is not read
			b = protowire.AppendString(protowire.AppendTag(b, 1000, protowire.BytesType), "x")
		}
		what := fmt.Sprintf("run %d, step %d", run, step)
		want, wantErr := decodeEndpoints(b, opt, stopper{})
		opt.Previous = prev
		got, err := decodeEndpoints(b, opt, stopper{})
		if fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Fatalf("%s: error %v with the previous version, want %v", what, err, wantErr)
		}
		if err != nil {
			invalid++
			e.m = valid
			continue
		}
		checkIncremental(t, what, prev, got, want)
		for _, list := range listsOf(got) {
			total += list.Len()
		}
		kept += sharedEndpoints(prev, got)
		prev = got
	}
	return total, kept, invalid
}

// checkIncremental compares the result of decoding with the previous version and without.
func checkIncremental(t *testing.T, what string, prev, got, want *Endpoints) {
	t.Helper()
	if !reflect.DeepEqual(sorted(got), sorted(want)) {
		t.Fatalf("%s: with the previous version\n%v\nwithout\n%v", what, sorted(got), sorted(want))
	}
	if got == prev {
		return // its metadata may have other encodings
	}
	lists := map[localityKey]picker.EndpointList{}
	if prev != nil {
		lists = listsOf(prev)
	}
	all := listsOf(want)
	for key, list := range listsOf(got) {
		if !list.Same(lists[key]) && !reflect.DeepEqual(list.Slice(), all[key].Slice()) {
			t.Fatalf("%s: %v: the endpoints are neither in the order received nor in the previous one", what, key)
		}
	}
	if a, b := slices.Sorted(maps.Keys(got.metadata)), slices.Sorted(maps.Keys(want.metadata)); !slices.Equal(a, b) {
		t.Fatalf("%s: it keeps %d different metadata, want %d:\n%q\n%q", what, len(a), len(b), a, b)
	}
	for key, chunks := range got.wire {
		list := listsOf(got)[key]
		n, weight := 0, uint64(0)
		var b persistent.Builder[picker.Endpoint]
		b.Follow(list, 0)
		for i, c := range chunks {
			if !b.Share(n, n+c.n) && i < len(chunks)-1 { // small ones at the end are not shared
				t.Fatalf("%s: %v: the list has no chunk of %d endpoints at %d", what, key, c.n, n)
			}
			n += c.n
			weight += c.weight
			for _, m := range c.metadata {
				if got.metadata[m.key] != m {
					t.Fatalf("%s: %v: metadata of a chunk are not among those of the version", what, key)
				}
			}
		}
		for _, e := range list.All() {
			weight -= uint64(e.Weight)
		}
		if n != list.Len() || weight != 0 {
			t.Fatalf("%s: %v: the chunks have %d endpoints of %d, and %d more weight", what, key, n, list.Len(), weight)
		}
	}
}

func listsOf(e *Endpoints) map[localityKey]picker.EndpointList {
	lists := map[localityKey]picker.EndpointList{}
	for p := range e.Priorities {
		for _, l := range e.Priorities[p].Localities {
			lists[localityKey{uint32(p), l.ID}] = l.Endpoints
		}
	}
	return lists
}

// sharedEndpoints returns how many endpoints are in chunks of both versions.
func sharedEndpoints(prev, next *Endpoints) (n int) {
	if prev == nil {
		return 0
	}
	known := map[*picker.Endpoint]bool{}
	for _, list := range listsOf(prev) {
		for _, e := range list.All() {
			known[e] = true
		}
	}
	for _, list := range listsOf(next) {
		for _, e := range list.All() {
			if known[e] {
				n++
			}
		}
	}
	return n
}

// assignmentEdits changes a message at random.
type assignmentEdits struct {
	rnd  *rand.Rand
	m    *endpointv3.ClusterLoadAssignment
	next int // number of the next new endpoint
}

// list returns a locality's endpoints, wherever they are.
func listOf(l *endpointv3.LocalityLbEndpoints) *[]*endpointv3.LbEndpoint {
	if listed := l.GetLoadBalancerEndpoints(); listed != nil {
		return &listed.LbEndpoints
	}
	return &l.LbEndpoints
}

func (e *assignmentEdits) edit() {
	rnd := e.rnd
	loc := e.m.Endpoints[rnd.IntN(len(e.m.Endpoints))]
	list := listOf(loc)
	if len(*list) == 0 {
		*list = append(*list, e.fresh())
	}
	i := rnd.IntN(len(*list))
	at := (*list)[i]
	switch rnd.IntN(22) {
	case 0, 1, 2:
		at.LoadBalancingWeight = wrapperspb.UInt32(1 + rnd.Uint32N(1000))
	case 3, 4:
		for range 1 + rnd.IntN(4)*rnd.IntN(50) {
			*list = slices.Insert(*list, i, e.fresh())
		}
	case 5, 6:
		*list = slices.Delete(*list, i, min(len(*list), i+1+rnd.IntN(4)*rnd.IntN(50)))
	case 7:
		j := rnd.IntN(len(*list))
		(*list)[i], (*list)[j] = (*list)[j], (*list)[i]
	case 8:
		if rnd.IntN(3) == 0 {
			rnd.Shuffle(len(*list), func(i, j int) { (*list)[i], (*list)[j] = (*list)[j], (*list)[i] })
		}
	case 9: // to another place, perhaps in another locality
		*list = slices.Delete(*list, i, i+1)
		other := listOf(e.m.Endpoints[rnd.IntN(len(e.m.Endpoints))])
		*other = slices.Insert(*other, rnd.IntN(len(*other)+1), at)
	case 10: // an address twice, which is invalid unless it is in a locality without weight
		other := listOf(e.m.Endpoints[rnd.IntN(len(e.m.Endpoints))])
		*other = slices.Insert(*other, rnd.IntN(len(*other)+1), proto.CloneOf(at))
	case 11:
		at.HealthStatus = corev3.HealthStatus(rnd.IntN(6))
	case 12:
		workload(rnd.IntN(10_000), at)
	case 13:
		at.Metadata = nil
	case 14:
		at.GetEndpoint().Hostname = pick(rnd, "", "h1", "h2")
	case 15:
		e.next++
		at.GetEndpoint().AdditionalAddresses = []*endpointv3.Endpoint_AdditionalAddress{{Address: e.fresh().GetEndpoint().Address}}
	case 16: // an additional address that is in use
		other := *listOf(e.m.Endpoints[rnd.IntN(len(e.m.Endpoints))])
		if len(other) > 0 && rnd.IntN(4) == 0 {
			at.GetEndpoint().AdditionalAddresses = []*endpointv3.Endpoint_AdditionalAddress{{Address: proto.CloneOf(other[rnd.IntN(len(other))].GetEndpoint().Address)}}
		}
	case 17: // the other list
		loc.LbConfig, loc.LbEndpoints = nil, slices.Clone(*list)
		if rnd.IntN(2) == 0 {
			loc.LbConfig = &endpointv3.LocalityLbEndpoints_LoadBalancerEndpoints{
				LoadBalancerEndpoints: &endpointv3.LocalityLbEndpoints_LbEndpointList{LbEndpoints: loc.LbEndpoints},
			}
			loc.LbEndpoints = nil
		}
	case 18: // localities
		rnd.Shuffle(len(e.m.Endpoints), func(i, j int) { e.m.Endpoints[i], e.m.Endpoints[j] = e.m.Endpoints[j], e.m.Endpoints[i] })
		loc.Priority = uint32(rnd.IntN(8) / 7)
	case 19:
		loc.LoadBalancingWeight = wrapperspb.UInt32(rnd.Uint32N(4))
	case 20: // a field that is not read
		at.GetEndpoint().HealthCheckConfig = &endpointv3.Endpoint_HealthCheckConfig{PortValue: rnd.Uint32N(9)}
	default:
		e.invalidate(at)
	}
}

func (e *assignmentEdits) fresh() *endpointv3.LbEndpoint {
	e.next++
	return lbEndpoint(e.next, 1+e.rnd.Uint32N(9))
}

// invalidate breaks a rule, or nearly the one about the sum of weights.
func (e *assignmentEdits) invalidate(at *endpointv3.LbEndpoint) {
	switch e.rnd.IntN(5) {
	case 0:
		at.LoadBalancingWeight = wrapperspb.UInt32(0)
	case 1:
		at.LoadBalancingWeight = wrapperspb.UInt32(math.MaxUint32 - e.rnd.Uint32N(30_000))
	case 2:
		at.GetEndpoint().Address = socketAddress("example.com", 1)
	case 3:
		at.HostIdentifier = nil
	default:
		e.m.Endpoints[0].LoadBalancingWeight = wrapperspb.UInt32(math.MaxUint32)
	}
}

// TestIncrementalDecodingShares checks how many endpoints a version shares with the previous one after
// changes that are frequent in practice, so that they need not be compared again.
func TestIncrementalDecodingShares(t *testing.T) {
	const n, chunk = 3000, 85
	for name, tt := range map[string]struct {
		change func(list []*endpointv3.LbEndpoint) []*endpointv3.LbEndpoint
		differ int // at most
	}{
		"a weight": {func(list []*endpointv3.LbEndpoint) []*endpointv3.LbEndpoint {
			list[500].LoadBalancingWeight.Value++
			return list
		}, chunk},
		"the first weight": {func(list []*endpointv3.LbEndpoint) []*endpointv3.LbEndpoint {
			list[0].LoadBalancingWeight.Value++
			return list
		}, chunk},
		"an endpoint removed": {func(list []*endpointv3.LbEndpoint) []*endpointv3.LbEndpoint {
			return slices.Delete(list, 500, 501)
		}, chunk},
		"an endpoint inserted": {func(list []*endpointv3.LbEndpoint) []*endpointv3.LbEndpoint {
			return slices.Insert(list, 500, lbEndpoint(70_000, 1))
		}, chunk + 1},
		"an endpoint replaced by another at the end": {func(list []*endpointv3.LbEndpoint) []*endpointv3.LbEndpoint {
			return append(slices.Delete(list, 100, 101), lbEndpoint(70_000, 1))
		}, 2 * chunk},
		"an unhealthy endpoint inserted": {func(list []*endpointv3.LbEndpoint) []*endpointv3.LbEndpoint {
			e := lbEndpoint(70_000, 1)
			e.HealthStatus = corev3.HealthStatus_UNHEALTHY
			return slices.Insert(list, 500, e)
		}, 0},
	} {
		m := assignment(n, workload)
		prev, err := decodeEndpoints(encode(t, m), Options{}, stopper{})
		kit.Must(t, err)
		m.Endpoints[1].LbEndpoints = tt.change(m.Endpoints[1].LbEndpoints)
		next, err := decodeEndpoints(encode(t, m), Options{Previous: prev}, stopper{})
		kit.Must(t, err)
		if got := n - sharedEndpoints(prev, next); got > tt.differ+1 {
			t.Errorf("%s: %d endpoints are not shared, want at most %d", name, got, tt.differ)
		}
	}
}

// TestChunksAreSkipped checks that chunks are recognized by the hash of their bytes, and not decoded: with
// the hash of other bytes, the endpoints are still the previous ones.
func TestChunksAreSkipped(t *testing.T) {
	const n = 3000
	m := assignment(n, nil)
	prev, err := decodeEndpoints(encode(t, m), Options{}, stopper{})
	kit.Must(t, err)
	for _, l := range m.Endpoints {
		for _, e := range l.LbEndpoints {
			e.LoadBalancingWeight.Value += 100 // except for the first endpoint of a chunk, which is decoded
		}
		for i := 0; i < len(l.LbEndpoints); i += 85 {
			l.LbEndpoints[i].LoadBalancingWeight.Value -= 100
		}
	}
	b := encode(t, m)
	other, err := decodeEndpoints(b, Options{}, stopper{})
	kit.Must(t, err)
	forged := *prev
	forged.wire = other.wire
	if next, err := decodeEndpoints(b, Options{Previous: &forged}, stopper{}); err != nil || next != &forged {
		t.Errorf("%d endpoints are shared, want all of %d (%v)", sharedEndpoints(prev, next), n, err)
	}
}

// TestIncrementalHostnames checks that a name in an unchanged chunk is refused without AcceptHostnames.
func TestIncrementalHostnames(t *testing.T) {
	m := assignment(300, nil)
	m.Endpoints[1].LbEndpoints[50].GetEndpoint().Address = socketAddress("example.com", 1)
	b := encode(t, m)
	prev, err := decodeEndpoints(b, Options{AcceptHostnames: true}, stopper{})
	kit.Must(t, err)
	if _, err := decodeEndpoints(b, Options{Previous: prev}, stopper{}); err == nil {
		t.Error("a DNS name was accepted because the previous version had it")
	}
}

// TestIncrementalRules has histories in which a skipped chunk matters for the rest of the resource.
func TestIncrementalRules(t *testing.T) {
	type message = endpointv3.ClusterLoadAssignment
	for name, steps := range map[string][]func(m *message){
		"the sum of weights": {
			func(m *message) { m.Endpoints[1].LbEndpoints[3].LoadBalancingWeight.Value = math.MaxUint32 - 50_000 },
			func(m *message) { m.Endpoints[1].LbEndpoints[200].LoadBalancingWeight.Value = 50_001 },
		},
		"an address of another locality, and all others are new": {
			func(m *message) { m.Endpoints = m.Endpoints[:1] },
			func(m *message) {
				m.Endpoints = append(m.Endpoints, assignment(3, nil).Endpoints[1:]...)
				m.Endpoints[1].LbEndpoints = []*endpointv3.LbEndpoint{lbEndpoint(7, 1)}
			},
		},
		"endpoints of two chunks swapped, and one of them removed": {
			func(m *message) {
				list := m.Endpoints[1].LbEndpoints
				list[3], list[120] = list[120], list[3]
				m.Endpoints[0].LbEndpoints[0].LoadBalancingWeight.Value++
			},
			func(m *message) { m.Endpoints[1].LbEndpoints = slices.Delete(m.Endpoints[1].LbEndpoints, 120, 121) },
		},
		"a short list": {
			func(m *message) { m.Endpoints[1].LbEndpoints = m.Endpoints[1].LbEndpoints[75:] },
			func(m *message) {
				m.Endpoints[1].LbEndpoints = append(m.Endpoints[1].LbEndpoints[:10:10], lbEndpoint(60_000, 1), lbEndpoint(60_001, 1))
			},
			func(m *message) { m.Endpoints[1].LbEndpoints = m.Endpoints[1].LbEndpoints[1:] },
		},
	} {
		m := assignment(900, nil)
		var prev *Endpoints
		for i, step := range append([]func(*message){func(*message) {}}, steps...) {
			step(m)
			b := encode(t, m)
			want, wantErr := decodeEndpoints(b, Options{}, stopper{})
			got, err := decodeEndpoints(b, Options{Previous: prev}, stopper{})
			if what := fmt.Sprintf("%s, version %d", name, i); fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Fatalf("%s: error %v with the previous version, want %v", what, err, wantErr)
			} else if err == nil {
				checkIncremental(t, what, prev, got, want)
				prev = got
			}
		}
	}
}
