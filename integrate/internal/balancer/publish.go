// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/integrate/internal/serial"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
)

// During continuous changes, snapshots are at least publishPause apart, and eight times as long
// as the last one took, so that a storm (10,000 endpoints becoming READY) leaves processor time
// for other work. The pause is limited so that the last change is published at most
// maxPublishPause late.
//
// A publication copies the data of all endpoints of a cluster that picks read. Therefore
// further endpoints of a large priority that become READY are published in batches once many
// are READY: a batch is complete when it is half as large as the published number, or after
// growthPause for each endpoint that is copied, at most maxGrowthPause. Other changes do not
// wait for the batch.
const (
	publishPause    = time.Millisecond
	maxPublishPause = 15 * time.Millisecond
	growthPause     = 2500 * time.Nanosecond
	maxGrowthPause  = 250 * time.Millisecond
)

// shutdownDelay is how long SubConns are kept after the publication that removes them, so that
// RPCs that picked a SubConn before can create their streams. If a SubConn is shut down between
// an RPC's pick and its stream while other streams keep the transport open, the RPC hangs until
// its deadline (bench/grpc-go-draining.md). Tests set it to 0.
var shutdownDelay = 50 * time.Millisecond

// A publisher makes changes visible to picks and reports the channel's state to gRPC, at once
// or after a pause.
type publisher struct {
	*channel
	*targetState
	picker stablePicker
	list   clusterList // parallel to cfg.Clusters

	// The changes of an event, until settle.
	grown  []*cluster // one more endpoint is READY, and nothing else changed
	early  []*cluster // the channel's state may be announced before it is published
	urgent bool       // a cluster is READY and not yet in the snapshot

	announced   connectivity.State // the state last reported to gRPC
	nextPublish time.Time
	publishTime time.Duration  // duration of the last publication
	pending     *time.Timer    // runs until the next publication is due
	publishDue  time.Time      // when pending expires
	publication chan struct{}  // closed by the next publication; nil unless a goroutine waits for it
	closing     sync.WaitGroup // of connections
	closed      chan struct{}  // closed by close, which shuts connections down without a delay

	version   uint64       // of the most recently changed cluster
	routeErrs *routeErrors // of cfg, or a previous configuration
	channelID uint64       // random: the hash of policies that hash the channel id (A42)
	// randomHashes are the hashes of RPCs without a value to hash (A42). It has its own locks.
	randomHashes randomHashes
}

func (p *publisher) init(ch *channel, t *targetState) {
	p.channel, p.targetState = ch, t
	p.closed = make(chan struct{})
	p.announced = connectivity.Shutdown // no state yet
	p.channelID = rand.Uint64()
	p.picker.current.Store(&pickState{})
}

// take records the change of a cluster after an event, until settle.
func (p *publisher) take(c *cluster, ch change) {
	if ch&render != 0 {
		p.list.mark(c)
	}
	if ch&announce != 0 {
		p.early = append(p.early, c)
	}
	if ch&grown != 0 {
		p.grown = append(p.grown, c)
	}
	p.urgent = p.urgent || ch&urgent != 0
	p.out.publish = p.out.publish || ch&publish != 0
	p.out.wake = p.out.wake || ch&wake != 0
}

// settle ends an event: it acts on the recorded changes.
func (p *publisher) settle() {
	if p.rt.Closed() {
		p.shutDown()
		return
	}
	for _, c := range p.early {
		p.announceEarly(c)
	}
	if p.out.wake {
		p.refreshPicker()
	}
	if p.out.publish {
		p.publishBy(p.nextPublish)
	} else {
		for _, c := range p.grown {
			p.publishGrowth(c)
		}
	}
	p.early, p.grown, p.out.wake, p.out.publish = p.early[:0], p.grown[:0], false, false
}

// refreshPicker makes gRPC pick again for RPCs that wait for a child policy.
func (p *publisher) refreshPicker() {
	if p.picker.waiting.Swap(false) {
		p.announce(p.announced)
	}
	if p.out.repick { // the snapshot may contain a lost connection
		p.out.publish = true
	}
}

// slow reports whether publications take long.
func (p *publisher) slow() bool { return p.publishTime > publishPause/8 }

// publishBy publishes at once if that is urgent, otherwise at the due time, unless an earlier
// time is set.
func (p *publisher) publishBy(due time.Time) {
	wait := time.Until(due)
	switch {
	case p.urgent || wait <= 0 && p.pending == nil:
		p.publish()
	case p.pending == nil || due.Before(p.publishDue):
		serial.Halt(&p.pending)
		p.publishDue = due
		p.rt.After(wait, &p.pending, p.publish)
	}
}

