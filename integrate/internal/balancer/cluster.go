// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"reflect"
	"slices"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/integrate/internal/channelmetrics"
	"github.com/xdslb/xdslb/integrate/internal/serial"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// cluster is the live counterpart of a picker.Cluster: its leaves' priorities in one list, and
// the priority in use (A56).
//
// The balancer's mutex guards all fields and methods.
type cluster struct {
	*channel
	entry      entry
	changed    []*tally // with marks that follow has not handled
	index      int      // in the list
	cfg        *picker.Cluster
	received   *picker.Cluster // the source of cfg: see adaptation.config
	leaves     []*leaf         // parallel to cfg.Leaves
	priorities []*priority     // of all leaves, highest first
	inUse      *priority       // nil if no priority is in use
	shares     []loadShare     // starting with inUse's; nil if inUse takes all the load

	probers map[*picker.ProbePool]*prober // immutable; nil unless the policy probes endpoints

	weightTimer    *time.Timer // runs while weights may change (A58)
	loadTimer      *time.Timer // runs while utilizations may change
	slowStartTimer *time.Timer // runs while endpoints are in slow start
	failureTimer   *time.Timer // runs until RPCs fail with the latest connection error

	// As published.
	counted         bool                // see clusterList.count
	publishedStatus picker.Connectivity // the status
	serving         bool                // the status was READY or IDLE
	ready           int                 // endpoints of the priority in use that were READY
	mayQueue        bool                // see mayQueueWhileReady

	// The state that picks read. Unless dirty it is up to date, and the version in state lets
	// picker.Build reuse its results.
	dirty       bool // see clusterList.mark
	view        clusterView
	state       picker.ClusterState
	effective   *picker.Cluster // the configuration that state is for: cfg, unless the load is shared
	authorities []metadata.MD   // as in the latest view
}

// update applies a new configuration of the cluster.
func (c *cluster) update(cfg *picker.Cluster, changes *eventlog.Changes, slow bool) change {
	old := make(map[string]*leaf, len(c.leaves))
	for _, l := range c.leaves {
		old[l.cfg.Name] = l
	}
	c.cfg = cfg
	c.leaves, c.priorities = make([]*leaf, len(cfg.Leaves)), nil
	for i := range cfg.Leaves {
		name := cfg.Leaves[i].Name
		c.leaves[i] = c.updateLeaf(old[name], &cfg.Leaves[i], changes)
		delete(old, name)
		c.priorities = append(c.priorities, c.leaves[i].priorities...)
	}
	for _, l := range old {
		l.close(changes)
	}
	for i, p := range c.priorities {
		p.place = int32(i)
	}
	if c.inUse != nil && !slices.Contains(c.priorities, c.inUse) {
		c.inUse = nil
	}
	for _, p := range c.priorities {
		p.afterUpdate()
	}
	c.selectPriority()
	c.clearMarks() // all priorities have been checked
	if c.shouldPublishNow(slow) {
		return render | publish | urgent
	}
	return render | publish
}

// updateLeaf returns the live counterpart of cfg, derived from prev if that is not nil.
func (c *cluster) updateLeaf(prev *leaf, cfg *picker.Leaf, changes *eventlog.Changes) *leaf {
	l := prev
	var was *picker.Leaf
	if prev != nil {
		was = prev.cfg
	}
	resecured := prev != nil && c.opts.ReconnectOnTLSChange && !reflect.DeepEqual(was.TLS, cfg.TLS)
	rehashed := prev != nil && was.Policy.Hashes() != cfg.Policy.Hashes()
	redetected := prev == nil || was.Outlier != cfg.Outlier // endpoints may return
	switch {
	case l == nil:
		l = &leaf{common: common{
			channel: c.channel, entry: c.entry, cluster: c.cfg.Name, cfg: cfg, name: cfg.Name, security: c.newSecurity(cfg.Name),
		}}
		l.acquireCounters()
	case l.cfg.Service != cfg.Service || l.cfg.Load.Server != cfg.Load.Server:
		// Breaker and load reports belong to the pair of names. Unchanged counters are acquired
		// again before they are released, so that they keep counting the RPCs in flight.
		release := l.heldCounters()
		l.cfg = cfg
		l.acquireCounters()
		release()
	default:
		l.cfg = cfg
	}
	if prev != nil {
		noteLeaf(changes, was, cfg)
	}
	c.rt.Call(l.security.Swap(cfg.TLS))
	m := reconciler{leaf: &l.common, changes: changes, changed: &c.changed}
	m.matchPriorities(l)
	m.finish()
	if resecured {
		l.replaceConns()
	}
	l.updateDetection()
	l.updateWRR()
	l.updateLoadAware()
	for _, p := range l.priorities {
		if m.moved || resecured || redetected {
			p.recount()
		}
		if rehashed {
			p.invalidate() // IDLE endpoints may have to connect now
		}
	}
	if c.rec.metrics != nil { // before localities are removed
		channelmetrics.FoldLoad(c.rec.metrics, l.cfg, l.load)
	}
	l.load.Retain(cfg)
	l.metrics.Store(newMetricNames(cfg.Load.Metrics))
	return l
}

// clearMarks clears the marks and returns the marks of priorities that are in the cluster.
func (c *cluster) clearMarks() (all mark) {
	for _, t := range c.changed {
		if t.place >= 0 {
			all |= t.marks
		}
		t.marks = 0
	}
	clear(c.changed)
	c.changed = c.changed[:0]
	return all
}

// status is the cluster's aggregate connectivity.
func (c *cluster) status() picker.Connectivity {
	switch {
	case c.inUse != nil:
		return c.inUse.connectivity()
	case c.cfg.Err == nil && len(c.cfg.Leaves) == 0:
		return picker.Connecting
	default:
		return picker.TransientFailure
	}
}

// mayQueueWhileReady reports whether RPCs may wait for a specific endpoint of the cluster,
// whatever the state of the other endpoints.
func (c *cluster) mayQueueWhileReady() bool {
	return c.inUse != nil && (c.inUse.leaf.onDemand() || c.inUse.leaf.delegates())
}

// close releases all resources of the cluster.
func (c *cluster) close(changes *eventlog.Changes) {
	serial.Halt(&c.weightTimer)
	serial.Halt(&c.loadTimer)
	serial.Halt(&c.slowStartTimer)
	serial.Halt(&c.failureTimer)
	c.closeProbers()
	for _, l := range c.leaves {
		l.close(changes)
	}
	c.clearMarks()
	c.rec.forget(c.cfg.Name)
	if c.id.link != nil {
		c.id.link.ForgetFailures(c.cfg.Name)
	}
}

// uses reports whether a priority is in use, alone or sharing the load.
func (c *cluster) uses(p *priority) bool {
	return p == c.inUse || slices.ContainsFunc(c.shares, func(s loadShare) bool { return s.p == p })
}
