// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/resource"
)

// Assemble puts a target's configuration together from resources at hand, as a Client does
// from those that servers send: the Listener of the name, the virtual host for the
// authority, and what these lead to. It asks no server and looks no name up, so LOGICAL_DNS
// clusters have no endpoints.
//
// A resource that is invalid, or missing, is as if a server had sent it so, and none before:
// the error is Assemble's if the target cannot be served without it, and otherwise that of
// the clusters that need it. cfg says which certificate providers there are and what the
// first server may do; nil allows any provider and nothing else.
//
// Members of collections (LEDS) need their name: they come in a discovery.v3.Resource.
func Assemble(listener, authority string, resources []*anypb.Any, cfg *bootstrap.Config, opts Options) (*picker.Config, error) {
	a, err := NewAssembly(resources, cfg, opts)
	if err != nil {
		return nil, err
	}
	return a.Config(listener, authority)
}

// An Assembly is resources of which several targets are assembled: they are decoded once. It
// is for one goroutine at a time.
type Assembly struct {
	opts     Options
	node     *corev3.Node // nil is unknown
	entries  map[entryKey]*entry
	halvings uint8 // of the largest hash ring or table of the target at hand

	collections map[string]*resource.MemberList // by name
	members     resource.MemberDecoder
}

// NewAssembly decodes resources: see Assemble.
func NewAssembly(resources []*anypb.Any, cfg *bootstrap.Config, opts Options) (*Assembly, error) {
	a := &Assembly{opts: opts.withDefaults(), entries: map[entryKey]*entry{}, collections: map[string]*resource.MemberList{}}
	decode := resource.Options{
		Policies:     opts.Policies,
		CertProvider: func(string, resource.CertUse) error { return nil },
		Filter:       opts.Filter,
	}
	if cfg != nil {
		a.node = cfg.Node()
		decode.TrustedServer = len(cfg.Servers) > 0 && cfg.Servers[0].TrustedXDSServer
		decode.CertProvider = func(instance string, use resource.CertUse) error {
			return cfg.CheckCertProvider(instance, use == resource.RootCerts)
		}
	}
	for i, r := range resources {
		if err := a.add(r, decode); err != nil {
			return nil, fmt.Errorf("xds: resource %d: %w", i, err)
		}
	}
	return a, nil
}

// Config returns a target's configuration: see Assemble.
func (a *Assembly) Config(listener, authority string) (*picker.Config, error) {
	p, err := a.plan(listener, authority)
	if err != nil {
		return nil, err
	}
	a.halvings = a.opts.halvings(a.hashNeeds(p.clusters))
	out := &picker.Config{Routes: p.routes, Filters: p.filters, MaxStreamDuration: p.maxStreamDuration}
	for _, name := range p.clusters {
		out.Clusters = append(out.Clusters, a.cluster(name))
	}
	return out, nil
}

// add decodes a resource.
func (a *Assembly) add(r *anypb.Any, opts resource.Options) error {
	url, value, err := resource.Unwrap(r)
	if err != nil {
		return err
	}
	t, ok := resource.TypeOf(url)
	if !ok {
		return fmt.Errorf("type %q is none of Listener, RouteConfiguration, Cluster and ClusterLoadAssignment", url)
	}
	if t == resource.LbEndpointType {
		return a.addMember(r, value)
	}
	name, err := resource.Name(t, value)
	if err != nil {
		return err
	}
	key := entryKey{t, canonicalName(name)}
	if a.entries[key] != nil {
		return fmt.Errorf("%v %q occurs twice", t, name)
	}
	e := &entry{key: key}
	if e.value, e.err = resource.Decode(t, value, opts); e.err != nil {
		e.value = nil
	}
	a.entries[key] = e
	return nil
}

// addMember puts a member into its collection. One without a name is of none.
func (a *Assembly) addMember(r *anypb.Any, value []byte) error {
	w, err := resource.WrappingOf(r)
	if err != nil {
		return err
	}
	name := canonicalName(w.Name)
	glob := resource.GlobOf(name)
	if glob == "" {
		return nil // see Assembly.merge
	}
	list := a.collections[glob]
	if list == nil {
		list = &resource.MemberList{}
		a.collections[glob] = list
	}
	m, err := a.members.Decode(name, value)
	if err == nil {
		err = list.Set(name, m)
	}
	return err
}

