// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	typedstructv3 "github.com/cncf/xds/go/xds/type/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	clusterprovidedv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/cluster_provided/v3"
	leastrequestv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	randomv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random/v3"
	subsettingv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random_subsetting/v3"
	ringhashv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	wrrlocalityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
)

// nest returns a list of the given number of levels, the innermost of which holds
// leaf. wrap makes the message that holds a list.
func nest(t *testing.T, levels int, leaf proto.Message, wrap func(*clusterv3.LoadBalancingPolicy) proto.Message) *clusterv3.LoadBalancingPolicy {
	t.Helper()
	list := listOf(t, leaf)
	for range levels - 1 {
		list = listOf(t, wrap(list))
	}
	return list
}

// TestLevels is A52-REG-7: 16 levels are valid and 17 are not, for all types. Converters of the
// program count like the built-in ones.
func TestLevels(t *testing.T) {
	passOn := func(config []byte, nested Nested) (picker.Policy, error) {
		list := new(clusterv3.LoadBalancingPolicy)
		if err := proto.Unmarshal(config, list); err != nil {
			return picker.Policy{}, err
		}
		return nested(list)
	}
	own := new(Registry).With("envoy.config.cluster.v3.LoadBalancingPolicy", passOn)
	turn := 0
	for _, test := range []struct {
		name string
		wrap func(*clusterv3.LoadBalancingPolicy) proto.Message
	}{
		{"wrr_locality", weighted},
		{"random_subsetting", func(l *clusterv3.LoadBalancingPolicy) proto.Message { return subset(3, l) }},
		{"own", func(l *clusterv3.LoadBalancingPolicy) proto.Message { return l }},
		{"mixed", func(l *clusterv3.LoadBalancingPolicy) proto.Message {
			if turn++; turn%2 == 0 {
				return l
			}
			return weighted(l)
		}},
	} {
		if _, err := own.Convert(nest(t, 16, robin, test.wrap)); err != nil {
			t.Errorf("%s: 16 levels: %v", test.name, err)
		}
		for _, leaf := range []proto.Message{robin, unsupported} {
			_, err := own.Convert(nest(t, 17, leaf, test.wrap))
			if err == nil || !strings.HasSuffix(err.Error(), "policies: exceeds max depth supported: 16 levels") {
				t.Errorf("%s: 17 levels: got error %v", test.name, err)
			}
		}
	}
}

// TestFieldsOfPolicies: all policies of a list, whether nested or next to each other, may have at most
// maxFields fields together. Messages of unknown types are not read and do not count.
func TestFieldsOfPolicies(t *testing.T) {
	// with adds n unsupported policies, of at least one field each, to a list.
	with := func(n int, list *clusterv3.LoadBalancingPolicy) *clusterv3.LoadBalancingPolicy {
		list.Policies = slices.Concat(list.Policies, slices.Repeat([]*clusterv3.LoadBalancingPolicy_Policy{{}}, n))
		return list
	}
	many := &structpb.ListValue{Values: slices.Repeat([]*structpb.Value{{}}, maxFields)}
	js := func(n int) proto.Message {
		return &typedstructv3.TypedStruct{TypeUrl: "round_robin", Value: &structpb.Struct{Fields: map[string]*structpb.Value{
			"x": structpb.NewListValue(&structpb.ListValue{Values: slices.Repeat([]*structpb.Value{structpb.NewNullValue()}, n)}),
		}}}
	}
	unknown := js(maxFields / 8) // two fields for each element
	unknown.(*typedstructv3.TypedStruct).TypeUrl = "unknown"
	for _, tt := range []struct {
		name    string
		list    *clusterv3.LoadBalancingPolicy
		refused bool
	}{
		{"children", listOf(t, weighted(with(maxFields-100, listOf(t, robin)))), false},
		{"too many children", listOf(t, weighted(with(maxFields, listOf(t, robin)))), true},
		{"ten levels", nest(t, 10, robin, func(l *clusterv3.LoadBalancingPolicy) proto.Message { return weighted(with(maxFields/11, l)) }), false},
		{"twelve levels", nest(t, 12, robin, func(l *clusterv3.LoadBalancingPolicy) proto.Message { return weighted(with(maxFields/11, l)) }), true},
		{"unsupported", listOf(t, many, robin), false},
		{"JSON", listOf(t, js(maxFields/3)), false},
		{"large JSON", listOf(t, js(maxFields)), true},
		{"JSON of unknown policies", listOf(t, unknown, unknown, robin), false},
		{"JSON of many unknown policies", listOf(t, unknown, unknown, unknown, unknown, robin), true},
	} {
		_, err := new(Registry).Convert(tt.list)
		if refused := err != nil && strings.Contains(err.Error(), "the LB policies have more than 262144 fields in all"); refused != tt.refused || err != nil && !refused {
			t.Errorf("%s: got error %.500v, refused for fields: want %t", tt.name, err, tt.refused)
		}
	}
}

