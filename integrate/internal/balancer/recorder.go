// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/xdslb/xdslb/integrate/internal/explain"
	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/integrate/internal/outlier"
	"github.com/xdslb/xdslb/integrate/internal/weights"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// Kinds of events of a cluster, besides those of package eventlog.
const (
	eventPriorityChanged  eventlog.Kind = "PriorityChanged"  // a cluster's active priority changed (A56)
	eventClusterFailed    eventlog.Kind = "ClusterFailed"    // RPCs of the cluster fail: no endpoint can be picked
	eventClusterRecovered eventlog.Kind = "ClusterRecovered" // after eventClusterFailed
)

// A recorder writes the events of a channel to its journal, its log and its metrics. The
// balancer's mutex guards it.
type recorder struct {
	journal  eventlog.Journal
	log      *eventlog.Log
	logger   atomic.Pointer[slog.Logger] // of the log; nil means the process's
	channel  []slog.Attr                 // of all lines: target and node
	target   string                      // in metrics; empty without xDS
	metrics  *metric.Channel             // nil if the channel has no recorder of metrics
	failed   bool                        // the target has failed since it was last served
	start    time.Time                   // of the channel
	received time.Time                   // of the latest configuration whose latency was measured
	// retired are the counters, with their configuration, that no leaf uses any more, until
	// metrics are read.
	retired map[*picker.ClusterLoad]*picker.Leaf
	// unsupported has the unsupported features that have been logged.
	unsupported map[string]bool
}

// init initializes the recorder.
func (r *recorder) init() {
	r.start = time.Now()
	r.log = eventlog.NewLog(r.logger.Load)
	r.retired = map[*picker.ClusterLoad]*picker.Leaf{}
}

// retire keeps counters that no leaf uses any more until metrics are read.
func (r *recorder) retire(load *picker.ClusterLoad, cfg *picker.Leaf) {
	if r.metrics != nil {
		r.retired[load] = cfg
	}
}

// write writes a line about a cluster, or about the channel if cluster is empty. Repeats of a
// line, which have the same message and cluster, are suppressed; write then returns for how
// long. The Logger is called without the balancer's mutex.
func (r *recorder) write(level slog.Level, message, cluster string, attrs ...slog.Attr) (suppressed time.Duration) {
	return r.log.Write(r.line(level, message, cluster, attrs))
}

func (r *recorder) line(level slog.Level, message, cluster string, attrs []slog.Attr) eventlog.Line {
	about := slices.Clip(r.channel)
	if cluster != "" {
		about = append(about, slog.String("cluster", cluster))
	}
	return eventlog.Line{Level: level, Message: message, About: cluster, Attrs: append(about, attrs...)}
}

// stateKey is a state of the channel, of a cluster, or of a child policy, that is logged when it
// changes.
type stateKey struct {
	name, cluster string
	child         any // a *child of the cluster, or nil
}

const (
	stateServed   = "served"   // whether the target is served
	stateFailed   = "failed"   // whether RPCs of a cluster fail
	statePriority = "priority" // the priority that a cluster uses
	statePolicy   = "policy"   // whether a child policy rejects its endpoints or configuration
	stateZones    = "zones"    // whether zone-aware routing is not possible
	stateProbes   = "probes"   // whether endpoints do not answer probes
)

// writeState writes a line about a state. The latest line about a state always has the current
// state: see [eventlog.Log.WriteState].
func (r *recorder) writeState(of stateKey, state string, level slog.Level, message string, attrs ...slog.Attr) {
	r.log.WriteState(of, state, r.line(level, message, of.cluster, attrs))
}

// begin writes a warning that a condition exists, which resolve ends.
func (r *recorder) begin(of stateKey, message string, attrs ...slog.Attr) {
	r.writeState(of, message, slog.LevelWarn, message, attrs...)
}

// resolve writes that a condition has ended, if its beginning was written.
func (r *recorder) resolve(of stateKey, message string, attrs ...slog.Attr) {
	r.log.Resolve(of, r.line(slog.LevelInfo, message, of.cluster, attrs))
}

