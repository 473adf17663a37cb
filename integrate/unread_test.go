// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/internal/diagnosis"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// spoiler replaces the Listeners that a control plane sends.
type spoiler struct {
	grpc.ServerStream
	with *atomic.Pointer[anypb.Any] // nothing if it has none
}

// SendMsg implements grpc.ServerStream.
func (s spoiler) SendMsg(m any) error {
	bad := s.with.Load()
	switch resp := proto.Clone(m.(proto.Message)).(type) {
	case *discoveryv3.DiscoveryResponse:
		if bad != nil && resp.TypeUrl == xdstest.LDS {
			resp.Resources = []*anypb.Any{bad}
			m = resp
		}
	case *discoveryv3.DeltaDiscoveryResponse:
		if bad != nil && resp.TypeUrl == xdstest.LDS {
			resp.Resources = []*discoveryv3.Resource{{Name: target, Version: "1", Resource: bad}}
			m = resp
		}
	}
	return s.ServerStream.SendMsg(m)
}

// TestUnreadResources: a resource that cannot be parsed, or of another type than its response, has no name
// to which the error could be attributed. The errors of WaitReady and of RPCs, Status with its events, and
// the problems of the debug page have the reason, before and after the resource counts as missing, and until
// a response is valid. RPCs that have a configuration continue, and the problems have the reason too.
func TestUnreadResources(t *testing.T) {
	for _, delta := range []bool{false, true} {
		for _, tt := range []struct {
			bad  *anypb.Any
			want string
		}{
			{&anypb.Any{TypeUrl: xdstest.LDS, Value: []byte("rubbish")}, "malformed"},
			{&anypb.Any{TypeUrl: xdstest.CDS, Value: []byte("\n\x01a")}, `a resource of type "` + xdstest.CDS},
		} {
			t.Run(fmt.Sprintf("delta=%t,%s", delta, tt.want[:4]), func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *bubble) {
					var with atomic.Pointer[anypb.Any]
					with.Store(tt.bad)
					control := xdstest.New(t, xdstest.Options{Listen: b.net.Listen, Server: []grpc.ServerOption{
						grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
							return next(srv, spoiler{ss, &with})
						}),
					}})
					set(t, control, xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(b.backends(1)...)}))
					cfg := b.config(control)
					cfg.Delta = delta
					cc := b.dial(cfg)
					problems := func() string {
						s, err := integrate.StatusOf(cc)
						kit.Must(t, err)
						return fmt.Sprint(diagnosis.Find(&s))
					}
					for _, phase := range []string{"waiting", "missing"} {
						texts := map[string]string{}
						for _, c := range []struct {
							where string
							f     func(context.Context) error
						}{
							{"RPC", func(ctx context.Context) error {
								_, err := testgrpc.NewTestServiceClient(cc).EmptyCall(ctx, &testgrpc.Empty{}, grpc.WaitForReady(phase == "waiting"))
								return err
							}},
							{"WaitReady", func(ctx context.Context) error { return integrate.WaitReady(ctx, cc, emptyCall) }},
							{"Explain", func(ctx context.Context) error { _, err := integrate.Explain(ctx, cc, emptyCall); return err }},
						} {
							ctx, cancel := context.WithTimeout(t.Context(), time.Second)
							texts[c.where] = fmt.Sprint(c.f(ctx))
							cancel()
						}
						s, err := integrate.StatusOf(cc)
						kit.Must(t, err)
						texts["Status.Error"], texts["Status.Events"], texts["problems"] = s.Error, fmt.Sprint(s.Events), problems()
						texts["Status.Servers"] = s.Servers[0].Rejected
						for where, text := range texts {
							if !strings.Contains(text, tt.want) {
								t.Errorf("%s: %s lacks %q: %s", phase, where, tt.want, text)
							}
						}
						time.Sleep(16 * time.Second)
						synctest.Wait()
					}
					restart := func(bad *anypb.Any) {
						with.Store(bad)
						kit.Must(t, control.Restart())
						time.Sleep(time.Minute)
						synctest.Wait()
					}
					restart(nil)
					if _, err := call(t, cc); err != nil {
						t.Error(err)
					}
					if text := problems(); strings.Contains(text, tt.want) {
						t.Errorf("after a valid response: %s", text)
					}
					set(t, control, xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(b.backends(2)...)}))
					restart(tt.bad)
					if _, err := call(t, cc); err != nil {
						t.Error(err)
					}
					if text := problems(); !delta && !strings.Contains(text, tt.want) {
						t.Errorf("with a configuration: the problems lack %q: %s", tt.want, text)
					}
				})
			})
		}
	}
}