// TestTypeURL is A52-REG-6: all before the last slash of the URL is ignored.
func TestTypeURL(t *testing.T) {
	const name = "envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin"
	for url, want := range map[string]bool{
		"type.googleapis.com/" + name: true,
		"a/b/" + name:                 true,
		"/" + name:                    true,
		name:                          true,
		name + "/":                    false,
		"":                            false,
		"type.googleapis.com/" + strings.ToLower(name): false,
	} {
		list := &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{
			nil, entryOf(nil), entryOf(&anypb.Any{TypeUrl: url}),
		}}
		if _, err := new(Registry).Convert(list); (err == nil) != want {
			t.Errorf("%q: got error %v, want supported: %t", url, err, want)
		}
	}
}

// TestMalformed is A52-REG-4 for values that are not of their type, with nothing of
// package proto's unstable texts in the error.
func TestMalformed(t *testing.T) {
	names := []string{"xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct"}
	for name := range builtins {
		names = append(names, name)
	}
	for _, name := range names {
		list := &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{
			entryOf(&anypb.Any{TypeUrl: "t/" + name, Value: []byte{0xff}}),
		}}
		list.Policies = append(list.Policies, listOf(t, robin).Policies...)
		_, err := new(Registry).Convert(list)
		if err == nil || !strings.Contains(err.Error(), ": value is not a valid ") || strings.Contains(err.Error(), "proto:") {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}

func TestConvertNil(t *testing.T) {
	if _, err := new(Registry).Convert(nil); err == nil {
		t.Error("no error for no list (A52-REG-5)")
	}
	if p, err := (*Registry)(nil).OfCluster(nil); err != nil || !reflect.DeepEqual(p, picker.Policy{}) {
		t.Errorf("no cluster: got %+v, %v, want the default policy", p, err)
	}
}

// TestNotJSON checks that a TypedStruct whose value JSON does not have is invalid.
func TestNotJSON(t *testing.T) {
	value := &structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewNumberValue(math.NaN())}}
	list := listOf(t, &typedstructv3.TypedStruct{TypeUrl: "myorg.NoParser", Value: value}, robin)
	if p, err := new(Registry).Convert(list); err == nil {
		t.Errorf("NaN as configuration: got %s, want an error", describeCustom(p))
	}
}