// forget removes the states of a cluster.
func (r *recorder) forget(cluster string) {
	for _, name := range []string{stateFailed, statePriority, stateZones, stateProbes} {
		r.log.EndState(stateKey{name: name, cluster: cluster})
	}
}

// msgSilence and msgAsynchronous are messages of probers.
const (
	msgSilence = "xdslb: endpoints do not answer probes: picking them by RPC latency; call integrate/probe.Register on the servers"

	msgAnswers = "xdslb: endpoints answer probes again"

	msgAsynchronous = "xdslb: xdslb_prequal is asynchronous on a channel without xDS, which has no interceptor to wait for the answers"
)

// Messages of events. Programs may match them.
const (
	msgTargetFailed = "xdslb: the target cannot be served"
	msgServedAgain  = "xdslb: the target is served again"
	msgFailover     = "xdslb: a cluster fails over to a lower priority"
	msgUnavailable  = "xdslb: RPCs of a cluster fail"
	msgRecovered    = "xdslb: RPCs of a cluster recovered"
	msgFailback     = "xdslb: a cluster returns to a higher priority"
	msgEjected      = "xdslb: endpoint ejected as an outlier"
	msgReturned     = "xdslb: ejected endpoint returned"

	msgPolicyRejects = "xdslb: an LB policy rejected its endpoints or configuration"
	msgPolicyAccepts = "xdslb: an LB policy accepted its endpoints and configuration"
	msgNoZones       = "xdslb: a cluster has zone-aware routing, but is balanced without it, since the zones of the local cluster are not known. " +
		"It requires the locality of the node in the bootstrap, and Config.LocalCluster, the name of the EDS resource with the fleet's endpoints"
	msgZones = "xdslb: a cluster is balanced by zones"
)

// record adds an event with the current time to the journal, and logs events of interest to an
// operator. Single connections are not logged, because a restart of a fleet would fill the log.
// endpoint returns the address of the endpoint that the event is about, if any. It is called
// unless the event is merged into an earlier one.
func (r *recorder) record(ev eventlog.Event, endpoint func() string) {
	ev.Time = time.Now()
	ev.Error = eventlog.Cut(ev.Error)
	switch ev.Kind {
	case eventlog.TargetFailed:
		r.failed = true
		r.writeState(stateKey{name: stateServed}, msgTargetFailed, slog.LevelWarn, msgTargetFailed, slog.String("error", ev.Error))
	case eventlog.ConfigurationApplied:
		if r.failed {
			r.failed = false
			r.writeState(stateKey{name: stateServed}, msgServedAgain, slog.LevelInfo, msgServedAgain)
		}
	case eventClusterFailed:
		r.writeState(stateKey{name: stateFailed, cluster: ev.Cluster}, msgUnavailable, slog.LevelWarn, msgUnavailable, slog.String("error", ev.Error))
	case eventClusterRecovered:
		r.writeState(stateKey{name: stateFailed, cluster: ev.Cluster}, msgRecovered, slog.LevelInfo, msgRecovered)
	}
	if r.journal.Add(&ev) && endpoint != nil {
		ev.Endpoint = endpoint()
	}
}

// recordConnection records that the connection of an endpoint was lost, or failed.
func (r *recorder) recordConnection(kind eventlog.Kind, cluster, leaf string, endpoint func() string, err error) {
	m := metric.ConnectionsLost
	if kind == eventlog.ConnectionFailed {
		m = metric.ConnectionsFailed
	}
	r.metrics.Count(m, 1, r.target, leaf)
	r.record(eventlog.Event{Kind: kind, Cluster: cluster, Error: explain.ErrorText(err)}, endpoint)
}

// recordPriority records that a cluster uses another priority. Priorities are counted over all
// leaves of the cluster; -1 means no priority. cause returns why RPCs leave the previous priority.
func (r *recorder) recordPriority(cluster string, from, to int, cause func() string) {
	r.record(eventlog.Event{Kind: eventPriorityChanged, Cluster: cluster, Change: fmt.Sprintf("priority %s to %s", priorityName(from), priorityName(to))}, nil)
	of := stateKey{name: statePriority, cluster: cluster}
	if from >= 0 {
		direction := "up"
		if to < 0 || to > from {
			direction = "down"
		}
		r.metrics.Count(metric.PriorityChanges, 1, r.target, cluster, direction)
	}
	if from < 0 || to < 0 { // the first priority is no failover, and failing RPCs have a line of their own
		r.log.EndState(of)
		return
	}
	level, message := slog.LevelInfo, msgFailback
	attrs := []slog.Attr{slog.Int("from_priority", from), slog.Int("to_priority", to)}
	if to > from {
		level, message = slog.LevelWarn, msgFailover
		attrs = append(attrs, slog.String("error", eventlog.Cut(cause())))
	}
	r.writeState(of, priorityName(to), level, message, attrs...)
}

