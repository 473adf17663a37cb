// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package csds_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/csds"
	"github.com/xdslb/xdslb/xds/overlay"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// service sends the four resources of a service, in version "1".
func (w *world) service(name string) {
	w.t.Helper()
	w.send(xdstest.LDS, "1", xdstest.Listener(name, name))
	w.send(xdstest.RDS, "1", xdstest.RouteConfig(name, xdstest.Route("", name)))
	w.send(xdstest.CDS, "1", xdstest.Cluster(name, name))
	w.send(xdstest.EDS, "1", endpoints(name, 1))
}

// sendError sends an error in the place of a ClusterLoadAssignment.
func (w *world) sendError(name string, code codes.Code, text string) {
	w.one.Stream().Respond(&discoveryv3.DiscoveryResponse{TypeUrl: xdstest.EDS, VersionInfo: "2", Nonce: "e", ResourceErrors: []*discoveryv3.ResourceError{{
		ResourceName: &discoveryv3.ResourceName{Name: name}, ErrorDetail: &rpcstatus.Status{Code: int32(code), Message: text},
	}}})
	synctest.Wait()
}

func endpoints(name string, port uint16) proto.Message {
	return xdstest.Endpoints(name, xdstest.Locality{Endpoints: []xdstest.Endpoint{{Addr: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port)}}})
}

// badCluster is a Cluster that is not valid.
func badCluster(name string) proto.Message {
	c := xdstest.Cluster(name, name)
	c.EdsClusterConfig.EdsConfig = nil
	return c
}

// TestPatched: a resource with patches is shown as patched, for each set of patches, and as received
// if a target uses it without patches. The version is that of the control plane.
func TestPatched(t *testing.T) {
	inWorld(t, "", func(t *testing.T, w *world) {
		watch := func(policies ...string) {
			t.Helper()
			var patches []string
			for _, p := range policies {
				patches = append(patches, `{"resource": "cluster", "name": "svc", "merge": {"lb_policy": "`+p+`"}}`)
			}
			source, err := overlay.Open("test", []byte(`{"patches": [`+strings.Join(patches, ",")+`]}`), "", nil)
			kit.Must(t, err)
			w.c.View(source, "xds:///svc").Watch("svc", "svc", nobody{})
			synctest.Wait()
		}
		policies := func() (list []string) {
			t.Helper()
			for _, g := range w.config(w.c.Node().GetId()).GenericXdsConfigs {
				if g.TypeUrl == xdstest.CDS {
					c := new(clusterv3.Cluster)
					if err := g.XdsConfig.UnmarshalTo(c); err != nil || g.VersionInfo != "1" || g.ClientStatus != adminv3.ClientResourceStatus_ACKED {
						t.Errorf("cluster %v, %v", g, err)
					}
					list = append(list, c.LbPolicy.String())
				}
			}
			slices.Sort(list)
			return list
		}
		w.watch("svc")
		w.service("svc")
		for _, step := range []struct {
			policies []string
			want     string
		}{
			{nil, "[ROUND_ROBIN]"},
			{[]string{"RING_HASH"}, "[RING_HASH ROUND_ROBIN]"},
			{[]string{"MAGLEV"}, "[MAGLEV RING_HASH ROUND_ROBIN]"},
			{[]string{"ROUND_ROBIN"}, "[MAGLEV RING_HASH ROUND_ROBIN]"}, // it changes nothing
			{[]string{"CLUSTER_PROVIDED"}, "[MAGLEV RING_HASH ROUND_ROBIN]"},
		} {
			if step.policies != nil {
				watch(step.policies...)
			}
			if got := fmt.Sprint(policies()); got != step.want {
				t.Errorf("policies %s after %v, want %s", got, step.policies, step.want)
			}
		}
	})
}