// TestWith checks the changes of types by a program: add, replace, remove, without modifying
// the original registry.
func TestWith(t *testing.T) {
	const clusterProvided = "type.googleapis.com/envoy.extensions.load_balancing_policies.cluster_provided.v3.ClusterProvided"
	const robinType = "envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin"
	as := func(p picker.Policy, err error) Converter {
		return func([]byte, Nested) (picker.Policy, error) { return p, err }
	}
	first := picker.Policy{Kind: picker.PolicyPickFirst, Flat: true, First: new(picker.PickFirst)}
	base := new(Registry)
	added := base.With(clusterProvided, as(first, nil))
	both := listOf(t, unsupported, robin)
	for _, test := range []struct {
		name string
		r    *Registry
		list *clusterv3.LoadBalancingPolicy
		want string
	}{
		{"base", base, both, "EDF Flat=true"},
		{"added", added, both, "PickFirst Flat=true First={Shuffle:false}"},
		{"wrapped", added, listOf(t, weighted(both)), "PickFirst First={Shuffle:false}"},
		{"to nil", (*Registry)(nil).With(clusterProvided, as(first, nil)), both, "PickFirst Flat=true First={Shuffle:false}"},
		{"removed again", added.With(clusterProvided, nil), both, "EDF Flat=true"},
		{"built-in replaced", base.With(robinType, as(first, nil)), both, "PickFirst Flat=true First={Shuffle:false}"},
		{"TypedStruct replaced", base.With("xds.type.v3.TypedStruct", as(first, nil)), listOf(t, typedStruct(t, "x", nil)), "PickFirst Flat=true First={Shuffle:false}"},
		{"not for us", base.With(clusterProvided, as(picker.Policy{}, fmt.Errorf("x: %w", ErrUnsupported))), both, "EDF Flat=true"},
		{"base afterwards", base, both, "EDF Flat=true"},
		{"added afterwards", added, both, "PickFirst Flat=true First={Shuffle:false}"},
	} {
		p, err := test.r.Convert(test.list)
		if got := describe(p); err != nil || got != test.want {
			t.Errorf("%s: got %s, %v, want %s", test.name, got, err, test.want)
		}
	}

	broken := errors.New("broken")
	const path = "policies[0].typed_extension_config.typed_config: "
	for _, test := range []struct {
		name string
		r    *Registry
		want string
	}{
		{"error", base.With(robinType, as(picker.Policy{}, broken)), path + robinType + ": broken"},
		{"removed", base.With(robinType, nil), `policies: no supported policy found in policy list: unsupported policy "` + robinType + `"`},
		{"none left", base.With(robinType, as(picker.Policy{}, ErrUnsupported)), "policies: no supported policy found in policy list: " + robinType + ": unsupported policy"},
		{"kind of the future", base.With(robinType, as(picker.Policy{Kind: 99}, nil)), path + robinType + ": policy kind 99 is not supported"},
	} {
		_, err := test.r.Convert(listOf(t, robin))
		if err == nil || err.Error() != test.want {
			t.Errorf("%s: got error %v, want %s", test.name, err, test.want)
		}
	}
	_, err := base.With(robinType, as(picker.Policy{}, broken)).OfCluster(&clusterv3.Cluster{LoadBalancingPolicy: listOf(t, weighted(listOf(t, robin)))})
	if !errors.Is(err, broken) {
		t.Errorf("the converter's error is not wrapped by %v", err)
	}
}

// TestIncomplete checks that no policy leaves a registry without the member that
// its kind needs.
func TestIncomplete(t *testing.T) {
	for kind := picker.PolicyEDF; kind <= picker.PolicyRandom; kind++ {
		const robinType = "envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin"
		r := new(Registry).With(robinType, func([]byte, Nested) (picker.Policy, error) {
			return picker.Policy{Kind: kind, Flat: true}, nil
		})
		_, err := r.Convert(listOf(t, robin))
		if want := kind == picker.PolicyEDF || kind == picker.PolicyRoundRobin || kind == picker.PolicyRandom; (err == nil) != want {
			t.Errorf("kind %d: got error %v", kind, err)
		}
	}
}

// TestErrorSize checks that a hostile list does not make for an error of its size.
func TestErrorSize(t *testing.T) {
	list := new(clusterv3.LoadBalancingPolicy)
	for range 10000 {
		list.Policies = append(list.Policies, entryOf(&anypb.Any{TypeUrl: strings.Repeat("x", 10000)}))
	}
	if _, err := new(Registry).Convert(list); err == nil || len(err.Error()) > 2000 {
		t.Errorf("got an error of %d bytes", len(fmt.Sprint(err)))
	}
}

func TestConcurrent(t *testing.T) {
	r := new(Registry).With("x.Y", func([]byte, Nested) (picker.Policy, error) { return picker.Policy{}, nil })
	c := &clusterv3.Cluster{LoadBalancingPolicy: nest(t, 16, typedStruct(t, "ring_hash_experimental", nil), weighted)}
	want, err := r.OfCluster(c)
	kit.Must(t, err)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if got, err := r.With("x.Z", nil).OfCluster(c); err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("got %s, %v, want %s", describe(got), err, describe(want))
				}
			}
		})
	}
	wg.Wait()
}