func priorityName(i int) string {
	if i < 0 {
		return "none"
	}
	return fmt.Sprint(i)
}

const msgUnsupported = "xdslb: the configuration has a feature that no gRPC client supports, and it is ignored. integrate/docs/supported.md lists alternatives; " +
	"ignore this line if the feature is meant for other clients"

// maxUnsupported is how many unsupported features a channel remembers as logged.
const maxUnsupported = 256

// recordUnsupported logs unsupported features of a listener and its routes, or of a cluster,
// that were not logged before. If several clusters have the same feature, the first is logged.
func (r *recorder) recordUnsupported(cluster string, features []string) {
	var added []string
	for _, f := range features {
		if !r.unsupported[f] {
			added = append(added, f)
		}
	}
	if len(added) == 0 || len(r.unsupported) >= maxUnsupported ||
		r.write(slog.LevelWarn, msgUnsupported, cluster, slog.String("ignored", strings.Join(added, "; "))) > 0 {
		return
	}
	if r.unsupported == nil {
		r.unsupported = map[string]bool{}
	}
	for _, f := range added {
		r.unsupported[f] = true
	}
}

// measurePublication records the duration of a publication that has just ended, and the latency
// of the configuration, which may be nil, if it is a new one.
func (r *recorder) measurePublication(took time.Duration, now time.Time, cfg *picker.Config) {
	r.metrics.Observe(metric.PublicationDuration, []float64{took.Seconds()}, r.target)
	if cfg == nil || !cfg.Received.After(r.received) {
		return
	}
	r.received = cfg.Received
	if r.received.After(r.start) { // otherwise it is older than the channel
		r.metrics.Observe(metric.ConfigurationLatency, []float64{now.Sub(r.received).Seconds()}, r.target)
	}
}

// countOutliers records the findings of outlier detection.
func (r *recorder) countOutliers(found outlier.Findings) {
	for d, v := range found {
		if v == (outlier.Verdicts{}) {
			continue
		}
		method := outlier.Detector(d).String()
		r.metrics.Count(metric.EjectionsEnforced, int64(v.Ejected), r.target, method)
		r.metrics.Count(metric.EjectionsUnenforced, int64(v.Overflow), r.target, method, "max_ejection_overflow")
		r.metrics.Count(metric.EjectionsUnenforced, int64(v.Spared), r.target, method, "enforcement_percentage")
	}
}

// recordEjection records that outlier detection ejected an endpoint, or that it returned.
func (r *recorder) recordEjection(cluster, endpoint string, ejected bool, cause outlier.Cause) {
	ev, message := eventlog.Event{Kind: eventlog.EndpointReturned, Cluster: cluster}, msgReturned
	attrs := []slog.Attr{slog.String("endpoint", endpoint)}
	if ejected {
		ev.Kind, ev.Error, message = eventlog.EndpointEjected, cause.String(), msgEjected
		attrs = append(attrs, slog.String("detector", cause.By.String()), slog.Float64("value", cause.Value))
	}
	line := r.line(slog.LevelInfo, message, cluster, attrs)
	line.About = cluster + " " + endpoint // endpoints do not suppress each other's lines
	r.log.Write(line)
	r.record(ev, func() string { return endpoint })
}

