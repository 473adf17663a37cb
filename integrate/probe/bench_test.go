// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/xdslb/xdslb/bench/cputime"
)

// BenchmarkReport is what a probe costs beyond any RPC: what the server says is looked
// up, and made.
func BenchmarkReport(b *testing.B) {
	l := NewLoad()
	for i := range int64(40) {
		l.latencies.add(i, l.now(), 1e6)
		l.outcomes.count(l.now(), true)
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = l.Report()
	}
}

// BenchmarkServerCPU is the processor time of a server for an RPC over loopback, whose
// client is another process: an empty RPC of a server without a Load, one of a server with
// a Load, and a probe.
func BenchmarkServerCPU(b *testing.B) {
	for _, what := range []string{"rpc", "counted", "probe"} {
		b.Run("what="+what, func(b *testing.B) {
			var opts []grpc.ServerOption
			l := NewLoad()
			if what != "rpc" {
				opts = append(opts, l.ServerOption())
			}
			s := grpc.NewServer(opts...)
			Register(s, l)
			testgrpc.RegisterTestServiceServer(s, gated{})
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
	if err != nil {
		t.Fatal(err)
	}
	cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	for range n {
		var err error
		if os.Getenv(clientMakes) == "probe" {
			err = cc.Invoke(t.Context(), Method, &emptypb.Empty{}, new(Report))
		} else {
			_, err = testgrpc.NewTestServiceClient(cc).UnaryCall(t.Context(), &testgrpc.SimpleRequest{})
		}
		if err != nil {
			t.Fatal(fmt.Errorf("call: %w", err))
		}
	}
}