// merge returns an assignment with the members of its collections, and what is wrong.
func (a *Assembly) merge(e *resource.Endpoints) (merged *resource.Endpoints, note error) {
	members := make([]*resource.Members, len(e.Collections))
	for i, c := range e.Collections {
		if list := a.collections[canonicalName(c.Name)]; list != nil {
			members[i] = list.Commit()
		} else if note == nil {
			note = fmt.Errorf("xds: %v collection %q has no members among the resources; each comes in a discovery.v3.Resource with its name", resource.LbEndpointType, c.Name)
		}
	}
	var m resource.Merger
	merged, _ = m.Merge(e, members)
	return merged, note
}

// lookup returns a resource, or one that says that it is missing.
func (a *Assembly) lookup(t resource.Type, name string) *entry {
	if e := a.entries[entryKey{t, canonicalName(name)}]; e != nil {
		return e
	}
	return &entry{err: fmt.Errorf("xds: %v %q is not among the resources", t, name)}
}

// plan returns the route table of a target: see dependencyManager.desiredLocked.
func (a *Assembly) plan(name, authority string) (*plan, error) {
	e := a.lookup(resource.ListenerType, name)
	listener, _ := e.value.(*resource.Listener)
	if listener == nil {
		return nil, e.err
	}
	if listener.Socket {
		return nil, fmt.Errorf("xds: listener %q is a socket listener, and a client needs one with api_listener", name)
	}
	routes := listener.RouteConfig
	if routes == nil {
		e = a.lookup(resource.RouteConfigType, listener.RouteConfigName)
		if routes, _ = e.value.(*resource.RouteConfig); routes == nil {
			return nil, e.err
		}
	}
	host := routes.Match(authority)
	if host == nil {
		return nil, fmt.Errorf("xds: route configuration %q of listener %q has no virtual host for %q", routes.Name, name, authority)
	}
	return newPlan(listener, host, nil), nil
}

// flatten returns the leaves of what routes name.
func (a *Assembly) flatten(name string) ([]string, error) {
	leaves, _, err := flatten(name, func(name string) *entry { return a.lookup(resource.ClusterType, name) })
	return leaves, err
}

// leaf returns what a leaf is made of, which flatten has found, and why it has no endpoints.
func (a *Assembly) leaf(name string) (of leafInputs, note error) {
	of = leafInputs{cluster: a.lookup(resource.ClusterType, name).value.(*resource.Cluster), halvings: a.halvings}
	if of.cluster.Kind == resource.ClusterDNS {
		return of, fmt.Errorf("xds: %q is not looked up", of.cluster.DNSTarget)
	}
	of.origin = a.origin(of.cluster)
	e := a.lookup(resource.EndpointsType, of.cluster.EDSService)
	if e.value == nil {
		return of, e.err
	}
	of.endpoints = e.value
	if e := e.value.(*resource.Endpoints); len(e.Collections) > 0 {
		of.endpoints, note = a.merge(e)
	}
	return of, note
}

// origin returns where RPCs to a cluster come from: see dependencyManager.originLocked.
func (a *Assembly) origin(c *resource.Cluster) *picker.Origin {
	switch {
	case c.Policy.ZoneAware != nil:
	case c.Policy.LoadAware == nil:
		return nil
	default:
		return &picker.Origin{Locality: localityOf(a.node.GetLocality())}
	}
	fleet := a.lookup(resource.EndpointsType, a.opts.LocalCluster)
	of, _ := fleet.value.(*resource.Endpoints)
	return newOrigin(a.node.GetLocality(), a.opts.LocalCluster, of, fleet.err)
}

// hashNeeds returns what the leaves of clusters need for picks that hash, each leaf
// once.
func (a *Assembly) hashNeeds(clusters []string) map[hashNeed]int {
	seen := map[string]bool{}
	var needs hashNeeds
	for _, name := range clusters {
		leaves, _ := a.flatten(name)
		for _, leaf := range leaves {
			if !seen[leaf] {
				seen[leaf] = true
				of, _ := a.leaf(leaf)
				needs.move(hashNeed{}, hashNeedOf(&of.cluster.Policy, of.endpoints))
			}
		}
	}
	return needs.leaves
}

// cluster returns what routes name.
func (a *Assembly) cluster(name string) *picker.Cluster {
	leaves, err := a.flatten(name)
	if err != nil {
		return &picker.Cluster{Name: name, Err: err}
	}
	out := &picker.Cluster{Name: name}
	for _, leaf := range leaves {
		made, note := a.leaf(leaf)
		out.Leaves = append(out.Leaves, *newLeaf(made, &a.opts, note))
	}
	return out
}
