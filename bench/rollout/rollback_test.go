// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// ways are how programs make channels of ours.
var ways = map[string]func(name string, opts ...grpc.DialOption) (*grpc.ClientConn, error){
	"NewClient": func(name string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
		return integrate.NewClient("xds:///"+name, opts...)
	},
	"NewClient-xdslb": func(name string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
		return integrate.NewClient("xdslb:///"+name, opts...)
	},
	"blank-import-xdslb": func(name string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
		return grpc.NewClient("xdslb:///"+name, opts...)
	},
	"blank-import": func(name string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
		return grpc.NewClient("xds:///"+name, opts...)
	},
	"NewBuilder": func(name string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
		b, err := integrate.NewBuilder(integrate.Config{})
		if err != nil {
			return nil, err
		}
		return grpc.NewClient("xds:///"+name, append(opts, grpc.WithResolvers(b))...)
	},
}

// TestSwitch checks that the variables hand channels to stock, for every way of creating
// channels and every order of registration. The control plane sees the client's user agent, the
// status has the reason, and the log has it once.
func TestSwitch(t *testing.T) {
	for way, dial := range ways {
		if way == "blank-import" && !*stockFirst {
			continue // it is stock's then
		}
		for _, tt := range []struct{ name, disable, enable, agent string }{
			{"unset", "", "", ourAgent},
			{"all", "all", "", stockAgent},
			{"endpoint", "nothing,testswitch.*.test", "", stockAgent},
			{"other", "other*", "", ourAgent},
			{"enabled", "", "testswitch*", ourAgent},
			{"not-enabled", "", "other", stockAgent},
			{"both", "testswitch*", "testswitch*", stockAgent},
			{"malformed", "[", "", stockAgent},
		} {
			t.Run(way+"/"+tt.name, func(t *testing.T) {
				t.Setenv("XDSLB_DISABLE", tt.disable)
				t.Setenv("XDSLB_ENABLE", tt.enable)
				name, _ := service(t, 1, nil)
				for range 2 {
					cc := closing(t)(dial(name, plaintext))
					kit.Must(t, call(t, cc))
					s, err := integrate.StatusOf(cc)
					if err != nil || (s.Stock == "") != (tt.agent == ourAgent) {
						t.Errorf("status: %+v, %v", s, err)
					}
					if _, err := integrate.Explain(context.Background(), cc, "/a/b"); (err == nil) != (tt.agent == ourAgent) || err != nil && !strings.Contains(err.Error(), s.Stock) {
						t.Errorf("Explain: %v, want %s in it", err, s.Stock)
					}
				}
				if got := requests.asked(name); got != tt.agent {
					t.Errorf("clients of the control plane are %q, want %q", got, tt.agent)
				}
				want := 0
				if tt.agent == stockAgent {
					want = 1
				}
				if n := len(lines.With("channels of a target handed to google.golang.org/grpc/xds", name)); n != want {
					t.Errorf("%d lines in the log, want %d", n, want)
				}
			})
		}
	}
}

// TestStockIgnoresTLS: the log has, once, which TLS settings stock ignores on a channel with xDS
// credentials that is handed over, and which environment variables turn them on.
func TestStockIgnoresTLS(t *testing.T) {
	t.Setenv("XDSLB_DISABLE", "all")
	t.Setenv("GRPC_EXPERIMENTAL_XDS_MTLS_SPIFFE", "true")
	creds, err := integrate.NewCredentials(integrate.CredentialsOptions{Fallback: insecure.NewCredentials()})
	kit.Must(t, err)
	for _, tt := range []struct {
		creds grpc.DialOption
		want  int
	}{{plaintext, 0}, {grpc.WithTransportCredentials(creds), 1}} {
		name, _ := service(t, 1, nil)
		for range 2 {
			kit.Must(t, call(t, closing(t)(integrate.NewClient("xds:///"+name, tt.creds))))
		}
		if n := len(lines.With("less strictly than xdslb", name, "GRPC_EXPERIMENTAL_XDS_SNI: sni, auto_host_sni and auto_sni_san_validation are ignored", "GRPC_EXPERIMENTAL_XDS_SYSTEM_ROOT_CERTS")); n != tt.want {
			t.Errorf("%d lines in the log, want %d", n, tt.want)
		}
		if n := len(lines.With("GRPC_EXPERIMENTAL_XDS_MTLS_SPIFFE", name)); n != 0 {
			t.Errorf("%d lines in the log about a variable that is true", n)
		}
	}
}

