// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package cookbook

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	sessionv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	cookiev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/cookie/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/type/http/v3"
	"google.golang.org/protobuf/proto"
)

// filter returns an HTTP filter.
func filter(name string, config proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: anyOf(config)}}
}

// listener returns Listener "orders", which gets the RouteConfiguration of the same name by RDS. The
// router is the last filter.
func listener(filters ...*hcmv3.HttpFilter) *listenerv3.Listener {
	return listenerOf(&hcmv3.HttpConnectionManager{
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: ads(), RouteConfigName: "orders"}},
		HttpFilters:    append(filters, filter("router", &routerv3.Router{})),
	})
}

func listenerOf(hcm *hcmv3.HttpConnectionManager) *listenerv3.Listener {
	return &listenerv3.Listener{Name: "orders", ApiListener: &listenerv3.ApiListener{ApiListener: anyOf(hcm)}}
}

// InlineRoutes has the routes in the Listener, without RDS.
func InlineRoutes() *listenerv3.Listener {
	return listenerOf(&hcmv3.HttpConnectionManager{
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: routes(all())},
		HttpFilters:    []*hcmv3.HttpFilter{filter("router", &routerv3.Router{})},
	})
}

// ListenerTimeout limits all RPCs of a target to ten seconds. Routes may replace the limit.
func ListenerTimeout() *listenerv3.Listener {
	return listenerOf(&hcmv3.HttpConnectionManager{
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{MaxStreamDuration: seconds(10)},
		RouteSpecifier:            &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: ads(), RouteConfigName: "orders"}},
		HttpFilters:               []*hcmv3.HttpFilter{filter("router", &routerv3.Router{})},
	})
}

// FaultInjection delays 10 % of the RPCs by two seconds.
func FaultInjection() *listenerv3.Listener { return listener(filter("fault", delayed(10))) }

// StatefulSession keeps the RPCs of a session at one endpoint, by a cookie.
func StatefulSession() *listenerv3.Listener {
	return listener(filter("session", &sessionv3.StatefulSession{
		SessionState: extension("cookie", &cookiev3.CookieBasedSessionState{
			Cookie: &httpv3.Cookie{Name: "session", Path: "/", Ttl: seconds(3600)},
		}),
	}))
}
