// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that cutting wraps
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// cutting is a codec that does something between the pick of an RPC and its
// message.
type cutting struct {
	encoding.CodecV2
	cut func()
}

func (c cutting) Marshal(v any) (mem.BufferSlice, error) {
	c.cut()
	return c.CodecV2.Marshal(v)
}

// TestReportCut: an RPC whose connection is cut after the pick and before its
// message is sent is not reported as a success (T-LRS-3), although gRPC does not
// pass its error to the balancer.
func TestReportCut(t *testing.T) {
	backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
	control := xdstest.New(t, xdstest.Options{})
	r := xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})
	r.Clusters = []*clusterv3.Cluster{xdstest.Cluster(target, target, xdstest.LoadReports())}
	set(t, control, r)
	cc := dial(t, control.Bootstrap("n"))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := call(t, cc); err != nil {
		t.Fatal(err)
	}
	codec := cutting{encoding.GetCodecV2("proto"), func() {
		backends[0].Stop()
		cc.WaitForStateChange(ctx, connectivity.Ready)
	}}
	if _, err := call(t, cc, grpc.ForceCodecV2(codec)); status.Code(err) != codes.Unavailable {
		t.Errorf("the RPC whose connection was cut: %v", err)
	}
	want := xdstest.LocalityCounts{Issued: 2, OK: 1, Failed: 1}
	counts := func() xdstest.LocalityCounts {
		c := control.Loads().Counts(target, target)
		return c.Sum()
	}
	if err := control.Loads().Wait(ctx, func() bool { return counts().Issued == 2 && counts().InProgress == 0 }); err != nil || counts() != want {
		t.Errorf("%+v are reported, %v, want %+v", counts(), err, want)
	}
}
