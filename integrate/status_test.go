// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"encoding/json"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	channelzpb "google.golang.org/grpc/channelz/grpc_channelz_v1"
	channelz "google.golang.org/grpc/channelz/service"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/xds/csds"
	"github.com/xdslb/xdslb/xds/eventlog"
	"github.com/xdslb/xdslb/xds/xdstest"
)

func statusOf(t *testing.T, cc *grpc.ClientConn) report.TargetStatus {
	t.Helper()
	s, err := integrate.StatusOf(cc)
	kit.Must(t, err)
	return s
}

// eventsLike returns the events that contain all of some texts.
func eventsLike(s report.TargetStatus, texts ...string) (found []string) {
	for _, ev := range s.Events {
		line := ev.String()
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			found = append(found, line)
		}
	}
	return found
}

// TestStatus: the status of a channel that has failed over has the state and error of each
// priority, the version of each resource, and the events. It also has the error of a later
// configuration that is rejected and does not take effect.
func TestStatus(t *testing.T) {
	backends, control := start(t, 2)
	lower := xdstest.BackendEndpoints(backends...)
	lower[1].Health = corev3.HealthStatus_DRAINING
	r := xdstest.Service(target, xdstest.Locality{Endpoints: []xdstest.Endpoint{nobody}},
		xdstest.Locality{Place: xdstest.Place{Zone: "b"}, Priority: 1, Endpoints: lower})
	r.Clusters[0] = xdstest.Cluster(target, target, testplane.MaxRequests(7))
	testplane.Drop(r.Endpoints[0], "none", 0)
	set(t, control, r)
	cc := dial(t, control.Bootstrap("node-7"))
	succeed(t, cc, grpc.WaitForReady(true))

	s := statusOf(t, cc)
	if s.Target != "xds:///"+target || s.Connectivity != "READY" || s.Listener != target || s.Authority != target || s.Node != "node-7" ||
		s.Routes != 1 || s.Since.IsZero() || s.Received.IsZero() || s.Since.Before(s.Received) || s.Error != "" || s.Pending || s.Unapplied != nil {
		t.Errorf("the status of the target is %+v", s)
	}
	if len(s.Clusters) != 1 || len(s.Clusters[0].Leaves) != 1 || len(s.Clusters[0].Leaves[0].Priorities) != 2 {
		t.Fatalf("the clusters are %+v", s.Clusters)
	}
	c := s.Clusters[0]
	leaf := c.Leaves[0]
	if c.State != "READY" || c.Priority != 1 || c.Error != "" || leaf.Name != target || leaf.Service != target || leaf.Policy != "edf" || leaf.TLS != nil ||
		leaf.InFlight != 0 || leaf.MaxRequests != 7 || len(leaf.Drops) != 1 || leaf.Drops[0].Category != "none" || !strings.Contains(leaf.ConnectionError, nobody.Addr.String()) {
		t.Errorf("the status of the cluster is %+v", c)
	}
	want := []report.PriorityStatus{
		{Priority: 0, Phase: "failed", State: "TRANSIENT_FAILURE", Endpoints: report.EndpointCounts{Total: 1, Failed: 1}},
		{Priority: 1, Phase: "serving", State: "READY", InUse: true, Endpoints: report.EndpointCounts{Total: 2, Ready: 1, Draining: 1}},
	}
	if !reflect.DeepEqual(leaf.Priorities, want) {
		t.Errorf("the priorities are %+v, want %+v", leaf.Priorities, want)
	}
	if len(s.Resources) != 4 || slices.ContainsFunc(s.Resources, func(r report.ResourceStatus) bool {
		return r.State != "ACKED" || r.Name != target || r.Version == "" || r.Updated.IsZero() || r.Age <= 0 || !strings.Contains(r.Server, control.Addr()) || r.Error != ""
	}) {
		t.Errorf("the resources are %+v", s.Resources)
	}
	if len(s.Servers) != 1 || !s.Servers[0].Connected || !s.Servers[0].InUse {
		t.Errorf("the servers are %+v", s.Servers)
	}
	for _, texts := range [][]string{
		{"ConfigurationApplied", "routes, +1 clusters, +3 endpoints"}, {"PriorityChanged", "priority 0 to 1"},
		{"ConnectionFailed", nobody.Addr.String(), "refused"}, {"Accepted", `ClusterLoadAssignment "` + target},
	} {
		// Attempts to connect go on, and attempts after the failover are another event.
		if found := eventsLike(s, texts...); len(found) == 0 || len(found) > 1 && texts[0] != "ConnectionFailed" {
			t.Errorf("%d events say %q, want 1, of %v", len(found), texts, s.Events)
		}
	}
	if !slices.IsSortedFunc(s.Events, func(a, b eventlog.Event) int { return a.Time.Compare(b.Time) }) {
		t.Errorf("the events are not in order: %v", s.Events)
	}

	version := s.Resources[2].Version
	r.Clusters = []*clusterv3.Cluster{xdstest.Cluster(target, target)}
	r.Clusters[0].LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
	set(t, control, r)
	kit.WaitFor(t, "the NACK", func() bool { return statusOf(t, cc).Resources[2].State == "NACKED" })
	s = statusOf(t, cc)
	if res := s.Resources[2]; res.Type != "Cluster" || res.Version != version || res.Refused == "" || res.Refused == version || !strings.Contains(res.Error, "CLUSTER_PROVIDED") ||
		len(eventsLike(s, "Rejected", `Cluster "`, "CLUSTER_PROVIDED")) != 1 || s.Clusters[0].Leaves[0].MaxRequests != 7 {
		t.Errorf("after a NACK the status is %+v, the events %v", s, s.Events)
	}
	js, err := json.Marshal(s)
	kit.Must(t, err)
	var again report.TargetStatus
	if err := json.Unmarshal(js, &again); err != nil || len(again.Events) != len(s.Events) || !reflect.DeepEqual(again.Clusters, s.Clusters) {
		t.Errorf("as JSON the status is %s: %v", js, err)
	}
	if all := integrate.Status(); !slices.ContainsFunc(all, func(s report.TargetStatus) bool { return s.Node == "node-7" && s.Target == "xds:///"+target }) {
		t.Errorf("the status of all channels is %+v", all)
	}
}

