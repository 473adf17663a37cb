// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A view is the set of headers that a client considers for an RPC.
type view struct {
	binary      bool // headers that end in -bin
	contentType bool // the content type, which gRPC adds
	empty       bool // headers whose value is empty, as present
}

// gRFC is A28's view, and ours. stockView is grpc-go's.
var (
	gRFC      = view{contentType: true, empty: true}
	stockView = view{binary: true}
)

// routesOf returns the routes that a caller's RPCs may take, as their places in the
// list: more than one if routes are drawn.
func (w *world) routesOf(k *caller, v view) (list []int) {
	h := w.hostOf()
	if h == nil {
		return nil
	}
	headers := v.headers(k)
	for i := range h.routes {
		r := &h.routes[i]
		if !r.matches(k.method, headers, v) {
			continue
		}
		if r.fraction.of == 0 || r.fraction.n >= r.fraction.of {
			return append(list, i)
		}
		if r.fraction.n > 0 {
			list = append(list, i)
		}
	}
	return list
}

// hostOf is the virtual host of the service.
func (w *world) hostOf() *host {
	for _, domain := range []string{service, "*.example", "shop.*", "*"} {
		for i := range w.hosts {
			if w.hosts[i].domains[0] == domain {
				return &w.hosts[i]
			}
		}
	}
	return nil
}

// headers returns the visible headers by name, with several values joined.
func (v view) headers(k *caller) map[string]string {
	all := map[string][]string{}
	for i := 0; i < len(k.headers); i += 2 {
		all[k.headers[i]] = append(all[k.headers[i]], k.headers[i+1])
	}
	if v.contentType {
		all["content-type"] = []string{"application/grpc"}
	}
	seen := map[string]string{}
	for name, values := range all {
		value := strings.Join(values, ",")
		if strings.HasSuffix(name, "-bin") && !v.binary {
			continue
		}
		seen[name] = value
	}
	return seen
}

func (r *route) matches(method string, headers map[string]string, v view) bool {
	path := r.path
	if r.ignoreCase && r.kind != matchRegex {
		path, method = strings.ToLower(path), strings.ToLower(method)
	}
	switch r.kind {
	case matchPrefix:
		if !strings.HasPrefix(method, path) {
			return false
		}
	case matchExact:
		if method != path {
			return false
		}
	case matchRegex:
		if !fullMatch(path, method) {
			return false
		}
	}
	return !slices.ContainsFunc(r.headers, func(h header) bool { return !h.matches(headers, v) })
}

func fullMatch(re, text string) bool { return regexp.MustCompile(`^(?:` + re + `)$`).MatchString(text) }

func (h *header) matches(headers map[string]string, v view) bool {
	value, there := headers[strings.ToLower(h.name)]
	if h.kind == matchPresent {
		there = there && (value != "" || v.empty)
		return (there == (h.value == "true")) != h.invert
	}
	if !there {
		return false
	}
	pattern := h.value
	if h.ignoreCase && h.kind != matchRegex {
		value, pattern = strings.ToLower(value), strings.ToLower(pattern)
	}
	var match bool
	switch h.kind {
	case matchExact:
		match = value == pattern
	case matchPrefix:
		match = strings.HasPrefix(value, pattern)
	case matchSuffix:
		match = strings.HasSuffix(value, pattern)
	case matchContain:
		match = strings.Contains(value, pattern)
	case matchRegex:
		match = fullMatch(pattern, value)
	case matchRange:
		lo, hi, _ := strings.Cut(pattern, "-")
		n, err := strconv.ParseInt(value, 10, 64)
		start, _ := strconv.ParseInt(lo, 10, 64)
		end, _ := strconv.ParseInt(hi, 10, 64)
		match = err == nil && start <= n && n < end
	}
	return match != h.invert
}

// targets are the leaf clusters that a caller's RPCs may go to.
func (w *world) targets(k *caller) []*cluster {
	names := map[string]*cluster{}
	h := w.hostOf()
	for _, i := range w.routesOf(k, gRFC) {
		for _, c := range h.routes[i].clusters {
			for _, leaf := range w.leaves(c.cluster) {
				names[leaf.name] = leaf
			}
		}
	}
	return slices.Collect(maps.Values(names))
}