// noteLeaf counts the differences between two configurations of a leaf, except for its
// endpoints, which the reconciler counts.
func noteLeaf(c *eventlog.Changes, was, is *picker.Leaf) {
	count := func(n *int, differs bool) {
		if differs {
			*n++
		}
	}
	count(&c.Priorities, len(was.Priorities) != len(is.Priorities))
	count(&c.Policies, was.Policy != is.Policy && !reflect.DeepEqual(was.Policy, is.Policy))
	count(&c.TLS, was.TLS != is.TLS && !reflect.DeepEqual(was.TLS, is.TLS))
	count(&c.Limits, was.MaxRequests != is.MaxRequests || !persistent.SameSlice(was.Drops, is.Drops) && !reflect.DeepEqual(was.Drops, is.Drops))
	count(&c.Localities, len(was.Priorities) == len(is.Priorities) && otherLocalities(was.Priorities, is.Priorities))
}

// otherLocalities reports whether priorities differ in localities or their weights:
// O(localities).
func otherLocalities(was, is []picker.Priority) bool {
	for i := range is {
		if len(was[i].Localities) != len(is[i].Localities) {
			return true
		}
		for k := range is[i].Localities {
			if a, b := &was[i].Localities[k], &is[i].Localities[k]; a.ID != b.ID || a.Weight != b.Weight {
				return true
			}
		}
	}
	return false
}

// noteEndpoint counts the differences between two configurations of an endpoint.
func noteEndpoint(c *eventlog.Changes, was, is *picker.Endpoint) {
	if was.Weight != is.Weight {
		c.Weights++
	}
	if was.Health != is.Health {
		c.Health++
	}
}

// note logs and records that the latest configuration was applied. previous are the previous
// configurations of the clusters, nil for new ones, changed the indexes of changed clusters.
func (b *Balancer) note(previous []*picker.Cluster, changed []int, changes *eventlog.Changes) {
	b.noteWeights(b.cfg, changed)
	for _, i := range changed {
		b.rec.recordZones(previous[i], b.cfg.Clusters[i])
	}
	b.rec.recordIgnored(b.cfg, changed)
	b.rec.record(eventlog.Event{Kind: eventlog.ConfigurationApplied, Changes: changes}, nil)
}

// recordZones logs that a cluster requests zone-aware routing but does not get it, since the
// zones of the local cluster are unknown. was is the cluster's previous configuration, nil if
// there is none. It logs nothing if the line was logged for that configuration.
func (r *recorder) recordZones(was, is *picker.Cluster) {
	for i := range is.Leaves {
		l := &is.Leaves[i]
		if l.Origin == nil || hadOrigin(was, l) {
			continue
		}
		switch of := (stateKey{name: stateZones, cluster: is.Name}); {
		case l.Policy.ZoneAware == nil:
		case l.Origin.Err != nil:
			r.begin(of, msgNoZones, slog.String("error", l.Origin.Err.Error()))
		default:
			r.resolve(of, msgZones)
		}
	}
}

// hadOrigin reports whether a cluster's configuration has the same origin for a leaf as the
// next one.
func hadOrigin(was *picker.Cluster, next *picker.Leaf) bool {
	return was != nil && slices.ContainsFunc(was.Leaves, func(l picker.Leaf) bool {
		o := l.Origin
		return l.Name == next.Name && o != nil && (o == next.Origin || o.Err != nil && next.Origin.Err != nil && o.Err.Error() == next.Origin.Err.Error())
	})
}

// recordIgnored logs the unsupported features of a configuration that have not been logged yet.
// clusters holds the indexes of the changed clusters: O(clusters).
func (r *recorder) recordIgnored(cfg *picker.Config, clusters []int) {
	r.recordUnsupported("", cfg.Ignored)
	sessions := explain.HasSessions(cfg)
	for _, i := range clusters {
		for k := range cfg.Clusters[i].Leaves {
			l := &cfg.Clusters[i].Leaves[k]
			r.recordUnsupported(l.Name, explain.UnsupportedOf(l, sessions))
		}
	}
}

// noteWeights logs which of the changed clusters have endpoints of different weights.
func (ch *channel) noteWeights(cfg *picker.Config, changed []int) {
	if ch.standalone || ch.simulated {
		return
	}
	var names []string
	for _, i := range changed {
		if c := cfg.Clusters[i]; !weights.Noted(c.Name) && weights.Matter(c) {
			names = append(names, c.Name)
		}
	}
	weights.Note(ch.rec.log, names)
}
