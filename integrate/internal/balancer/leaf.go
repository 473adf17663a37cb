// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"reflect"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/integrate/internal/channelmetrics"
	"github.com/xdslb/xdslb/integrate/internal/counters"
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
		if l.opts.ReconnectOnTLSChange && !reflect.DeepEqual(was.TLS, l.cfg.TLS) {
			moved = true
			l.replaceConns()
		}
		rechecked := !sameHealthCheck(was, l.cfg)
		if rechecked {
			l.recheckHealth()
		}
		if rechecked || delegates(&was.Policy) != l.delegates() { // child policies do not use the cluster's check
			l.recheckReplacements()
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
	// replacements maps a connection to its replacement, and a replacement to the connection
	// that it replaces; nil if there are no replacements. See conn.
	replacements map[*conn]*conn
	watches      map[*conn]*healthWatch // nil unless the cluster has a health check
	// replacementFailed is set once it has been logged that the latest TLS settings fail.
	replacementFailed bool
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
//	Connectivity, StateSince             endpoint.setState, onReady, resume, disconnect, takeOver
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
