// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// A reason is why the two sides may differ in something.
type reason struct {
	id     string // the requirement that ours follows
	text   string
	covers func(d *difference) bool
}

// reasons are all that are accepted.
var reasons = []reason{
	{
		id:   "A31 delays",
		text: "max_stream_duration limits the whole RPC, delays by fault injection included, as in Envoy and gRPC's other languages; in stock it begins after them",
		covers: func(d *difference) bool {
			delay := time.Second
			if d.aspect == aspectElapsed {
				delay = 0
			}
			return d.caller != nil && d.ever((*world).anyTimeout) && d.ever(func(w *world) bool { return w.delays(delay) })
		},
	},
	{
		id:   "per_try_timeout",
		text: "attempts end after the per_try_timeout, and are retried if the policy says so, as in Envoy; stock ignores it",
		covers: func(d *difference) bool {
			return d.caller != nil && strings.Contains(d.caller.script, "hang") && d.ever((*world).limitsAttempts)
		},
	},
	{
		id:   "A74 listener",
		text: "without a Listener, or routes for the target, nothing else is needed, and ours subscribes to nothing else; stock goes on with the clusters of before, and rejects them while ours does when it needs them again",
		covers: func(d *difference) bool {
			return d.caller == nil && (d.noListener || !d.world.hasHost() || (strings.HasSuffix(d.ours, "[]") || strings.HasPrefix(d.aspect, aspectAnswer) && d.ours == "") && d.ever((*world).lacksRoutes) ||
				d.aspect != aspectNames && d.ever(func(w *world) bool { return w.isGone("LDS") }))
		},
	},
	{
		id:   "T-WATCH-3",
		text: "what nothing refers to any more is forgotten, so a cluster that is bad when the Listener comes back has no good version; stock kept that (see A74 listener)",
		covers: func(d *difference) bool {
			return d.ever(func(w *world) bool { return w.isGone("LDS") }) && slices.ContainsFunc(d.world.defects, func(x defect) bool {
				switch {
				case x.typ != "CDS" && x.typ != "EDS":
					return false
				case d.caller == nil:
					return d.aspect == aspectNames
				}
				return d.errs(1).says("[xDS node id: ours]") || d.world.inAggregate(x.name)
			})
		},
	},
	{
		id:   "A74 aggregate",
		text: "a child of an aggregate that is missing is passed over; in stock the aggregate fails, and those after it are not subscribed to",
		covers: func(d *difference) bool {
			return d.world.gappedAggregate() && (d.caller == nil || d.stockSays("failed to push new configuration"))
		},
	},
	{
		id:   "A75",
		text: "a leaf's policy is for its endpoints; stock has the aggregate's for all leaves",
		covers: func(d *difference) bool {
			return d.aspect == aspectBackend && d.ever((*world).mixedAggregate)
		},
	},
	{
		id:   "A75 policy",
		text: "the policy of an aggregate is not used, and not looked at; stock rejects one that is bad, or fails RPCs",
		covers: func(d *difference) bool {
			return (d.aspect == aspectAnswer+", CDS" && d.ours == "" || d.stockSays("error converting LoadBalancingPolicy")) && slices.ContainsFunc(d.world.defects, func(x defect) bool {
				return x.ofPolicy() && slices.ContainsFunc(d.world.clusters, func(c cluster) bool { return c.name == x.name && c.kind == aggregate })
			})
		},
	},
	{
		id:   "A31 deleted",
		text: "RPCs for a cluster that was deleted fail; in stock some go on to its endpoints",
		covers: func(d *difference) bool {
			gone := func(c *cluster) bool { return d.world.isGone("CDS " + c.name) }
			if d.aspect == aspectBackground { // the routes of before may have been in force for a moment
				return slices.ContainsFunc(d.world.clusters, func(c cluster) bool { return gone(&c) && d.reaches(c.name) })
			}
			return d.caller != nil && (slices.ContainsFunc(d.world.targets(d.caller), gone) ||
				d.world.lacksRoutes() && d.ever(func(w *world) bool { return slices.ContainsFunc(w.targets(d.caller), gone) }))
		},
	},
	{
		id:   "A33",
		text: "an abort with status OK is INTERNAL where there has to be a response message, as gRPC has it of a server that ends so; in stock the error is io.EOF",
		covers: func(d *difference) bool {
			return d.aspect == aspectStatus && d.errs(0)["EOF"] > 0 && d.errs(1).says("without a response message")
		},
	},
	{
		id:   "A28 headers",
		text: "routes never see binary headers, see the content type as application/grpc, and take a header whose value is empty for present, as Envoy does; stock the other way round",
		covers: func(d *difference) bool {
			if d.caller == nil {
				return d.matches(func(h header) bool { return h.name == "x-data-bin" })
			}
			return d.ever(func(w *world) bool {
				return !slices.Equal(w.routesOf(d.caller, gRFC), w.routesOf(d.caller, stockView))
			})
		},
	},
	{
		id:   "A48",
		text: "LEAST_REQUEST, the older field, stands for wrr_locality{least_request}; in stock localities do not matter to it",
		covers: func(d *difference) bool {
			return d.aspect == aspectBackend && d.ever(func(w *world) bool {
				return slices.ContainsFunc(w.targets(d.caller), func(c *cluster) bool { return c.policy == leastRequest && len(c.localities) > 1 })
			})
		},
	},
	{
		id:   "A42 channel",
		text: "a hash of the channel's id is random, and so is where it leads",
		covers: func(d *difference) bool {
			return d.aspect == aspectBackend && d.ever(func(w *world) bool {
				return slices.ContainsFunc(w.routesOf(d.caller, gRFC), func(i int) bool {
					return slices.ContainsFunc(w.hostOf().routes[i].hash, func(p hashPolicy) bool { return p.header == "" })
				})
			})
		},
	},
	{
		id:   "A27-CLA-8",
		text: "endpoints that are not healthy are not there, for a ring's shares too; in stock they take part in the sum of the weights",
		covers: func(d *difference) bool {
			return d.aspect == aspectBackend && d.ever(func(w *world) bool {
				return slices.ContainsFunc(w.targets(d.caller), func(c *cluster) bool {
					return (c.policy == ringHash || c.policy == typedRingHash) && c.anyEndpoint(func(e endpoint) bool {
						return e.health != corev3.HealthStatus_UNKNOWN && e.health != corev3.HealthStatus_HEALTHY
					})
				})
			})
		},
	},
	{
		id:   "A62",
		text: "pick_first in a locality connects again after it has lost its connection; in stock it stays IDLE below wrr_locality, and is passed over, or waited for if there is no other",
		covers: func(d *difference) bool {
			return d.caller != nil && d.ever(func(w *world) bool { return len(w.unreachable) > 0 }) && d.ever(func(w *world) bool {
				return slices.ContainsFunc(w.targets(d.caller), func(c *cluster) bool { return c.policy == wrrPickFirst })
			})
		},
	},
	{
		id:   "D2",
		text: "ROUND_ROBIN and LEAST_REQUEST go by endpoint weights unless Config.IgnoreEndpointWeights is set; in stock they do not",
		covers: func(d *difference) bool {
			return d.aspect == aspectBackend && !d.world.ignoreWeights && d.ever(func(w *world) bool {
				return slices.ContainsFunc(w.targets(d.caller), (*cluster).weighsEndpoints)
			})
		},
	},
	{
		id:   "A37",
		text: "drops are EDS's; stock keeps those of a cluster that is LOGICAL_DNS now",
		covers: func(d *difference) bool {
			return d.caller != nil && d.stockSays("RPC is dropped") && d.ever(func(w *world) bool {
				return slices.ContainsFunc(w.clusters, func(c cluster) bool { return c.kind == dns && len(c.drops) > 0 })
			})
		},
	},
	{
		id:   "A42",
		text: "a ring whose minimum is above its maximum, or above 8M, is rejected; stock accepts it, and then fails all RPCs",
		covers: func(d *difference) bool {
			return d.ever(func(w *world) bool {
				return slices.ContainsFunc(w.defects, func(x defect) bool {
					return strings.HasPrefix(x.kind, "ring") && (d.caller == nil && d.aspect != aspectAnswer+", EDS" || d.caller != nil && d.reaches(x.name))
				})
			})
		},
	},
}

