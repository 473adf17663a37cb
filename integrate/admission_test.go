// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	admissionv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/admission_control/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// admissionControl is the filter with a window that outlasts a test, which may refuse all.
func admissionControl() *admissionv3.AdmissionControl {
	return &admissionv3.AdmissionControl{
		EvaluationCriteria:      &admissionv3.AdmissionControl_SuccessCriteria_{SuccessCriteria: &admissionv3.AdmissionControl_SuccessCriteria{}},
		SamplingWindow:          durationpb.New(time.Hour),
		MaxRejectionProbability: &corev3.RuntimePercent{DefaultValue: &typev3.Percent{Value: 100}},
	}
}

// refused reports whether an error is that of admission control.
func refused(t *testing.T, err error) bool {
	t.Helper()
	by := refusedBy(t, err, integrate.ReasonAdmission, map[string]string{"filter": "admission"})
	if by && !strings.Contains(err.Error(), `admission control "admission"`) {
		t.Errorf("an RPC is refused with %v", err)
	}
	return by
}

// refusedBy reports whether an error is that of a filter that refuses RPCs for a reason.
func refusedBy(t *testing.T, err error, reason string, about map[string]string) bool {
	t.Helper()
	info := infoOf(err)
	if info.GetReason() != reason {
		return false
	}
	if status.Code(err) != codes.Unavailable || !maps.Equal(info.GetMetadata(), about) {
		t.Errorf("an RPC is refused with %v, %v", err, info)
	}
	return true
}

// TestAdmissionControl: while a backend fails RPCs, more and more of them are refused,
// unary or not, before anything is sent and without retries, whoever makes those. It can be
// seen how many, an update of something else leaves it so, and a route that turns the filter
// off has none of it.
func TestAdmissionControl(t *testing.T) {
	for name, route := range map[string]*routev3.Route{
		"retries by gRPC":        retried(xdstest.Route("/grpc.testing.TestService/", "a"), 2),
		"retries by interceptor": retried(absent(xdstest.Route("/grpc.testing.TestService/", "a"), "nobody"), 2),
	} {
		t.Run(name, func(t *testing.T) {
			backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
			control := xdstest.New(t, xdstest.Options{})
			off := retried(xdstest.Route("/off/", "a"), 2)
			off.TypedPerFilterConfig = map[string]*anypb.Any{"admission": anyOf(t, &routev3.FilterConfig{Disabled: true})}
			resources := clusters(backends, []*hcmv3.HttpFilter{httpFilter(t, "admission", admissionControl())}, route, off)
			set(t, control, resources)
			metrics := &xdstest.Recorder{}
			cc := dial(t, control.Bootstrap(t.Name()), grpc.WithStatsHandler(metrics))
			if _, err := call(t, cc, grpc.WaitForReady(true)); err != nil {
				t.Fatal(err)
			}
			backends[0].Fail(codes.Unavailable)
			const n = 60
			before, denied := backends[0].Calls(), uint64(0)
			run := func() {
				for i := range n / 2 {
					var err error
					if i%2 == 0 {
						_, err = call(t, cc)
					} else if s, serr := testgrpc.NewTestServiceClient(cc).FullDuplexCall(t.Context()); serr != nil {
						err = serr
					} else {
						_, err = s.Recv()
					}
					if err == nil {
						t.Error("an RPC to a backend that fails succeeds")
					}
					if refused(t, err) {
						denied++
					}
				}
			}
			run()
			resources.Clusters = append(resources.Clusters, xdstest.Cluster("b", "a"))
			resources.Routes[0].VirtualHosts[0].Routes = append(resources.Routes[0].VirtualHosts[0].Routes, xdstest.Route("/other/", "b"))
			set(t, control, resources)
			admission := func() report.AdmissionStatus {
				s, err := integrate.StatusOf(cc)
				if err != nil || len(s.Admission) != 1 {
					t.Fatalf("status is %+v, %v", s.Admission, err)
				}
				return s.Admission[0]
			}
			kit.WaitFor(t, "three routes", func() bool { s, err := integrate.StatusOf(cc); return err == nil && s.Routes == 3 })
			run()
			// Each RPC is refused with a chance of (k-1)/(k+1) or so after k of them.
			if denied < n/3 {
				t.Errorf("%d of %d RPCs are refused while all fail", denied, n)
			}
			if got, want := backends[0].Calls()-before, 3*(n-denied); got != want {
				t.Errorf("the backend got %d attempts at %d RPCs, want %d", got, n-denied, want)
			}
			// A stream counts when gRPC tells its end.
			kit.WaitFor(t, "the outcomes of all RPCs", func() bool { return uint64(admission().RPCs) == n-denied+1 })
			if s := admission(); s.Filter != "admission" || s.Refused != denied || s.Successes != 1 || s.Probability < .5 {
				t.Errorf("status is %+v, want 1 success and %d refused", s, denied)
			}
			x, err := integrate.Explain(context.Background(), cc, "/grpc.testing.TestService/EmptyCall")
			if err != nil || !strings.Contains(x.String(), "% of RPCs: 1 of") {
				t.Errorf("the explanation does not tell: %v\n%v", err, x)
			}
			if n := metrics.Sum("xdslb.client.admission_rejections", "xds:///"+target); n != float64(denied) {
				t.Errorf("the metric counts %v RPCs, want %d", n, denied)
			}
			for range 20 {
				if err := cc.Invoke(t.Context(), "/off/m", &testgrpc.Empty{}, &testgrpc.Empty{}); err == nil || refused(t, err) {
					t.Errorf("where the filter is off, an RPC ends with %v", err)
				}
			}
		})
	}
}
