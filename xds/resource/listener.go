// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// listener converts a Listener. For a socket listener only the name is read: it is for servers,
// and clients do not validate it.
func (d *decoder) listener(m *listenerv3.Listener, p *path) *Listener {
	l := &Listener{Name: p.dot("name").nonEmpty(m.GetName())}
	if m.GetApiListener() == nil {
		l.Socket = true
		return l
	}
	p = p.dot("api_listener").dot("api_listener")
	packed := m.GetApiListener().GetApiListener()
	rest, routes := inlineRoutes(packed.GetValue())
	hcm := new(hcmv3.HttpConnectionManager)
	if !unpack(&anypb.Any{TypeUrl: packed.GetTypeUrl(), Value: rest}, hcm, p) { // A27-LIS-1
		return l
	}
	d.ignoreIn(hcm)
	switch rds, ok := hcm.GetRouteSpecifier().(*hcmv3.HttpConnectionManager_Rds); { // A27-LIS-2
	case routes != nil:
		l.RouteConfig = d.routeConfig(routes, p.dot("route_config"))
	case ok:
		p := p.dot("rds")
		p.dot("config_source").adsOrSelf(rds.Rds.GetConfigSource()) // A27-LIS-3
		l.RouteConfigName = p.dot("route_config_name").nonEmpty(rds.Rds.GetRouteConfigName())
	default:
		p.fail("must have rds or route_config")
	}
	l.MaxStreamDuration = p.dot("common_http_protocol_options").dot("max_stream_duration").
		duration(hcm.GetCommonHttpProtocolOptions().GetMaxStreamDuration())
	l.Filters = d.filters(hcm.GetHttpFilters(), p.dot("http_filters"))

	// A41 requires clients to reject these as well, so that a Listener has the same meaning for
	// clients and servers.
	if n := hcm.GetXffNumTrustedHops(); n != 0 {
		p.dot("xff_num_trusted_hops").refuse(n, "must be 0")
	}
	if len(hcm.GetOriginalIpDetectionExtensions()) != 0 {
		p.dot("original_ip_detection_extensions").fail("must be empty")
	}
	return l
}

// The fields of HttpConnectionManager's oneof route_specifier.
const (
	tagRDS          = 3<<3 | bytesType
	tagRouteConfig  = 4<<3 | bytesType
	tagScopedRoutes = 31<<3 | bytesType
)

// inlineRoutes returns an HttpConnectionManager without its route_config, and the route_config,
// or nil if its route_specifier is another one: the last field of a oneof wins.
func inlineRoutes(hcm []byte) (rest, routes []byte) {
	for r := (reader{rest: hcm}); r.next(); {
		switch r.tag {
		case tagRouteConfig:
			routes = merge(routes, r.bytes)
		case tagRDS, tagScopedRoutes:
			routes = nil
		}
	}
	rest, _ = without(hcm, tagRouteConfig)
	return rest, routes
}