// publishGrowth schedules the publication of one more READY endpoint of a priority in use.
func (p *publisher) publishGrowth(c *cluster) {
	n, size := c.inUse.counts[picker.Ready], 0
	for _, k := range c.inUse.counts {
		size += k
	}
	due := p.nextPublish
	if pause := min(time.Duration(size)*growthPause, maxGrowthPause); pause > maxPublishPause && 2*(n-c.ready) < c.ready {
		due = due.Add(pause - maxPublishPause)
	}
	p.publishBy(due)
}

// publish makes all changes visible to picks: one snapshot, one store.
func (p *publisher) publish() {
	serial.Halt(&p.pending)
	p.urgent = false
	begin := time.Now()
	defer func() {
		end := time.Now()
		p.publishTime = end.Sub(begin)
		p.rec.measurePublication(p.publishTime, end, p.cfg)
		p.nextPublish = end.Add(min(max(8*p.publishTime, publishPause), maxPublishPause))
	}()
	prev := p.picker.current.Load()
	next, helps := p.render(prev)
	p.picker.current.Store(next)
	p.releaseUnused()
	p.notify()
	if p.id.link != nil && (next.Snapshot != nil && prev.Snapshot == nil || next.Err != nil && !p.id.link.Published()) {
		// The method configs are in place before the first RPCs.
		p.rt.Call(func() { p.id.link.Publish(p.picker.table) })
	}
	p.shutDown()

	state := p.connectivity()
	// RPCs wait inside gRPC for a new picker in two cases: a pick queued them, or the
	// connection that they were given was lost in between. The picker is always the same
	// object; passing it to gRPC again wakes the RPCs.
	waiting := p.out.repick
	p.out.repick = false
	if helps && p.picker.waiting.Swap(false) {
		waiting = true
	}
	if waiting || state != p.announced {
		p.announce(state)
	}
}

// announceEarly reports the channel's state to gRPC when it may have changed because of a
// cluster that is published after a pause: a channel goes from IDLE to READY through CONNECTING
// (gRPC's connectivity-semantics-and-api.md), however fast it connects. Picks use the current
// snapshot. So two changes are reported only with the next snapshot: to READY, and from
// TRANSIENT_FAILURE, since RPCs would still wait or fail.
func (p *publisher) announceEarly(c *cluster) {
	if !c.counted || !p.list.has(c) || p.fatal != nil || p.announced == connectivity.TransientFailure {
		return
	}
	s := grpcState(p.list.bestWith(c))
	if s == p.announced || s == connectivity.Ready {
		return
	}
	if later := !p.urgent && (p.pending != nil || time.Until(p.nextPublish) > 0); later {
		p.announce(s)
	}
}

func (p *publisher) announce(state connectivity.State) {
	p.announced = state
	p.cc.UpdateState(balancer.State{ConnectivityState: state, Picker: &p.picker})
}

// connectivity returns the channel's state: the state of its best cluster (A31).
func (p *publisher) connectivity() connectivity.State {
	if p.fatal != nil {
		return connectivity.TransientFailure
	}
	if p.cfg == nil {
		return connectivity.Connecting
	}
	return grpcState(p.list.best())
}

// nextPublication returns a channel that is closed by the next publication, or when the
// balancer is closed; nil if it is closed already.
func (p *publisher) nextPublication() <-chan struct{} {
	p.rt.Lock()
	defer p.rt.Unlock()
	if p.rt.Closed() {
		return nil
	}
	if p.publication == nil {
		p.publication = make(chan struct{})
	}
	return p.publication
}

// notify wakes the goroutines that wait for a publication.
func (p *publisher) notify() {
	if p.publication != nil {
		close(p.publication)
		p.publication = nil
	}
}

// shutDown shuts connections down after shutdownDelay, on a separate goroutine: gRPC takes up to
// 5 s to close a connection whose peer does not read, and neither configurations nor the states
// of other connections may wait for that.
func (p *publisher) shutDown() {
	if len(p.out.closing) == 0 {
		return
	}
	pending := p.out.closing
	p.out.closing, p.out.repick = nil, true
	delay := shutdownDelay
	p.closing.Go(func() {
		if delay > 0 {
			timer := time.NewTimer(delay)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-p.closed:
			}
		}
		for _, shut := range pending {
			shut()
		}
	})
}

// releaseUnused releases the counters that no published snapshot uses any more.
func (p *publisher) releaseUnused() {
	for _, release := range p.out.unused {
		release()
	}
	p.out.unused = nil
}

// close ends publications, and shuts down connections that wait for it. It may be called again.
func (p *publisher) close() {
	serial.Halt(&p.pending)
	select {
	case <-p.closed:
	default:
		close(p.closed)
	}
	p.releaseUnused()
	p.shutDown()
	p.notify()
}

