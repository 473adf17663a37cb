// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package offline serves xDS resources of a file to an XdsClient of the same process, without
// a control plane and without a network.
//
//	resources.go  reads the resources of JSON documents
//	stream.go     the ADS stream
//	bootstrap.go  the bootstrap of a client that uses it
package offline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xdslb/xdslb/xds/resource"
)

// Resources are the resources of a file. They are immutable.
type Resources struct {
	text   []byte
	byName map[key]*discoveryv3.Resource
}

// key identifies a resource.
type key struct {
	typ  resource.Type
	name string
}

// resourceLists are the names of JSON lists whose elements may omit their type.
var resourceLists = map[string]resource.Type{
	"lds": resource.ListenerType, "listeners": resource.ListenerType,
	"rds": resource.RouteConfigType, "routes": resource.RouteConfigType,
	"cds": resource.ClusterType, "clusters": resource.ClusterType,
	"eds": resource.EndpointsType, "endpoints": resource.EndpointsType,
}

const typeKey = "@type"

// Parse reads the resources of one or more JSON documents in protobuf's mapping: all objects
// whose "@type" is an xDS resource type, at any depth, and the elements of the lists named
// lds, rds, cds, eds, listeners, routes, clusters and endpoints.
func Parse(text []byte) (*Resources, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	r := &Resources{text: text, byName: map[key]*discoveryv3.Resource{}}
	for n := 1; ; n++ {
		var document any
		if err := d.Decode(&document); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("xdslb: resources: document %d: %w", n, err)
		}
		if err := r.visit(nil, document, ""); err != nil {
			return nil, fmt.Errorf("xdslb: resources: %w", err)
		}
	}
	if len(r.byName) == 0 {
		return nil, errors.New("xdslb: resources: none found: want objects with @type, or lists named lds, rds, cds and eds")
	}
	return r, nil
}

// path is the position of a value in a document: a name or an index in another value. Nil is
// the document itself.
type path struct {
	in    *path
	name  string
	index int
}

// String returns the path as JSONPath, such as $.config[0].
func (p *path) String() string {
	var steps []string
	for ; p != nil; p = p.in {
		if p.name != "" {
			steps = append(steps, "."+p.name)
		} else {
			steps = append(steps, fmt.Sprintf("[%d]", p.index))
		}
	}
	slices.Reverse(steps)
	return "$" + strings.Join(steps, "")
}

// visit adds the resources in a value. url is the type of an object without "@type"; it may be "".
func (r *Resources) visit(at *path, value any, url string) error {
	switch v := value.(type) {
	case []any:
		for i, e := range v {
			if err := r.visit(&path{in: at, index: i}, e, url); err != nil {
				return err
			}
		}
	case map[string]any:
		if own, ok := v[typeKey].(string); ok {
			url = own
		}
		if t, ok := resource.TypeOf(url); ok {
			if err := r.add(v, t); err != nil {
				return fmt.Errorf("%v: %w", at, err)
			}
			return nil
		}
		for _, name := range slices.Sorted(maps.Keys(v)) { // errors do not depend on the map's order
			listed := ""
			if t, ok := resourceLists[strings.ToLower(name)]; ok {
				listed = t.URL()
			}
			if err := r.visit(&path{in: at, name: name}, v[name], listed); err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds a resource.
func (r *Resources) add(v map[string]any, t resource.Type) error {
	typed := maps.Clone(v)
	typed[typeKey] = t.URL()
	text, err := json.Marshal(typed)
	if err != nil {
		return err
	}
	a := new(anypb.Any)
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true, Resolver: LinkedTypes{}}).Unmarshal(text, a); err != nil {
		return err
	}
	name, err := resource.Name(t, a.GetValue())
	if err != nil {
		return err
	}
	name = resource.CanonicalName(name)
	if r.byName[key{t, name}] != nil {
		return fmt.Errorf("%v %q occurs twice", t, name)
	}
	r.byName[key{t, name}] = &discoveryv3.Resource{Name: name, Version: "1", Resource: a}
	return nil
}

// LinkedTypes resolves the messages that are linked into the program. Other messages keep their
// type and lose their content, which a client does not read either.
type LinkedTypes struct{}

// FindMessageByName implements protoregistry.MessageTypeResolver.
func (LinkedTypes) FindMessageByName(name protoreflect.FullName) (protoreflect.MessageType, error) {
	return protoregistry.GlobalTypes.FindMessageByName(name)
}

// FindMessageByURL implements protoregistry.MessageTypeResolver.
func (LinkedTypes) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	if t, err := protoregistry.GlobalTypes.FindMessageByURL(url); err == nil {
		return t, nil
	}
	return new(emptypb.Empty).ProtoReflect().Type(), nil
}

// FindExtensionByName implements protoregistry.ExtensionTypeResolver.
func (LinkedTypes) FindExtensionByName(name protoreflect.FullName) (protoreflect.ExtensionType, error) {
	return protoregistry.GlobalTypes.FindExtensionByName(name)
}

// FindExtensionByNumber implements protoregistry.ExtensionTypeResolver.
func (LinkedTypes) FindExtensionByNumber(name protoreflect.FullName, field protoreflect.FieldNumber) (protoreflect.ExtensionType, error) {
	return protoregistry.GlobalTypes.FindExtensionByNumber(name, field)
}
