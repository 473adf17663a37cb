// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// patches add outlier detection to all clusters, and least latency to one of them.
const patches = `
	{"resource": "cluster", "name": "outbound|*|*.shop.svc.cluster.local", "when_unset": true, "merge": {"outlier_detection": {
		"consecutive_5xx": 5, "interval": "5s", "base_ejection_time": "300s", "max_ejection_percent": 50}}},
	{"resource": "cluster", "name": "outbound|7070||orders.shop.svc.cluster.local", "merge": {"load_balancing_policy": {"policies": [
		{"typed_extension_config": {"name": "least_latency", "typed_config": {
			"@type": "type.googleapis.com/xds.type.v3.TypedStruct", "type_url": "type.googleapis.com/xdslb_least_latency",
			"value": {"decayTime": "5s"}}}}]}}}`

// weakening is a patch that would replace TLS.
const weakening = `, {"resource": "cluster", "name": "outbound|7070||orders.shop.svc.cluster.local", "merge": {
		"transport_socket": {"name": "envoy.transport_sockets.raw_buffer"}}}`

// overlayPlain: see overlaid.
func overlayPlain(t *testing.T, delta bool) result {
	m := newMesh(t)
	backends := xdstest.NewBackends(t, 6, xdstest.BackendOptions{})
	m.service("orders", "orders", backends...)
	m.startPilot()
	m.startAgent()
	r, _ := m.overlaid(delta, backends, patches)
	return r
}

// overlayTLS: see overlaid. The patched cluster keeps its TLS settings.
func overlayTLS(t *testing.T, delta bool) result {
	m, backends := secureMesh(t, 6)
	r, cc := m.overlaid(delta, backends, patches+weakening, secure(t))
	wantIdentity(t, cc)
	s := statusOf(t, cc)
	if leaf := leafOf(s); leaf == nil || leaf.TLS == nil {
		t.Error("the patched cluster has no TLS")
	}
	if p := s.Overlay[2]; len(p.Skipped) != 1 || len(p.Changed) > 0 {
		t.Errorf("the patch that replaces TLS: %s, want it skipped", p.Effect())
	}
	r.note += "; TLS kept"
	return r
}

// overlaid adds an overlay while RPCs run. One of six backends fails and another one is slow:
// before, a sixth of the RPCs fail, and afterwards none once the failing backend is ejected, and
// few go to the slow backend.
func (m *mesh) overlaid(delta bool, backends []*xdstest.Backend, patches string, opts ...grpc.DialOption) (result, *grpc.ClientConn) {
	t := m.t.(*testing.T)
	t.Helper()
	m.write("overlay.json", `{"patches": []}`)
	t.Setenv("XDSLB_OVERLAY", m.path("overlay.json"))
	failing, slow := backends[0], backends[1]
	failing.Fail(codes.Internal)
	slow.SetDelay(20 * time.Millisecond)
	cc := dial(t, m.config(delta), "orders", opts...)
	f := send(t, "orders", cc)
	f.more(300)
	before := f.now()
	if share := before.failed * 100 / (before.ok + before.failed); share < 12 || share > 20 {
		t.Errorf("without an overlay, %d %% of the RPCs failed, want a sixth", share)
	}
	m.write("overlay.json", `{"patches": [`+patches+"]}")
	arrived := kit.WaitFor(t, "the ejection of the failing backend", func() bool { return ejected(statusOf(t, cc)) == 1 })
	during, slowBefore := f.now(), slow.Calls()
	f.more(500)
	after := f.end()
	if n := after.failed - during.failed; n > 1 { // one may have been in flight
		t.Errorf("%d RPCs failed after the ejection, want 0: %v", n, after.err)
	}
	slowShare := int(slow.Calls()-slowBefore) * 100 / (after.ok - during.ok)
	if slowShare >= 10 {
		t.Errorf("with least latency, the slow backend got %d %% of the RPCs, want less than half of an equal share", slowShare)
	}
	m.wantPatched(cc)
	return result{
		counts{ok: after.ok - during.ok, failed: after.failed - during.failed},
		fmt.Sprintf("before the overlay, %d of %d RPCs failed; ejection %s after the file was written; the slow backend got %d %%",
			before.failed, before.ok+before.failed, rounded(arrived), slowShare),
	}, cc
}

// wantPatched checks that the status and explanations show that the first two patches have
// changed the cluster.
func (m *mesh) wantPatched(cc *grpc.ClientConn) {
	m.t.Helper()
	s := statusOf(m.t, cc)
	for i := range 2 {
		if p := s.Overlay[i]; len(p.Changed) != 1 || p.Changed[0] != "Cluster "+cluster("orders") {
			m.t.Errorf("patch %d: %s, want the cluster changed", i, p.Effect())
		}
	}
	if leaf := leafOf(s); leaf == nil || leaf.Policy != "least_latency" {
		m.t.Errorf("the cluster is %+v, want least_latency", leaf)
	}
	x, err := integrate.Explain(m.t.Context(), cc, "/grpc.testing.TestService/UnaryCall")
	if err != nil {
		m.t.Fatal(err)
	}
	if len(x.Patched) != 2 {
		m.t.Errorf("the explanation lists patched resources %q, want the cluster with two patches", x.Patched)
	}
}

func statusOf(t testing.TB, cc *grpc.ClientConn) report.TargetStatus {
	t.Helper()
	s, err := integrate.StatusOf(cc)
	kit.Must(t, err)
	return s
}

// leafOf returns the first cluster of a target, or nil.
func leafOf(s report.TargetStatus) *report.LeafStatus {
	if len(s.Clusters) == 0 {
		return nil
	}
	return s.Clusters[0].LeafInUse()
}

// ejected returns the number of ejected endpoints of a target's first cluster.
func ejected(s report.TargetStatus) int {
	if len(s.Clusters) == 0 {
		return 0
	}
	return report.Active(&s.Clusters[0]).Ejected
}
