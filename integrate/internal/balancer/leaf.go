// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/integrate/internal/channelmetrics"
	"github.com/xdslb/xdslb/integrate/internal/counters"
	"github.com/xdslb/xdslb/integrate/internal/serial"
	"github.com/xdslb/xdslb/integrate/internal/xdstls"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// leaf is the live counterpart of a picker.Leaf.
type leaf struct {
	*leafState
	priorities []*priority
	detector   detector
}

// update applies a new configuration of the leaf: it reconciles priorities and endpoints with it,
// and configures the features. changed is the cluster's list of tallies.
func (l *leaf) update(cfg *picker.Leaf, changes *eventlog.Changes, changed *[]*tally) {
	was := l.adopt(cfg)
	moved := l.reconcile(changes, changed)
	l.configure(was, moved, changes)
}

// adopt sets the configuration, and with it the counters and TLS settings that endpoints and
// connections use. It returns the previous configuration, or nil if there is none.
func (l *leaf) adopt(cfg *picker.Leaf) (was *picker.Leaf) {
	was = l.cfg
	switch {
	case was == nil:
		l.cfg = cfg
		l.acquireCounters()
	case was.Service != cfg.Service || was.Load.Server != cfg.Load.Server || was.CountsRPCs() != cfg.CountsRPCs():
		// Breaker and load reports belong to the pair of names. Unchanged counters are acquired
		// again before they are released, so that they keep counting the RPCs in flight.
		l.releaseCounters()
		l.cfg = cfg
		l.acquireCounters()
	default:
		l.cfg = cfg
	}
	l.rt.Call(l.security.Swap(cfg.TLS))
	return was
}

