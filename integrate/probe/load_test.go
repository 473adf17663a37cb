// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"math"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/internal/proberpc"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// gated is a server whose RPCs take as long as their response is to be large, in
// milliseconds, and fail if they have a status to end with.
type gated struct {
	testgrpc.UnimplementedTestServiceServer
}

func (gated) UnaryCall(ctx context.Context, in *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	if in.ResponseSize > 0 {
		select {
		case <-time.After(time.Duration(in.ResponseSize) * time.Millisecond):
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	if s := in.ResponseStatus; s != nil {
		return nil, status.Error(codes.Code(s.Code), s.Message)
	}
	return &testgrpc.SimpleResponse{}, nil
}

func (gated) FullDuplexCall(stream testgrpc.TestService_FullDuplexCallServer) error {
	<-stream.Context().Done()
	return nil
}

// start starts a server with the Load, and returns a channel to it.
func start(t *testing.T, l *Load, lis net.Listener, dial func(context.Context, string) (net.Conn, error)) *grpc.ClientConn {
	t.Helper()
	s := grpc.NewServer(l.ServerOption(), grpc.WaitForHandlers(true))
	Register(s, l)
	testgrpc.RegisterTestServiceServer(s, gated{})
	healthgrpc.RegisterHealthServer(s, health.NewServer())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(lis) // it is stopped
	}()
	cc, err := grpc.NewClient("passthrough:///"+lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial))
	kit.Must(t, err)
	t.Cleanup(func() {
		_ = cc.Close()
		s.Stop()
		<-done
	})
	return cc
}

// inMemory is start for a bubble.
func inMemory(t *testing.T, l *Load) *grpc.ClientConn {
	t.Helper()
	n := xdstest.NewNetwork()
	lis, err := n.Listen("10.0.0.1:80")
	kit.Must(t, err)
	return start(t, l, lis, n.Dial)
}

// ask probes a server.
func ask(t *testing.T, cc *grpc.ClientConn) *proberpc.Report {
	t.Helper()
	r := new(proberpc.Report)
	kit.Must(t, cc.Invoke(t.Context(), Method, &emptypb.Empty{}, r))
	return r
}

// call makes an RPC that takes so long.
func call(ctx context.Context, cc *grpc.ClientConn, d time.Duration, code codes.Code) error {
	in := &testgrpc.SimpleRequest{ResponseSize: int32(d / time.Millisecond)}
	if code != codes.OK {
		in.ResponseStatus = &testgrpc.EchoStatus{Code: int32(code)}
	}
	_, err := testgrpc.NewTestServiceClient(cc).UnaryCall(ctx, in)
	return err
}

func TestReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLoad()
		cc := inMemory(t, l)
		if got := *ask(t, cc); got != (proberpc.Report{}) {
			t.Fatalf("report of a server without RPCs: %+v", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := testgrpc.NewTestServiceClient(cc).FullDuplexCall(ctx)
		kit.Must(t, err)
		if _, err := healthgrpc.NewHealthClient(cc).Check(ctx, &healthgrpc.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
		if got := *ask(t, cc); got != (proberpc.Report{}) {
			t.Errorf("report with a stream, after a health check and a probe: %+v", got)
		}
		ended := make(chan error, 3)
		for i := range 3 { // they find 0, 1 and 2
			go func() { ended <- call(ctx, cc, time.Duration(10*(i+1))*time.Millisecond, codes.OK) }()
			synctest.Wait()
		}
		if got := ask(t, cc); got.InFlight != 3 || got.LatencyNs != 0 {
			t.Errorf("report with three in flight: %v", got)
		}
		for range 3 {
			kit.Must(t, <-ended)
		}
		synctest.Wait() // the server notes the end of an RPC after the client
		if got := ask(t, cc); got.InFlight != 0 || got.LatencyNs != uint64(10*time.Millisecond) || got.FailingPPM != 0 {
			t.Errorf("latency after that %v, want the 10 ms of an RPC that found none in flight", got)
		}
		go func() { ended <- call(ctx, cc, 30*time.Millisecond, codes.OK) }()
		synctest.Wait()
		if got := ask(t, cc); got.InFlight != 1 || got.LatencyNs != uint64(20*time.Millisecond) {
			t.Errorf("latency with one in flight %v, want the 20 ms of an RPC that found one", got)
		}
		kit.Must(t, <-ended)
		synctest.Wait()
		if got, want := ask(t, cc).LatencyNs, uint64(12*time.Millisecond); got != want {
			t.Errorf("another RPC of 30 ms made it %d ns, want %d", got, want)
		}
		time.Sleep(expiry + time.Second) // of the bubble
		if got := *ask(t, cc); got != (proberpc.Report{}) {
			t.Errorf("expired report: %+v", got)
		}
		cancel()
		_ = stream.CloseSend() // it has ended
	})
}

