// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package shadowing

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/xdslb/xdslb/integrate/internal/explain"
	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
)

// state is the state that a Shadow compares with: a configuration, or the reason why there is
// no configuration. It is immutable except for the counts of splits.
type state struct {
	snapshot *picker.Snapshot // without endpoints; nil if err is set
	cfg      *picker.Config
	err      error
	splits   []*split  // by route; nil for routes whose shares are not compared
	before   []earlier // states that were in force a short time ago, the latest first
}

// earlier is a state that was in force, without its own before, and the time when it ended.
type earlier struct {
	*state
	until time.Time
}

// maxEarlier is the maximum number of earlier states.
const maxEarlier = 32

// follow adds last, which was in force until now, and its earlier states to the state's earlier
// states. If last routes RPCs to the same clusters, it is not added: endpoints change often.
func (s *state) follow(last *state) {
	now := time.Now()
	if !s.same(last) {
		bare := *last
		bare.before = nil
		s.before = append(s.before, earlier{&bare, now})
	}
	for _, e := range last.before {
		if now.Sub(e.until) < Settles && len(s.before) < maxEarlier {
			s.before = append(s.before, e)
		}
	}
}

// same reports whether two states route RPCs to the same clusters, by the same routes.
func (s *state) same(o *state) bool {
	return s.cfg != nil && o.cfg != nil && persistent.SameSlice(s.cfg.Routes, o.cfg.Routes) && slices.EqualFunc(s.cfg.Clusters, o.cfg.Clusters, func(a, b *picker.Cluster) bool {
		return a == b || a.Name == b.Name && slices.EqualFunc(a.Leaves, b.Leaves, func(x, y picker.Leaf) bool { return x.Name == y.Name })
	})
}

// matchesEarlier reports whether a state that was in force a short time ago has the same result for
// the call as stock.
func (s *state) matchesEarlier(c *call) bool {
	for _, e := range s.before {
		if time.Since(e.until) < Settles && e.classify(c) == "" {
			return true
		}
	}
	return false
}

// newState compiles the routes of a configuration.
func newState(cfg *picker.Config) (*state, error) {
	states := make([]picker.ClusterState, len(cfg.Clusters))
	for i := range states {
		states[i] = picker.ClusterState{Version: 1, Leaf: -1}
	}
	snapshot, err := picker.Build(nil, cfg, states, picker.Env{Header: metadatautil.OutgoingValues})
	if err != nil {
		return nil, err
	}
	s := &state{snapshot: snapshot, cfg: cfg, splits: make([]*split, len(cfg.Routes))}
	// A fraction is decided at random, independently of stock; a filter may be session
	// affinity.
	if !slices.ContainsFunc(cfg.Routes, func(r picker.Route) bool { return r.Fraction != nil }) && len(cfg.Filters) == 0 {
		for i := range cfg.Routes {
			s.splits[i] = newSplit(cfg, &cfg.Routes[i])
		}
	}
	return s, nil
}

// routesTo reports whether leaf is the cluster itself or one of its leaves.
func (s *state) routesTo(cluster int32, leaf string) bool {
	c := s.cfg.Clusters[cluster]
	if c.Name == leaf {
		return true
	}
	for i := range c.Leaves {
		if c.Leaves[i].Name == leaf {
			return true
		}
	}
	return false
}

// classify returns the kind of the difference between the call and the possible results of this
// state, or "" without a difference. O(routes).
func (s *state) classify(c *call) Kind {
	switch {
	case s == nil:
		return ""
	case s.snapshot == nil && c.cluster == "":
		return "" // the RPC fails either way
	case s.snapshot == nil:
		return Unserved
	}
	routed := false
	for cluster, outcome := range s.snapshot.Destinations(c.ctx, c.method) {
		switch {
		case c.cluster == "" && outcome == picker.NoRoute:
			return ""
		case cluster >= 0 && c.cluster != "" && s.routesTo(cluster, c.cluster):
			return ""
		}
		routed = routed || cluster >= 0
	}
	switch {
	case c.cluster == "":
		return Route
	case !routed:
		return NoRoute
	}
	return Cluster
}

// explain describes xdslb's result for the call.
func (s *state) explain(target string, c *call) string {
	if s == nil || s.snapshot == nil {
		return fmt.Sprint("the target cannot be served: ", s.err)
	}
	_, plans := rpc.Compile(s.cfg, rpc.CompileOptions{})
	x := explain.NewRPC(c.ctx, &rpc.Table{Snapshot: s.snapshot, Config: s.cfg, Plans: plans}, c.method)
	x.Target = target
	x.Clusters(func(*report.RouteTarget, *report.SessionStatus, *picker.ClusterExplanation) bool { return false })
	return x.String()
}

// split counts how stock splits the RPCs of a weighted route.
type split struct {
	clusters []picker.WeightedCluster
	leaves   [][]string // names of each cluster and of its leaves
	total    float64    // of the weights
	calls    atomic.Uint64
	counts   []atomic.Uint64
	noted    atomic.Bool
}

// newSplit returns the split of a route, or nil if the route has one cluster, or clusters that
// cannot be distinguished.
func newSplit(cfg *picker.Config, r *picker.Route) *split {
	if len(r.Clusters) < 2 {
		return nil
	}
	s := &split{clusters: r.Clusters, counts: make([]atomic.Uint64, len(r.Clusters))}
	seen := map[string]bool{}
	for _, w := range r.Clusters {
		s.total += float64(w.Weight)
		names := []string{w.Name}
		for _, c := range cfg.Clusters {
			for i := range c.Leaves {
				if name := c.Leaves[i].Name; c.Name == w.Name && name != w.Name {
					names = append(names, name)
				}
			}
		}
		for _, name := range names {
			if seen[name] {
				return nil
			}
			seen[name] = true
		}
		s.leaves = append(s.leaves, names)
	}
	return s
}

const sample = 4096

// count counts an RPC of the route, and checks the shares periodically. It reports whether they
// differ from the weights.
func (s *split) count(leaf string) (differ bool) {
	for i, names := range s.leaves {
		if slices.Contains(names, leaf) {
			s.counts[i].Add(1)
			return s.calls.Add(1)%sample == 0 && s.differ()
		}
	}
	return false
}

// differ reports whether a share deviates by 6 standard deviations. Counts that change while
// they are read are off by a few RPCs only.
func (s *split) differ() bool {
	n := float64(s.calls.Load())
	for i := range s.counts {
		p := float64(s.clusters[i].Weight) / s.total
		if off := math.Abs(float64(s.counts[i].Load()) - n*p); off > 6*math.Sqrt(n*p*(1-p))+16 {
			return true
		}
	}
	return false
}

// String returns the shares.
func (s *split) String() string {
	var all []string
	for i, c := range s.clusters {
		all = append(all, fmt.Sprintf("cluster %q %d", c.Name, s.counts[i].Load()))
	}
	return fmt.Sprintf("of %d RPCs: %s", s.calls.Load(), strings.Join(all, ", "))
}
