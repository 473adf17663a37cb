// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package methodconfig compiles routes into gRPC's service config, as far as that can express
// them (D6). gRPC applies the timeouts and retries of a service config by itself, also to
// streams and on channels without interceptors. Interceptors apply all other settings.
//
// Routes and method configs differ in their order: the first route that matches is used, and
// the most specific method config. A route can therefore be expressed only if its path names a
// method, a service, or everything, if it has no other condition, and if no earlier route that
// cannot be expressed matches some of its RPCs with other settings. Routes that are hidden by
// earlier routes are omitted. A route that cannot be expressed itself needs no interceptor if a
// later route with the same settings is expressed and covers all of its RPCs.
//
// gRPC takes the path prefix "/x/" for a service whose methods have no slash. A path with more
// parts, such as "/x/pkg.Service/Method", belongs to another service. For such paths, called
// deep here, the prefix is another route, which cannot be expressed.
package methodconfig

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/xdslb/xdslb/picker"
)

// Config is one entry of a service config.
type Config struct {
	Name        []map[string]string `json:"name"`
	Timeout     string              `json:"timeout,omitempty"`
	RetryPolicy json.RawMessage     `json:"retryPolicy,omitempty"`
}

// Compile returns the method configs for the routes, and for each route whether they express all
// of its settings. With deep, notDeep reports for which of these routes they do not express the
// settings for deep paths. O(routes²) in the worst case.
func Compile(cfg *picker.Config, deep bool) (methods []Config, inServiceConfig, notDeep []bool) {
	inServiceConfig, notDeep = make([]bool, len(cfg.Routes)), make([]bool, len(cfg.Routes))
	var earlier []scope // of routes that are not inServiceConfig, or notDeep
	hidden := map[scope]bool{}
	limited := ClustersWith(cfg, LimitsRetries)
	configured := false
	for i := range cfg.Routes {
		r := &cfg.Routes[i]
		c := callConfig{Timeout(cfg, r), r.Retry}
		s := scopeOf(r)
		s.config, s.retried, s.route = c.key(), r.Retry != nil, i
		if limited.Serves(r) && r.Retry != nil || r.Retry != nil && r.Retry.PerTryTimeout > 0 {
			s.named, s.config = false, "limited or timed "+s.config // differs from all method configs
		}
		if !s.named || s.overlaps(earlier) {
			earlier = append(earlier, s)
			continue
		}
		inServiceConfig[i] = true
		if hidden[scope{service: s.service}] && s.service != "" || hidden[scope{service: s.service, method: s.method}] {
			continue
		}
		hidden[scope{service: s.service, method: s.method}] = true
		if deep && s.isService() {
			earlier = append(earlier, s)
		}
		for k := range earlier {
			if e := &earlier[k]; s.covers(*e) {
				e.deep = deep && s.isService() && !e.exact
				inServiceConfig[e.route], notDeep[e.route] = true, e.deep
			}
		}
		configured = configured || c != callConfig{}
		m := Config{Name: []map[string]string{s.name()}, RetryPolicy: RetryPolicy(c.retry)}
		if c.timeout > 0 {
			m.Timeout = fmt.Sprintf("%.9fs", c.timeout.Seconds())
		}
		methods = append(methods, m)
		if s.service == "" {
			break // everything: no later route matches an RPC
		}
	}
	if !configured {
		methods = nil
	}
	return methods, inServiceConfig, notDeep
}

// callConfig has the settings of a route's RPCs.
type callConfig struct {
	timeout time.Duration // 0 means no timeout
	retry   *picker.RetryPolicy
}

// Timeout returns the timeout of a route (A31): its own max_stream_duration, or else the
// listener's. 0 means no timeout.
func Timeout(cfg *picker.Config, r *picker.Route) time.Duration {
	if r.Timeout != nil {
		return *r.Timeout
	}
	return cfg.MaxStreamDuration
}

// RetryPolicy returns a retry policy in the form of service configs.
func RetryPolicy(r *picker.RetryPolicy) json.RawMessage {
	if r == nil {
		return nil
	}
	js, err := json.Marshal(map[string]any{
		"maxAttempts":          r.MaxAttempts,
		"initialBackoff":       fmt.Sprintf("%.9fs", r.BaseBackoff.Seconds()),
		"maxBackoff":           fmt.Sprintf("%.9fs", r.MaxBackoff.Seconds()),
		"backoffMultiplier":    2,
		"retryableStatusCodes": r.On, // A6 allows numbers
	})
	if err != nil {
		return nil // strings and numbers always encode
	}
	return js
}

// key returns a string that differs for different configurations.
func (c callConfig) key() string { return fmt.Sprintf("%d %s", c.timeout, RetryPolicy(c.retry)) }

// scope is the set of RPCs of a route, in the form of a method config if possible: both fields
// empty means all RPCs, and only method empty means a whole service.
type scope struct {
	service, method string
	named           bool   // a method config can name it, and the route has no other condition
	path            string // the known prefix of the RPCs' paths
	exact           bool   // path is all of it
	config          string
	deep            bool // only the paths with more than two parts
	retried         bool // config has retries
	route           int  // its index
}

func scopeOf(r *picker.Route) scope {
	s := scope{path: r.Path.Value, exact: r.Path.Kind == picker.MatchExact}
	if r.Path.Kind == picker.MatchRegex || r.Path.IgnoreCase {
		return scope{}
	}
	if len(r.Headers) > 0 || r.Fraction != nil && *r.Fraction < 1e6 {
		return s
	}
	service, method, slash := strings.Cut(strings.TrimPrefix(r.Path.Value, "/"), "/")
	switch {
	case r.Path.Kind == picker.MatchPrefix && (r.Path.Value == "" || r.Path.Value == "/"):
		s.named = true
	case !strings.HasPrefix(r.Path.Value, "/") || !slash || service == "" || strings.Contains(method, "/"):
	case r.Path.Kind == picker.MatchPrefix && method == "", r.Path.Kind == picker.MatchExact && method != "":
		s.named, s.service, s.method = true, service, method
	}
	return s
}

// overlaps reports whether a method config for s would wrongly be applied to RPCs of an earlier
// route. Either the earlier route has other settings, or it has the same retries and needs
// interceptors for its other RPCs, whose retries would multiply with gRPC's.
func (s scope) overlaps(earlier []scope) bool {
	for _, e := range earlier {
		if s.meets(e) && (e.config != s.config || e.retried && !s.covers(e)) {
			return true
		}
	}
	return false
}

// meets reports whether a path of an RPC may belong to both.
func (s scope) meets(e scope) bool {
	if s.service != "" && (e.deep || IsDeep(e.path)) {
		return false // gRPC looks for another service
	}
	return !s.exact && strings.HasPrefix(e.path, s.path) || !e.exact && strings.HasPrefix(s.path, e.path) || e.path == s.path
}

// covers reports whether a method config for s is applied to all RPCs of e.
func (s scope) covers(e scope) bool {
	switch {
	case s.service == "":
		return true
	case e.deep || IsDeep(e.path):
		return false
	case s.method == "":
		return strings.HasPrefix(e.path, "/"+s.service+"/")
	default:
		return e.exact && e.path == s.path
	}
}

// isService reports whether the scope is a whole service.
func (s scope) isService() bool { return s.service != "" && s.method == "" }

// IsDeep reports whether a path has more than two parts.
func IsDeep(path string) bool { return strings.Count(path, "/") > 2 }

func (s scope) name() map[string]string {
	n := map[string]string{}
	if s.service != "" {
		n["service"] = s.service
	}
	if s.method != "" {
		n["method"] = s.method
	}
	return n
}
