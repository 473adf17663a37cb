// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"context"
	"io"
	"strings"
	"sync"
	"time"

	lrsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/bench/kit"
)

// loadServers are the servers that load is reported to, all in one. The streams of
// the control plane, which are theirs too, say nothing.
type loadServers struct {
	mu   sync.Mutex
	sums map[account]*loads
}

// loads is what was reported of a cluster and its EDS service, added up. RPCs whose
// connection had gone before they were sent are void: they may have been reported as
// issued by then. Those that lost against another attempt are neither ok nor failed.
type loads struct{ issued, ok, failed, lost, void uint64 }

// intercept answers for the servers.
func (s *loadServers) intercept(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, method string, _ grpc.Streamer, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	return &loadStream{servers: s, ctx: ctx, silent: !strings.Contains(method, "LoadReporting")}, nil
}

// reportInterval is how often reports are asked for.
const reportInterval = 10 * time.Second

// loadStream asks for reports of everything.
type loadStream struct {
	grpc.ClientStream // nil

	servers *loadServers
	ctx     context.Context
	silent  bool // nothing is asked for, or has been already
}

func (s *loadStream) Context() context.Context     { return s.ctx }
func (s *loadStream) Header() (metadata.MD, error) { return nil, nil }
func (s *loadStream) Trailer() metadata.MD         { return nil }
func (s *loadStream) CloseSend() error             { return nil }

func (s *loadStream) RecvMsg(m any) error {
	if s.silent {
		<-s.ctx.Done()
		return io.EOF
	}
	s.silent = true
	resp := m.(*lrsv3.LoadStatsResponse)
	resp.SendAllClusters, resp.LoadReportingInterval = true, durationpb.New(reportInterval)
	return nil
}

func (s *loadStream) SendMsg(m any) error {
	s.servers.mu.Lock()
	defer s.servers.mu.Unlock()
	report, ok := m.(*lrsv3.LoadStatsRequest)
	if !ok {
		return nil
	}
	for _, c := range report.ClusterStats {
		a := account{c.ClusterName, c.ClusterServiceName}
		sum := s.servers.sums[a]
		if sum == nil {
			sum = &loads{}
			s.servers.sums[a] = sum
		}
		for _, l := range c.UpstreamLocalityStats {
			sum.issued += l.TotalIssuedRequests
			sum.ok += l.TotalSuccessfulRequests
			sum.failed += l.TotalErrorRequests
		}
	}
	return nil
}

// checkLoads checks that what was reported is what there was, once all RPCs have
// ended and been reported (T-LRS-3): for the clusters whose reports went to one
// server all along, since another server is not told of RPCs that it has not seen
// begin.
func (t *trial) checkLoads() {
	kit.Pass(reportInterval + time.Second)
	t.servers.mu.Lock()
	defer t.servers.mu.Unlock()
	for a, want := range t.loads {
		if t.lossy[a.cluster] {
			continue
		}
		got := t.servers.sums[account{t.plane.realName(a.cluster), a.service}]
		if got == nil {
			got = &loads{}
		}
		most := want.issued + want.void + uint64(t.counts[a]) // those in flight may have been reported
		if got.ok != want.ok || got.failed != want.failed || got.issued < want.issued || got.issued > most {
			t.Fatalf("the load reported of %v is %+v, want %+v and %d in flight", a, *got, *want, t.counts[a])
		}
	}
}

// note counts what is to be reported of an RPC that has ended.
func (t *trial) note(r *modelRPC, info balancer.DoneInfo) {
	if !r.reported {
		return
	}
	sum := t.loads[r.account]
	if sum == nil {
		sum = &loads{}
		t.loads[r.account] = sum
	}
	switch {
	case r.lost:
		sum.lost++
	case info.Err != nil:
		sum.failed++
	case info.BytesReceived:
		sum.ok++
	default:
		sum.void++
	}
	sum.issued = sum.ok + sum.failed + sum.lost
}
