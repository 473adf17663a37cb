// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"math"
	"net"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"

	"github.com/xdslb/xdslb/picker"
)

// cluster converts a Cluster.
func (d *decoder) cluster(m *clusterv3.Cluster, p *path) *Cluster {
	c := &Cluster{
		Name:          p.dot("name").nonEmpty(m.GetName()),
		Retries:       retryLimit(m.GetCircuitBreakers(), p.dot("circuit_breakers")),
		LoadReporting: m.GetLrsServer() != nil,
		Metrics:       metrics(m.GetLrsReportEndpointMetrics()),
		Outlier:       outlierDetection(m.GetOutlierDetection(), p.dot("outlier_detection")),
		Override:      overrideHosts(m),
		TLS:           d.transportSocket(m, p),
		HealthCheck:   d.healthCheck(m.GetHealthChecks()),
	}
	c.MaxRequests, c.DefaultLimit = maxRequests(m.GetCircuitBreakers())
	d.ignoreOf(m)
	stockCluster(m, p)
	aggregate := new(aggregatev3.ClusterConfig)
	switch t := m.GetClusterDiscoveryType().(type) {
	case *clusterv3.Cluster_Type:
		switch t.Type {
		case clusterv3.Cluster_EDS:
			c.Kind = ClusterEDS
			c.EDSService, c.ServiceName = edsService(m, p), m.GetEdsClusterConfig().GetServiceName()
		case clusterv3.Cluster_LOGICAL_DNS:
			c.Kind = ClusterDNS
			host, target := dnsName(m.GetLoadAssignment(), p.dot("load_assignment"))
			c.DNSHost, c.DNSTargets = host, []string{target}
		case clusterv3.Cluster_STRICT_DNS:
			c.Kind = ClusterDNS
			c.Strict, c.DNSTargets, c.DNSRefresh = d.strictDNS(m, p)
		default:
			p.dot("type").refuse(t.Type, "must be EDS, LOGICAL_DNS or STRICT_DNS")
		}
	case *clusterv3.Cluster_ClusterType:
		p := p.dot("cluster_type").dot("typed_config")
		if unpack(t.ClusterType.GetTypedConfig(), aggregate, p) {
			c.Kind = ClusterAggregate
			c.Children = children(aggregate.GetClusters(), p.dot("clusters"))
		}
	default:
		p.fail("must have type or cluster_type")
	}
	if s := m.GetLrsServer(); s != nil && s.GetSelf() == nil { // A27-CL-5
		p.dot("lrs_server").fail("must be self")
	}
	if c.Kind != ClusterAggregate { // leaves of an aggregate have their own policies (A75)
		c.Policy = d.policy(m, p)
	}
	return c
}

// healthCheck returns the health check by gRPC, of which the first one applies. Other checks, and
// the authority and metadata of a check, are ignored and reported. Intervals and thresholds do not
// apply, since backends report changes at once (A17).
func (d *decoder) healthCheck(list []*corev3.HealthCheck) (check *picker.HealthCheck) {
	for _, m := range list {
		g := m.GetGrpcHealthCheck()
		switch {
		case g == nil:
			d.ignore("Cluster.health_checks other than grpc_health_check")
			continue
		case check != nil:
			d.ignore("Cluster.health_checks after the first grpc_health_check")
			continue
		}
		check = &picker.HealthCheck{Service: g.GetServiceName()}
		if g.GetAuthority() != "" {
			d.ignore("GrpcHealthCheck.authority")
		}
		if len(g.GetInitialMetadata()) > 0 {
			d.ignore("GrpcHealthCheck.initial_metadata")
		}
	}
	return check
}

// edsService returns the name of the EDS resource (A27-CL-2, A27-CL-3).
func edsService(m *clusterv3.Cluster, p *path) string {
	p = p.dot("eds_cluster_config")
	eds := m.GetEdsClusterConfig()
	p.dot("eds_config").adsOrSelf(eds.GetEdsConfig())
	switch {
	case eds.GetServiceName() != "":
		return eds.GetServiceName()
	case strings.HasPrefix(m.GetName(), "xdstp:"): // A47
		p.dot("service_name").fail("must not be empty: the cluster's name is an xdstp name")
	}
	return m.GetName()
}

