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
	Connected = define(Gauge, estats.MetricDescriptor{
		Name: "xdslb.xds_client.connected", Unit: "{connected}", Labels: []string{target, server},
		Description: "1 if the XdsClient has a working ADS stream to the server, else 0.",
	}).least().stock()
	Resources = define(Gauge, estats.MetricDescriptor{
		Name: "xdslb.xds_client.resources", Unit: "{resource}", Labels: []string{target, authority, state, typ},
		Description: "Resources of the XdsClient, by state.",
	}).stock()
	ServerFailure = define(Count, estats.MetricDescriptor{
		Name: "xdslb.xds_client.server_failure", Unit: "{failure}", Labels: []string{target, server},
		Description: "Failures of a working server: it became unreachable, or ended a stream without a response.",
	}).stock()
	UpdatesValid = define(Count, estats.MetricDescriptor{
		Name: "xdslb.xds_client.resource_updates_valid", Unit: "{resource}", Labels: []string{target, server, typ},
		Description: "Valid resources received, including unchanged ones.",
	}).stock()
	UpdatesInvalid = define(Count, estats.MetricDescriptor{
		Name: "xdslb.xds_client.resource_updates_invalid", Unit: "{resource}", Labels: []string{target, server, typ},
		Description: "Invalid resources received.",
	}).stock()

	WRRFallback = define(Count, estats.MetricDescriptor{
		Name: "xdslb.lb.wrr.rr_fallback", Unit: "{update}", Labels: []string{target}, OptionalLabels: []string{locality, backend},
		Description: "Weight updates with fewer than two usable weights, so that all endpoints got the same share.",
	}).stock()
	WRRNotYetUsable = define(Count, estats.MetricDescriptor{
		Name: "xdslb.lb.wrr.endpoint_weight_not_yet_usable", Unit: "{endpoint}", Labels: []string{target}, OptionalLabels: []string{locality, backend},
		Description: "Endpoints without a report, or in their blackout period, counted at each weight update.",
	}).stock()
	WRRStale = define(Count, estats.MetricDescriptor{
		Name: "xdslb.lb.wrr.endpoint_weight_stale", Unit: "{endpoint}", Labels: []string{target}, OptionalLabels: []string{locality, backend},
		Description: "Endpoints whose latest report has expired, counted at each weight update.",
	}).stock()
	WRRWeights = define(Histogram, estats.MetricDescriptor{
		Name: "xdslb.lb.wrr.endpoint_weights", Unit: "{endpoint}", Labels: []string{target}, OptionalLabels: []string{locality, backend},
		Description: "Endpoint weights at each weight update; 0 if the weight is not usable.",
	}).stock()

	EjectionsEnforced = define(Count, estats.MetricDescriptor{
		Name: "xdslb.lb.outlier_detection.ejections_enforced", Unit: "{ejection}", Labels: []string{target, method},
		Description: "Endpoints ejected by outlier detection.",
	}).stock()
	EjectionsUnenforced = define(Count, estats.MetricDescriptor{
		Name: "xdslb.lb.outlier_detection.ejections_unenforced", Unit: "{ejection}", Labels: []string{target, method, unenforce},
		Description: "Outliers that were not ejected because of the maximum ejection or the enforcement percentage.",
	}).stock()
)

// Metrics of the control plane connection.
var (
	NACKs = define(Count, estats.MetricDescriptor{
		Name: "xdslb.xds_client.nacks", Unit: "{response}", Labels: []string{server, typ},
		Description: "Rejected responses.",
	})
	Messages = define(Count, estats.MetricDescriptor{
		Name: "xdslb.xds_client.messages", Unit: "{message}", Labels: []string{server, typ},
		Description: "ADS responses received.",
	})
	Bytes = define(Count, estats.MetricDescriptor{
		Name: "xdslb.xds_client.received_size", Unit: "By", Labels: []string{server, typ},
		Description: "Size of the ADS responses received, as protobuf.",
	})
	Requests = define(Count, estats.MetricDescriptor{
		Name: "xdslb.xds_client.requests", Unit: "{message}", Labels: []string{server, typ},
		Description: "ADS requests sent, including ACKs and NACKs.",
	})
	Streams = define(Count, estats.MetricDescriptor{
		Name: "xdslb.xds_client.streams", Unit: "{stream}", Labels: []string{server},
		Description: "ADS streams opened.",
	})
	SourceFailure = define(Count, estats.MetricDescriptor{
		Name: "xdslb.xds_client.source_failure", Unit: "{failure}", Labels: []string{server},
		Description: "Failures of a source such as a resource file, whose previous resources stay in use.",
	})
	ResourceAge = define(Gauge, estats.MetricDescriptor{
		Name: "xdslb.xds_client.resource_age", Unit: "s", Labels: []string{typ, "xdslb.resource_name"},
		Description: "Time since the content of the resource in force arrived.",
	}).greatest()
	ConfigurationLatency = define(Histogram, estats.MetricDescriptor{
		Name: "xdslb.xds_client.configuration_latency", Unit: "s", Labels: []string{target}, Bounds: seconds,
		Description: "Time from the arrival of an ADS response until RPCs use it.",
	})
)