// TestFailures checks that failing fast does not reduce the latency, and that RPCs ended by the
// client do not count as failed.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLoad()
		cc := inMemory(t, l)
		kit.Must(t, call(t.Context(), cc, 10*time.Millisecond, codes.OK))
		for range 8 {
			if err := call(t.Context(), cc, 0, codes.Unavailable); status.Code(err) != codes.Unavailable {
				t.Fatal(err)
			}
		}
		synctest.Wait() // the server notes the end of an RPC after the client
		if got := ask(t, cc); got.LatencyNs != uint64(10*time.Millisecond) || got.FailingPPM != 800_000 {
			t.Errorf("after one success and 8 failures: %v", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
		defer cancel()
		if err := call(ctx, cc, time.Hour/2, codes.OK); status.Code(err) != codes.DeadlineExceeded {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := ask(t, cc); got.LatencyNs != uint64(15*time.Millisecond) || got.FailingPPM != 800_000 {
			t.Errorf("after an expired deadline: %v", got)
		}
		time.Sleep(3 * time.Second)
		if got := ask(t, cc); got.FailingPPM != 0 {
			t.Errorf("3 s later: %v", got)
		}
	})
}

func TestSettings(t *testing.T) {
	l := NewLoad()
	l.SetWeight(2.5)
	l.SetGoingAway(true)
	if got, want := *l.report(), (proberpc.Report{Weight: 2.5, GoingAway: true}); got != want {
		t.Errorf("report %+v, want %+v", got, want)
	}
	l.SetGoingAway(false)
	for _, w := range []float64{-1, 0, math.NaN(), math.Inf(1)} {
		l.SetWeight(w)
		if got := *l.report(); got != (proberpc.Report{}) {
			t.Errorf("report with weight %v: %+v", w, got)
		}
	}
}

// TestWire pins the wire format for other implementations.
func TestWire(t *testing.T) {
	r := proberpc.Report{InFlight: 300, LatencyNs: 5, FailingPPM: 1, Weight: 1, GoingAway: true}
	want := "\x08\xac\x02\x10\x05\x18\x01\x21\x00\x00\x00\x00\x00\x00\xf0\x3f\x28\x01"
	m := protoadapt.MessageV2Of(&r)
	wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil || string(wire) != want {
		t.Errorf("Marshal = %x, %v, want %x", wire, err, want)
	}
	if name := m.ProtoReflect().Descriptor().FullName(); name != "xdslb.probe.v1.Report" {
		t.Errorf("the message is %s", name)
	}
	var back proberpc.Report
	if err := proto.Unmarshal([]byte(want+"\x38\x07"), protoadapt.MessageV2Of(&back)); err != nil || back != r {
		t.Errorf("Unmarshal = %+v, %v, want %+v", back, err, r)
	}
}

func TestBufconn(t *testing.T) {
	lis := bufconn.Listen(1 << 16)
	cc := start(t, NewLoad(), lis, func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) })
	kit.Must(t, call(t.Context(), cc, 0, codes.OK))
	if got := ask(t, cc); got.InFlight > 1 {
		t.Errorf("report %v", got)
	}
}