// dnsName returns the host, and host and port, of the one endpoint of a LOGICAL_DNS cluster
// (A37).
func dnsName(m *endpointv3.ClusterLoadAssignment, p *path) (host, target string) {
	if n := len(m.GetEndpoints()); n != 1 {
		p.dot("endpoints").refuse(n, "must be one locality")
		return "", ""
	}
	p = p.dot("endpoints").at(0).dot("lb_endpoints")
	list := m.GetEndpoints()[0].GetLbEndpoints()
	if n := len(list); n != 1 {
		p.refuse(n, "must be one endpoint")
		return "", ""
	}
	p = p.at(0).dot("endpoint").dot("address").dot("socket_address")
	addr := list[0].GetEndpoint().GetAddress().GetSocketAddress()
	if addr == nil {
		p.fail("must be set")
		return "", ""
	}
	if addr.GetResolverName() != "" {
		p.dot("resolver_name").refuse(addr.GetResolverName(), "must be empty")
	}
	host = p.dot("address").nonEmpty(addr.GetAddress())
	port := addr.GetPortValue()
	if port < 1 || port > 65535 {
		p.dot("port_value").refuse(port, "must be from 1 to 65535")
	}
	return host, net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// children returns the clusters of an aggregate cluster. An empty aggregate is rejected (A37).
func children(names []string, p *path) []string {
	if len(names) == 0 {
		p.fail("must not be empty")
	}
	for i, name := range names {
		p.at(i).nonEmpty(name)
	}
	return names
}

// thresholds returns the first thresholds for the priority DEFAULT, and their index, or nil
// (T-CB-1).
func thresholds(m *clusterv3.CircuitBreakers) (*clusterv3.CircuitBreakers_Thresholds, int) {
	for i, t := range m.GetThresholds() {
		if t.GetPriority() == corev3.RoutingPriority_DEFAULT {
			return t, i
		}
	}
	return nil, 0
}

// maxRequests returns the limit of RPCs (A32), and whether that is the default.
func maxRequests(m *clusterv3.CircuitBreakers) (limit uint32, byDefault bool) {
	if t, _ := thresholds(m); t.GetMaxRequests() != nil {
		return t.GetMaxRequests().GetValue(), false
	}
	return 1024, true
}

// retryLimit returns the limit of retries, with Envoy's defaults for missing fields of a
// retry_budget. Without configured limits, retries are unlimited, as in gRPC; Envoy's default
// is 3. The maximum value of max_retries, which Istio sends, also means unlimited.
func retryLimit(m *clusterv3.CircuitBreakers, p *path) *picker.RetryLimit {
	t, i := thresholds(m)
	if b := t.GetRetryBudget(); b != nil {
		l := &picker.RetryLimit{Percent: 20, Min: 3}
		if b.GetBudgetPercent() != nil {
			l.Percent = b.GetBudgetPercent().GetValue()
		}
		if !(l.Percent >= 0 && l.Percent <= 100) {
			p.dot("thresholds").at(i).dot("retry_budget").dot("budget_percent").refuse(l.Percent, "must be from 0 to 100")
		}
		if b.GetMinRetryConcurrency() != nil {
			l.Min = b.GetMinRetryConcurrency().GetValue()
		}
		return l
	}
	if n := t.GetMaxRetries(); n != nil && n.GetValue() < math.MaxUint32 {
		return &picker.RetryLimit{Min: n.GetValue()}
	}
	return nil
}

// metrics returns the known ORCA metrics to report (A85).
func metrics(names []string) []string {
	var known []string
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		again := seen[name]
		seen[name] = true
		switch custom, ok := strings.CutPrefix(name, "named_metrics."); {
		case again:
		case ok && custom != "", name == "cpu_utilization", name == "mem_utilization", name == "application_utilization":
			known = append(known, name)
		}
	}
	return known
}
