// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	typedstructv3 "github.com/cncf/xds/go/xds/type/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	wrrv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	leastrequestv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	maglevv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/maglev/v3"
	pickfirstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/pick_first/v3"
	randomv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random/v3"
	subsettingv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random_subsetting/v3"
	ringhashv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	wrrlocalityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/internal/fieldlimit"
)

// maxLevels is the maximum nesting of lists of policies (A52-REG-7).
const maxLevels = 16

// maxFields is the maximum number of fields of all policies that are read for a list, at all
// levels.
const maxFields = fieldlimit.Max

// ErrUnsupported is returned by a [Converter], possibly wrapped, to have the entry skipped like
// an entry of unknown type, so that the next entry of the list is tried. Any other error is
// final.
var ErrUnsupported = errors.New("unsupported policy")

// Converter makes a policy from the wire bytes of one message type. It calls nested for each
// list of policies in the message, and returns errors of nested prefixed with the name of the
// field, as in "child_policy.policies[0]...". It must be safe for concurrent use and must not
// retain config.
type Converter func(config []byte, nested Nested) (picker.Policy, error)

// Nested converts a list of policies found inside another policy. It counts the levels of
// nesting for the converter.
type Nested func(*clusterv3.LoadBalancingPolicy) (picker.Policy, error)

// Registry converts policies.
//
// The zero value and nil support the types in the package documentation. A Registry is
// immutable: [Registry.With] returns a changed copy. It is safe for concurrent use.
type Registry struct {
	converters map[string]Converter // added by the program, by type name; nil removes a type
}

// With returns a copy of r in which entries with messages of type typeURL are converted by c,
// even if r already has a converter for the type. A nil c makes the type unsupported. Only the
// part of typeURL after the last slash matters.
//
// A policy returned by c is used unchanged, including Flat: it should be set, and an enclosing
// wrr_locality will unset it.
func (r *Registry) With(typeURL string, c Converter) *Registry {
	changed := &Registry{make(map[string]Converter)}
	if r != nil {
		maps.Copy(changed.converters, r.converters)
	}
	changed.converters[typeName(typeURL)] = c
	return changed
}

// Convert returns the first supported policy of the list (A52-REG-2). Its errors begin with a
// path relative to list, such as "policies[0]...".
func (r *Registry) Convert(list *clusterv3.LoadBalancingPolicy) (picker.Policy, error) {
	fields := maxFields
	return r.convert(list, 1, &fields)
}

// convert converts a list at a level, whose policies may have a number of fields. It reduces the
// number by those that it has read.
func (r *Registry) convert(list *clusterv3.LoadBalancingPolicy, level int, fields *int) (picker.Policy, error) {
	if level > maxLevels {
		return picker.Policy{}, fmt.Errorf("policies: exceeds max depth supported: %d levels", maxLevels)
	}
	var skipped []string
	for i, p := range list.GetPolicies() {
		policy, err := r.entry(p.GetTypedExtensionConfig().GetTypedConfig(), level, fields)
		switch {
		case err == nil:
			return policy, nil
		case !errors.Is(err, ErrUnsupported):
			return picker.Policy{}, fmt.Errorf("policies[%d].typed_extension_config.typed_config: %w", i, err)
		case len(skipped) < 8: // enough to find the mistake, and bounded
			skipped = append(skipped, err.Error())
		}
	}
	return picker.Policy{}, noneSupported(list, skipped)
}

func noneSupported(list *clusterv3.LoadBalancingPolicy, skipped []string) error {
	text := "policies: no supported policy found in policy list"
	if n := len(list.GetPolicies()) - len(skipped); n > 0 {
		skipped = append(skipped, fmt.Sprintf("and %d more", n))
	}
	if len(skipped) == 0 {
		return errors.New(text + ", which is empty")
	}
	return fmt.Errorf("%s: %s", text, strings.Join(skipped, "; "))
}

// entry converts one entry of a list: see convert.
func (r *Registry) entry(message *anypb.Any, level int, fields *int) (picker.Policy, error) {
	name := typeName(message.GetTypeUrl())
	nested := func(list *clusterv3.LoadBalancingPolicy) (picker.Policy, error) {
		return r.convert(list, level+1, fields)
	}
	if r != nil {
		if c, ok := r.converters[name]; ok {
			return r.own(name, c, message.GetValue(), nested)
		}
	}
	b := builtins[name]
	if typedStructs[name] {
		b.message = new(typedstructv3.TypedStruct)
	}
	if b.message != nil {
		*fields -= fieldlimit.Count(message.GetValue(), b.message.ProtoReflect().Descriptor(), *fields)
		if *fields < 0 {
			return picker.Policy{}, fmt.Errorf("the LB policies have more than %d fields in all", maxFields)
		}
	}
	if typedStructs[name] {
		var err error
		if b, err = openTypedStruct(message.GetValue()); err != nil {
			return picker.Policy{}, err
		}
	}
	if b.convert == nil {
		return picker.Policy{}, fmt.Errorf("%w %.100q", ErrUnsupported, name)
	}
	policy, err := b.convert(message.GetValue(), nested)
	if err != nil {
		return picker.Policy{}, fmt.Errorf("%s: %w", b.name, err)
	}
	return policy, nil
}

