// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"

	"github.com/xdslb/xdslb/integrate/internal/counters"
	"github.com/xdslb/xdslb/integrate/internal/perrpc"
	"github.com/xdslb/xdslb/integrate/internal/serial"
	"github.com/xdslb/xdslb/integrate/internal/xdstls"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// cluster is the live side of one picker.Cluster: its leaves' priorities in
// one list, and which of them is in use (A56).
//
// The balancer's mutex guards all fields and methods.
type cluster struct {
	lb       *lb
	index    int // in the list
	cfg      *picker.Cluster
	received *picker.Cluster // that cfg was made of: see channelConfigLocked
	leaves   []*leaf         // parallel to cfg.Leaves
	order    []*priority     // of all leaves, highest first
	inUse    *priority       // nil while none is
	shares   []loadShare     // inUse's first; nil if it takes all

	probers map[*picker.ProbePool]*prober // immutable; nil unless the policy asks endpoints

	weightTimer    *time.Timer // runs while weights may change (A58)
	loadTimer      *time.Timer // runs while utilizations may change
	slowStartTimer *time.Timer // runs while endpoints are in their slow start
	failureTimer   *time.Timer // runs until RPCs fail with the latest connection error

	// As published.
	counted         bool                // see clusterList.count
	publishedStatus picker.Connectivity // the status
	serving         bool                // the status was READY or IDLE
	ready           int                 // endpoints of the priority in use that were READY
	mayQueue        bool                // see mayQueueWhileReady

	// What picks see of the cluster. Unless dirty they are up to date, and
	// the version in state lets picker.Build take over what it made of them.
	dirty          bool // see clusterList.mark
	view           clusterView
	state          picker.ClusterState
	effective      *picker.Cluster       // what state is of: cfg, unless the load is shared
	authorityPicks []balancer.PickResult // as last in view
}

// leaf is the live side of one picker.Leaf.
type leaf struct {
	cfg         *picker.Leaf
	security    *xdstls.Cluster // nil without xDS
	breaker     *counters.Breaker
	load        *picker.ClusterLoad
	stopReports func()                      // ends load reporting
	metrics     atomic.Pointer[metricNames] // that load reports pass on
	priorities  []*priority
	detector    detector
	wrr         atomic.Pointer[wrrConfig]       // nil unless the policy is PolicyClientWRR
	loadAware   atomic.Pointer[loadAwareConfig] // nil unless the policy is load-aware
	rejected    *rejections                     // see there; nil until they are needed
	lastErr     error                           // of the latest connection attempt that failed
	errs        map[*endpoint]error             // why those in TRANSIENT_FAILURE are
	// replacementFailed says that it is logged that the latest TLS settings do not work.
	replacementFailed bool
}

// clusterView is what a published snapshot needs of a cluster besides the
// picker's part: outcomes in, gRPC's terms out. It is immutable.
type clusterView struct {
	status         picker.Connectivity
	failed         error                         // for RPCs while no endpoint is reachable; not a status, so that wait-for-ready waits
	rejections     *rejections                   // statuses, so that they are final (T-DROP-3); nil while no priority is in use
	picks          []pick                        // by endpoint index
	authorityPicks []balancer.PickResult         // parallel to picks, for routes that rewrite authorities; nil if there are none
	indexes        map[*endpoint]int32           // of authorityPicks and labels, where children pick
	labels         []map[string]string           // of attempts, by endpoint index; nil unless they are labeled
	hosts          *hosts                        // nil unless sessions or attempts need them
	probers        map[*picker.ProbePool]*prober // nil unless RPCs ask endpoints themselves
	// connectable are what an RPC may connect, by endpoint index; nil if endpoints
	// connect by themselves.
	connectable []*endpoint
	// groups are those whose children connect the endpoints, by locality
	// index; nil if there are none.
	groups []*group
}

// setDirty has the next publication say what has become of the cluster.
func (c *cluster) setDirty() { c.lb.list.mark(c) }

// onChange follows a change of an endpoint's state in priority p.
func (c *cluster) onChange(p *priority) {
	p.observe()
	c.choose()
	if c.uses(p) || c.lb.sessions {
		c.setDirty()
		c.lb.early = append(c.lb.early, c)
	}
}

