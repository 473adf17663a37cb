// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"testing"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	estats "google.golang.org/grpc/experimental/stats"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/internal/channelmetrics"
	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/picker"
)

// recorderList is a list of recorders with one in it, as gRPC has one for each channel.
type recorderList struct{ *kit.Recorder }

// RegisterAsyncReporter implements estats.MetricsRecorder.
func (l recorderList) RegisterAsyncReporter(r estats.AsyncMetricReporter, metrics ...estats.AsyncMetric) func() {
	for _, m := range metrics {
		_ = m.Descriptor()
	}
	return l.Recorder.RegisterAsyncReporter(r, metrics...)
}

// recorded returns a recorder of the counts of the clusters of b.
func recorded(t *testing.T, b *testLB) *kit.Recorder {
	r := &kit.Recorder{}
	b.rec.metrics = channelmetrics.Start("xds:///"+t.Name(), recorderList{r}, func(to *metric.Channel) { foldClusters(b.Balancer, to) })
	t.Cleanup(b.rec.metrics.Stop)
	return r
}

// pickOne makes a pick of the first endpoint, which becomes READY.
func pickOne(t *testing.T, b *testLB, cc *fakeCC) balancer.PickResult {
	t.Helper()
	cc.conn(t, 1).to(connectivity.Ready)
	b.flush()
	res, err := b.picker.Pick(balancer.PickInfo{FullMethodName: "/s/m", Ctx: context.Background()})
	kit.Must(t, err)
	return res
}

// TestPicksOfLocalityThatLeft: picks are counted though their locality has left the
// configuration before anybody reads them.
func TestPicksOfLocalityThatLeft(t *testing.T) {
	b, cc := newTestLB(t, Config{})
	metrics := recorded(t, b)
	b.Update(configOf(clusterOf(t.Name(), prio(eps(1)))))
	pickOne(t, b, cc).Done(endedOK)
	b.Update(configOf(clusterOf(t.Name(), picker.Priority{Localities: []picker.Locality{{ID: picker.LocalityID{Zone: "1"}, Weight: 1, Endpoints: picker.ListOf(eps(1)...)}}})))
	b.flush()
	if n := metrics.Sum("xdslb.lb.picks", t.Name()); n != 1 {
		t.Errorf("%v picks are counted, want 1", n)
	}
}

// TestPicksOfClusterThatLeft: picks are counted though their cluster has left the
// configuration before anybody reads them, and then nothing of it is kept.
func TestPicksOfClusterThatLeft(t *testing.T) {
	b, cc := newTestLB(t, Config{})
	metrics := recorded(t, b)
	b.Update(configOf(clusterOf(t.Name(), prio(eps(1)))))
	pickOne(t, b, cc).Done(endedOK)
	b.Update(configOf(clusterOf("other", prio(eps(1)))))
	b.flush()
	if n := metrics.Sum("xdslb.lb.picks", t.Name()); n != 1 {
		t.Errorf("%v picks are counted, want 1", n)
	}
	if len(b.rec.retired) > 0 {
		t.Error("counters are kept that no RPC uses")
	}
}

// otherXDS are xDS credentials of another package.
type otherXDS struct {
	credentials.TransportCredentials
}

func (otherXDS) UsesXDS() bool { return true }

// TestRefusedIsNoSubset: the endpoints of a cluster that the channel refuses for its
// credentials are not said to be left out of a subset.
func TestRefusedIsNoSubset(t *testing.T) {
	b, _ := newTestLB(t, Config{})
	b.buildOpts.DialCreds = otherXDS{insecure.NewCredentials()}
	cfg := configOf(clusterOf(t.Name(), prio(eps(1, 2))))
	cfg.Clusters[0].Leaves[0].TLS = &picker.TLS{SystemRoots: true}
	b.set(cfg)
	b.lock()
	defer b.unlock()
	endpointGauges(b.clusters[t.Name()], "", func(m *metric.Metric, value int64, labels ...string) {
		if value != 0 {
			t.Errorf("%s with labels %q is %d, want 0", m.Name, labels, value)
		}
	})
}
