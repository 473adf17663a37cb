// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/xdslb/xdslb/bench/cputime"
	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/internal/proberpc"
)

// BenchmarkReport measures the cost of a probe in addition to any RPC's: computing the report.
func BenchmarkReport(b *testing.B) {
	l := NewLoad()
	for i := range int64(40) {
		l.latencies.add(i, l.now(), 1e6)
		l.outcomes.count(l.now(), true)
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = l.report()
	}
}

// BenchmarkServerCPU measures the processor time of a server for an RPC over loopback, whose
// client is a separate process with 32 in flight: an RPC of a server without a Load, one of a
// server with a Load, and a probe. For comparison it has hypothetical alternatives: an RPC with
// its load in the trailer, and a message in each direction on a stream.
func BenchmarkServerCPU(b *testing.B) {
	for _, what := range []string{"rpc", "counted", "probe", "trailer", "message"} {
		b.Run("what="+what, func(b *testing.B) {
			var opts []grpc.ServerOption
			l := NewLoad()
			if what != "rpc" {
				opts = append(opts, l.ServerOption())
			}
			if what == "trailer" {
				opts = append(opts, grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
					answer, err := handler(ctx, req)
					r := l.report()
					wire := protowire.AppendVarint([]byte{1 << 3}, uint64(r.InFlight))
					wire = protowire.AppendVarint(append(wire, 2<<3), r.LatencyNs)
					_ = grpc.SetTrailer(ctx, metadata.MD{"xdslb-load-bin": {string(wire)}}) // the header is not sent twice
					return answer, err
				}))
			}
			s := grpc.NewServer(opts...)
			Register(s, l)
			testgrpc.RegisterTestServiceServer(s, echo{l: l})
			lis, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = s.Serve(lis) // it is stopped
			}()
			defer func() {
				s.Stop()
				<-done
			}()
			begin := cputime.Process()
			client := exec.Command(os.Args[0], "-test.run=^TestClientOfBenchmark$")
			client.Env = append(os.Environ(), clientOf+"="+lis.Addr().String(), clientMakes+"="+what, clientCalls+"="+strconv.Itoa(b.N))
			if out, err := client.CombinedOutput(); err != nil {
				b.Fatalf("client: %v: %s", err, out)
			}
			b.ReportMetric(float64((cputime.Process()-begin).Nanoseconds())/float64(b.N), "server-ns/op")
		})
	}
}

const (
	clientOf    = "XDSLB_PROBE_CLIENT_OF"
	clientMakes = "XDSLB_PROBE_CLIENT_MAKES"
	clientCalls = "XDSLB_PROBE_CLIENT_CALLS"
)

// TestClientOfBenchmark is the client of BenchmarkServerCPU.
func TestClientOfBenchmark(t *testing.T) {
	addr := os.Getenv(clientOf)
	if addr == "" {
		t.Skip("it is a process of a benchmark")
	}
	n, err := strconv.Atoi(os.Getenv(clientCalls))
	kit.Must(t, err)
	cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	kit.Must(t, err)
	defer func() { _ = cc.Close() }()
	const callers = 32
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			if err := calls(t.Context(), cc, os.Getenv(clientMakes), (n+i)/callers); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// calls makes n calls, one after the other.
func calls(ctx context.Context, cc *grpc.ClientConn, what string, n int) error {
	service := testgrpc.NewTestServiceClient(cc)
	in := &testgrpc.SimpleRequest{Payload: &testgrpc.Payload{Body: make([]byte, 32)}}
	one := func() error { _, err := service.UnaryCall(ctx, in); return err }
	switch what {
	case "probe":
		one = func() error { return cc.Invoke(ctx, Method, &emptypb.Empty{}, new(proberpc.Report)) }
	case "message":
		stream, err := service.FullDuplexCall(ctx)
		if err != nil {
			return err
		}
		one = func() error {
			if err := stream.SendMsg(&emptypb.Empty{}); err != nil {
				return err
			}
			return stream.RecvMsg(new(proberpc.Report))
		}
	}
	for range n {
		if err := one(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

// echo echoes requests, and sends the load on streams.
type echo struct {
	testgrpc.UnimplementedTestServiceServer
	l *Load
}

func (e echo) UnaryCall(_ context.Context, in *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	return &testgrpc.SimpleResponse{Payload: in.Payload}, nil
}

func (e echo) FullDuplexCall(stream testgrpc.TestService_FullDuplexCallServer) error {
	for {
		if err := stream.RecvMsg(new(emptypb.Empty)); err != nil {
			return err
		}
		if err := stream.SendMsg(e.l.report()); err != nil {
			return err
		}
	}
}