// choose settles which priority is used: that of A56, except that while it is still
// connecting the one in use before stays in use as long as it is READY, or one above it
// that is. An update that puts a new priority on top takes no traffic from
// where it can be served.
//
// Priorities below the chosen one are retired, unless they share its load.
func (c *cluster) choose() {
	i := c.choosePriority()
	chosen := i >= 0 && takesRPCs(c.order[i].connectivity())
	if prev := c.inUse; !chosen && prev != nil && prev.connectivity() == picker.Ready {
		i = slices.IndexFunc(c.order, func(p *priority) bool { return p.connectivity() == picker.Ready })
		c.order[i].activate() // an update may have moved it above
	}
	var inUse *priority
	var shares []loadShare
	if i >= 0 {
		inUse = c.order[i]
		var sharing int
		shares, sharing = c.shareLoad(i)
		if chosen {
			for _, p := range c.order[i+1+sharing:] {
				p.retire()
			}
		}
	}
	if inUse != c.inUse {
		c.lb.rec.recordPriority(c.cfg.Name, slices.Index(c.order, c.inUse), i)
	}
	if inUse != c.inUse || !slices.Equal(shares, c.shares) {
		c.inUse, c.shares = inUse, shares
		c.setDirty()
	}
	if c.overdue() {
		c.lb.urgent = true
	}
}

// choosePriority returns the index of the first priority that is READY or IDLE or
// still has time to become so, activating those that had no chance yet (A56's
// ChoosePriority). With none of these it is the first that is connecting, else the
// last; -1 if there are no priorities.
func (c *cluster) choosePriority() int {
	for i, p := range c.order {
		p.activate()
		if p.phase == trying || takesRPCs(p.connectivity()) {
			return i
		}
	}
	for i, p := range c.order {
		if p.connectivity() == picker.Connecting {
			return i
		}
	}
	return len(c.order) - 1
}

// promptly is up to how many READY endpoints are published without a pause: a
// channel that is starting spreads its first RPCs over all of a few backends.
const promptly = 8

// overdue reports whether RPCs gain enough by what has changed for a publication at
// once: there is an endpoint to pick and was none, or there are a few more of few,
// unless publications take long.
func (c *cluster) overdue() bool {
	if !c.serving && takesRPCs(c.status()) {
		return true
	}
	if c.inUse == nil || c.lb.publishTime > publishPause/8 {
		return false
	}
	n := c.inUse.counts[picker.Ready]
	return n > c.ready && n <= promptly
}

// onlyGrows reports whether it changes nothing of a cluster that serves, but that it has an
// endpoint more to pick, that the endpoint is READY.
func (c *cluster) onlyGrows(e *endpoint) bool {
	return e.Connectivity == picker.Ready && c.serving && c.inUse == e.loc.prio && len(c.shares) == 0 && !c.mayQueueWhileReady()
}

// failureTextDelay keeps a cluster whose endpoints all fail, each with an error of its
// own, from being published over and over for that.
const failureTextDelay = time.Second