// reasonFor returns the reason for a difference, or nil.
func reasonFor(d *difference) *reason {
	for i := range reasons {
		if reasons[i].covers(d) {
			return &reasons[i]
		}
	}
	return nil
}

// ever reports whether something holds for the world, or held in an earlier state: the applied
// configuration may be an earlier one.
func (d *difference) ever(holds func(*world) bool) bool { return slices.ContainsFunc(d.worlds, holds) }

// reaches reports whether the caller's RPCs may go to a cluster, or could in an earlier
// state.
func (d *difference) reaches(name string) bool {
	return d.ever(func(w *world) bool {
		return slices.ContainsFunc(w.routesOf(d.caller, gRFC), func(i int) bool {
			return slices.ContainsFunc(w.hostOf().routes[i].clusters, func(to weighted) bool {
				return to.cluster == name || slices.ContainsFunc(w.leaves(to.cluster), func(leaf *cluster) bool { return leaf.name == name })
			})
		})
	})
}

// matches reports whether a route has, or had, a condition on such a header.
func (d *difference) matches(f func(header) bool) bool {
	return d.ever(func(w *world) bool {
		return w.anyRoute(func(r *route) bool { return slices.ContainsFunc(r.headers, f) })
	})
}

func (d *difference) stockSays(text string) bool { return d.errs(0).says(text) }