// TestStates reaches each state of A40 and A88, with and without a version in force.
func TestStates(t *testing.T) {
	const auth = "xdstp://nowhere/envoy.config.listener.v3.Listener/x"
	for _, tt := range []struct {
		name      string
		features  string
		do        func(w *world)
		typ, of   string
		want      adminv3.ClientResourceStatus
		version   string // in force
		rejected  string
		errorText []string // of error_state; nil for none
		failed    time.Duration
	}{
		{"nothing yet", "", func(w *world) {}, xdstest.LDS, "svc", adminv3.ClientResourceStatus_REQUESTED, "", "", nil, 0},
		{"nobody to be reached", "", func(w *world) {
			w.one.Refuse(errors.New("refused"))
			w.two.Refuse(errors.New("refused"))
			w.one.BreakStreams()
			kit.Pass(time.Second)
		}, xdstest.LDS, "svc", adminv3.ClientResourceStatus_REQUESTED, "", "", []string{"waiting for Listener", "refused", "passthrough:///two"}, -1},
		{"nobody to ask", "", func(w *world) { w.watch(auth) }, xdstest.LDS, auth, adminv3.ClientResourceStatus_UNKNOWN, "", "", []string{"nowhere"}, 0},
		{"valid", "", func(w *world) { w.service("svc") }, xdstest.EDS, "svc", adminv3.ClientResourceStatus_ACKED, "1", "", nil, 0},
		{"invalid from the start", "", func(w *world) { kit.Pass(time.Second); w.send(xdstest.LDS, "7", xdstest.Listener("svc", "")) },
			xdstest.LDS, "svc", adminv3.ClientResourceStatus_NACKED, "", "7", []string{"route_config_name"}, time.Second},
		{"invalid, and valid before", "", func(w *world) {
			w.service("svc")
			kit.Pass(time.Second)
			w.send(xdstest.CDS, "8", badCluster("svc"))
		}, xdstest.CDS, "svc", adminv3.ClientResourceStatus_NACKED, "1", "8", []string{"eds_config"}, time.Second},
		{"invalid twice", "", func(w *world) {
			w.service("svc")
			w.send(xdstest.CDS, "8", badCluster("svc"))
			kit.Pass(2 * time.Second)
			w.send(xdstest.CDS, "9", badCluster("svc"))
		}, xdstest.CDS, "svc", adminv3.ClientResourceStatus_NACKED, "1", "9", []string{"eds_config"}, 2 * time.Second},
		{"invalid and dropped", "fail_on_data_errors", func(w *world) {
			w.service("svc")
			w.send(xdstest.CDS, "8", badCluster("svc"))
		}, xdstest.CDS, "svc", adminv3.ClientResourceStatus_NACKED, "", "8", []string{"eds_config"}, 0},
		{"valid again", "", func(w *world) {
			w.service("svc")
			w.send(xdstest.CDS, "8", badCluster("svc"))
			w.send(xdstest.CDS, "9", xdstest.Cluster("svc", "svc"))
		}, xdstest.CDS, "svc", adminv3.ClientResourceStatus_ACKED, "9", "", nil, 0},
		{"not sent in time", "", func(w *world) { kit.Pass(time.Minute) },
			xdstest.LDS, "svc", adminv3.ClientResourceStatus_DOES_NOT_EXIST, "", "", []string{"not found", "15s"}, 15 * time.Second},
		{"deleted and kept", "", func(w *world) { w.service("svc"); w.send(xdstest.CDS, "2") },
			xdstest.CDS, "svc", adminv3.ClientResourceStatus_DOES_NOT_EXIST, "1", "", []string{"removed"}, 0},
		{"deleted and dropped", "fail_on_data_errors", func(w *world) { w.service("svc"); w.send(xdstest.CDS, "2") },
			xdstest.CDS, "svc", adminv3.ClientResourceStatus_DOES_NOT_EXIST, "", "", []string{"removed"}, 0},
		{"an error in its place, twice", "", func(w *world) {
			w.service("svc")
			w.sendError("svc", codes.Internal, "database down")
			kit.Pass(3 * time.Second)
			w.sendError("svc", codes.Internal, "database down")
		}, xdstest.EDS, "svc", adminv3.ClientResourceStatus_RECEIVED_ERROR, "1", "", []string{"database down", "Internal"}, 3 * time.Second},
		{"not sent by who would say so", "resource_timer_is_transient_error", func(w *world) { kit.Pass(time.Minute) },
			xdstest.LDS, "svc", adminv3.ClientResourceStatus_TIMEOUT, "", "", []string{"30s"}, 30 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, tt.features, func(t *testing.T, w *world) {
				begin := time.Now()
				w.watch("svc")
				tt.do(w)
				g := w.resource(tt.typ, tt.of)
				if g.GetClientStatus() != tt.want || g.GetVersionInfo() != tt.version || (g.GetXdsConfig() != nil) != (tt.version != "") || (g.GetLastUpdated() != nil) != (tt.version != "") {
					t.Errorf("%v; want %v, version %q", g, tt.want, tt.version)
				}
				e := g.GetErrorState()
				if (e != nil) != (tt.errorText != nil) || !has(e.GetDetails(), tt.errorText...) || e.GetVersionInfo() != tt.rejected || e.GetFailedConfiguration() != nil {
					t.Errorf("error_state = %v; want %q about version %q", e, tt.errorText, tt.rejected)
				}
				at := e.GetLastUpdateAttempt()
				if e != nil && (at == nil || tt.failed >= 0 && !at.AsTime().Equal(begin.Add(tt.failed))) {
					t.Errorf("last_update_attempt = %v, want %v after %v", at, tt.failed, begin)
				}
			})
		})
	}
}