// configure applies the configuration to one feature after the other, once priorities and endpoints
// match it. was is the previous configuration, nil for a new leaf. moved reports whether the states
// of endpoints must be counted again.
func (l *leaf) configure(was *picker.Leaf, moved bool, changes *eventlog.Changes) {
	rehashed := false
	if was == nil || was.Outlier != l.cfg.Outlier { // endpoints may return
		moved = true
	}
	if was != nil {
		noteLeaf(changes, was, l.cfg)
		rehashed = was.Policy.Hashes() != l.cfg.Policy.Hashes()
		if !sameHealthCheck(was, l.cfg) {
			l.recheckHealth()
		}
	}
	l.updateDetection()
	l.updateWRR()
	for _, p := range l.priorities {
		if moved {
			p.recount()
		}
		if rehashed {
			p.invalidate() // IDLE endpoints may have to connect now
		}
	}
	if l.rec.metrics != nil { // before localities are removed
		channelmetrics.FoldLoad(l.rec.metrics, l.cfg, l.load)
	}
	l.load.Retain(l.cfg)
	l.metrics.Store(newMetricNames(l.cfg.Load.Metrics))
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

// close releases all resources of the leaf.
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

// recheckHealth applies a changed health check to READY connections, which stay in use until they
// are reported as unhealthy.
func (l *leaf) recheckHealth() {
	for e := range l.endpoints {
		c := e.conn
		if c == nil || c.child != nil || c.state != picker.Ready || c.multiAddress() || l.delegates() {
			continue
		}
		if l.checksHealth() {
			c.checkHealth()
			continue
		}
		if c.stopHealthWatch(); e.Connectivity != picker.Ready {
			e.observe(connectivity.Ready, nil)
		}
	}
}

// leafState is the part of a leaf that its priorities, endpoints and connections share. A
// connection never leaves its leaf.
type leafState struct {
	*channel
	entry       entry
	cluster     string // its name
	cfg         *picker.Leaf
	name        string          // cfg's; never changes
	security    *xdstls.Cluster // nil without xDS
	breaker     *counters.Breaker
	load        *picker.ClusterLoad
	stopReports func()                      // ends load reporting
	metrics     atomic.Pointer[metricNames] // forwarded by load reports
	wrr         atomic.Pointer[wrrConfig]   // nil unless endpoints report their weights
	rejected    *rejections                 // see rejections; nil until they are needed
	consecutive *consecutive                // nil unless consecutive failures are detected
	lastErr     error                       // of the latest connection attempt that failed
	errs        map[*endpoint]error         // the errors of endpoints in TRANSIENT_FAILURE
	watches     map[*conn]*healthWatch      // nil unless the cluster has a health check
	// hosts has the hostnames of connections by their addresses, for handshakes; nil unless the
	// channel has xDS credentials.
	hosts map[*conn]map[string]*xdstls.Host
}

// noteError records the latest connection error of an endpoint of a priority.
func (l *leafState) noteError(t *tally, err error) {
	was := l.lastErr
	l.lastErr = err
	if was != nil && err != nil && was.Error() != err.Error() {
		t.note(connError)
	}
}

// delegates reports whether child policies connect the endpoints: see group.
func (l *leafState) delegates() bool { return delegates(&l.cfg.Policy) }

func delegates(p *picker.Policy) bool { return p.Kind.Traits().Connects }

// selects reports whether a child policy selects the one endpoint that picks use: pick_first.
func selects(k picker.PolicyKind) bool { return k.Traits().Connects && !k.Traits().Delegates }

// checksHealth reports whether connections of the leaf are READY only once a health check reports
// READY.
func (l *leafState) checksHealth() bool { return l.cfg.HealthCheck != nil || l.channel.checksHealth() }

// onDemand reports whether endpoints connect only when an RPC needs them.
func (l *leafState) onDemand() bool { return l.cfg.Policy.Kind.Traits().OnDemand }

// locality is the live counterpart of a picker.Locality.
type locality struct {
	leaf      *leafState
	tally     *tally // of the priority
	id        picker.LocalityID
	cfg       picker.EndpointList
	load      *picker.Load
	observers *observers // the initial observers of endpoints
	counted   counting   // for each endpoint
	binding   *picker.Binding
	endpoints endpoints // parallel to cfg
	version   uint64    // of the endpoints and all their data in snapshots: see changed
}

// changed records a change that affects snapshots but is not part of the configuration
// (picker.LocalityState.Version):
//
//	which endpoints there are            matchLocalities, matchEndpoints, reconciler.finish
//	Connectivity, StateSince             endpoint.setState, onReady, resume, disconnect
//	Cold                                 reconciler.finish, endpoint.setState, takeObservations
//	Ejected                              leaf.applyEjections, updateDetection, takeObservations
//	the weight derived from reports      priority.updateWeights, leaf.updateWRR, takeObservations
//
// Picks do not see changes that are not recorded here. TestModel compares each snapshot with a
// snapshot built from all endpoints, and so does picker under the build tag invariants.
func (l *locality) changed() {
	l.leaf.localityVersion++
	l.version = l.leaf.localityVersion
}

// endpoints implements picker.EndpointStates.
type endpoints []*endpoint

func (es endpoints) Len() int                          { return len(es) }
func (es endpoints) State(i int) *picker.EndpointState { return &es[i].EndpointState }

// usable reports whether an endpoint of the locality is not draining.
func (l *locality) usable() bool {
	return slices.ContainsFunc(l.endpoints, func(e *endpoint) bool { return !e.Draining })
}

// acquireCounters acquires the leaf's counters of RPCs.
func (l *leafState) acquireCounters() {
	switch {
	case !l.cfg.CountsRPCs():
		l.breaker = counters.NewUnlimited()
	case l.simulated:
		l.breaker = counters.NewBreaker()
	default:
		l.breaker = counters.AcquireBreaker(l.cfg.Name, l.cfg.Service)
	}
	l.load, l.stopReports = &picker.ClusterLoad{Unreported: true}, func() {}
	if server := l.cfg.Load.Server; server != "" && l.client != nil {
		load, stop, err := counters.ReportLoad(l.client, l.bootstrap, server, l.cfg.Name, l.cfg.Service)
		if err != nil {
			l.rec.write(slog.LevelError, "xdslb: a cluster's load is not reported", l.cfg.Name, slog.String("server", server), slog.String("error", err.Error()))
			return
		}
		l.load, l.stopReports = load, stop
	}
}

// loadObserver returns the collector of ORCA reports for a locality's endpoints, or nil if load
// is not reported.
func (l *leafState) loadObserver(id picker.LocalityID) *observers {
	if l.load.Unreported || l.cfg.Load.Server == "" {
		return nil
	}
	return &observers{orca: &orcaRecorder{l.load.Metrics(id), &l.metrics}}
}

// releaseCounters releases the counters of acquireCounters once no published snapshot uses them:
// picks would use a circuit breaker that the next user of the pair of names does not find. RPCs in
// flight continue to be counted.
func (l *leafState) releaseCounters() {
	cfg, load, breaker, stop := l.cfg, l.load, l.breaker, l.stopReports
	l.out.unused = append(l.out.unused, func() {
		l.rec.retire(load, cfg)
		breaker.Unref()
		stop()
	})
}

func (l *leafState) dropCounters() (drops []*picker.Counter, overload *picker.Counter) {
	for _, d := range l.cfg.Drops {
		drops = append(drops, l.load.Drop(d.Category))
	}
	return drops, l.load.Overload()
}

// A counting selects what is counted for each endpoint, as its policy requires. If the
// selection changes, a new endpoint replaces the endpoint, so that the end of each RPC is
// counted in the same way as its start.
type counting struct {
	inFlight bool // the RPCs in flight
	timed    bool // their times
	breaker  bool // the RPCs in flight of the cluster
}

func countingOf(l *picker.Leaf) counting {
	return counting{l.Policy.CountsInFlight(), l.Policy.TimesRPCs(), l.CountsRPCs()}
}

// binding returns the binding of a locality with this counting. It requests a clock if RPCs are
// timed.
func (c counting) binding(load *picker.Load, breaker *picker.Breaker, clock func() *picker.Clock) *picker.Binding {
	if c.timed {
		return picker.NewTimedBinding(load, breaker, clock())
	}
	return picker.NewBinding(load, breaker, c.inFlight)
}

// watchTime is how long the RPCs of endpoints are counted after the latest status request.
const watchTime = time.Minute

// endpointCalls counts the finished RPCs of an endpoint while the channel is watched.
type endpointCalls struct{ ok, failed atomic.Uint64 }

// count counts an RPC. An RPC that was never sent is ignored.
func (c *endpointCalls) count(r picker.CallResult) {
	switch r {
	case picker.CallOK:
		c.ok.Add(1)
	case picker.CallFailed:
		c.failed.Add(1)
	}
}

// callWatch controls whether the RPCs of a channel are counted by endpoint:
//
//	       watchCalls                 watchCalls
//	off ──────────────────► on, timer ◄───┐
//	 ▲                          │ └───────┘
//	 └──────────────────────────┘
//	   watchTime without a status request
//
// The balancer's mutex guards it.
type callWatch struct {
	since time.Time // zero means off
	timer *time.Timer
}

func (w *callWatch) on() bool { return !w.since.IsZero() }

// watchCalls counts RPCs by endpoint for a while: O(endpoints) unless they are counted already.
func watchCalls(b *Balancer) {
	if !b.watch.on() {
		b.watch.since, b.watched = time.Now(), true
		setCalls(b, func() *endpointCalls { return new(endpointCalls) })
	}
	serial.Halt(&b.watch.timer)
	b.rt.After(watchTime, &b.watch.timer, func() { unwatchCalls(b) })
}

// unwatchCalls stops counting.
func unwatchCalls(b *Balancer) {
	serial.Halt(&b.watch.timer)
	b.watch.since, b.watched = time.Time{}, false
	setCalls(b, func() *endpointCalls { return nil })
}

func setCalls(b *Balancer, calls func() *endpointCalls) {
	for _, c := range b.clusters {
		for _, l := range c.leaves {
			for e := range l.endpoints {
				e.updateObservers(func(o *observers) { o.calls = calls() })
			}
		}
	}
}
