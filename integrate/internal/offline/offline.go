// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package offline serves xDS resources of a file to an XdsClient of the same process, without
// a control plane and without a network: it reads the resources of JSON documents, and has the ADS
// stream, and the bootstrap of a client that uses it.
package offline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/xdslb/xdslb/xds/resource"
)

// DialOption returns an option for the channel to the control plane, with which the resources
// answer the streams of the channel. The channel makes no connections.
func (r *Resources) DialOption() grpc.DialOption {
	return grpc.WithStreamInterceptor(func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, method string, _ grpc.Streamer, _ ...grpc.CallOption) (grpc.ClientStream, error) {
		if !strings.HasSuffix(method, "/DeltaAggregatedResources") {
			return nil, status.Errorf(codes.Unimplemented, "resources of a file serve incremental ADS only, not %s", method)
		}
		return &stream{ctx: ctx, resources: r, responses: make(chan *discoveryv3.DeltaDiscoveryResponse, 1)}, nil
	})
}

// stream is the client's side of an incremental ADS stream. Each request that subscribes to
// names is answered by one response. It contains the resources of these names, and an error for
// each missing resource, so the client need not wait to detect missing resources.
type stream struct {
	ctx       context.Context
	resources *Resources
	responses chan *discoveryv3.DeltaDiscoveryResponse
	sent      int // responses
}

// SendMsg implements grpc.ClientStream.
func (s *stream) SendMsg(m any) error {
	req := m.(*discoveryv3.DeltaDiscoveryRequest)
	if len(req.GetResourceNamesSubscribe()) == 0 {
		return nil // an ACK or a NACK, or the end of a subscription
	}
	s.sent++
	resp := s.resources.answer(req)
	resp.Nonce = fmt.Sprint(s.sent)
	select {
	case s.responses <- resp:
		return nil
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	}
}

// RecvMsg implements grpc.ClientStream.
func (s *stream) RecvMsg(m any) error {
	select {
	case resp := <-s.responses:
		to := m.(*discoveryv3.DeltaDiscoveryResponse)
		to.TypeUrl, to.Nonce, to.SystemVersionInfo, to.Resources, to.ResourceErrors = resp.TypeUrl, resp.Nonce, "1", resp.Resources, resp.ResourceErrors
		return nil
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	}
}

// Header, Trailer, CloseSend and Context implement grpc.ClientStream.
func (s *stream) Header() (metadata.MD, error) { return nil, nil }
func (s *stream) Trailer() metadata.MD         { return nil }
func (s *stream) CloseSend() error             { return nil }
func (s *stream) Context() context.Context     { return s.ctx }

// answer returns the response to a request.
func (r *Resources) answer(req *discoveryv3.DeltaDiscoveryRequest) *discoveryv3.DeltaDiscoveryResponse {
	resp := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: req.GetTypeUrl()}
	t, _ := resource.TypeOf(req.GetTypeUrl())
	for _, name := range req.GetResourceNamesSubscribe() {
		if found := r.byName[key{t, name}]; found != nil {
			resp.Resources = append(resp.Resources, found)
			continue
		}
		message := fmt.Sprintf("%v %q is not among the resources", t, name)
		if why, ok := r.errors[key{t, name}]; ok {
			message = fmt.Sprintf("%v %q %s", t, name, why)
		}
		resp.ResourceErrors = append(resp.ResourceErrors, &discoveryv3.ResourceError{
			ResourceName: &discoveryv3.ResourceName{Name: name},
			ErrorDetail:  &statuspb.Status{Code: int32(codes.NotFound), Message: message},
		})
	}
	return resp
}

// serverURI is the control plane of Bootstrap's documents. It appears in errors.
const serverURI = "passthrough:///file"

// Bootstrap returns the bootstrap document of a client that reads the resources: the given
// document, which must be valid, with the control planes replaced. If document is nil, the
// result has the authorities and the certificate providers that the resources name.
func (r *Resources) Bootstrap(document []byte) []byte {
	var doc struct {
		Servers     []map[string]any          `json:"xds_servers"`
		Authorities map[string]map[string]any `json:"authorities,omitempty"`
		Providers   map[string]any            `json:"certificate_providers,omitempty"`
		Template    any                       `json:"client_default_listener_resource_name_template,omitempty"`
		Node        any                       `json:"node"`
	}
	if document != nil {
		_ = json.Unmarshal(document, &doc) // it is valid
	} else {
		doc.Node = map[string]any{"id": "none"}
		doc.Authorities, doc.Providers = map[string]map[string]any{}, map[string]any{}
		for _, name := range r.names(authority) {
			doc.Authorities[name] = nil
		}
		for _, name := range r.names(instance) {
			doc.Providers[name] = map[string]any{"plugin_name": "any"}
		}
	}
	server := map[string]any{"server_uri": serverURI, "channel_creds": []any{map[string]any{"type": "insecure"}}}
	if len(doc.Servers) > 0 && doc.Servers[0]["server_features"] != nil {
		server["server_features"] = doc.Servers[0]["server_features"]
	}
	doc.Servers = []map[string]any{server}
	for name, a := range doc.Authorities {
		if a == nil {
			doc.Authorities[name] = map[string]any{}
		}
		delete(a, "xds_servers")
	}
	text, _ := json.Marshal(doc) // strings and decoded JSON always encode
	return text
}

var (
	authority = regexp.MustCompile(`"xdstp://([^/"\\]*)/`)
	instance  = regexp.MustCompile(`"instance_?[nN]ame"\s*:\s*"([^"\\]*)"`)
)

// names returns the matches of an expression in the documents.
func (r *Resources) names(e *regexp.Regexp) (list []string) {
	for _, m := range e.FindAllSubmatch(r.text, -1) {
		list = append(list, string(m[1]))
	}
	return list
}

// Resources are the resources of a file. They are immutable.
type Resources struct {
	text   []byte
	byName map[key]*discoveryv3.Resource
	errors map[key]string // of CSDS: the state of a resource whose latest version is not in use
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
	r := &Resources{text: text, byName: map[key]*discoveryv3.Resource{}, errors: map[key]string{}}
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
		r.addError(v)
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

// addError adds the error_state of a resource in a CSDS response (A40).
func (r *Resources) addError(v map[string]any) {
	url, _ := v["typeUrl"].(string)
	name, _ := v["name"].(string)
	state, _ := v["errorState"].(map[string]any)
	if t, ok := resource.TypeOf(url); ok && state != nil {
		details, _ := state["details"].(string)
		is := fmt.Sprintf("is %v", v["clientStatus"])
		if is == "is NACKED" {
			is = "was rejected (NACKED)"
		}
		r.errors[key{t, resource.CanonicalName(name)}] = is + ": " + details
	}
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
