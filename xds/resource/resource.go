// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/xds/internal/fieldlimit"
	"github.com/xdslb/xdslb/xds/lbpolicy"
)

const urlPrefix = "type.googleapis.com/"

var typeNames = [NumTypes]struct{ short, url string }{
	ListenerType:    {"Listener", urlPrefix + "envoy.config.listener.v3.Listener"},
	RouteConfigType: {"RouteConfiguration", urlPrefix + "envoy.config.route.v3.RouteConfiguration"},
	ClusterType:     {"Cluster", urlPrefix + "envoy.config.cluster.v3.Cluster"},
	EndpointsType:   {"ClusterLoadAssignment", urlPrefix + "envoy.config.endpoint.v3.ClusterLoadAssignment"},
}

// String returns the message's name without its package.
func (t Type) String() string {
	if t >= NumTypes {
		return fmt.Sprintf("Type(%d)", uint8(t))
	}
	return typeNames[t].short
}

// URL returns the type URL of ADS, or "" for an invalid type.
func (t Type) URL() string {
	if t >= NumTypes {
		return ""
	}
	return typeNames[t].url
}

// TypeOf returns the type with a type URL. Responses of other types must be ignored (T-XDS-12).
func TypeOf(url string) (t Type, ok bool) {
	for t := range NumTypes {
		if url == typeNames[t].url {
			return t, true
		}
	}
	return 0, false
}

// Unwrap returns the type URL and the bytes of a resource in a response, which may be wrapped
// in an envoy.service.discovery.v3.Resource (T-XDS-13). The wrapper's name is ignored; for its
// other fields see WrappingOf. It does not allocate, and value is part of a.
func Unwrap(a *anypb.Any) (url string, value []byte, err error) {
	if a.GetTypeUrl() != wrapper {
		return a.GetTypeUrl(), a.GetValue(), nil
	}
	var inner []byte
	r := reader{rest: a.GetValue()}
	for r.next() {
		if r.tag == 2<<3|bytesType { // resource
			inner = merge(inner, r.bytes)
		}
	}
	if r.bad {
		return "", nil, errors.New("discovery.v3.Resource wrapper: malformed")
	}
	if inner == nil {
		return "", nil, errors.New("discovery.v3.Resource wrapper: contains no resource")
	}
	r = reader{rest: inner}
	for r.next() {
		switch r.tag {
		case 1<<3 | bytesType: // type_url
			url = string(r.bytes)
		case 2<<3 | bytesType: // value
			value = r.bytes
		}
	}
	if r.bad {
		return "", nil, errors.New("discovery.v3.Resource wrapper: malformed Any")
	}
	return url, value, nil
}

// Name returns the name of a resource without decoding the rest, so that a resource whose bytes
// have not changed need not be decoded. It is O(fields of the outermost message).
func Name(t Type, value []byte) (string, error) {
	var name []byte
	r := reader{rest: value}
	for r.next() {
		if r.tag == 1<<3|bytesType { // name or cluster_name
			name = r.bytes
		}
	}
	switch {
	case r.bad || !utf8.Valid(name):
		return "", fmt.Errorf("%v resource: malformed", t)
	case len(name) == 0:
		return "", fmt.Errorf("%v resource: missing name", t)
	}
	return string(name), nil
}

// CanonicalName returns the form of a resource name in which clients request it: xdstp names with sorted
// context parameters and without directives (the fragment) (A47, xRFC TP1). Other names are
// returned unchanged.
func CanonicalName(name string) string {
	if !strings.HasPrefix(name, "xdstp:") {
		return name
	}
	name, _, _ = strings.Cut(name, "#")
	path, query, ok := strings.Cut(name, "?")
	if !ok {
		return name
	}
	params := strings.Split(query, "&")
	slices.Sort(params)
	if query = strings.Join(params, "&"); query == "" {
		return path
	}
	return path + "?" + query
}

