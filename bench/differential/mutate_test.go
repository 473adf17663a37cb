// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// mutate returns a later state of the world, and the changes.
func (g *gen) mutate(before *world) (w *world, news []string) {
	w = before.clone()
	for range 1 + g.IntN(3) {
		news = append(news, g.change(w))
	}
	return w, news
}

// change makes one change.
func (g *gen) change(w *world) string {
	switch n := g.IntN(100); {
	case n < 25:
		return g.changeRoutes(w)
	case n < 60:
		return g.changeCluster(w, &w.clusters[g.IntN(len(w.clusters))])
	case n < 66:
		w.fault = nil
		if g.chance(70) {
			w.fault = g.fault()
		}
		return fmt.Sprintf("the listener's fault: %v", w.fault)
	case n < 70:
		if g.timeouts {
			w.maxStream = pick(g, 0, 2*time.Second, 3*time.Second)
		}
		return fmt.Sprintf("the listener's max_stream_duration: %v", w.maxStream)
	case n < 72:
		w.inline = !w.inline
		return "routes inline or not"
	case n < 84 && !g.without("removals"):
		return g.removeOrReturn(w)
	case n < 94 && !g.without("defects"):
		return g.breakOrMend(w)
	case !g.without("outages"):
		return g.reach(w)
	}
	return g.changeRoutes(w)
}

func (g *gen) changeRoutes(w *world) string {
	h := &w.hosts[g.IntN(len(w.hosts))]
	i := g.IntN(len(h.routes))
	switch n := g.IntN(10); {
	case n < 3:
		h.routes = slices.Insert(h.routes, i, g.route(w))
		return "a new route"
	case n < 5 && len(h.routes) > 1:
		h.routes = slices.Delete(h.routes, i, i+1)
		return "a route less"
	case n < 6:
		h.routes[0], h.routes[i] = h.routes[i], h.routes[0]
		return "routes in another order"
	case n < 7:
		h.retry = nil
		if g.chance(60) {
			h.retry = g.retry()
		}
		return "another retry policy of a host"
	case n < 9:
		h.routes[i] = g.route(w)
		return "another route"
	default:
		w.fillHost(g, h)
		return "other routes altogether"
	}
}

func (g *gen) changeCluster(w *world, c *cluster) string {
	if c.kind == aggregate {
		c.children = nil
		for _, i := range g.Perm(len(w.clusters))[:2] {
			if w.clusters[i].kind != aggregate {
				c.children = append(c.children, w.clusters[i].name)
			}
		}
		return "other children of aggregate " + c.name
	}
	l := &c.localities[g.IntN(len(c.localities))]
	switch n := g.IntN(16); {
	case n < 3:
		g.fillCluster(c)
		return "other endpoints of " + c.name
	case n < 5:
		c.policy = g.policy()
		return "another policy of " + c.name
	case n < 6:
		c.policy = roundRobin
		return "ROUND_ROBIN of " + c.name
	case n < 8:
		l.weight = uint32(1 + g.IntN(6))
		return "another locality weight of " + c.name
	case n < 10:
		if len(l.endpoints) > 0 {
			e := &l.endpoints[g.IntN(len(l.endpoints))]
			*e = g.endpoint(e.backend)
			e.health = pick(g, corev3.HealthStatus_UNHEALTHY, corev3.HealthStatus_DRAINING, corev3.HealthStatus_HEALTHY)
		}
		return "another health and weight of an endpoint of " + c.name
	case n < 11:
		l.endpoints = nil
		return "a locality without endpoints of " + c.name
	case n < 12:
		c.drops = nil
		if g.chance(60) {
			c.drops = []drop{{category: "d0", fraction: g.fraction()}}
		}
		return "other drops of " + c.name
	case n < 13:
		c.maxRequests = uint32(g.IntN(4))
		return "another max_requests of " + c.name
	case n < 14:
		c.edsName = pick(g, "", "service-"+c.name, "service2-"+c.name)
		return "another EDS service of " + c.name
	case n < 15:
		c.loadReports, c.outlier, c.checked = g.chance(50), g.chance(30), g.chance(50)
		return "other load reports, outlier detection and health check of " + c.name
	default:
		if c.kind == eds {
			c.kind = dns
		} else {
			c.kind = eds
		}
		return "another type of " + c.name
	}
}

// removeOrReturn takes resources away, or gives all back.
func (g *gen) removeOrReturn(w *world) string {
	if len(w.gone) > 0 && g.chance(60) {
		w.gone = nil
		return "all resources are served again"
	}
	c := &w.clusters[g.IntN(len(w.clusters))]
	r := pick(g, "LDS", "RDS", "CDS "+c.name, "CDS "+c.name, "EDS "+c.name)
	w.gone = append(w.gone, r)
	return "not served any more: " + r
}

// breakOrMend adds a defect, or takes all away.
func (g *gen) breakOrMend(w *world) string {
	if len(w.defects) > 0 && g.chance(50) {
		w.defects = nil
		return "no defects any more"
	}
	g.versions++
	c := &w.clusters[g.IntN(len(w.clusters))]
	d := defect{typ: pick(g, "LDS", "RDS", "CDS", "EDS"), version: g.versions}
	switch d.typ {
	case "LDS":
		d.kind = pick(g, slices.Sorted(maps.Keys(listenerDefects))...)
	case "RDS":
		d.kind = pick(g, slices.Sorted(maps.Keys(routeDefects))...)
	case "CDS":
		d.name, d.kind = c.name, pick(g, slices.Sorted(maps.Keys(clusterDefects))...)
	case "EDS":
		d.name, d.kind = c.edsResource(), pick(g, slices.Sorted(maps.Keys(endpointDefects))...)
	}
	w.defects = append(w.defects, d)
	return fmt.Sprintf("a defect: %v", d)
}

// reach makes backends unreachable, or all reachable.
func (g *gen) reach(w *world) string {
	if len(w.unreachable) > 0 && g.chance(60) {
		w.unreachable = nil
		return "all backends are reachable"
	}
	names := backendNames()
	for range 1 + g.IntN(4) {
		w.unreachable = append(w.unreachable, pick(g, names...))
	}
	return fmt.Sprintf("unreachable: %q", w.unreachable)
}
