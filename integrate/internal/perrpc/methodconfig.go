// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/xdslb/xdslb/picker"
)

// gRPC applies timeouts and retries by itself, streams included, if a service
// config says so for a method, for a service, or for everything. Where routes
// can be said that way they are; the interceptors of DialOptions do the rest
// (D6).
//
// The two differ in their order: of routes the first match counts, of method
// configs the most specific. A route is therefore expressible only if its path
// names one of the three, it has no other condition, and no earlier route that
// could match the same RPCs is inexpressible and configured otherwise. Routes
// that earlier ones hide completely are left out. A route that is not expressible
// itself is in the service config all the same if a later one is expressed that
// covers all its RPCs, configured alike: gRPC does for its RPCs what it asks for.
//
// A path prefix "/x/" is a service to gRPC, whose methods have no slash. Paths with more parts,
// such as "/x/pkg.Service/Method", gRPC takes for those of another service. For them the
// prefix is another route, inexpressible.

// MethodConfig is one entry of a service config.
type MethodConfig struct {
	Name        []map[string]string `json:"name"`
	Timeout     string              `json:"timeout,omitempty"`
	RetryPolicy json.RawMessage     `json:"retryPolicy,omitempty"`
}

// Compile returns what a configuration's routes say about RPCs besides where
// they go: through gRPC's service config as far as that goes, the rest as plans for
// interceptors. It is O(routes²) in the worst case.
func Compile(cfg *picker.Config, opts CompileOptions) ([]MethodConfig, *Plans) {
	methods, inServiceConfig, notDeep := methodConfigs(cfg, opts.Intercepted)
	return methods, makePlans(cfg, inServiceConfig, notDeep, opts)
}

// CompileOptions are what plans are made of besides the configuration.
type CompileOptions struct {
	// Before are the plans before, whose filters have counted what the new ones go on
	// with; nil is none.
	Before *Plans
	// Intercepted says that the channel has interceptors. Without them, long paths get what
	// gRPC makes of them.
	Intercepted bool
}

// methodConfigs returns the method configs for the routes, and for each route
// whether they say all that the route does. With deep, notDeep says of which of these routes
// they do not say it for paths of more than two parts.
func methodConfigs(cfg *picker.Config, deep bool) (methods []MethodConfig, inServiceConfig, notDeep []bool) {
	inServiceConfig, notDeep = make([]bool, len(cfg.Routes)), make([]bool, len(cfg.Routes))
	var earlier []scope // of routes that are not inServiceConfig, or notDeep
	hidden := map[scope]bool{}
	limits := retryLimitsOf(cfg)
	configured := false
	for i := range cfg.Routes {
		r := &cfg.Routes[i]
		c := callConfig{timeoutOf(cfg, r), r.Retry}
		s := scopeOf(r)
		s.config, s.retried, s.route = c.key(), r.Retry != nil, i
		if limits.limited(r) || hedges(r) {
			s.named, s.config = false, "limited or hedged "+s.config // no other route's method config says this
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
		m := MethodConfig{Name: []map[string]string{s.name()}, RetryPolicy: retryJSON(c.retry)}
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

// callConfig is what a route says about its RPCs besides where they go.
type callConfig struct {
	timeout time.Duration // 0 is none
	retry   *picker.RetryPolicy
}

// timeoutOf is A31's choice: the route's max_stream_duration if it has one,
// else the listener's; 0 is none.
func timeoutOf(cfg *picker.Config, r *picker.Route) time.Duration {
	if r.Timeout != nil {
		return *r.Timeout
	}
	return cfg.MaxStreamDuration
}

// retryJSON is a retry policy as service configs have it.
func retryJSON(r *picker.RetryPolicy) json.RawMessage {
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

// key tells configurations apart.
func (c callConfig) key() string { return fmt.Sprintf("%d %s", c.timeout, retryJSON(c.retry)) }

// scope is the set of RPCs a route is for, as a method config names it if it
// can: both empty is everything, method empty is a whole service.
type scope struct {
	service, method string
	named           bool   // a method config can name it, and the route has no other condition
	path            string // what the RPCs' paths begin with, as far as is known
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

// overlaps reports whether a method config for s would be applied to RPCs of an
// earlier route and should not be: because the route is configured otherwise, or
// because it has the same retries and needs the interceptor's for its other RPCs,
// which would multiply gRPC's.
func (s scope) overlaps(earlier []scope) bool {
	for _, e := range earlier {
		if s.meets(e) && (e.config != s.config || e.retried && !s.covers(e)) {
			return true
		}
	}
	return false
}

// meets reports whether an RPC may have the path of both.
func (s scope) meets(e scope) bool {
	if s.service != "" && (e.deep || isDeep(e.path)) {
		return false // gRPC looks for another service
	}
	return !s.exact && strings.HasPrefix(e.path, s.path) || !e.exact && strings.HasPrefix(s.path, e.path) || e.path == s.path
}

// covers reports whether a method config for s is applied to all RPCs of e.
func (s scope) covers(e scope) bool {
	switch {
	case s.service == "":
		return true
	case e.deep || isDeep(e.path):
		return false
	case s.method == "":
		return strings.HasPrefix(e.path, "/"+s.service+"/")
	default:
		return e.exact && e.path == s.path
	}
}

// isService reports whether the scope is a service's.
func (s scope) isService() bool { return s.service != "" && s.method == "" }

// isDeep reports whether a path has more than two parts.
func isDeep(path string) bool { return strings.Count(path, "/") > 2 }

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
