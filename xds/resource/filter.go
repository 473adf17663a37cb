// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	udpav1 "github.com/cncf/xds/go/udpa/type/v1"
	xdsv3 "github.com/cncf/xds/go/xds/type/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xdslb/xdslb/picker"
)

// maxFilters is the maximum number of HTTP filters of a listener (T-SEC-2).
const maxFilters = 1000

// filters converts the filter chain of a listener (A39, T-RC-8). The result excludes the router
// and the filters that have no effect.
func (d *decoder) filters(list []*hcmv3.HttpFilter, p *path) []picker.Filter {
	var (
		filters []picker.Filter
		names   = make(map[string]struct{}, len(list))
		last    string // type of the last filter that is not skipped
	)
	if len(list) > maxFilters {
		p.failf("must have at most %d filters (it has %d)", maxFilters, len(list))
		return nil
	}
	for i, m := range list {
		p := p.at(i)
		name := p.dot("name").nonEmpty(m.GetName())
		if _, twice := names[name]; twice && name != "" {
			p.dot("name").refuse(name, "must be unique in the list")
		}
		names[name] = struct{}{}

		cfg := unwrap(m.GetTypedConfig(), p.dot("typed_config"))
		cfg.stockFilter(m.GetIsOptional(), stockFilters)
		t := d.filterType(cfg.kind)
		if t == nil || t.config != cfg.kind {
			if !m.GetIsOptional() {
				cfg.p.refuse(cfg.kind, "must be a supported filter: it is not optional")
			} else {
				d.ignore("the optional filter " + quote(cfg.kind))
			}
			continue
		}
		if t.parseConfig != nil {
			filters = append(filters, picker.Filter{
				Name: name, Type: t.config, Config: cfg.parse(t.parseConfig), Disabled: m.GetDisabled(),
			})
		}
		if last == routerType {
			p.fail("must not be behind the router filter")
		}
		last = cfg.kind
	}
	if last != routerType {
		p.fail("must end with the router filter")
	}
	return filters
}

// A FilterOverride is the configuration of one filter instance in a virtual host, a route or a
// weighted cluster (A39).
type FilterOverride struct {
	// Type is the type of the filter, as in picker.Filter.Type. It must equal the type of the
	// filter instance, which is only in the listener. It is empty for an
	// override that only enables or disables the filter.
	Type     string
	Config   any
	Disabled bool
}

// overrides converts a typed_per_filter_config. The override of a weighted cluster takes
// precedence over the override of its route, which takes precedence over the override of the
// virtual host (A39).
func (d *decoder) overrides(m map[string]*anypb.Any, p *path) map[string]any {
	var own map[string]any
	for _, name := range slices.Sorted(maps.Keys(m)) {
		p := p.key(name)
		config, wrapper := m[name], new(routev3.FilterConfig)
		if baseName(config.GetTypeUrl()) == typeName(wrapper) {
			if !unpack(config, wrapper, p) {
				continue
			}
			p = p.dot("config")
			config = wrapper.GetConfig()
			if wrapper.GetDisabled() || config == nil {
				own = with(own, name, FilterOverride{Disabled: wrapper.GetDisabled()})
				if config != nil {
					(&filterConfig{kind: baseName(config.GetTypeUrl()), p: p}).stockFilter(wrapper.GetIsOptional(), stockOverrides)
				} else if !wrapper.GetIsOptional() {
					p.refusedByStock("an override without a configuration is unsupported, unless it is optional")
				}
				continue
			}
		}
		cfg := unwrap(config, p)
		cfg.stockFilter(wrapper.GetIsOptional(), stockOverrides)
		t := d.filterType(cfg.kind)
		switch {
		case t == nil || t.override != cfg.kind:
			if !wrapper.GetIsOptional() {
				cfg.p.refuse(cfg.kind, "must override a supported filter: it is not optional")
			} else {
				d.ignore("the optional override " + quote(cfg.kind) + " of a filter")
			}
		case t.parseOverride != nil:
			own = with(own, name, FilterOverride{Type: t.config, Config: cfg.parse(t.parseOverride)})
		}
	}
	return own
}

func with(m map[string]any, key string, value any) map[string]any {
	if m == nil {
		m = make(map[string]any)
	}
	m[key] = value
	return m
}

// filterConfig is the configuration of a filter, as a message or as a JSON object.
type filterConfig struct {
	kind   string // name of the configuration message
	any    *anypb.Any
	object *structpb.Struct
	p      *path
}

// unwrap extracts the contents of a TypedStruct: a message's JSON form and its type URL (A39).
func unwrap(a *anypb.Any, p *path) filterConfig {
	cfg := filterConfig{kind: baseName(a.GetTypeUrl()), any: a, p: p}
	for _, m := range []interface {
		proto.Message
		GetTypeUrl() string
		GetValue() *structpb.Struct
	}{new(xdsv3.TypedStruct), new(udpav1.TypedStruct)} {
		if cfg.kind == typeName(m) && unpack(a, m, p) {
			object := m.GetValue()
			if object == nil {
				object = new(structpb.Struct)
			}
			return filterConfig{kind: baseName(m.GetTypeUrl()), object: object, p: p.dot("value")}
		}
	}
	return cfg
}

// message decodes the configuration into its message type if that is linked into the program.
// The message is otherwise the JSON object of a TypedStruct.
func (cfg filterConfig) message() (proto.Message, bool) {
	t, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(cfg.kind))
	switch {
	case err == nil && cfg.any != nil:
		m := t.New().Interface()
		return m, unmarshalAt(cfg.any.GetValue(), m, cfg.p)
	case err == nil:
		m := t.New().Interface()
		text, err := protojson.Marshal(cfg.object)
		if err == nil {
			err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, m)
		}
		if err != nil {
			cfg.p.fail("cannot be read as the JSON form of " + cfg.kind)
		}
		return m, err == nil
	case cfg.any == nil:
		return cfg.object, true
	default:
		cfg.p.refuse(cfg.kind, "must be a message type that is linked into the program")
		return nil, false
	}
}

