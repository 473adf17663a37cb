// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstest

import (
	"bytes"
	"fmt"
	"sync"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/log"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

// The types of resources, as passed to a Server's methods.
const (
	LDS = "type.googleapis.com/envoy.config.listener.v3.Listener"
	RDS = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	CDS = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	EDS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
)

// Resources are the resources that a Server serves. The zero value is empty.
type Resources struct {
	Listeners []*listenerv3.Listener
	Routes    []*routev3.RouteConfiguration
	Clusters  []*clusterv3.Cluster
	Endpoints []*endpointv3.ClusterLoadAssignment
}

// Set replaces the served resources by r. A resource with the same encoding as before keeps its
// version and is not sent again. Clients receive new clusters and endpoints before the
// resources that refer to them, and lose old ones afterwards. If there is an error, such as a
// resource without a name or a duplicate name, Set has no effect.
//
// Set does not retain the messages. O(size of r).
func (s *Server) Set(r Resources) error { return s.put(r, true) }

// Update is Set without removals: resources that are not in r remain.
func (s *Server) Update(r Resources) error { return s.put(r, false) }

// Resend assigns a new version to a resource of type t without changing its content, which
// sends it to all subscribers again. It returns an error if the resource does not exist.
func (s *Server) Resend(t, name string) error {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	c := s.store.byType[t]
	if c == nil || c.encoded[name] == nil {
		return fmt.Errorf("xdstest: resend %s %q: not served", t, name)
	}
	return c.update(map[string][]byte{name: c.encoded[name]}, nil)
}

func (s *Server) put(r Resources, replace bool) error {
	encoded, err := r.encode()
	if err != nil {
		return err
	}
	defer s.events.notify()
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	added, removed := make(map[string]map[string][]byte), make(map[string][]string)
	for t, c := range s.store.byType {
		added[t], removed[t] = c.diff(encoded[t], replace)
	}
	for _, step := range []struct {
		typeURL     string
		add, remove bool
	}{
		{CDS, true, false}, {EDS, true, false},
		{LDS, true, true}, {RDS, true, true},
		{CDS, false, true}, {EDS, false, true},
	} {
		var add map[string][]byte
		var remove []string
		if step.add {
			add = added[step.typeURL]
		}
		if step.remove {
			remove = removed[step.typeURL]
		}
		if err := s.store.byType[step.typeURL].update(add, remove); err != nil {
			return err
		}
	}
	return nil
}

// encode returns the resources by type and name.
func (r *Resources) encode() (map[string]map[string][]byte, error) {
	all := map[string]map[string][]byte{LDS: {}, RDS: {}, CDS: {}, EDS: {}}
	add := func(t, name string, m proto.Message) error {
		if name == "" {
			return fmt.Errorf("xdstest: resource of type %s: missing name", t)
		}
		if all[t][name] != nil {
			return fmt.Errorf("xdstest: resource of type %s: duplicate name %q", t, name)
		}
		// Deterministic, since another order of a map is not a change. Never nil, even if
		// empty.
		b, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend([]byte{}, m)
		if err != nil {
			return fmt.Errorf("xdstest: encode %s %q: %w", t, name, err)
		}
		all[t][name] = b
		return nil
	}
	for _, m := range r.Listeners {
		if err := add(LDS, m.GetName(), m); err != nil {
			return nil, err
		}
	}
	for _, m := range r.Routes {
		if err := add(RDS, m.GetName(), m); err != nil {
			return nil, err
		}
	}
	for _, m := range r.Clusters {
		if err := add(CDS, m.GetName(), m); err != nil {
			return nil, err
		}
	}
	for _, m := range r.Endpoints {
		if err := add(EDS, m.GetClusterName(), m); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// store has all served resources.
type store struct {
	mu     sync.Mutex
	byType map[string]*collection // constant
	mux    cache.MuxCache
}

func (s *store) init() {
	s.byType = make(map[string]*collection)
	s.mux = cache.MuxCache{
		Classify:      func(req *cache.Request) string { return req.GetTypeUrl() },
		ClassifyDelta: func(req *cache.DeltaRequest) string { return req.GetTypeUrl() },
		Caches:        make(map[string]cache.Cache),
	}
	for _, t := range []string{LDS, RDS, CDS, EDS} {
		c := &collection{
			cache:   cache.NewLinearCache(t, cache.WithLogger(log.LoggerFuncs{})),
			encoded: make(map[string][]byte),
			changed: make(map[string]uint64),
		}
		s.byType[t], s.mux.Caches[t] = c, c.cache
	}
}

// pending returns the latest version of type t that a client has not answered yet, among the
// versions that changed the subscribed names, each since the given version; or 0 if it has
// answered all.
func (s *store) pending(t string, sub *subscription) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.byType[t]
	var latest uint64
	for name, since := range sub.names {
		v := c.changed[name]
		if c.encoded[name] == nil && (v <= since || t == RDS || t == EDS) {
			continue // never existed for this client, or of a type without explicit removals
		}
		if v > max(sub.acked, sub.claimed[name]) {
			latest = max(latest, v)
		}
	}
	return latest
}

// version returns the current version of type t.
func (s *store) version(t string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.byType[t]; c != nil {
		return c.version
	}
	return 0
}

// A collection has all resources of one type. Its fields are guarded by store.mu.
type collection struct {
	cache   *cache.LinearCache
	encoded map[string][]byte // by name; never nil for an existing resource
	changed map[string]uint64 // version of the last change or removal, by name
	version uint64            // counter for the cache's versions
}

// diff returns the resources of next that are new or changed, and, if remove is set, the names
// of the served resources that are not in next.
func (c *collection) diff(next map[string][]byte, remove bool) (added map[string][]byte, removed []string) {
	added = make(map[string][]byte)
	for name, b := range next {
		if old := c.encoded[name]; old == nil || !bytes.Equal(old, b) {
			added[name] = b
		}
	}
	if remove {
		for name := range c.encoded {
			if next[name] == nil {
				removed = append(removed, name)
			}
		}
	}
	return added, removed
}

// update publishes changes as one new version, if there are any.
func (c *collection) update(add map[string][]byte, remove []string) error {
	if len(add) == 0 && len(remove) == 0 {
		return nil
	}
	c.version++
	resources := make(map[string]types.Resource, len(add))
	for name, b := range add {
		c.encoded[name], c.changed[name] = b, c.version
		resources[name] = raw(b)
	}
	for _, name := range remove {
		delete(c.encoded, name)
		c.changed[name] = c.version
	}
	if err := c.cache.UpdateResources(resources, remove); err != nil {
		return fmt.Errorf("xdstest: update the cache: %w", err)
	}
	return nil
}

// raw returns a message with encoding b, using the fact that a message may contain any unknown
// fields. The cache only encodes it.
func raw(b []byte) proto.Message {
	m := new(emptypb.Empty)
	m.ProtoReflect().SetUnknown(b)
	return m
}
