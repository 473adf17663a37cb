// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/picker"
)

// maxLevels is how deep lists of policies may be nested (A52-REG-7).
const maxLevels = 16

// ErrUnsupported is what a [Converter] returns, possibly wrapped, to say that the
// entry is none of its business: the entry is skipped like one of unknown type,
// and the next one of the list is tried. Any other error is final.
var ErrUnsupported = errors.New("unsupported policy")

// Converter makes a policy of the wire bytes of one message type. It calls nested
// for each list of policies in the message, and returns its errors with the name
// of the field in front, as in "child_policy.policies[0]...". It must be safe for
// concurrent use and must not keep config.
type Converter func(config []byte, nested Nested) (picker.Policy, error)

// Nested converts a list of policies found inside another policy. It counts the
// levels of nesting, so that a converter need not.
type Nested func(*clusterv3.LoadBalancingPolicy) (picker.Policy, error)

// Registry converts policies.
//
// The zero value and nil know the types in the package documentation. A Registry
// is immutable: [Registry.With] returns a changed copy. It is safe for concurrent
// use.
type Registry struct {
	converters map[string]Converter // the program's own, by type name; nil removes a type
}

// With returns a copy of r in which entries with messages of type typeURL are
// converted by c, also if r knows the type already. A nil c makes the type
// unsupported. Only the part of typeURL after the last slash matters.
//
// A policy that c returns is used as it is, which includes Flat: it should be
// set, and a wrr_locality around the entry will unset it.
func (r *Registry) With(typeURL string, c Converter) *Registry {
	changed := &Registry{make(map[string]Converter)}
	if r != nil {
		maps.Copy(changed.converters, r.converters)
	}
	changed.converters[typeName(typeURL)] = c
	return changed
}

// Convert returns the first policy of the list that is supported (A52-REG-2). Its
// errors begin with a path relative to list, such as "policies[0]...".
func (r *Registry) Convert(list *clusterv3.LoadBalancingPolicy) (picker.Policy, error) {
	return r.convert(list, 1)
}

func (r *Registry) convert(list *clusterv3.LoadBalancingPolicy, level int) (picker.Policy, error) {
	if level > maxLevels {
		return picker.Policy{}, fmt.Errorf("policies: exceeds max depth supported: %d levels", maxLevels)
	}
	var skipped []string
	for i, p := range list.GetPolicies() {
		policy, err := r.entry(p.GetTypedExtensionConfig().GetTypedConfig(), level)
		switch {
		case err == nil:
			return policy, nil
		case !errors.Is(err, ErrUnsupported):
			return picker.Policy{}, fmt.Errorf("policies[%d].typed_extension_config.typed_config: %w", i, err)
		case len(skipped) < 8: // enough to find the mistake by, and bounded
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

// entry converts one entry of a list at the given level.
func (r *Registry) entry(message *anypb.Any, level int) (picker.Policy, error) {
	name := typeName(message.GetTypeUrl())
	nested := func(list *clusterv3.LoadBalancingPolicy) (picker.Policy, error) {
		return r.convert(list, level+1)
	}
	if r != nil {
		if c, ok := r.converters[name]; ok {
			return r.own(name, c, message.GetValue(), nested)
		}
	}
	b := builtins[name]
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

// own converts an entry with a converter of the program, and checks the result.
func (r *Registry) own(name string, c Converter, config []byte, nested Nested) (picker.Policy, error) {
	if c == nil {
		return picker.Policy{}, fmt.Errorf("%w %.100q", ErrUnsupported, name)
	}
	policy, err := c(config, nested)
	if err == nil {
		err = complete(policy)
	}
	if err != nil {
		return picker.Policy{}, fmt.Errorf("%s: %w", name, err)
	}
	return policy, nil
}

// complete checks that p has the member that its kind needs, which the builders
// of snapshots rely on.
func complete(p picker.Policy) error {
	ok := true
	switch p.Kind {
	case picker.PolicyEDF, picker.PolicyRoundRobin:
	case picker.PolicyRingHash, picker.PolicyMaglev:
		ok = p.Ring != nil
	case picker.PolicyLeastRequest:
		ok = p.Least != nil
	case picker.PolicyLeastLatency:
		ok = p.Latency != nil
	case picker.PolicyClientWRR:
		ok = p.WRR != nil
	case picker.PolicyPickFirst:
		ok = p.First != nil
	case picker.PolicyCustom:
		ok = p.Custom != nil
	case picker.PolicyPrequal:
		ok = p.Prequal != nil
	default:
		ok = false
	}
	if !ok {
		return fmt.Errorf("converted to policy kind %d without its parameters", p.Kind)
	}
	return nil
}

// builtin is a converter of this package.
type builtin struct {
	name    string // names the policy in errors
	convert Converter
}

const policies = "envoy.extensions.load_balancing_policies."

// builtins are by type name; never written.
var builtins = map[string]builtin{
	policies + "round_robin.v3.RoundRobin":     {name: "round_robin", convert: roundRobin},
	policies + "ring_hash.v3.RingHash":         {name: "ring_hash", convert: ringHash},
	policies + "maglev.v3.Maglev":              {name: "maglev", convert: maglev},
	policies + "least_request.v3.LeastRequest": {name: "least_request", convert: leastRequest},
	policies + "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin": {
		name: "client_side_weighted_round_robin", convert: clientWRR},
	policies + "pick_first.v3.PickFirst":                  {name: "pick_first", convert: pickFirst},
	policies + "wrr_locality.v3.WrrLocality":              {name: "wrr_locality", convert: wrrLocality},
	policies + "peak_ewma.v3alpha.PeakEwma":               {name: "peak_ewma", convert: peakEWMA},
	policies + "load_aware_locality.v3.LoadAwareLocality": {name: "load_aware_locality", convert: loadAware},
	policies + "random_subsetting.v3.RandomSubsetting":    {name: "random_subsetting", convert: randomSubsetting},
}

// typeName returns what identifies the type in a type URL: all after the last
// slash, or all if there is none.
func typeName(url string) string {
	return url[strings.LastIndexByte(url, '/')+1:]
}

// decode reads wire bytes into m. The reasons that package proto gives are left
// out: they are not stable, and say no more than that the bytes are not such a
// message.
func decode(config []byte, m proto.Message) error {
	if proto.Unmarshal(config, m) != nil {
		return fmt.Errorf("value is not a valid %s message", m.ProtoReflect().Descriptor().FullName())
	}
	return nil
}
