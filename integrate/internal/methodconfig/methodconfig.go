// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package methodconfig compiles routes into gRPC's service config, as far as that can express
// them (D6). gRPC applies the timeouts and retries of a service config by itself, also to
// streams and on channels without interceptors. Interceptors apply all other settings.
//
// Routes and method configs differ in their order: the first route that matches is used, and
// the most specific method config. A route can therefore be expressed only if its path names a
// method, a service, or everything, if it has no other condition, and if no earlier route that
// cannot be expressed matches some of its RPCs with other settings. Routes that no RPC can reach,
// such as those hidden by earlier routes, are omitted. A route that cannot be expressed itself needs no interceptor if a
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
// settings for deep paths. O(n log n) comparisons of the paths of n routes.
func Compile(cfg *picker.Config, deep bool) (methods []Config, inServiceConfig, notDeep []bool) {
	inServiceConfig, notDeep = make([]bool, len(cfg.Routes)), make([]bool, len(cfg.Routes))
	earlier := obstacles{routes: cfg.Routes}
	configs := configNumbers{limited: ClustersWith(cfg, LimitsRetries)}
	hidden := map[string]bool{} // paths of the services and methods that methods has
	configured := false
	for i := range cfg.Routes {
		r := &cfg.Routes[i]
		c := callConfig{Timeout(cfg, r), r.Retry}
		s := scopeOf(r)
		s.retried, s.route = r.Retry != nil, i
		s.config = configs.number(c, r)
		s.named = s.named && s.config != inexpressible
		if !s.reachable() || s.named && s.service != "" && (hidden[serviceOf(s.path)] || hidden[s.path]) {
			inServiceConfig[i] = true
			continue
		}
		if !s.named || earlier.prevent(s) {
			earlier.add(s, false)
			continue
		}
		inServiceConfig[i] = true
		hidden[s.path] = true
		for _, e := range earlier.covered(s) {
			inServiceConfig[e] = true
			notDeep[e] = deep && s.isService() && cfg.Routes[e].Path.Kind != picker.MatchExact
		}
		if deep && s.isService() {
			notDeep[i] = true
			earlier.add(s, true)
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

// configNumbers numbers settings: equal settings have equal numbers above 0.
type configNumbers struct {
	limited ClusterSet
	same    map[callConfig]int32 // the retry policies by pointer
	equal   map[string]int32
}

// inexpressible is the number of settings that no method config can express: retries that are
// limited by their cluster, or whose attempts are limited in time.
const inexpressible = 1

// number returns the number of the settings of a route. The cost is independent of the settings
// before.
func (n *configNumbers) number(c callConfig, r *picker.Route) int32 {
	if r.Retry != nil && (r.Retry.PerTryTimeout > 0 || n.limited.Serves(r)) {
		return inexpressible
	}
	if i := n.same[c]; i != 0 {
		return i
	}
	if n.same == nil {
		n.same, n.equal = map[callConfig]int32{}, map[string]int32{}
	}
	key := c.key()
	i := n.equal[key]
	if i == 0 {
		i = inexpressible + 1 + int32(len(n.equal))
		n.equal[key] = i
	}
	n.same[c] = i
	return i
}

// scope is the set of RPCs of a route, in the form of a method config if possible: both fields
// empty means all RPCs, and only method empty means a whole service.
type scope struct {
	service, method string
	named           bool   // a method config can name it, and the route has no other condition
	path            string // the known prefix of the RPCs' paths
	exact           bool   // path is all of it
	config          int32  // a number of configNumbers
	retried         bool   // config has retries
	route           int    // its index
}

// pathScope returns the scope of a route by its path alone. Only its path and exact are set.
func pathScope(r *picker.Route) scope {
	if r.Path.Kind == picker.MatchRegex || r.Path.IgnoreCase {
		return scope{}
	}
	return scope{path: r.Path.Value, exact: r.Path.Kind == picker.MatchExact}
}

func scopeOf(r *picker.Route) scope {
	s := pathScope(r)
	if r.Path.Kind == picker.MatchRegex || r.Path.IgnoreCase {
		return s
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

// reachable reports whether paths of RPCs, which start with a slash, may belong to the scope.
func (s scope) reachable() bool { return strings.HasPrefix(s.path, "/") || s.path == "" && !s.exact }

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
