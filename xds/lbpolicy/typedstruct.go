// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	typedstructv3 "github.com/cncf/xds/go/xds/type/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	"google.golang.org/grpc/balancer"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xdslb/xdslb/picker"
)

// typedStructs are the type names of policies in JSON (A52-TS-1). Both messages have the same
// encoding.
var typedStructs = map[string]bool{
	"xds.type.v3.TypedStruct":  true,
	"udpa.type.v1.TypedStruct": true,
}

// openTypedStruct returns the converter for the policy that a TypedStruct names, whose input is
// the value of the struct in JSON. An unknown name is unsupported (A52-TS-3). Names are
// case-sensitive (A52-TS-4), as far as grpc-go's registry is.
func openTypedStruct(config []byte) (builtin, error) {
	var m typedstructv3.TypedStruct
	if err := decode(config, &m); err != nil {
		return builtin{}, fmt.Errorf("typed_struct: %w", err)
	}
	name := typeName(m.GetTypeUrl())
	b, ok := natives[name]
	if !ok {
		registered := balancer.Get(name)
		if registered == nil {
			return builtin{}, fmt.Errorf("%w %.100q: no such balancer is registered", ErrUnsupported, name)
		}
		b = builtin{convert: custom(name, registered)}
	}
	b.name = name
	fromValue := b.convert
	b.convert = func(_ []byte, nested Nested) (picker.Policy, error) {
		js, err := valueJSON(m.GetValue())
		if err != nil {
			return picker.Policy{}, err
		}
		return fromValue(js, nested)
	}
	return b, nil
}

// valueJSON returns v unchanged (A52-TS-2), and an empty object for nil. Equal values yield
// equal bytes. Values that JSON cannot express, such as NaN, are errors.
func valueJSON(v *structpb.Struct) ([]byte, error) {
	if v == nil {
		return []byte("{}"), nil
	}
	js, err := json.Marshal(v)
	if err != nil {
		return nil, readable(err)
	}
	return js, nil
}

// custom converts the configuration of a balancer from grpc-go's registry, which is valid if
// the balancer's own parser accepts it (A52-NACK-2). As in grpc-go, a balancer without a parser
// ignores its configuration.
func custom(name string, b balancer.Builder) Converter {
	return func(config []byte, _ Nested) (picker.Policy, error) {
		if parser, ok := b.(balancer.ConfigParser); ok {
			if _, err := parser.ParseConfig(config); err != nil {
				return picker.Policy{}, err
			}
		}
		return picker.Policy{
			Kind:   picker.PolicyCustom,
			Flat:   true,
			Custom: &picker.CustomPolicy{Name: name, Config: config},
		}, nil
	}
}

// withCommonFields returns a converter of JSON that also reads slow_start_config and locality_lb_config, as
// Envoy's messages in JSON, if the traits of the kind have slow start and zone-aware routing. c gets the
// other fields. Envoy's messages do not have the fields for all policies.
func withCommonFields(kind picker.PolicyKind, c Converter) Converter {
	return func(config []byte, nested Nested) (picker.Policy, error) {
		var fields map[string]json.RawMessage
		if json.Unmarshal(config, &fields) != nil {
			return c(config, nested) // which returns the error
		}
		var names []string
		if kind.Traits().SlowStart {
			names = append(names, "slow_start_config", "slowStartConfig")
		}
		if kind.Traits().Zones {
			names = append(names, "locality_lb_config", "localityLbConfig")
		}
		common := map[string]json.RawMessage{}
		for _, name := range names {
			if value, ok := fields[name]; ok {
				common[name] = value
				delete(fields, name)
			}
		}
		if len(common) == 0 {
			return c(config, nested)
		}
		var m roundrobinv3.RoundRobin // whose fields are these two
		js, err := json.Marshal(common)
		if err == nil {
			err = protojson.UnmarshalOptions{DiscardUnknown: kind.Traits().Stock}.Unmarshal(js, &m) // A21
		}
		if err != nil {
			return picker.Policy{}, readable(err)
		}
		settings, err := commonSettings(&m)
		if err != nil {
			return picker.Policy{}, err
		}
		if config, err = json.Marshal(fields); err != nil {
			return picker.Policy{}, err
		}
		p, err := c(config, nested)
		p.SlowStart, p.ZoneAware = settings.SlowStart, settings.ZoneAware
		return p, err
	}
}

// unweighted is gRPC's round robin: it has only the common fields, and no weights.
func unweighted([]byte, Nested) (picker.Policy, error) { return picker.Policy{}, nil }

// fromJSON returns a converter for the JSON form of the messages that c converts. Unknown
// fields are ignored (A21).
func fromJSON[M any, P interface {
	*M
	proto.Message
}](c Converter) Converter {
	return func(config []byte, nested Nested) (picker.Policy, error) {
		m := P(new(M))
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(config, m); err != nil {
			return picker.Policy{}, readable(err)
		}
		wire, err := proto.Marshal(m)
		if err != nil {
			return picker.Policy{}, readable(err)
		}
		return c(wire, nested)
	}
}

// ringHashJSON converts gRPC's form of ring_hash, which has A76's header. Unlike xDS, it treats
// 0 as unset and has a default maximum of 4096 (T-RING-5). Its placement is that of gRPC.
func ringHashJSON(config []byte, _ Nested) (picker.Policy, error) {
	var c struct {
		MinRingSize       uint64 `json:"minRingSize"`
		MaxRingSize       uint64 `json:"maxRingSize"`
		RequestHashHeader string `json:"requestHashHeader"`
	}
	if err := json.Unmarshal(config, &c); err != nil {
		if bad := (*json.UnmarshalTypeError)(nil); errors.As(err, &bad) {
			err = fmt.Errorf("%s cannot be a %s", bad.Field, bad.Value)
		}
		return picker.Policy{}, err
	}
	p := picker.RingPolicy{
		MinSize:       cmp.Or(c.MinRingSize, defaultMinRingSize),
		MaxSize:       cmp.Or(c.MaxRingSize, 4096),
		XXH64:         true,
		RequestHeader: strings.ToLower(c.RequestHashHeader),
	}
	if err := checkRingSizes("minRingSize", p.MinSize, "maxRingSize", p.MaxSize); err != nil {
		return picker.Policy{}, err
	}
	if h := p.RequestHeader; h != "" && (!isMetadataKey(h) || strings.HasSuffix(h, "-bin")) {
		return picker.Policy{}, fmt.Errorf("requestHashHeader %.100q is not the name of a text header", c.RequestHashHeader)
	}
	return picker.Policy{Ring: &p}, nil
}

// isMetadataKey reports whether key is a valid name of a gRPC header.
func isMetadataKey(key string) bool {
	return key != "" && strings.Trim(key, "0123456789abcdefghijklmnopqrstuvwxyz-_.") == ""
}

// readable returns err, which is from package protojson, with the spaces that the package
// deliberately varies replaced by plain ones, so that equal errors have equal texts in logs.
func readable(err error) error {
	return errors.New(strings.ReplaceAll(err.Error(), "\u00a0", " "))
}