// retried adds a header match to a route, so that our interceptors would retry its RPCs.
func retried(r *xdstest.Resources) {
	route := r.Routes[0].VirtualHosts[0].Routes[0]
	route.Match.Headers = []*routev3.HeaderMatcher{{Name: "absent", InvertMatch: true, HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}}}
	route.GetRoute().RetryPolicy = &routev3.RetryPolicy{RetryOn: "unavailable", NumRetries: wrapperspb.UInt32(2)}
}

// TestInterceptorsStepAside: on a channel that is stock's our interceptors do nothing, or
// an RPC of three attempts would make nine; also for RPCs before the first configuration,
// and of streams.
func TestInterceptorsStepAside(t *testing.T) {
	t.Setenv("XDSLB_DISABLE", "*")
	name, backends := service(t, 1, retried)
	backends[0].Fail(codes.Unavailable)
	cc := closing(t)(integrate.NewClient("xds:///"+name, plaintext))
	for range 3 {
		before := backends[0].Calls()
		if err := call(t, cc); status.Code(err) != codes.Unavailable {
			t.Fatal(err)
		}
		if n := backends[0].Calls() - before; n != 3 {
			t.Errorf("%d attempts, want 3", n)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	before := backends[0].Calls()
	stream, err := testgrpc.NewTestServiceClient(cc).FullDuplexCall(ctx)
	if err == nil {
		_, err = stream.Recv()
	}
	if n := backends[0].Calls() - before; status.Code(err) != codes.Unavailable || n != 3 {
		t.Errorf("stream: %d attempts, want 3; %v", n, err)
	}
}

// TestFirstRPC: an RPC that comes before stock has its configuration is stock's business
// from then on, even if the channel does not get ready: a fault ends it at once.
func TestFirstRPC(t *testing.T) {
	t.Setenv("XDSLB_DISABLE", "*")
	silent, err := net.Listen("tcp", "127.0.0.1:0") // does not respond with HTTP/2
	kit.Must(t, err)
	defer func() { _ = silent.Close() }()
	name, _ := service(t, 1, func(r *xdstest.Resources) {
		service := r.Listeners[0].Name
		fault := &hcmv3.HttpFilter{Name: "fault", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: anyOf(t, &faultv3.HTTPFault{Abort: &faultv3.FaultAbort{
			ErrorType:  &faultv3.FaultAbort_GrpcStatus{GrpcStatus: uint32(codes.DataLoss)},
			Percentage: &typev3.FractionalPercent{Numerator: 100},
		}})}}
		r.Listeners[0] = xdstest.Listener(service, service, fault)
		r.Endpoints[0] = xdstest.Endpoints(service, xdstest.Locality{Endpoints: []xdstest.Endpoint{{Addr: silent.Addr().(*net.TCPAddr).AddrPort()}}})
	})
	cc := closing(t)(integrate.NewClient("xds:///"+name, plaintext))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if _, err := testgrpc.NewTestServiceClient(cc).EmptyCall(ctx, &testgrpc.Empty{}); status.Code(err) != codes.DataLoss || ctx.Err() != nil {
		t.Errorf("%v, want the fault, before the deadline: %v", err, ctx.Err())
	}
}

// TestNestedChannels: RPCs of a channel of ours within RPCs of a stock channel, and the
// other way round, with the outer one's context.
func TestNestedChannels(t *testing.T) {
	name, _ := service(t, 1, retried)
	for _, disable := range []string{"xds:///*", "xdslb:///*"} {
		t.Setenv("XDSLB_DISABLE", disable)
		inner := closing(t)(integrate.NewClient("xdslb:///"+name, plaintext))
		nested := 0
		outer := closing(t)(integrate.NewClient("xds:///"+name, plaintext, grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				return invoker(ctx, method, req, reply, cc, opts...)
			}), grpc.WithPerRPCCredentials(caller(func(ctx context.Context) error {
			nested++
			_, err := testgrpc.NewTestServiceClient(inner).UnaryCall(ctx, &testgrpc.SimpleRequest{})
			return err
		}))))
		if err := call(t, outer); err != nil || nested != 1 {
			t.Errorf("disable %s: %d nested RPCs, %v", disable, nested, err)
		}
		a, errA := integrate.StatusOf(outer)
		b, errB := integrate.StatusOf(inner)
		if errors.Join(errA, errB) != nil || (a.Stock == "") == (b.Stock == "") {
			t.Errorf("disable %s: outer is stock's because %q, inner because %q; %v %v", disable, a.Stock, b.Stock, errA, errB)
		}
	}
}