// TestAsReceived checks that resources are shown as received: with unknown fields, in their
// original order, and without a wrapper (A40).
func TestAsReceived(t *testing.T) {
	inWorld(t, "", func(t *testing.T, w *world) {
		begin := time.Now()
		w.watch("svc")
		l := pack(t, xdstest.Listener("svc", "r"))
		l.Value = append([]byte{0xfa, 0xff, 0x7f, 3, 'n', 'e', 'w'}, l.Value...)
		w.send(xdstest.LDS, "v1", &discoveryv3.Resource{Name: "svc", Version: "of its own", Resource: proto.CloneOf(l)})
		g := w.resource(xdstest.LDS, "svc")
		if !bytes.Equal(g.XdsConfig.GetValue(), l.Value) || g.XdsConfig.GetTypeUrl() != xdstest.LDS || !g.LastUpdated.AsTime().Equal(begin) {
			t.Errorf("%v, want the bytes %q", g, l.Value)
		}
		w.service("svc")
		for _, typ := range []string{xdstest.LDS, xdstest.RDS, xdstest.CDS, xdstest.EDS} {
			if w.resource(typ, "svc").GetXdsConfig() == nil {
				t.Errorf("%s: no bytes", typ)
			}
		}
		resp, err := w.csds.FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{ExcludeResourceContents: true})
		kit.Must(t, err)
		for _, g := range resp.Config[0].GenericXdsConfigs {
			if g.XdsConfig != nil || g.VersionInfo == "" {
				t.Errorf("without contents: %v", g)
			}
		}
	})
}

// TestClients checks that there is one configuration for each client, with its node and its
// targets (A71), and only with watched resources.
func TestClients(t *testing.T) {
	inWorld(t, "", func(t *testing.T, w *world) {
		w.acquire("second", "")
		cancel := w.c.View(nil, "").Watch("c", "other", nobody{})
		w.watch("b", "a", "c")
		for i := range 6 {
			defer w.c.View(nil, "").Watch(fmt.Sprint("z", i), "z", nobody{})()
		}
		w.service("a")
		c := w.config(w.c.Node().GetId())
		n := c.GetNode()
		if n.GetUserAgentName() != "xdslb" || n.GetCluster() != "c" || n.GetMetadata().GetFields()["k"].GetStringValue() != "v" || len(n.GetClientFeatures()) == 0 {
			t.Errorf("node = %v", n)
		}
		if sent := w.one.Stream().Requests(xdstest.LDS)[0].Node; !proto.Equal(sent, n) {
			t.Errorf("node = %v, want %v as in requests", n, sent)
		}
		if want := "a, b, c, z0, z1, z2, z3, z4, and 1 more"; c.ClientScope != want {
			t.Errorf("client_scope = %q, want %q", c.ClientScope, want)
		}
		if n := len(c.GenericXdsConfigs); n != 3+6+3 {
			t.Errorf("%d resources: %v", n, c.GenericXdsConfigs)
		}
		if c := w.config("second"); len(c.GenericXdsConfigs) != 0 || c.ClientScope != "" {
			t.Errorf("the client that is idle: %v", c)
		}
		cancel()
	})
}