// parse decodes the configuration and converts it by the filter's rules.
func (cfg filterConfig) parse(convert func(proto.Message, *path) any) any {
	m, ok := cfg.message()
	if !ok {
		return nil
	}
	return convert(m, cfg.p)
}

// A FilterType is a kind of HTTP filter (A39) that is not built into this package.
type FilterType struct {
	// Config is the full name of the message that configures the filter in a listener, and
	// Override the full name of the message for virtual hosts, routes and weighted clusters;
	// they may be the same. A filter without Override cannot be overridden.
	Config, Override string
	// ParseConfig and ParseOverride validate a configuration and convert it to
	// picker.Filter.Config and FilterOverride.Config. An error rejects the resource. The
	// message has the type named above in any encoding, or is a *structpb.Struct: see
	// Options.Filter.
	ParseConfig, ParseOverride func(proto.Message) (any, error)
}

// filterType is a FilterType whose errors have a path.
type filterType struct {
	config, override           string
	parseConfig, parseOverride func(proto.Message, *path) any // nil means no effect
}

const (
	routerType = "envoy.extensions.filters.http.router.v3.Router"
	faultType  = "envoy.extensions.filters.http.fault.v3.HTTPFault"
)

// builtin has the filters implemented by this package.
var builtin = []filterType{
	{config: routerType},
	{config: faultType, override: faultType, parseConfig: parser(newFault), parseOverride: parser(newFault)},
	{
		config:   "envoy.extensions.filters.http.stateful_session.v3.StatefulSession",
		override: "envoy.extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute",

		parseConfig: parseSession, parseOverride: parseSessionOverride,
	},
	// A server-side filter. Routes are for both sides, so a client has to accept overrides of
	// it (A39).
	{override: "envoy.extensions.filters.http.rbac.v3.RBACPerRoute"},
}

// parser returns the form of parse that accepts any message. The message type is linked in, so
// other types do not occur.
func parser[M proto.Message, C any](parse func(M, *path) C) func(proto.Message, *path) any {
	return func(m proto.Message, p *path) any {
		if m, ok := m.(M); ok {
			return parse(m, p)
		}
		return nil
	}
}

// filterType returns the filter that a message configures or overrides, or nil.
func (d *decoder) filterType(message string) *filterType {
	if message == "" {
		return nil
	}
	if d.opt.Filter != nil && message != routerType {
		if t := d.opt.Filter(message); t != nil {
			return &filterType{t.Config, t.Override, located(t.ParseConfig), located(t.ParseOverride)}
		}
	}
	for i := range builtin {
		if t := &builtin[i]; message == t.config || message == t.override {
			return t
		}
	}
	return nil
}

// located reports the errors of parse at the path.
func located(parse func(proto.Message) (any, error)) func(proto.Message, *path) any {
	if parse == nil {
		return nil
	}
	return func(m proto.Message, p *path) any {
		v, err := parse(m)
		if err != nil {
			p.fail(clip(err.Error(), maxRule))
		}
		return v
	}
}

// wrapper is the type URL of a wrapped resource.
const wrapper = urlPrefix + "envoy.service.discovery.v3.Resource"

// wrapping has the fields of an envoy.service.discovery.v3.Resource other than the resource
// (xDS protocol, "TTL").
type wrapping struct {
	Name, Version string
	// TTL is the time for which the resource is valid unless it is sent again; 0 means forever.
	TTL time.Duration
	// Heartbeat means that the wrapper is empty: it renews the resource with its name.
	Heartbeat bool
}

// WrappingOf returns the wrapper of a resource in a response, or the zero value if the resource
// is not wrapped.
func WrappingOf(a *anypb.Any) (w wrapping, err error) {
	if a.GetTypeUrl() != wrapper {
		return wrapping{}, nil
	}
	var seconds, nanos uint64
	timed := false
	w.Heartbeat = true
	r := reader{rest: a.GetValue()}
	for r.next() {
		switch r.tag {
		case 1<<3 | bytesType:
			w.Version = string(r.bytes)
		case 2<<3 | bytesType:
			w.Heartbeat = false
		case 3<<3 | bytesType:
			w.Name = string(r.bytes)
		case 6<<3 | bytesType:
			timed = true
			d := reader{rest: r.bytes}
			for d.next() {
				switch d.tag {
				case 1<<3 | varintType:
					seconds = d.varint
				case 2<<3 | varintType:
					nanos = d.varint
				}
			}
			r.bad = r.bad || d.bad
		}
	}
	if r.bad {
		return wrapping{}, errors.New("discovery.v3.Resource wrapper: malformed")
	}
	if !timed {
		w.Heartbeat = false // it is empty: see Unwrap
		return w, nil
	}
	w.TTL, err = TTL(&durationpb.Duration{Seconds: int64(seconds), Nanos: int32(nanos)})
	return w, err
}

// TTL returns the time to live of a resource. It must be above 0.
func TTL(d *durationpb.Duration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	if err := d.CheckValid(); err != nil || d.GetSeconds() < 0 || d.GetNanos() < 0 || d.GetSeconds() == 0 && d.GetNanos() == 0 {
		return 0, fmt.Errorf("ttl: must be above 0, not %d s and %d ns", d.GetSeconds(), d.GetNanos())
	}
	if d.GetSeconds() > math.MaxInt64/int64(time.Second)-1 {
		return math.MaxInt64, nil
	}
	return d.AsDuration(), nil
}
