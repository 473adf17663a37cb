// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

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

	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xdslb/xdslb/xds/resource"
)

// resourceLists are the names of lists whose elements need not say their type.
var resourceLists = map[string]resource.Type{
	"lds": resource.ListenerType, "listeners": resource.ListenerType,
	"rds": resource.RouteConfigType, "routes": resource.RouteConfigType,
	"cds": resource.ClusterType, "clusters": resource.ClusterType,
	"eds": resource.EndpointsType, "endpoints": resource.EndpointsType,
}

const typeKey = "@type"

// parseResources finds the resources in JSON documents, one after the other: see
// WhatIf.Resources.
func parseResources(text []byte) ([]*anypb.Any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var f resourceFinder
	for n := 1; ; n++ {
		var document any
		if err := d.Decode(&document); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("xdslb: resources: document %d: %w", n, err)
		}
		if err := f.visit(nil, document, "", ""); err != nil {
			return nil, fmt.Errorf("xdslb: resources: %w", err)
		}
	}
	if len(f.found) == 0 {
		return nil, errors.New("xdslb: resources: there are none: want objects with @type, or lists named lds, rds, cds and eds")
	}
	return f.found, nil
}

// resourceFinder looks for resources in JSON.
type resourceFinder struct{ found []*anypb.Any }

// place is where a value is in a document: under a name, or else with an index. Nil is the
// document itself.
type place struct {
	in    *place
	name  string
	index int
}

// String returns the place as a path, such as $.config[0].
func (p *place) String() string {
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

// visit looks at a value. url is the type of an object that does not say its own, and wrapper
// the name of what it is in, such as a discovery.v3.Resource; "" is unknown.
func (f *resourceFinder) visit(at *place, value any, url, wrapper string) error {
	switch v := value.(type) {
	case []any:
		for i, e := range v {
			if err := f.visit(&place{in: at, index: i}, e, url, ""); err != nil {
				return err
			}
		}
	case map[string]any:
		if said, ok := v[typeKey].(string); ok {
			url = said
		}
		if _, ok := resource.TypeOf(url); ok {
			return f.add(at, v, url, wrapper)
		}
		own, _ := v["name"].(string)
		for _, name := range slices.Sorted(maps.Keys(v)) { // in an order that is always the same
			listed := ""
			if t, ok := resourceLists[strings.ToLower(name)]; ok {
				listed = t.URL()
			}
			if err := f.visit(&place{in: at, name: name}, v[name], listed, own); err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds a resource. A member of a collection has no name but that of its wrapper.
func (f *resourceFinder) add(at *place, v map[string]any, url, wrapper string) error {
	typed := maps.Clone(v)
	typed[typeKey] = url
	text, err := json.Marshal(typed)
	if err != nil {
		return fmt.Errorf("%v: %w", at, err)
	}
	a := new(anypb.Any)
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true, Resolver: lenientTypes{}}).Unmarshal(text, a); err != nil {
		return fmt.Errorf("%v: %w", at, err)
	}
	if url == resource.LbEndpointType.URL() {
		if a, err = anypb.New(&discoveryv3.Resource{Name: wrapper, Resource: a}); err != nil {
			return fmt.Errorf("%v: %w", at, err)
		}
	}
	f.found = append(f.found, a)
	return nil
}

// lenientTypes knows the messages that the program has linked. Messages that it does not
// know keep their type, and lose their content: a client does not look at that either.
type lenientTypes struct{}

func (lenientTypes) FindMessageByName(name protoreflect.FullName) (protoreflect.MessageType, error) {
	return protoregistry.GlobalTypes.FindMessageByName(name)
}

func (lenientTypes) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	if t, err := protoregistry.GlobalTypes.FindMessageByURL(url); err == nil {
		return t, nil
	}
	return new(routerv3.Router).ProtoReflect().Type(), nil
}

func (lenientTypes) FindExtensionByName(name protoreflect.FullName) (protoreflect.ExtensionType, error) {
	return protoregistry.GlobalTypes.FindExtensionByName(name)
}

func (lenientTypes) FindExtensionByNumber(name protoreflect.FullName, field protoreflect.FieldNumber) (protoreflect.ExtensionType, error) {
	return protoregistry.GlobalTypes.FindExtensionByNumber(name, field)
}