// onConnectionError follows a connection error. RPCs that fail say the latest one, a
// little later if the state of the cluster does not change with it.
func (c *cluster) onConnectionError(l *leaf, err error) {
	last := l.lastErr
	l.lastErr = err
	if c.failureTimer != nil || c.inUse == nil || c.inUse.leaf != l || last == nil || err == nil || last.Error() == err.Error() {
		return
	}
	c.lb.after(failureTextDelay, &c.failureTimer, func() {
		if c.status() == picker.TransientFailure {
			c.setDirty()
			c.lb.out.publish = true
		}
	})
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

// mayQueueWhileReady reports whether RPCs may wait for a certain endpoint of the
// cluster, whatever the state of others.
func (c *cluster) mayQueueWhileReady() bool {
	return c.inUse != nil && (c.inUse.onDemand() || c.inUse.delegates())
}

// notePublished notes what of the cluster is published.
func (c *cluster) notePublished() {
	c.lb.list.count(c, c.status())
	c.serving, c.ready, c.mayQueue = takesRPCs(c.publishedStatus), 0, c.mayQueueWhileReady()
	if c.inUse != nil {
		c.ready = c.inUse.counts[picker.Ready]
	}
}

// refresh computes view and state if something changed: O(endpoints of the
// priority in use) after a change of the set, else O(1).
func (c *cluster) refresh() {
	if !c.dirty {
		return
	}
	c.dirty = false
	c.lb.version++
	failed := c.state.Failed
	c.state = picker.ClusterState{Version: c.lb.version, Leaf: -1}
	p, status := c.inUse, c.status()
	c.view = clusterView{status: status}
	c.effective = c.cfg
	if len(c.shares) > 0 {
		p, c.effective = c.mergeShares()
	}
	if status == picker.TransientFailure {
		c.state.Failed = true
		c.view.failed = c.failure()
	}
	if c.state.Failed != failed {
		c.noteFailure()
	}
	if status == picker.Ready || c.mayQueueWhileReady() || p != nil && c.lb.sessions {
		p.updateWeights()
		p.buildCache()
		c.view.picks, c.view.connectable = p.picks, p.connectable
		c.view.groups = p.groups
		if c.lb.rewrites {
			c.rewriteAuthorities(p)
		}
		c.labelAttempts(p)
		if (c.lb.sessions || c.lb.avoidHosts) && !p.delegates() {
			c.view.hosts = findHosts(p, c.lb.sessions)
		}
		c.view.rejections = p.leaf.rejections(c.lb)
		c.state.Leaf, c.state.Priority = c.leafIndex(p.leaf), p.index
		p.tellUtilizations()
		p.tellVersions()
		c.state.Localities = p.state
		c.state.Breaker = p.leaf.breaker.Breaker
		c.state.Drops, c.state.Overload = p.leaf.dropCounters()
	}
}

// noteFailure notes that RPCs of the cluster have begun to fail, or ceased to.
func (c *cluster) noteFailure() {
	ev := eventlog.Event{Kind: eventlog.ClusterRecovered, Cluster: c.cfg.Name}
	if c.state.Failed {
		ev.Kind, ev.Error = eventlog.ClusterFailed, errorText(c.view.failed)
	}
	c.lb.rec.record(ev, nil)
}

// retryBudget is what limits the retries of the cluster's RPCs; nil is nothing.
func (c *cluster) retryBudget() *perrpc.Budget {
	if c.inUse == nil || c.inUse.leaf.cfg.Retries == nil {
		return nil
	}
	l := c.inUse.leaf
	return &perrpc.Budget{Limit: l.cfg.Retries, InFlight: l.breaker.Breaker, Active: &l.breaker.Retries}
}

func (c *cluster) leafIndex(l *leaf) int { return slices.Index(c.leaves, l) }

func (l *leaf) dropCounters() (drops []*picker.Counter, overload *picker.Counter) {
	for _, d := range l.cfg.Drops {
		drops = append(drops, l.load.Drop(d.Category))
	}
	return drops, l.load.Overload()
}

// endpoints visits the endpoints of all priorities.
func (l *leaf) endpoints(yield func(*endpoint) bool) {
	for _, p := range l.priorities {
		for e := range p.endpoints {
			if !yield(e) {
				return
			}
		}
	}
}

// close releases everything the cluster has.
func (c *cluster) close() {
	serial.Halt(&c.weightTimer)
	serial.Halt(&c.loadTimer)
	serial.Halt(&c.slowStartTimer)
	serial.Halt(&c.failureTimer)
	c.closeProbers()
	for _, l := range c.leaves {
		l.close(c.lb)
	}
	c.lb.rec.forget(c.cfg.Name)
	if s := c.lb.src; s != nil {
		s.Link.ForgetFailures(c.cfg.Name)
	}
}

// close releases everything the leaf has.
func (l *leaf) close(b *lb) {
	l.detector.stop()
	b.rt.Call(l.security.Close)
	for _, p := range l.priorities {
		p.enter(dormant)
		for g := range p.liveGroups {
			g.close()
		}
		p.groups = nil
		for e := range p.endpoints {
			b.applying.EndpointsRemoved++
			e.remove(b)
		}
	}
	l.releaseCounters(b)
}

// uses reports whether a priority is in use, alone or with others.
func (c *cluster) uses(p *priority) bool {
	return p == c.inUse || slices.ContainsFunc(c.shares, func(s loadShare) bool { return s.p == p })
}