// listOf returns a list with an entry for each message.
func listOf(t testing.TB, messages ...proto.Message) *clusterv3.LoadBalancingPolicy {
	t.Helper()
	list := new(clusterv3.LoadBalancingPolicy)
	for _, m := range messages {
		config, err := anypb.New(m)
		kit.Must(t, err)
		list.Policies = append(list.Policies, entryOf(config))
	}
	return list
}

func entryOf(config *anypb.Any) *clusterv3.LoadBalancingPolicy_Policy {
	return &clusterv3.LoadBalancingPolicy_Policy{
		TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: "ignored", TypedConfig: config},
	}
}

func weighted(list *clusterv3.LoadBalancingPolicy) proto.Message {
	return &wrrlocalityv3.WrrLocality{EndpointPickingPolicy: list}
}

func subset(size uint32, list *clusterv3.LoadBalancingPolicy) proto.Message {
	return &subsettingv3.RandomSubsetting{SubsetSize: wrapperspb.UInt32(size), ChildPolicy: list}
}

func choices(n uint32) proto.Message {
	return &leastrequestv3.LeastRequest{ChoiceCount: wrapperspb.UInt32(n)}
}

func typedStruct(t testing.TB, name string, value map[string]any) proto.Message {
	t.Helper()
	s, err := structpb.NewStruct(value)
	kit.Must(t, err)
	return &typedstructv3.TypedStruct{TypeUrl: "type.googleapis.com/" + name, Value: s}
}

var (
	robin       proto.Message = new(roundrobinv3.RoundRobin)
	unsupported proto.Message = new(clusterprovidedv3.ClusterProvided)
)

// TestIstio converts the clusters that Istio 1.29 sends to proxyless clients.
func TestIstio(t *testing.T) {
	for file, want := range map[string]string{
		"ring-hash":          "RingHash Flat=true Ring={MinSize:1024 MaxSize:8388608 XXH64:true RequestHeader: BalanceFactor:0}",
		"ring-hash-weighted": "RingHash Flat=true Ring={MinSize:1024 MaxSize:8388608 XXH64:true RequestHeader: BalanceFactor:0}",
		"least-request":      "LeastRequest Least={Choices:2 IgnoreWeights:false}",
	} {
		data, err := os.ReadFile("testdata/istio/" + file + ".json")
		kit.Must(t, err)
		var clusters []json.RawMessage
		if err := json.Unmarshal(data, &clusters); err != nil || len(clusters) == 0 {
			t.Fatalf("%s: %d clusters, %v", file, len(clusters), err)
		}
		for _, js := range clusters {
			var c clusterv3.Cluster
			if err := protojson.Unmarshal(js, &c); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			got, err := new(Registry).OfCluster(&c)
			if err != nil || describe(got) != want {
				t.Errorf("%s: got %s, %v, want %s", file, describe(got), err, want)
			}
		}
	}
}

// TestLegacyMeans checks that each value of lb_policy is short for a list (A52's
// backward compatibility, A42, A48; EDF-14 for ROUND_ROBIN).
func TestLegacyMeans(t *testing.T) {
	for value, list := range map[clusterv3.Cluster_LbPolicy]proto.Message{
		clusterv3.Cluster_ROUND_ROBIN:   weighted(listOf(t, robin)),
		clusterv3.Cluster_LEAST_REQUEST: weighted(listOf(t, choices(2))),
		clusterv3.Cluster_RANDOM:        weighted(listOf(t, &randomv3.Random{})),
		clusterv3.Cluster_RING_HASH:     &ringhashv3.RingHash{HashFunction: ringhashv3.RingHash_XX_HASH},
	} {
		old, err1 := new(Registry).OfCluster(&clusterv3.Cluster{LbPolicy: value})
		now, err2 := new(Registry).OfCluster(&clusterv3.Cluster{LoadBalancingPolicy: listOf(t, list)})
		if err1 != nil || err2 != nil || describe(old) != describe(now) {
			t.Errorf("%v: %s, %v differs from %s, %v", value, describe(old), err1, describe(now), err2)
		}
	}
}
