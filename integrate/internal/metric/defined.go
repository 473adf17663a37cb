// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"sync"

	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/stats"
)

// The keys of labels. Keys that begin with "grpc." have the meaning defined in A78, A89 and
// A91.
const (
	target    = "grpc.target"
	backend   = "grpc.lb.backend_service" // the cluster
	locality  = "grpc.lb.locality"
	method    = "grpc.lb.outlier_detection.detection_method"
	unenforce = "grpc.lb.outlier_detection.unenforced_reason"
	server    = "grpc.xds.server"
	authority = "grpc.xds.authority"
	state     = "grpc.xds.cache_state"
	typ       = "grpc.xds.resource_type"
)

// stockPrefix replaces our prefix in grpc-go's names.
const prefix, stockPrefix = "xdslb.", "grpc."

// Metrics that grpc-go has under the same name with grpc. instead of xdslb. (A78, A91, and the
// documentation of grpc-go's metrics). Types, units and labels are the same.
var (
	Connected = gauge("xdslb.xds_client.connected", "{connected}",
		"1 if the XdsClient has a working ADS stream to the server, else 0.", target, server).least().stock()
	Resources = gauge("xdslb.xds_client.resources", "{resource}",
		"Resources of the XdsClient, by state.", target, authority, state, typ).stock()
	ServerFailure = counter("xdslb.xds_client.server_failure", "{failure}",
		"Failures of a working server: it became unreachable, or ended a stream without a response.", target, server).stock()
	UpdatesValid = counter("xdslb.xds_client.resource_updates_valid", "{resource}",
		"Valid resources received, including unchanged ones.", target, server, typ).stock()
	UpdatesInvalid = counter("xdslb.xds_client.resource_updates_invalid", "{resource}",
		"Invalid resources received.", target, server, typ).stock()

	WRRFallback = wrr(Count, "xdslb.lb.wrr.rr_fallback", "{update}",
		"Weight updates with fewer than two usable weights, so that all endpoints got the same share.").stock()
	WRRNotYetUsable = wrr(Count, "xdslb.lb.wrr.endpoint_weight_not_yet_usable", "{endpoint}",
		"Endpoints without a report, or in their blackout period, counted at each weight update.").stock()
	WRRStale = wrr(Count, "xdslb.lb.wrr.endpoint_weight_stale", "{endpoint}",
		"Endpoints whose latest report has expired, counted at each weight update.").stock()
	WRRWeights = wrr(Histogram, "xdslb.lb.wrr.endpoint_weights", "{endpoint}",
		"Endpoint weights at each weight update; 0 if the weight is not usable.").stock()

	EjectionsEnforced = counter("xdslb.lb.outlier_detection.ejections_enforced", "{ejection}",
		"Endpoints ejected by outlier detection.", target, method).stock()
	EjectionsUnenforced = counter("xdslb.lb.outlier_detection.ejections_unenforced", "{ejection}",
		"Outliers that were not ejected because of the maximum ejection or the enforcement percentage.", target, method, unenforce).stock()
)

// Metrics of the control plane connection.
var (
	NACKs = counter("xdslb.xds_client.nacks", "{response}",
		"Rejected responses.", server, typ)
	Messages = counter("xdslb.xds_client.messages", "{message}",
		"ADS responses received.", server, typ)
	Bytes = counter("xdslb.xds_client.received_size", "By",
		"Size of the ADS responses received, as protobuf.", server, typ)
	Requests = counter("xdslb.xds_client.requests", "{message}",
		"ADS requests sent, including ACKs and NACKs.", server, typ)
	Streams = counter("xdslb.xds_client.streams", "{stream}",
		"ADS streams opened.", server)
	SourceFailure = counter("xdslb.xds_client.source_failure", "{failure}",
		"Failures of a source such as a resource file, whose previous resources stay in use.", server)
	ResourceAge = gauge("xdslb.xds_client.resource_age", "s",
		"Time since the content of the resource in force arrived.", typ, "xdslb.resource_name").greatest()
	ConfigurationLatency = duration("xdslb.xds_client.configuration_latency",
		"Time from the arrival of an ADS response until RPCs use it.", target)
)