// TestStatusOfWhatIsNot: the status of an idle channel is IDLE, and leaves the channel idle; the
// status of a channel with the resolver of another package fails; without interceptors, the status
// lists the missing features; the status of a channel that cannot be served has the cause.
func TestStatusOfWhatIsNot(t *testing.T) {
	control := xdstest.New(t, xdstest.Options{})
	cc := dial(t, control.Bootstrap("n"))
	if s := statusOf(t, cc); s.Connectivity != "IDLE" || s.Target != "xds:///"+target || s.Clusters != nil || cc.GetState() != connectivity.Idle {
		t.Errorf("the status of a channel that is idle is %+v, and its state then %v", s, cc.GetState())
	}
	cc.Connect()
	kit.WaitFor(t, "an error in the status", func() bool { return statusOf(t, cc).Error != "" }) // its LB policy takes a moment
	if s := statusOf(t, cc); s.Connectivity != "CONNECTING" || !s.Since.IsZero() || !strings.Contains(s.Error, `waiting for Listener resource "`+target) {
		t.Errorf("the status of a channel without configuration is %+v", s)
	}

	foreign, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()))
	kit.Must(t, err)
	defer func() { _ = foreign.Close() }()
	if s, err := integrate.StatusOf(foreign); err == nil || !strings.Contains(err.Error(), "passthrough:///x") {
		t.Errorf("the status of a channel of another resolver is %+v, %v; want an error", s, err)
	}

	backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
	r := clusters(backends, []*hcmv3.HttpFilter{httpFilter(t, "chaos", abort(codes.Aborted, 1e6))}, xdstest.Route("", "a"))
	set(t, control, r)
	bare := dialBare(t, control.Bootstrap("m"), target)
	succeed(t, bare)
	kit.WaitFor(t, "the filter in the status", func() bool { return len(statusOf(t, bare).Unapplied) > 0 }) // the link hears of it a moment later than picks
	if s := statusOf(t, bare); len(s.Unapplied) != 1 || s.Unapplied[0] != `HTTP filters ["chaos"]` {
		t.Errorf("without interceptors %q is not applied", s.Unapplied)
	}
	kit.Must(t, cc.Close())
	if s := statusOf(t, cc); s.Connectivity != "SHUTDOWN" || s.Clusters != nil {
		t.Errorf("the status of a closed channel is %+v", s)
	}
}

// TestAdminServices checks that the services by which migration.md replaces admin.Register (A38)
// show a channel and its resources: grpcdebug requires one client in CSDS.
func TestAdminServices(t *testing.T) {
	backends, control := start(t, 1)
	set(t, control, service(backends...))
	cc := dialConfig(t, integrate.Config{Bootstrap: control.Bootstrap(t.Name())})
	kit.Must(t, integrate.WaitReady(t.Context(), cc, "/s/m"))

	server := grpc.NewServer()
	channelz.RegisterChannelzServiceToServer(server)
	kit.Must(t, csds.Register(server))
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	go server.Serve(lis)
	t.Cleanup(server.Stop)
	admin, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	kit.Must(t, err)
	t.Cleanup(func() { admin.Close() })

	top, err := channelzpb.NewChannelzClient(admin).GetTopChannels(t.Context(), &channelzpb.GetTopChannelsRequest{})
	kit.Must(t, err)
	found := false
	for _, c := range top.GetChannel() {
		found = found || c.GetData().GetTarget() == cc.CanonicalTarget()
	}
	if !found {
		t.Errorf("channelz has no channel %s: %v", cc.CanonicalTarget(), top.GetChannel())
	}
	status, err := statusv3.NewClientStatusDiscoveryServiceClient(admin).FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{})
	kit.Must(t, err)
	clients := map[string]int{}
	for _, config := range status.GetConfig() {
		clients[config.GetNode().GetId()] = len(config.GetGenericXdsConfigs())
	}
	if clients[t.Name()] != 4 {
		t.Errorf("CSDS has the resources %v of clients, want 4 of %s", clients, t.Name())
	}
}
