// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/adaptive_concurrency/v3" // in seeds
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/admission_control/v3"    // in seeds
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// listenerSeeds are listeners, and why each is of interest.
func listenerSeeds() []*listenerv3.Listener {
	fault := &hcmv3.HttpFilter{Name: "fault", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: wrap(&faultv3.HTTPFault{
		Abort: &faultv3.FaultAbort{ErrorType: &faultv3.FaultAbort_HttpStatus{HttpStatus: 503}, Percentage: &typev3.FractionalPercent{Numerator: 5}},
	})}}
	unknown := &hcmv3.HttpFilter{Name: "unknown", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: wrap(new(structpb.Struct))}}
	optional := proto.CloneOf(unknown)
	optional.IsOptional = true
	list := []*listenerv3.Listener{
		{},
		{Name: "socket"}, // for servers
		xdstest.Listener("l", "routes"),
		xdstest.Listener("l", ""),
		xdstest.Listener("l", "routes", fault),
		xdstest.Listener("l", "routes", fault, fault), // a name twice (A39)
		xdstest.Listener("l", "routes", unknown),
		xdstest.Listener("l", "routes", optional),
	}
	for _, m := range routeSeeds() {
		list = append(list, testplane.InlineListener("inline", m, fault))
	}
	return list
}

// FuzzListener takes an LDS resource through decoding, and the routes inside of
// it, if any, to matches.
func FuzzListener(f *testing.F) {
	for _, m := range listenerSeeds() {
		f.Add(encode(f, m), "a.example.com", "/s/m")
	}
	for _, b := range recorded(f, resource.ListenerType, "lds", "listener.txt") {
		f.Add(b, "echo", "/s/m")
	}
	f.Fuzz(func(t *testing.T, value []byte, authority, path string) {
		var v any
		var err error
		spend(t, 512*len(value)+expressions(value), func() { v, err = resource.Decode(resource.ListenerType, value, resource.Options{}) })
		if err != nil {
			checkRefusal(t, err)
			return
		}
		l, m := v.(*resource.Listener), new(listenerv3.Listener)
		if err := proto.Unmarshal(value, m); err != nil {
			t.Fatalf("was accepted, but proto.Unmarshal returns %v", err)
		}
		if l.Name != m.GetName() || l.Name == "" || l.Socket != (m.GetApiListener() == nil) {
			t.Errorf("%v\nis decoded to %+v", m, l)
		}
		if inline := l.RouteConfig != nil; !l.Socket && inline == (l.RouteConfigName != "") || l.MaxStreamDuration < 0 {
			t.Errorf("%v\nis decoded to %+v", m, l)
		}
		names := make(map[string]bool)
		for _, filter := range l.Filters {
			ok := false
			switch c := filter.Config.(type) {
			case *resource.Fault:
				ok = c != nil
			case *resource.Session:
				ok = c != nil && c.TTL >= 0 && (c.Cookie != "" || *c == resource.Session{})
			}
			if !ok || filter.Name == "" || names[filter.Name] {
				t.Errorf("%v\nhas filter %+v", m, filter)
			}
			names[filter.Name] = true
		}
		if l.RouteConfig != nil {
			checkRouteConfig(t, l.RouteConfig, authority, path, "v\n7", 0)
		}
	})
}
