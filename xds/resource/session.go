// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	sessionv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	cookiev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/cookie/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/picker"
)

// A Session is the configuration of stateful session affinity (A55), and of a route's override
// of it: the cookie that identifies the endpoint of a session. The zero value has no effect.
type Session struct {
	Cookie string
	Path   string        // of the RPCs to which the cookie applies; "/" matches all
	TTL    time.Duration // 0 means until the session ends
}

// parseSession converts a StatefulSession. A session whose state is not in a cookie has no
// effect: Istio sends the filter as required to services that request it, and sending an RPC to
// any endpoint is better than failing the channel.
func parseSession(m proto.Message, p *path) any {
	s, _ := m.(*sessionv3.StatefulSession)
	state := s.GetSessionState().GetTypedConfig()
	p = p.dot("session_state").dot("typed_config")
	cookie := new(cookiev3.CookieBasedSessionState)
	if kind := baseName(state.GetTypeUrl()); kind != typeName(cookie) {
		if kind != "" {
			p.to.ignore("StatefulSession.session_state " + quote(kind))
		}
		return &Session{}
	}
	if !unpack(state, cookie, p) {
		return &Session{}
	}
	p = p.dot("cookie")
	c := cookie.GetCookie()
	session := &Session{
		Cookie: p.dot("name").nonEmpty(c.GetName()),
		Path:   c.GetPath(),
		TTL:    p.dot("ttl").duration(c.GetTtl()),
	}
	if session.Path == "" {
		session.Path = "/"
	}
	return session
}

// parseSessionOverride converts a StatefulSessionPerRoute.
func parseSessionOverride(m proto.Message, p *path) any {
	s, _ := m.(*sessionv3.StatefulSessionPerRoute)
	if s.GetStatefulSession() == nil { // disabled
		return &Session{}
	}
	return parseSession(s.GetStatefulSession(), p.dot("stateful_session"))
}

// overrideHosts converts override_host_status. Statuses that do not apply to clients are
// skipped (A55).
func overrideHosts(m *clusterv3.Cluster) (hosts picker.OverrideHosts) {
	set := m.GetCommonLbConfig().GetOverrideHostStatus()
	if set == nil {
		return hosts
	}
	hosts.NotHealthy = true
	for _, status := range set.GetStatuses() {
		switch status {
		case corev3.HealthStatus_UNKNOWN, corev3.HealthStatus_HEALTHY:
			hosts.NotHealthy = false
		case corev3.HealthStatus_DRAINING:
			hosts.Draining = true
		}
	}
	return hosts
}
