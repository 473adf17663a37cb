// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

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
// that earlier ones hide completely are left out.

// methodConfig is one entry of a service config.
type methodConfig struct {
	Name        []map[string]string `json:"name"`
	Timeout     string              `json:"timeout,omitempty"`
	RetryPolicy json.RawMessage     `json:"retryPolicy,omitempty"`
}

// methodConfigs returns the method configs for the routes, and for each route
// whether they say all that the route does.
func methodConfigs(cfg *picker.Config) (methods []methodConfig, expressed []bool) {
	expressed = make([]bool, len(cfg.Routes))
	var earlier []scope // of routes that are not expressed
	hidden := map[scope]bool{}
	configured := false
	for i := range cfg.Routes {
		r := &cfg.Routes[i]
		c := callConfig{timeoutOf(cfg, r), r.Retry}
		s := scopeOf(r)
		s.config = c.key()
		if !s.named || s.clashes(earlier) {
			earlier = append(earlier, s)
			continue
		}
		expressed[i] = true
		if hidden[scope{service: s.service}] && s.service != "" || hidden[scope{service: s.service, method: s.method}] {
			continue
		}
		hidden[scope{service: s.service, method: s.method}] = true
		configured = configured || c != callConfig{}
		m := methodConfig{Name: []map[string]string{s.name()}, RetryPolicy: c.retryJSON()}
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
	return methods, expressed
}

// serviceConfig is what gRPC is told of a channel: the LB policy, always the
// same, the service whose health counts, and what is known of methods.
func (c *Config) serviceConfig(methods []methodConfig) string {
	sc := map[string]any{"loadBalancingConfig": []any{map[string]any{policyName: struct{}{}}}}
	if c.HealthCheckService != "" {
		sc["healthCheckConfig"] = map[string]any{"serviceName": c.HealthCheckService}
	}
	if methods != nil {
		sc["methodConfig"] = methods
	}
	js, err := json.Marshal(sc)
	if err != nil {
		logger.Errorf("xdslb: service config: %v", err) // strings and numbers always encode
	}
	return string(js)
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

func (c callConfig) retryJSON() json.RawMessage {
	if c.retry == nil {
		return nil
	}
	var names []string
	for _, code := range c.retry.On {
		names = append(names, statusName(codes.Code(code)))
	}
	js, err := json.Marshal(map[string]any{
		"maxAttempts":          c.retry.MaxAttempts,
		"initialBackoff":       fmt.Sprintf("%.9fs", c.retry.BaseBackoff.Seconds()),
		"maxBackoff":           fmt.Sprintf("%.9fs", c.retry.MaxBackoff.Seconds()),
		"backoffMultiplier":    2,
		"retryableStatusCodes": names,
	})
	if err != nil {
		return nil // strings and numbers always encode
	}
	return js
}

// key tells configurations apart.
func (c callConfig) key() string { return fmt.Sprintf("%d %s", c.timeout, c.retryJSON()) }

// statusName is a status code as service configs spell it.
func statusName(c codes.Code) string {
	switch c {
	case codes.Canceled:
		return "CANCELLED"
	case codes.DeadlineExceeded:
		return "DEADLINE_EXCEEDED"
	case codes.Internal:
		return "INTERNAL"
	case codes.ResourceExhausted:
		return "RESOURCE_EXHAUSTED"
	default:
		return "UNAVAILABLE"
	}
}

// scope is the set of RPCs a route is for, as a method config names it if it
// can: both empty is everything, method empty is a whole service.
type scope struct {
	service, method string
	named           bool   // a method config can name it, and the route has no other condition
	path            string // what the RPCs' paths begin with, as far as is known
	config          string
}

func scopeOf(r *picker.Route) scope {
	s := scope{path: r.Path.Value}
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

// clashes reports whether an earlier route, configured otherwise, may match
// some of the RPCs.
func (s scope) clashes(earlier []scope) bool {
	for _, e := range earlier {
		if e.config != s.config && (strings.HasPrefix(e.path, s.path) || strings.HasPrefix(s.path, e.path)) {
			return true
		}
	}
	return false
}

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
