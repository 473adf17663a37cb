// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/resource"
)

// graphWorld is a target whose routes lead to many kinds of clusters, and a server
// that changes them at random. Names are taken from small sets, so that clusters share
// leaves, leaves share endpoints, and much is missing.
type graphWorld struct {
	t       *kit.Trial
	d       *direct
	present [resource.NumTypes]map[string]proto.Message
	version int
}

const graphSize = 7 // clusters, and assignments

func (g *graphWorld) cluster() string   { return fmt.Sprint("c", g.t.Rand.IntN(graphSize)) }
func (g *graphWorld) endpoints() string { return fmt.Sprint("e", g.t.Rand.IntN(graphSize)) }

func (g *graphWorld) draw(f func() string, most int) (names []string) {
	seen := map[string]bool{}
	for range 1 + g.t.Rand.IntN(most) {
		if name := f(); !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// resource returns a version of a resource.
func (g *graphWorld) resource(typ resource.Type) proto.Message {
	switch typ {
	case lds:
		if g.t.Rand.IntN(4) == 0 {
			return inlineListener("svc", routesTo("inline", g.draw(g.cluster, 4)...))
		}
		return listenerTo("svc", fmt.Sprint("r", g.t.Rand.IntN(2)))
	case rds:
		return routesTo(fmt.Sprint("r", g.t.Rand.IntN(2)), g.draw(g.cluster, 6)...)
	case cds:
		switch name := g.cluster(); g.t.Rand.IntN(8) {
		case 0, 1:
			return aggregateOf(name, g.draw(g.cluster, 3)...)
		case 2:
			c := maglev(name, []uint64{101, 65537}[g.t.Rand.IntN(2)])
			c.EdsClusterConfig.ServiceName = g.endpoints()
			return c
		case 3:
			c := ringOf(name, 8192)
			c.EdsClusterConfig.ServiceName = g.endpoints()
			return c
		case 4:
			c := zoneAwareCluster(name)
			c.EdsClusterConfig.ServiceName = g.endpoints()
			return c
		case 5:
			return badCluster(name)
		default:
			return clusterTo(name, g.endpoints())
		}
	}
	switch g.t.Rand.IntN(8) {
	case 0:
		return badEndpoints(g.endpoints())
	case 1, 2:
		return fleetOf("fleet", 1+g.t.Rand.IntN(2), 2)
	}
	return fleetOf(g.endpoints(), 1+g.t.Rand.IntN(3), 1)
}

// step changes one resource, takes one away, or has the server fail.
func (g *graphWorld) step() {
	g.version++
	typ := []resource.Type{lds, rds, rds, cds, cds, cds, cds, eds, eds, eds}[g.t.Rand.IntN(10)]
	m := g.resource(typ)
	_, name := nameOf(m)
	version := fmt.Sprint("v", g.version)
	switch g.t.Rand.IntN(12) {
	case 0:
		delete(g.present[typ], name)
		g.say(typ, version, nil, name)
	case 1:
		g.d.c.mu.Lock()
		g.d.s.failedLocked(errors.New("out of reach"))
		g.d.s.err = nil
		g.d.c.unlock()
	case 2:
		msg := g.d.message(typ, version, g.all(typ))
		wrong := []*discoveryv3.ResourceError{{ResourceName: &discoveryv3.ResourceName{Name: name},
			ErrorDetail: &statuspb.Status{Code: int32([]codes.Code{codes.NotFound, codes.Internal}[g.t.Rand.IntN(2)])}}}
		switch msg := msg.(type) {
		case *discoveryv3.DiscoveryResponse:
			msg.ResourceErrors = wrong
		case *discoveryv3.DeltaDiscoveryResponse:
			msg.ResourceErrors = wrong
		}
		g.d.handle(typ, msg)
	default:
		g.present[typ][name] = m
		g.say(typ, version, m, "")
	}
}

// say has the server send a resource, or that one is gone.
func (g *graphWorld) say(typ resource.Type, version string, m proto.Message, gone string) {
	if g.d.s.variant == (sotw{}) {
		g.d.say(typ, version, g.all(typ))
		return
	}
	var list []proto.Message
	if m != nil {
		list = append(list, m)
	}
	msg := g.d.message(typ, version, list).(*discoveryv3.DeltaDiscoveryResponse)
	if gone != "" {
		msg.RemovedResources = []string{gone}
	}
	g.d.handle(typ, msg)
}

func (g *graphWorld) all(typ resource.Type) (list []proto.Message) {
	for _, name := range slices.Sorted(maps.Keys(g.present[typ])) {
		list = append(list, g.present[typ][name])
	}
	return list
}

// TestEvaluation compares a target after each of many random changes with an evaluation of
// everything from scratch: the configuration, the watched resources, and the resources kept in
// memory. TestModel does so for several targets and whatever streams do.
func TestEvaluation(t *testing.T) {
	runs := 60
	if testing.Short() || raceEnabled {
		runs = 12
	}
	total, served, several := 0, 0, 0
	(&kit.Model{Steps: 150, Run: func(t *kit.Trial) {
		d := newDirectWith(t, Options{TargetOptions: TargetOptions{LocalCluster: "fleet", DropDeleted: t.Seed%2 == 0, MaxHashBytes: 200_000}})
		d.c.node.Locality = inZoneA
		d.speak([]string{"sotw", "delta"}[t.Seed/2%2])
		g := &graphWorld{t: t, d: d}
		for typ := range g.present {
			g.present[typ] = map[string]proto.Message{}
		}
		synctest.Wait()
		if t.Seed%3 > 0 { // a target with other options shares the resources
			d.c.View(nil, "").With(TargetOptions{LocalCluster: "e0", DropDeleted: t.Seed%2 > 0, MaxHashBytes: 100_000}).Watch("svc", "svc", &counter{})
			synctest.Wait()
		}
		var all []*slowTarget
		for _, m := range d.c.targets.managers {
			all = append(all, newSlowTarget(m))
		}
		for range t.Steps() {
			g.step()
			synctest.Wait()
			d.c.mu.Lock()
			for _, slow := range all {
				if err := slow.checkLocked(); err != nil {
					t.Error(err)
				}
				total++
				if c := slow.m.config; c != nil {
					served++
					if len(c.Clusters) > 3 {
						several++
					}
				}
			}
			d.c.mu.Unlock()
		}
	}}).Test(t, runs)
	if total > 150 && (served < total/4 || several < total/20) {
		t.Errorf("served after %d of %d steps, several clusters after %d", served, total, several)
	}
}

// TestEvaluationCost counts the clusters that a target looks at: the changed clusters, however many
// there are in all, and the new ones.
func TestEvaluationCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 500
		d := newDirectWith(t, Options{})
		d.speak("delta")
		var names []string
		var clusters, endpoints []proto.Message
		for i := range n {
			names = append(names, fmt.Sprint("c", i))
			clusters = append(clusters, clusterTo(names[i], names[i]))
			endpoints = append(endpoints, endpointsAt(names[i], 1))
		}
		clusters = append(clusters, aggregateOf("a", "c1", "c2"), clusterTo("new", "c3"))
		synctest.Wait()
		m := d.c.targets.managers[d.c.view().key("svc", "svc")]
		for _, tt := range []struct {
			name  string
			typ   resource.Type
			list  []proto.Message
			looks uint64 // including the lookups of the plan count
		}{
			{"listener", lds, []proto.Message{listenerTo("svc", "r")}, 1},
			{"routes", rds, []proto.Message{routesTo("r", append(names, "a")...)}, 1 + n + 1},
			{"clusters", cds, clusters, 1 + n + 1},
			{"endpoints", eds, endpoints, 1 + n + 1 + 1},
			{"one cluster", cds, []proto.Message{largeCluster("c7", 1)}, 2},
			{"one assignment", eds, []proto.Message{endpointsAt("c7", 2)}, 2},
			{"an assignment that two clusters use", eds, []proto.Message{endpointsAt("c1", 2)}, 3},
			{"the same", eds, []proto.Message{endpointsAt("c1", 2)}, 0},
			{"a new route", rds, []proto.Message{routesTo("r", append(names, "a", "new")...)}, 2},
			{"its cluster", cds, []proto.Message{clusterTo("new", "c3")}, 3},
			{"a route less", rds, []proto.Message{routesTo("r", names[1:]...)}, 2},
		} {
			before := m.evaluation
			d.say(tt.typ, tt.name, tt.list)
			synctest.Wait()
			if got := m.evaluation - before; got != tt.looks {
				t.Errorf("%s: %d looks, want %d", tt.name, got, tt.looks)
			}
		}
		if got := len(m.clusters); got != n-1 {
			t.Errorf("%d clusters are kept, want %d", got, n-1)
		}
	})
}
