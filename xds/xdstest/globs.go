// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstest

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// This file serves glob collections (xRFC TP1): a subscriber of xdstp://…/path/* receives all
// resources xdstp://…/path/name, and their additions, changes and removals. An empty collection
// is reported as removed.

// touched are the members of collections that changed recently, by version, so that a stream
// need not examine all of them. Changes before from are unknown.
type touched struct {
	names []touchedName
	from  uint64
}

type touchedName struct {
	name    string
	version uint64
}

// maxTouched is the minimum number of changes that are kept.
const maxTouched = 1024

func (s *Scripted) touchedLocked(t, name string) {
	if t != LEDS {
		return
	}
	if len(s.touched.names) == 2*maxTouched {
		s.touched.from = s.touched.names[maxTouched-1].version
		s.touched.names = slices.Delete(s.touched.names, 0, maxTouched)
	}
	s.touched.names = append(s.touched.names, touchedName{name, s.version})
}

// globOf returns the collection of which a resource is a member.
func globOf(member string) string {
	path, query, ok := strings.Cut(member, "?")
	glob := path[:strings.LastIndexByte(path, '/')+1] + "*"
	if ok {
		glob += "?" + query
	}
	return glob
}

// isGlob reports whether a name is the name of a collection.
func isGlob(name string) bool {
	path, _, _ := strings.Cut(name, "?")
	return strings.HasPrefix(name, "xdstp:") && strings.HasSuffix(path, "/*")
}

// checkGlobs is checkNames for collections.
func checkGlobs(names []string, wrong func(string, ...any)) {
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		switch {
		case !isGlob(name):
			wrong("TP1: %q is not the name of a glob collection", name)
		case seen[name]:
			wrong("name %q is there twice", name)
		}
		seen[name] = true
	}
}

// forget makes the server send a resource, or the members of a collection, regardless of the
// client's versions.
func (t *deltaStreamType) forget(name string) {
	delete(t.has, name)
	if !isGlob(name) {
		return
	}
	t.fresh[name] = true
	maps.DeleteFunc(t.has, func(member, _ string) bool { return globOf(member) == name })
}

// answerGlobsLocked is answerLocked for collections.
func (st *DeltaStream) answerGlobsLocked() *discoveryv3.DeltaDiscoveryResponse {
	t := st.typeLocked(LEDS)
	if len(t.names) == 0 {
		return nil
	}
	candidates := make(map[string]bool)
	full := t.seen < st.s.touched.from
	for _, c := range slices.Backward(st.s.touched.names) {
		if c.version <= t.seen {
			break
		}
		candidates[c.name] = true
	}
	empty := maps.Clone(t.fresh)
	if full || len(t.fresh) > 0 {
		for name := range t.has {
			candidates[name] = true
		}
		for name := range st.s.served[LEDS] {
			candidates[name] = true
		}
	}
	t.seen = st.s.version
	clear(t.fresh)
	resp := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: LEDS, SystemVersionInfo: strconv.FormatUint(st.s.version, 10)}
	for _, name := range slices.Sorted(maps.Keys(candidates)) {
		glob := globOf(name)
		if !t.names[glob] {
			continue
		}
		delete(empty, glob)
		st.answerMemberLocked(resp, t, name)
	}
	resp.RemovedResources = append(resp.RemovedResources, slices.Sorted(maps.Keys(empty))...)
	if len(resp.Resources)+len(resp.RemovedResources) == 0 {
		return nil
	}
	st.enterLocked(resp)
	return resp
}

// answerMemberLocked adds a resource to a response if the client does not have its current
// version.
func (st *DeltaStream) answerMemberLocked(resp *discoveryv3.DeltaDiscoveryResponse, t *deltaStreamType, name string) {
	r, ok := st.s.served[resp.GetTypeUrl()][name]
	before, has := t.has[name]
	switch version := strconv.FormatUint(r.since, 10); {
	case ok && version != before:
		resp.Resources = append(resp.Resources, &discoveryv3.Resource{Name: name, Version: version, Resource: r.any})
		t.has[name] = version
	case !ok && has:
		resp.RemovedResources = append(resp.RemovedResources, name)
		delete(t.has, name)
	}
}
