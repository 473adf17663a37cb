// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"io"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/resource"
)

// TestInject is A33: a delay, then an abort, each with its own chance, headers
// that can only lower it, and a limit of RPCs that suffer at the same time.
func TestInject(t *testing.T) {
	always := resource.Percentage{PerMillion: 1e6, Unit: 1e4}
	abort := &resource.FaultAbort{Chance: always, Code: uint32(codes.Aborted)}
	byHeader := &resource.FaultAbort{Chance: always, Header: true}
	ctxWith := func(kv ...string) context.Context {
		return metadata.AppendToOutgoingContext(context.Background(), kv...)
	}
	tests := []struct {
		name  string
		fault resource.Fault
		ctx   context.Context
		want  error
		took  time.Duration
	}{
		{"abort", resource.Fault{Abort: abort, MaxActive: math.MaxUint32}, ctxWith(), status.Error(codes.Aborted, ""), 0},
		{"never", resource.Fault{Abort: &resource.FaultAbort{Code: 10}, MaxActive: math.MaxUint32}, ctxWith(), nil, 0},
		{"too many", resource.Fault{Abort: abort, MaxActive: 0}, ctxWith(), nil, 0},
		{"delay", resource.Fault{Delay: &resource.FaultDelay{Chance: always, Fixed: time.Second}, MaxActive: 1}, ctxWith(), nil, time.Second},
		{"delay, then abort", resource.Fault{Delay: &resource.FaultDelay{Chance: always, Header: true}, Abort: abort, MaxActive: 1},
			ctxWith("x-envoy-fault-delay-request", "2000"), status.Error(codes.Aborted, ""), 2 * time.Second},
		{"by header", resource.Fault{Abort: byHeader, MaxActive: 1}, ctxWith("x-envoy-fault-abort-grpc-request", "5"), status.Error(codes.NotFound, ""), 0},
		{"by header, OK", resource.Fault{Abort: byHeader, MaxActive: 1}, ctxWith("x-envoy-fault-abort-grpc-request", "0"), errEndedOK, 0},
		{"by HTTP header", resource.Fault{Abort: byHeader, MaxActive: 1}, ctxWith("x-envoy-fault-abort-request", "503"), status.Error(codes.Unavailable, ""), 0},
		{"a bad header", resource.Fault{Abort: byHeader, MaxActive: 1}, ctxWith("x-envoy-fault-abort-request", "x"), nil, 0},
		{"no header", resource.Fault{Delay: &resource.FaultDelay{Chance: always, Header: true}, MaxActive: 1}, ctxWith(), nil, 0},
		{"lowered to never", resource.Fault{Abort: byHeader, MaxActive: 1},
			ctxWith("x-envoy-fault-abort-grpc-request", "5", "x-envoy-fault-abort-request-percentage", "0"), nil, 0},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			active, err := inject(tt.ctx, &tt.fault)
			if active {
				activeFaults.Add(-1)
			}
			if want := tt.want != nil || tt.took > 0; active != want {
				t.Errorf("%s: counts among the active faults: %v, want %v", tt.name, active, want)
			}
			if status.Code(err) != status.Code(tt.want) || (err == nil) != (tt.want == nil) {
				t.Errorf("%s: error %v, want %v", tt.name, err, tt.want)
			}
			if took := time.Since(begin); took != tt.took {
				t.Errorf("%s: took %v, want %v", tt.name, took, tt.took)
			}
			if n := activeFaults.Load(); n != 0 {
				t.Errorf("%s: %d active faults are left", tt.name, n)
			}
		})
	}
}

// TestAbortOK: an abort with status OK is the end of a stream of responses, and an
// error where there has to be one response, since there is none.
func TestAbortOK(t *testing.T) {
	f := faultInterceptor(&resource.Fault{Abort: &resource.FaultAbort{Chance: resource.Percentage{PerMillion: 1e6, Unit: 1e4}}, MaxActive: 1})
	if err := f.unary(t.Context(), "/s/m", nil, nil, nil, nil); status.Code(err) != codes.Internal {
		t.Errorf("a unary RPC ends with %v, want INTERNAL", err)
	}
	if _, err := f.stream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, nil, "/s/m", nil); status.Code(err) != codes.Internal {
		t.Errorf("a stream of requests ends with %v, want INTERNAL", err)
	}
	s, err := f.stream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, nil, "/s/m", nil)
	kit.Must(t, err)
	if err := s.RecvMsg(nil); err != io.EOF {
		t.Errorf("a stream of responses ends with %v, want EOF", err)
	}
	if n := activeFaults.Load(); n != 0 {
		t.Errorf("%d active faults are left", n)
	}
}
