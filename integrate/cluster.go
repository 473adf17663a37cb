// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"slices"
	"time"

	"google.golang.org/grpc/balancer"

	"github.com/xdslb/xdslb/integrate/internal/perrpc"
	"github.com/xdslb/xdslb/integrate/internal/report"
	"github.com/xdslb/xdslb/integrate/internal/serial"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// cluster is the live side of one picker.Cluster: its leaves' priorities in
// one list, and which of them is in use (A56).
//
// The balancer's mutex guards all fields and methods.
type cluster struct {
	*channel
	entry    entry
	changed  []*tally // with marks that follow has not handled
	index    int      // in the list
	cfg      *picker.Cluster
	received *picker.Cluster // that cfg was made of: see adaptation.config
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
	common
	priorities []*priority
	detector   detector
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

// follow handles the marks of an event and returns what follows from them. Marks that are made
// meanwhile are of priorities that choose activates; it has looked at those.
func (c *cluster) follow(f *followed) (ch change) {
	used, growing := c.inUse, true
	var seen mark
	for _, t := range c.changed[:len(c.changed):len(c.changed)] {
		if t.place < 0 {
			continue
		}
		p, m := c.order[t.place], t.marks
		seen |= m
		switch {
		case m&(grew|states) != 0:
			p.observe()
			ch |= c.choose()
			if c.uses(p) || f.sessions {
				ch |= render | announce
			}
			growing = growing && p == c.inUse
		case m&phased != 0:
			ch |= c.choose()
		}
		if m&pickers != 0 && p == c.inUse {
			ch |= wake
		}
		if m&connError != 0 {
			c.awaitFailure(p.leaf)
		}
	}
	switch seen & (grew | states | phased) {
	case 0:
	case grew:
		if growing && c.inUse == used && c.onlyGrows() {
			ch |= grown
			break
		}
		fallthrough
	default:
		ch |= publish
	}
	if ch&(grown|publish) != 0 && c.overdue(f.slow) {
		ch |= urgent
	}
	if c.clearMarks()&picks != 0 {
		ch |= render | publish
	}
	return ch
}

// clearMarks clears the marks and returns those of priorities that are in the cluster.
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

// followed is what a cluster has to know of the balancer to follow an event.
type followed struct {
	sessions bool // a route has session affinity
	slow     bool // publications take long
}

// choose settles which priority is used: that of A56, except that while it is still
// connecting the one in use before stays in use as long as it is READY, or one above it
// that is. An update that puts a new priority on top takes no traffic from
// where it can be served.
//
// Priorities below the chosen one are retired, unless they share its load.
func (c *cluster) choose() (ch change) {
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
		c.rec.recordPriority(c.cfg.Name, slices.Index(c.order, c.inUse), i)
	}
	if inUse != c.inUse || !slices.Equal(shares, c.shares) {
		c.inUse, c.shares = inUse, shares
		ch = render
	}
	return ch
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
func (c *cluster) overdue(slow bool) bool {
	if !c.serving && takesRPCs(c.status()) {
		return true
	}
	if c.inUse == nil || slow {
		return false
	}
	n := c.inUse.counts[picker.Ready]
	return n > c.ready && n <= promptly
}

// onlyGrows reports whether further READY endpoints of the priority in use change nothing of
// the cluster but that there are more to pick.
func (c *cluster) onlyGrows() bool {
	return c.serving && len(c.shares) == 0 && !c.mayQueueWhileReady()
}

// failureTextDelay keeps a cluster whose endpoints all fail, each with an error of its
// own, from being published over and over for that.
const failureTextDelay = time.Second

// awaitFailure has RPCs that fail get the latest connection error of a leaf, a little later
// if the state of the cluster does not change with it.
func (c *cluster) awaitFailure(l *common) {
	if c.failureTimer != nil || c.inUse == nil || c.inUse.leaf != l {
		return
	}
	c.entry.after(failureTextDelay, &c.failureTimer, func() {
		if c.inUse != nil && c.status() == picker.TransientFailure {
			c.inUse.note(picks)
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
	return c.inUse != nil && (c.inUse.leaf.onDemand() || c.inUse.leaf.delegates())
}

// refresh computes view and state: O(endpoints of the priority in use) after a change of the
// set, else O(1).
func (c *cluster) refresh(version uint64, n needs) {
	failed := c.state.Failed
	c.state = picker.ClusterState{Version: version, Leaf: -1}
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
		c.recordFailure()
	}
	if status == picker.Ready || c.mayQueueWhileReady() || p != nil && n.sessions {
		c.renderPriority(p, n)
	}
}

// renderPriority completes view and state with the endpoints of a priority.
func (c *cluster) renderPriority(p *priority, n needs) {
	l := p.leaf
	p.updateWeights()
	p.buildCache()
	c.view.picks, c.view.connectable, c.view.groups = p.picks, p.connectable, p.groups
	if n.rewrites {
		c.rewriteAuthorities(p)
	}
	c.labelAttempts(p)
	leaf := c.leafIndex(l)
	if (n.sessions || n.avoidHosts) && !l.delegates() {
		c.view.hosts = findHosts(p, c.leaves[leaf].priorities, n.sessions)
	}
	c.view.rejections = l.rejections()
	c.state.Leaf, c.state.Priority = leaf, p.index
	p.tellUtilizations()
	p.tellVersions()
	c.state.Localities = p.state
	c.state.Breaker = l.breaker.Breaker
	c.state.Drops, c.state.Overload = l.dropCounters()
}

// rendered follows the rendering of the cluster for a publication.
func (c *cluster) rendered() {
	c.serving, c.ready, c.mayQueue = takesRPCs(c.status()), 0, c.mayQueueWhileReady()
	if c.inUse != nil {
		c.ready = c.inUse.counts[picker.Ready]
	}
}

// recordFailure records that RPCs of the cluster have begun to fail, or ceased to.
func (c *cluster) recordFailure() {
	ev := eventlog.Event{Kind: eventlog.ClusterRecovered, Cluster: c.cfg.Name}
	if c.state.Failed {
		ev.Kind, ev.Error = eventlog.ClusterFailed, report.ErrorText(c.view.failed)
	}
	c.rec.record(ev, nil)
}

// retryBudget is what limits the retries of the cluster's RPCs; nil is nothing.
func (c *cluster) retryBudget() *perrpc.Budget {
	if c.inUse == nil || c.inUse.leaf.cfg.Retries == nil {
		return nil
	}
	l := c.inUse.leaf
	return &perrpc.Budget{Limit: l.cfg.Retries, InFlight: l.breaker.Breaker, Active: &l.breaker.Retries}
}

func (c *cluster) leafIndex(of *common) int {
	return slices.IndexFunc(c.leaves, func(l *leaf) bool { return &l.common == of })
}

func (l *common) dropCounters() (drops []*picker.Counter, overload *picker.Counter) {
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

// close releases everything the leaf has.
func (l *leaf) close(changes *eventlog.Changes) {
	l.detector.stop()
	l.rt.Call(l.security.Close)
	for _, p := range l.priorities {
		p.place = -1
		p.enter(dormant)
		for g := range p.liveGroups {
			g.close()
		}
		p.groups = nil
		for e := range p.endpoints {
			changes.EndpointsRemoved++
			e.remove()
		}
	}
	l.releaseCounters()
}

// uses reports whether a priority is in use, alone or with others.
func (c *cluster) uses(p *priority) bool {
	return p == c.inUse || slices.ContainsFunc(c.shares, func(s loadShare) bool { return s.p == p })
}