// caller are per-RPC credentials that use the context of an attempt, which contains values
// added by picks.
type caller func(ctx context.Context) error

func (c caller) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	return nil, c(ctx)
}
func (caller) RequireTransportSecurity() bool { return false }

// TestChangeWhileIdle checks that a channel keeps its implementation while the variable
// changes, and that the choice is repeated when it leaves idle mode, in both directions.
func TestChangeWhileIdle(t *testing.T) {
	t.Setenv("XDSLB_DISABLE", "")
	name, _ := service(t, 1, nil)
	cc := closing(t)(integrate.NewClient("xds:///"+name, plaintext, grpc.WithIdleTimeout(100*time.Millisecond)))
	for i, disable := range []string{"", "*", ""} {
		t.Setenv("XDSLB_DISABLE", disable)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		stream, err := testgrpc.NewTestServiceClient(cc).FullDuplexCall(ctx) // keeps it from idle mode
		kit.Must(t, err)
		t.Setenv("XDSLB_DISABLE", "changed."+disable)
		if err := call(t, cc); err != nil {
			t.Error(err)
		}
		if s, err := integrate.StatusOf(cc); err != nil || (s.Stock == "") != (disable == "") {
			t.Errorf("%d: stock's because %q, %v", i, s.Stock, err)
		}
		if err := stream.CloseSend(); err != nil {
			t.Error(err)
		}
		_, _ = stream.Recv()
		for state := cc.GetState(); state != connectivity.Idle; state = cc.GetState() {
			if !cc.WaitForStateChange(ctx, state) {
				t.Fatalf("%d: the channel is %v, not idle", i, state)
			}
		}
		for { // gRPC closes the resolver shortly after it reports that the channel is idle
			s, err := integrate.StatusOf(cc)
			if err == nil && s.Stock == "" && s.Listener == "" {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("%d: idle: %+v, %v", i, s, err)
			}
			runtime.Gosched()
		}
		cancel()
	}
}

// TestWaitReadyOfStock: a program that waits for its channels starts all the same.
func TestWaitReadyOfStock(t *testing.T) {
	t.Setenv("XDSLB_DISABLE", "*")
	name, _ := service(t, 1, nil)
	cc := closing(t)(integrate.NewClient("xds:///"+name, plaintext))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := integrate.WaitReady(ctx, cc, "/a/b"); err != nil {
		t.Error(err)
	}
	found := false
	for _, s := range integrate.Status() {
		found = found || s.Target == "xds:///"+name && s.Stock != ""
	}
	if !found {
		t.Error("Status does not have the channel")
	}
	short, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	none := closing(t)(integrate.NewClient("xds:///no-such.test", plaintext))
	if err := integrate.WaitReady(short, none, "/a/b"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "XDSLB_DISABLE") {
		t.Errorf("a target that there is not: %v", err)
	}
}

// TestBuildError checks that stock's error for a target is returned, with the reason for using
// stock.
func TestBuildError(t *testing.T) {
	t.Setenv("XDSLB_DISABLE", "*")
	cc := closing(t)(integrate.NewClient("xds://nowhere/x", plaintext))
	err := call(t, cc)
	for _, want := range []string{"XDSLB_DISABLE", "authority", "nowhere"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}

// TestCredentials checks that our credentials on a channel of stock use the fallback for
// clusters without TLS.
func TestCredentials(t *testing.T) {
	creds, err := integrate.NewCredentials(integrate.CredentialsOptions{Fallback: insecure.NewCredentials()})
	kit.Must(t, err)
	name, _ := service(t, 1, nil)
	for _, disable := range []string{"", "*"} {
		t.Setenv("XDSLB_DISABLE", disable)
		if err := call(t, closing(t)(integrate.NewClient("xds:///"+name, grpc.WithTransportCredentials(creds)))); err != nil {
			t.Errorf("disable %q: %v", disable, err)
		}
	}
}
