// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"bytes"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

const wrapperURL = "type.googleapis.com/envoy.service.discovery.v3.Resource"

// FuzzUnwrap decodes one entry of a response, plain or wrapped in a Resource, to its name and
// to the type of its URL (T-XDS-12, T-XDS-13).
func FuzzUnwrap(f *testing.F) {
	entries := []*anypb.Any{
		wrap(xdstest.Listener("l", "r")),
		wrap(xdstest.RouteConfig("r", xdstest.Route("", "c"))),
		wrap(xdstest.Cluster("c", "")),
		wrap(xdstest.Endpoints("e")),
		{TypeUrl: xdstest.EDS, Value: []byte{0x80}},                      // malformed
		{TypeUrl: xdstest.EDS, Value: []byte("\x0a\x01\xff")},            // a name that is not UTF-8
		{TypeUrl: xdstest.EDS, Value: []byte("\x0a\x01a\x0a\x02bb")},     // the last name counts
		{TypeUrl: "type.googleapis.com/envoy.api.v2.Cluster"},            // of another version
		{TypeUrl: "envoy.config.cluster.v3.Cluster"},                     // no prefix
		wrap(new(discoveryv3.Resource)),                                  // nothing in it
		wrap(&discoveryv3.Resource{Name: "e", Resource: new(anypb.Any)}), // nothing in that
	}
	for _, a := range entries {
		f.Add(a.TypeUrl, a.Value)
		once := wrap(&discoveryv3.Resource{Name: "other", Version: "1", Resource: a})
		f.Add(once.TypeUrl, once.Value)
		twice := wrap(&discoveryv3.Resource{Resource: once}) // the second wrapper is of no type that there is
		f.Add(twice.TypeUrl, twice.Value)
	}
	halves := append(encode(f, &discoveryv3.Resource{Resource: &anypb.Any{TypeUrl: xdstest.EDS}}),
		encode(f, &discoveryv3.Resource{Resource: &anypb.Any{Value: entries[3].Value}})...)
	f.Add(wrapperURL, halves) // are merged
	f.Fuzz(func(t *testing.T, url string, value []byte) {
		entry := &anypb.Any{TypeUrl: url, Value: value}
		gotURL, got, err := resource.Unwrap(entry)
		wantURL, want := url, value
		wrapper := new(discoveryv3.Resource)
		known := url != wrapperURL
		if url == wrapperURL && proto.Unmarshal(value, wrapper) == nil {
			known, wantURL, want = true, wrapper.GetResource().GetTypeUrl(), wrapper.GetResource().GetValue()
			if (err != nil) != (wrapper.Resource == nil) {
				t.Fatalf("%v\nerror is %v", wrapper, err)
			}
		}
		if err == nil && known && (gotURL != wantURL || !bytes.Equal(got, want)) {
			t.Fatalf("Unwrap = %q, %q, want %q, %q", gotURL, got, wantURL, want)
		}
		if err != nil {
			return
		}
		typ, ok := resource.TypeOf(gotURL)
		if ok && typ.URL() != gotURL || ok != isType(gotURL) {
			t.Fatalf("TypeOf(%q) = %v, %v", gotURL, typ, ok)
		}
		if ok {
			checkName(t, typ, got)
		}
	})
}

// isType reports whether url is that of one of the four types.
func isType(url string) bool {
	return url == xdstest.LDS || url == xdstest.RDS || url == xdstest.CDS || url == xdstest.EDS
}

// checkName compares Name with the generated type's, and with Decode's opinion.
func checkName(t *testing.T, typ resource.Type, value []byte) {
	t.Helper()
	name, err := resource.Name(typ, value)
	if (err == nil) != (name != "") {
		t.Fatalf("Name(%v) = %q, %v", typ, name, err)
	}
	m := message(typ)
	if proto.Unmarshal(value, m) == nil {
		field := m.ProtoReflect().Descriptor().Fields().ByNumber(1)
		if want := m.ProtoReflect().Get(field).String(); name != want {
			t.Fatalf("Name(%v) = %q, %v, want %q", typ, name, err, want)
		}
	}
	if _, decodeErr := resource.Decode(typ, value, resource.Options{}); decodeErr == nil && err != nil {
		t.Fatalf("Name(%v) = %v for a valid resource", typ, err)
	} else if decodeErr != nil {
		checkRefusal(t, decodeErr)
	}
}