// render builds the data that picks read. It reports whether a change can help a waiting RPC:
// another configuration, a cluster that became READY or failed, or another endpoint of a
// cluster whose RPCs wait for a specific one.
func (p *publisher) render(prev *pickState) (next *pickState, helps bool) {
	next = &pickState{Table: rpc.Table{Err: p.fatal, Channel: p.id.link}}
	if p.cfg == nil {
		return next, p.fatal != nil
	}
	helps = prev.Config != p.cfg
	p.routeErrs = p.id.routeErrors(p.routeErrs, p.cfg.Routes)
	next.Config, next.Plans, next.rewrites, next.routeErrs = p.cfg, p.plans, p.rewrites, p.routeErrs
	next.authorities = p.authorities
	next.plain = !p.rewrites && next.authorities == nil && metric.UpdateLabels == nil
	changed, whole := p.list.begin()
	for _, c := range changed {
		status := c.status()
		helps = helps || c.dirty && (status == picker.TransientFailure || c.mayQueue || c.mayQueueWhileReady() || p.sessions || status == picker.Ready && !c.serving)
		if c.dirty {
			p.version++
			c.refresh(p.version, p.needs)
			c.dirty = false
		}
		p.list.count(c, c.status())
		c.rendered()
	}
	var err error
	if next.Snapshot, err = p.build(prev, changed, whole); err != nil {
		// Package xds validates its configurations, so this is a bug. The last good snapshot
		// stays in use.
		p.rec.write(slog.LevelError, "xdslb: the latest configuration cannot be compiled; the previous one stays in use", "", slog.String("error", err.Error()))
		if prev.Snapshot != nil {
			return prev, false
		}
		return &pickState{Table: rpc.Table{Err: p.id.failure("", fmt.Sprintf("xdslb: %v", err), ReasonListener)}}, true
	}
	next.Budgets = p.budgets(prev, changed, whole)
	if !whole && prev.ProbeFirst != nil {
		next.ProbeFirst = next.probeFirst
	}
	items := make([]*persistent.Item[clusterView], len(changed))
	changes := make([]persistent.Change[clusterView], len(changed))
	for i, c := range changed {
		c.followProbes(next.Snapshot, c.index)
		items[i] = c.publishedView(next.Snapshot)
		if items[i].Value.probers != nil {
			next.ProbeFirst = next.probeFirst
		}
		changes[i] = persistent.Change[clusterView]{Index: c.index, Item: items[i]}
		c.scheduleWeights()
		c.scheduleSlowStart(next.Snapshot.InSlowStart(c.index))
	}
	if whole {
		next.clusters.Set(items)
	} else {
		next.clusters.Follow(&prev.clusters, changes)
	}
	p.list.done()
	return next, helps
}

// budgets returns the retry limits by cluster: the previous list, unless the configuration or
// the leaf in use of a cluster changes it.
func (p *publisher) budgets(prev *pickState, changed []*cluster, whole bool) (list []*rpc.Budget) {
	if !whole {
		list = prev.Budgets
	}
	copied := false
	for _, c := range changed {
		budget, was := c.retryBudget(), (*rpc.Budget)(nil)
		if list != nil {
			was = list[c.index]
		}
		if budget == was || budget != nil && was != nil && *budget == *was {
			continue
		}
		if !copied {
			list = append(make([]*rpc.Budget, 0, len(p.list.all)), list...)[:len(p.list.all)]
			copied = true
		}
		list[c.index] = budget
	}
	return list
}

// build compiles the changes since the latest snapshot.
func (p *publisher) build(prev *pickState, changed []*cluster, whole bool) (*picker.Snapshot, error) {
	if !whole {
		changes := make([]picker.ClusterChange, len(changed))
		for i, c := range changed {
			changes[i] = picker.ClusterChange{Index: c.index, Cluster: c.stateCfg, State: &c.state}
		}
		return picker.Rebuild(prev.Snapshot, changes, p.env()), nil
	}
	states := make([]picker.ClusterState, len(p.list.all))
	for i, c := range p.list.all {
		states[i] = c.state
	}
	env := p.env()
	env.Routed, p.routed = p.routed, nil
	return picker.Build(prev.Snapshot, p.cfg, states, env)
}

// env returns the data of the channel and its RPCs that its snapshots use.
func (p *publisher) env() picker.Env {
	return picker.Env{
		Header:       metadatautil.OutgoingValues,
		RequestHash:  metadatautil.Hash,
		RandomHashes: &p.randomHashes,
		ChannelID:    p.channelID,
		Now:          p.rt.Now(),
	}
}