// TestFederationAndFallback checks names of authorities, and resources of a fallback server
// (A47, A71).
func TestFederationAndFallback(t *testing.T) {
	inWorld(t, "", func(t *testing.T, w *world) {
		const name = "xdstp://auth/envoy.config.listener.v3.Listener/svc?b=2&a=1"
		const canonical = "xdstp://auth/envoy.config.listener.v3.Listener/svc?a=1&b=2"
		w.one.Refuse(errors.New("refused"))
		r := xdstest.Service("svc")
		r.Listeners = append(r.Listeners, xdstest.Listener(canonical, "svc"))
		kit.Must(t, w.two.Set(r))
		w.watch(name, "svc")
		kit.Pass(2 * time.Second)
		for _, name := range []string{canonical, "svc"} {
			g := w.resource(xdstest.LDS, name)
			if g.GetClientStatus() != adminv3.ClientResourceStatus_ACKED || g.GetXdsConfig() == nil {
				t.Errorf("%s: %v", name, g)
			}
		}
	})
}

// TestHostile checks that the answer can be encoded and read with arbitrary names and errors.
func TestHostile(t *testing.T) {
	inWorld(t, "", func(t *testing.T, w *world) {
		bad := "bad\xff\x00\n<script>" + strings.Repeat("é", 10000)
		w.watch("svc")
		w.service("svc")
		w.send(xdstest.CDS, strings.Repeat("v", 1<<20), xdstest.Cluster("svc", bad[4:]))
		w.c.View(nil, "").Watch("xdstp://\xff/x/y\xfe", "a\xff", nobody{})
		kit.Pass(time.Minute)
		c := w.config(w.c.Node().GetId())
		if !utf8.ValidString(c.ClientScope) || len(c.GenericXdsConfigs) < 5 {
			t.Errorf("%v", c)
		}
	})
}

// TestNodeMatchers checks that they are refused (A40).
func TestNodeMatchers(t *testing.T) {
	inWorld(t, "", func(t *testing.T, w *world) {
		req := &statusv3.ClientStatusRequest{NodeMatchers: []*matcherv3.NodeMatcher{{}}}
		if _, err := w.csds.FetchClientStatus(t.Context(), req); status.Code(err) != codes.InvalidArgument {
			t.Errorf("fetch: %v", err)
		}
		stream, err := w.csds.StreamClientStatus(t.Context())
		kit.Must(t, err)
		kit.Must(t, stream.Send(req))
		if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("stream: %v", err)
		}
	})
}

// TestRegister checks that a second registration is an error, and changes nothing.
func TestRegister(t *testing.T) {
	s := grpc.NewServer()
	defer s.Stop()
	kit.Must(t, csds.Register(s))
	before := len(s.GetServiceInfo())
	if err := csds.Register(s); err == nil || !has(err.Error(), "envoy.service.status.v3.ClientStatusDiscoveryService", "as another server") {
		t.Errorf("second registration: %v", err)
	}
	if n := len(s.GetServiceInfo()); n != before {
		t.Errorf("%d services, want %d", n, before)
	}
}

// other is another CSDS server.
type other struct {
	statusv3.UnimplementedClientStatusDiscoveryServiceServer
	resp *statusv3.ClientStatusResponse
	err  error
}

func (o *other) FetchClientStatus(context.Context, *statusv3.ClientStatusRequest) (*statusv3.ClientStatusResponse, error) {
	return o.resp, o.err
}

// TestOthers checks that the configurations of Others are added, even if empty, and that their
// errors are returned.
func TestOthers(t *testing.T) {
	more := &statusv3.ClientConfig{ClientScope: "another stack's"}
	full, empty, broken := &other{resp: &statusv3.ClientStatusResponse{Config: []*statusv3.ClientConfig{more}}}, &other{}, &other{err: status.Error(codes.DataLoss, "broken")}
	inWorld(t, "", func(t *testing.T, w *world) {
		resp, err := w.csds.FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{})
		if err != nil || len(resp.Config) != 2 || !proto.Equal(resp.Config[1], more) {
			t.Errorf("%v, %v", resp, err)
		}
	}, full, empty)
	inWorld(t, "", func(t *testing.T, w *world) {
		if _, err := w.csds.FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{}); status.Code(err) != codes.DataLoss {
			t.Errorf("error = %v", err)
		}
	}, full, broken)
}