// own converts an entry with a converter of the program, and validates the result.
func (r *Registry) own(name string, c Converter, config []byte, nested Nested) (picker.Policy, error) {
	if c == nil {
		return picker.Policy{}, fmt.Errorf("%w %.100q", ErrUnsupported, name)
	}
	policy, err := c(config, nested)
	if err == nil {
		err = policy.Check()
	}
	if err != nil {
		return picker.Policy{}, fmt.Errorf("%s: %w", name, err)
	}
	return policy, nil
}

// builtin is a converter of this package.
type builtin struct {
	name    string        // name of the policy in errors
	message proto.Message // what convert unmarshals
	convert Converter
}

// conversions are the converters for each kind of policy: of its message, and of its JSON form
// in a TypedStruct. They set the parameters only. The names are in the traits of the kind.
var conversions = []struct {
	kind     picker.PolicyKind
	message  proto.Message
	convert  Converter
	fromJSON Converter
}{
	{picker.PolicyEDF, new(roundrobinv3.RoundRobin), roundRobin, nil},
	{picker.PolicyRoundRobin, nil, nil, unweighted},
	{picker.PolicyRingHash, new(ringhashv3.RingHash), ringHash, ringHashJSON},
	{picker.PolicyMaglev, new(maglevv3.Maglev), maglev, fromJSON[maglevv3.Maglev](maglev)},
	{picker.PolicyLeastRequest, new(leastrequestv3.LeastRequest), leastRequest, fromJSON[leastrequestv3.LeastRequest](leastRequest)},
	{picker.PolicyClientWRR, new(wrrv3.ClientSideWeightedRoundRobin), clientWRR, fromJSON[wrrv3.ClientSideWeightedRoundRobin](clientWRR)},
	{picker.PolicyPickFirst, new(pickfirstv3.PickFirst), pickFirst, fromJSON[pickfirstv3.PickFirst](pickFirst)},
	{picker.PolicyLeastLatency, new(emptypb.Empty), peakEWMA, leastLatencyJSON}, // peakEWMA reads field by field
	{picker.PolicyPrequal, nil, nil, prequal},
	{picker.PolicyRandom, new(randomv3.Random), random, nil},
}

// builtins are the converters of messages by type name, and natives those of TypedStructs, for the
// policies in gRPC's registry that the snapshot implements. Neither may be modified.
//
// Policies with child policies are not among the natives, since the names of children refer to
// gRPC's registry.
var builtins, natives = makeConverters()

func makeConverters() (ofMessages, ofJSON map[string]builtin) {
	ofMessages = map[string]builtin{
		prefix + "wrr_locality.v3.WrrLocality":           {"wrr_locality", new(wrrlocalityv3.WrrLocality), wrrLocality},
		prefix + "random_subsetting.v3.RandomSubsetting": {"random_subsetting", new(subsettingv3.RandomSubsetting), randomSubsetting},
	}
	ofJSON = map[string]builtin{}
	for _, c := range conversions {
		of := func(convert Converter) Converter {
			return func(config []byte, nested Nested) (picker.Policy, error) {
				p, err := convert(config, nested)
				p.Kind, p.Flat = c.kind, true
				return p, err
			}
		}
		t := c.kind.Traits()
		if c.convert != nil {
			name, _, _ := strings.Cut(strings.TrimPrefix(t.Message, prefix), ".")
			ofMessages[t.Message] = builtin{name, c.message, of(c.convert)}
		}
		if c.fromJSON != nil {
			ofJSON[t.TypedStruct] = builtin{name: t.TypedStruct, convert: of(withCommonFields(c.kind, c.fromJSON))}
		}
	}
	return ofMessages, ofJSON
}

const prefix = "envoy.extensions.load_balancing_policies."

// typeName returns the type name of a type URL: the part after the last slash, or the whole URL
// without a slash.
func typeName(url string) string {
	return url[strings.LastIndexByte(url, '/')+1:]
}

// decode reads wire bytes into m. The errors of package proto are omitted: they are not stable,
// and provide no further information.
func decode(config []byte, m proto.Message) error {
	if proto.Unmarshal(config, m) != nil {
		return fmt.Errorf("value is not a valid %s message", m.ProtoReflect().Descriptor().FullName())
	}
	return nil
}
