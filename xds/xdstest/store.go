// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstest

import (
	"bytes"
	"errors"
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

// The types of resources, as a Server's methods take them.
const (
	LDS = "type.googleapis.com/envoy.config.listener.v3.Listener"
	RDS = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	CDS = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	EDS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	// LEDS is that of the members of glob collections, which a Scripted serves to incremental
	// streams.
	LEDS = "type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint"
)

// Resources is what a Server serves. The zero value is none.
type Resources struct {
	Listeners []*listenerv3.Listener
	Routes    []*routev3.RouteConfiguration
	Clusters  []*clusterv3.Cluster
	Endpoints []*endpointv3.ClusterLoadAssignment
	// Members are those of glob collections (LEDS), by name. Only a Scripted serves them.
	Members map[string]*endpointv3.LbEndpoint
}

// Set replaces what is served by r. A resource that encodes to the same bytes as
// before keeps its version and is not sent again. Clients are sent new clusters
// and endpoints before what refers to them, and lose old ones after it. Nothing
// changes if there is an error: a resource without a name, or two with the same.
//
// The messages are the caller's again when Set returns. O(size of r).
func (s *Server) Set(r Resources) error { return s.put(r, true) }

// Update is Set without removing anything: what r does not name is served as
// before.
func (s *Server) Update(r Resources) error { return s.put(r, false) }

// Resend gives a resource of type t a new version and the same content, which
// sends it again to those who subscribed to it. It is an error if there is none.
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
	if len(r.Members) > 0 {
		return errors.New("xdstest: a Server has no glob collections, and a Scripted does")
	}
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
	all := map[string]map[string][]byte{LDS: {}, RDS: {}, CDS: {}, EDS: {}, LEDS: {}}
	add := func(t, name string, m proto.Message) error {
		if name == "" {
			return fmt.Errorf("xdstest: a resource of type %s has no name", t)
		}
		if all[t][name] != nil {
			return fmt.Errorf("xdstest: two resources of type %s are named %q", t, name)
		}
		// Deterministic, since a map in another order is not a change. Not nil,
		// even when it is empty.
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
	for name, m := range r.Members {
		if err := add(LEDS, name, m); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// store is everything that is served.
type store struct {
	mu     sync.Mutex
	byType map[string]*collection // never changes
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

// pending returns the latest version of type t that a client has yet to answer,
// of those that touched the names it subscribed to, each since the given
// version; or 0 if it has answered all.
func (s *store) pending(t string, sub *subscription) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.byType[t]
	var latest uint64
	for name, since := range sub.names {
		v := c.changed[name]
		if c.encoded[name] == nil && (v <= since || t == RDS || t == EDS) {
			continue // never there for this client, or of a type that is removed tacitly
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

// A collection is all resources of one type. Its fields are guarded by store.mu.
type collection struct {
	cache   *cache.LinearCache
	encoded map[string][]byte // by name; never nil for a resource that is served
	changed map[string]uint64 // version of the last change or removal, by name
	version uint64            // what the cache numbers its versions by
}

// diff returns those of next that are not served as they are, and the names of
// those served that next lacks, if they are to be removed.
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

// update makes one new version of changes, if there are any.
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

// raw returns a message that encodes to b: a message may have any fields that
// its type does not know. The cache only encodes it, and finds it encoded.
func raw(b []byte) proto.Message {
	m := new(emptypb.Empty)
	m.ProtoReflect().SetUnknown(b)
	return m
}