// Metrics of load balancing.
var (
	Picks = define(Count, estats.MetricDescriptor{
		Name: "xdslb.lb.picks", Unit: "{pick}", Labels: []string{backend, locality},
		Description: "RPC attempts sent to a locality.",
	})
	Drops = define(Count, estats.MetricDescriptor{
		Name: "xdslb.lb.drops", Unit: "{call}", Labels: []string{backend, "xdslb.drop_category"},
		Description: "RPCs dropped by the control plane's drop categories.",
	})
	BreakerRejections = define(Count, estats.MetricDescriptor{
		Name: "xdslb.lb.breaker_rejections", Unit: "{call}", Labels: []string{backend},
		Description: "RPCs rejected by a circuit breaker.",
	})
	BreakerInFlight = define(Gauge, estats.MetricDescriptor{
		Name: "xdslb.lb.breaker_in_flight", Unit: "{attempt}", Labels: []string{backend, "xdslb.eds_service"},
		Description: "RPC attempts in flight, as counted by a circuit breaker. Clusters whose max_requests is 4294967295 have none, unless a retry budget or bounded loads need it.",
	})
	NoRoute = define(Count, estats.MetricDescriptor{
		Name: "xdslb.lb.no_route", Unit: "{call}", Labels: []string{target},
		Description: "RPCs that no route matched.",
	})
	PriorityChanges = define(Count, estats.MetricDescriptor{
		Name: "xdslb.lb.priority_changes", Unit: "{change}", Labels: []string{target, backend, "xdslb.direction"},
		Description: "Failovers of a cluster to a lower priority (direction down), and returns to a higher one (up).",
	})
	Priority = define(Gauge, estats.MetricDescriptor{
		Name: "xdslb.lb.priority", Unit: "{priority}", Labels: []string{target, backend},
		Description: "The active priority; 0 is the highest, -1 means none.",
	}).greatest()
	Endpoints = define(Gauge, estats.MetricDescriptor{
		Name: "xdslb.lb.endpoints", Unit: "{endpoint}", Labels: []string{target, backend, "xdslb.state"},
		Description: "Endpoints by connection state, including excluded ones.",
	})
	EndpointsExcluded = define(Gauge, estats.MetricDescriptor{
		Name: "xdslb.lb.endpoints_excluded", Unit: "{endpoint}", Labels: []string{target, backend, "xdslb.reason"},
		Description: "Endpoints that get no RPCs regardless of their connection, by the first reason: draining, ejected, priority, subset.",
	})
	ConnectionsLost = define(Count, estats.MetricDescriptor{
		Name: "xdslb.lb.connections_lost", Unit: "{disconnection}", Labels: []string{target, backend},
		Description: "READY connections that were lost.",
	})
	ConnectionsFailed = define(Count, estats.MetricDescriptor{
		Name: "xdslb.lb.connections_failed", Unit: "{attempt}", Labels: []string{target, backend},
		Description: "Failed connection attempts.",
	})
	PublicationDuration = define(Histogram, estats.MetricDescriptor{
		Name: "xdslb.lb.publication_duration", Unit: "s", Labels: []string{target}, Bounds: seconds,
		Description: "Duration of publishing a snapshot.",
	})
)

// Metrics of channels and their interceptors.
var (
	Retries = define(Count, estats.MetricDescriptor{
		Name: "xdslb.client.retries", Unit: "{attempt}", Labels: []string{target},
		Description: "Further attempts made by the interceptors.",
	})
	Hedges = define(Count, estats.MetricDescriptor{
		Name: "xdslb.client.hedges", Unit: "{attempt}", Labels: []string{target},
		Description: "Retries made while other attempts were in flight.",
	})
	RetryRejections = define(Count, estats.MetricDescriptor{
		Name: "xdslb.client.retry_rejections", Unit: "{attempt}", Labels: []string{target, "xdslb.reason"},
		Description: "Retries and hedges suppressed by a budget or by throttling.",
	})
	Channels = define(Gauge, estats.MetricDescriptor{
		Name: "xdslb.client.channels", Unit: "{channel}", Labels: []string{target},
		Description: "Channels of the target that are not idle.",
	})
	RollbackLosses = define(Gauge, estats.MetricDescriptor{
		Name: "xdslb.client.rollback_losses", Unit: "{feature}", Labels: []string{target},
		Description: "Features in use with which RPCs of the target would fail after a roll-back to google.golang.org/grpc/xds.",
	}).greatest()
	HandedOver = define(Gauge, estats.MetricDescriptor{
		Name: "xdslb.client.channels_handed_over", Unit: "{channel}", Labels: []string{target, "xdslb.variable"},
		Description: "Channels of the target that use google.golang.org/grpc/xds because of an environment variable, by variable.",
	})
	NotHandedOver = define(Gauge, estats.MetricDescriptor{
		Name: "xdslb.client.channels_not_handed_over", Unit: "{channel}", Labels: []string{target, "xdslb.variable"},
		Description: "Channels of the target for which an environment variable selects google.golang.org/grpc/xds, which cannot serve them, by variable.",
	})
	MissingInterceptors = define(Gauge, estats.MetricDescriptor{
		Name: "xdslb.client.channels_without_interceptors", Unit: "{channel}", Labels: []string{target},
		Description: "Channels that need xdslb's interceptors to apply their configuration, and lack them.",
	})
)

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