// says reports whether one of the errors contains a text.
func (t tally) says(text string) bool {
	for err := range t {
		if strings.Contains(err, text) {
			return true
		}
	}
	return false
}

func (w *world) anyRoute(f func(*route) bool) bool {
	for _, h := range w.hosts {
		for i := range h.routes {
			if f(&h.routes[i]) {
				return true
			}
		}
	}
	return false
}

// delays reports whether a fault delays RPCs for longer than that.
func (w *world) delays(by time.Duration) bool {
	long := func(f *fault) bool { return f != nil && f.delay.of != 0 && f.delayBy > by }
	return long(w.fault) || slices.ContainsFunc(w.hosts, func(h host) bool { return long(h.fault) }) ||
		w.anyRoute(func(r *route) bool {
			return long(r.fault) || slices.ContainsFunc(r.clusters, func(c weighted) bool { return long(c.fault) })
		})
}

// anyTimeout reports whether a route or the listener limits the duration of RPCs.
func (w *world) anyTimeout() bool {
	return w.maxStream > 0 || w.anyRoute(func(r *route) bool { return r.timeout != nil || r.headerMax != nil })
}

// limitsAttempts reports whether a retry policy has a per_try_timeout.
func (w *world) limitsAttempts() bool {
	limits := func(r *retry) bool { return r != nil && r.perTry > 0 }
	return slices.ContainsFunc(w.hosts, func(h host) bool { return limits(h.retry) }) || w.anyRoute(func(r *route) bool { return limits(r.retry) })
}

// lacksRoutes reports whether the routes are not served, or with a defect.
func (w *world) lacksRoutes() bool {
	return w.isGone("LDS") || w.isGone("RDS") || slices.ContainsFunc(w.defects, func(d defect) bool { return d.typ == "LDS" || d.typ == "RDS" })
}

// gappedAggregate reports whether an aggregate lacks a child, or may.
func (w *world) gappedAggregate() bool {
	return slices.ContainsFunc(w.clusters, func(c cluster) bool {
		return slices.ContainsFunc(c.children, func(name string) bool {
			return w.isGone("CDS "+name) || slices.ContainsFunc(w.defects, func(d defect) bool { return d.typ == "CDS" && d.name == name })
		})
	})
}

// inAggregate reports whether a cluster or EDS service belongs to a child of an aggregate.
func (w *world) inAggregate(name string) bool {
	return slices.ContainsFunc(w.clusters, func(c cluster) bool {
		return c.kind == aggregate && slices.ContainsFunc(w.leaves(c.name), func(l *cluster) bool { return l.name == name || l.edsResource() == name })
	})
}

// mixedAggregate reports whether an aggregate has another policy than a leaf.
func (w *world) mixedAggregate() bool {
	return slices.ContainsFunc(w.clusters, func(c cluster) bool {
		return c.kind == aggregate && slices.ContainsFunc(w.leaves(c.name), func(l *cluster) bool { return l.policy != c.policy })
	})
}

// weighsEndpoints reports whether the cluster's policy could use endpoint weights, and an
// endpoint has one.
func (c *cluster) weighsEndpoints() bool {
	return slices.Contains([]string{roundRobin, wrrRoundRobin, plainRoundRobin, leastRequest, wrrLeastRequest}, c.policy) &&
		c.anyEndpoint(func(e endpoint) bool { return e.weight != 0 })
}

func (c *cluster) anyEndpoint(f func(endpoint) bool) bool {
	return slices.ContainsFunc(c.localities, func(l locality) bool { return slices.ContainsFunc(l.endpoints, f) })
}