// Metrics of load balancing.
var (
	Picks = counter("xdslb.lb.picks", "{pick}",
		"RPC attempts sent to a locality.", backend, locality)
	Drops = counter("xdslb.lb.drops", "{call}",
		"RPCs dropped by the control plane's drop categories.", backend, "xdslb.drop_category")
	BreakerRejections = counter("xdslb.lb.breaker_rejections", "{call}",
		"RPCs rejected by a circuit breaker.", backend)
	BreakerInFlight = gauge("xdslb.lb.breaker_in_flight", "{attempt}",
		"RPC attempts in flight, as counted by a circuit breaker. Clusters whose max_requests is 4294967295 have none, unless a retry budget or bounded loads need it.", backend, "xdslb.eds_service")
	NoRoute = counter("xdslb.lb.no_route", "{call}",
		"RPCs that no route matched.", target)
	PriorityChanges = counter("xdslb.lb.priority_changes", "{change}",
		"Failovers of a cluster to a lower priority (direction down), and returns to a higher one (up).", target, backend, "xdslb.direction")
	Priority = gauge("xdslb.lb.priority", "{priority}",
		"The active priority; 0 is the highest, -1 means none.", target, backend).greatest()
	Endpoints = gauge("xdslb.lb.endpoints", "{endpoint}",
		"Endpoints by connection state, including excluded ones.", target, backend, "xdslb.state")
	EndpointsExcluded = gauge("xdslb.lb.endpoints_excluded", "{endpoint}",
		"Endpoints that get no RPCs regardless of their connection, by the first reason: draining, ejected, priority, subset.", target, backend, "xdslb.reason")
	ConnectionsLost = counter("xdslb.lb.connections_lost", "{disconnection}",
		"READY connections that were lost.", target, backend)
	ConnectionsFailed = counter("xdslb.lb.connections_failed", "{attempt}",
		"Failed connection attempts.", target, backend)
	PublicationDuration = duration("xdslb.lb.publication_duration",
		"Duration of publishing a snapshot.", target)
)

// Metrics of channels and their interceptors.
var (
	Retries = counter("xdslb.client.retries", "{attempt}",
		"Further attempts made by the interceptors.", target)
	Hedges = counter("xdslb.client.hedges", "{attempt}",
		"Retries made while other attempts were in flight.", target)
	RetryRejections = counter("xdslb.client.retry_rejections", "{attempt}",
		"Retries and hedges suppressed by a budget or by throttling.", target, "xdslb.reason")
	Channels = gauge("xdslb.client.channels", "{channel}",
		"Channels of the target that are not idle.", target)
	RollbackLosses = gauge("xdslb.client.rollback_losses", "{feature}",
		"Features in use with which RPCs of the target would fail after a roll-back to google.golang.org/grpc/xds.", target).greatest()
	HandedOver = gauge("xdslb.client.channels_handed_over", "{channel}",
		"Channels of the target that use google.golang.org/grpc/xds because of an environment variable, by variable.", target, "xdslb.variable")
	NotHandedOver = gauge("xdslb.client.channels_not_handed_over", "{channel}",
		"Channels of the target for which an environment variable selects google.golang.org/grpc/xds, which cannot serve them, by variable.", target, "xdslb.variable")
	MissingInterceptors = gauge("xdslb.client.channels_without_interceptors", "{channel}",
		"Channels that need xdslb's interceptors to apply their configuration, and lack them.", target)
)

// gauge defines a gauge.
func gauge(name, unit, description string, labels ...string) *Metric {
	return define(Gauge, estats.MetricDescriptor{Name: name, Unit: unit, Description: description, Labels: labels})
}

// counter defines a counter.
func counter(name, unit, description string, labels ...string) *Metric {
	return define(Count, estats.MetricDescriptor{Name: name, Unit: unit, Description: description, Labels: labels})
}

// duration defines a histogram of durations.
func duration(name, description string, labels ...string) *Metric {
	return define(Histogram, estats.MetricDescriptor{Name: name, Unit: "s", Description: description, Labels: labels, Bounds: seconds})
}

// wrr defines a metric of client-side weighted round robin, with the labels of A78.
func wrr(t estats.MetricType, name, unit, description string) *Metric {
	return define(t, estats.MetricDescriptor{
		Name: name, Unit: unit, Description: description, Labels: []string{target}, OptionalLabels: []string{locality, backend},
	})
}

// seconds are the bounds of histograms of durations, from 10 µs to a minute.
var seconds = []float64{1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

func sum(a, b int64) int64 { return a + b }

// greatest makes the value of a gauge with several channels their maximum instead of their sum.
func (m *Metric) greatest() *Metric {
	m.join = func(a, b int64) int64 { return max(a, b) }
	return m
}

// least makes the value of a gauge with several channels their minimum instead of their sum.
func (m *Metric) least() *Metric {
	m.join = func(a, b int64) int64 { return min(a, b) }
	return m
}

func (m *Metric) stock() *Metric {
	m.inStock = true
	return m
}

// StockName returns grpc-go's name of the metric, or "".
func (m *Metric) StockName() string {
	if !m.inStock {
		return ""
	}
	return stockPrefix + m.Name[len(prefix):]
}

// StockNames returns grpc-go's names.
func StockNames() *stats.MetricSet {
	set := stats.NewMetricSet()
	for _, m := range all {
		if m.inStock {
			set = set.Add(m.StockName())
		}
	}
	return set
}

// UseStockNames records the metrics that grpc-go also has under its names as well, and
// registers the missing ones. It must be called from an init function.
func UseStockNames() error { return useStockNames() }

var useStockNames = sync.OnceValue(func() error {
	for _, m := range all {
		if m.inStock {
			if err := m.alias(m.StockName()); err != nil {
				return err
			}
		}
	}
	return nil
})