// Options are the inputs of decoding other than the bytes.
type Options struct {
	// TrustedServer means that the resource comes from a server with the trusted_xds_server
	// feature, which may rewrite authorities (A81).
	TrustedServer bool
	// Policies converts load balancing policies; nil means the built-in ones of package
	// lbpolicy.
	Policies *lbpolicy.Registry
	// CertProvider returns nil if clusters may use a certificate provider instance of the
	// bootstrap (A29) for the given purpose, otherwise an error in the form of a rule such as
	// "must be …". A nil CertProvider rejects all instances.
	CertProvider func(instance string, use CertUse) error
	// Previous is the result of decoding an earlier version of a ClusterLoadAssignment, if any.
	// Every unchanged part of the result is shared with it.
	Previous *Endpoints
	// AcceptHostnames accepts DNS names as addresses of endpoints, which A27 does not allow; see
	// picker.NameAddr.
	AcceptHostnames bool
	// Stopped is called about once per virtual host, route, locality and 1024 endpoints. If it
	// returns true, decoding stops, and Decode returns ErrStopped. It may be nil.
	Stopped func() bool
	// Filter returns the HTTP filter that a message with the given full name configures or
	// overrides, or nil. Filter may be nil. It takes precedence over the built-in filters,
	// except for the router.
	//
	// A configuration in a TypedStruct is converted to its message type if that is linked into
	// the program, and is otherwise passed as a *structpb.Struct (A39).
	Filter func(message string) *FilterType
}

// CertUse is the purpose of a certificate provider.
type CertUse uint8

// The purposes of a certificate provider.
const (
	RootCerts    CertUse = iota // for verifying servers
	identityCert                // the client's certificate and key
)

// Decode returns the validated form of a resource: a *Listener, *RouteConfig, *Cluster or
// *Endpoints. The error lists the problems, unless it is ErrStopped; the resource must then be
// rejected, and has no effect (A46). The result does not refer to value.
func Decode(t Type, value []byte, opt Options) (any, error) {
	d := &decoder{opt: opt, stopper: stopper{request: opt.Stopped}}
	var result any
	switch t {
	case ListenerType:
		if m := new(listenerv3.Listener); d.unmarshal(value, m) {
			l := d.listener(m, d.root())
			slices.Sort(d.ignored)
			l.Ignored, l.Stock = d.ignored, d.stock
			result = l
		}
	case RouteConfigType:
		if rc := d.routeConfig(value, d.root()); rc != nil {
			d.root().dot("name").nonEmpty(rc.Name)
			rc.Stock = d.stock
			result = rc
		}
	case ClusterType:
		if m := new(clusterv3.Cluster); d.unmarshal(value, m) {
			c := d.cluster(m, d.root())
			slices.Sort(d.ignored)
			c.Ignored, c.Stock = d.ignored, d.stock
			result = c
		}
	case EndpointsType:
		endpoints, err := decodeEndpoints(value, opt, d.stopper)
		if err != nil {
			return nil, err
		}
		return endpoints, nil
	default:
		return nil, fmt.Errorf("unknown resource type %v", t)
	}
	if d.stopped {
		return nil, ErrStopped
	}
	name, _ := Name(t, value)
	if err := d.err(t, name); err != nil {
		return nil, err
	}
	return result, nil
}

// decoder is the state of decoding one resource other than endpoints.
type decoder struct {
	problems
	stopper
	opt     Options
	regexps map[string]*regexp.Regexp // compiled expressions, by pattern
	size    int                       // their total size; see compile
}

// unmarshal decodes the bytes of the message at the root.
func (d *decoder) unmarshal(value []byte, m proto.Message) bool {
	return unmarshalAt(value, m, d.root())
}

// unmarshalAt is Unmarshal of the message at a path.
func unmarshalAt(value []byte, m proto.Message, p *path) bool {
	err := Unmarshal(value, m)
	if err != nil {
		p.fail(err.Error())
	}
	return err == nil
}

// Unmarshal is proto.Unmarshal with the limit on the number of fields that resources have.
func Unmarshal(value []byte, m proto.Message) error {
	if len(value) > fieldlimit.Max && fieldlimit.Count(value, m.ProtoReflect().Descriptor(), fieldlimit.Max) > fieldlimit.Max {
		return fmt.Errorf("must have at most %d fields in all", fieldlimit.Max)
	}
	if err := proto.Unmarshal(value, m); err != nil {
		// The text of protobuf errors deliberately varies between programs in the space after
		// the prefix.
		why := strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0")
		return errors.New("cannot be read as " + typeName(m) + ": " + why)
	}
	return nil
}

// unpack decodes a into m if it has m's type.
func unpack(a *anypb.Any, m proto.Message, p *path) bool {
	if baseName(a.GetTypeUrl()) != typeName(m) {
		p.refuse(a.GetTypeUrl(), "must be of type "+typeName(m))
		return false
	}
	return unmarshalAt(a.GetValue(), m, p)
}

func typeName(m proto.Message) string { return string(m.ProtoReflect().Descriptor().FullName()) }

// baseName returns the message name that a type URL ends in.
func baseName(url string) string { return url[strings.LastIndexByte(url, '/')+1:] }
