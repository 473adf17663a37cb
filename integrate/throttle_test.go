// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestRetryThrottling: retries of interceptors are throttled as gRPC throttles its own (A6):
// the same RPCs take the same attempts, unary or not, through an outage and after it.
func TestRetryThrottling(t *testing.T) {
	attempts := map[bool][]uint64{}
	metrics := &kit.Recorder{}
	for _, byHeader := range []bool{false, true} {
		route := retried(xdstest.Route("", "a"), 2)
		if byHeader {
			route = absent(route, "nobody")
		}
		backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
		control := xdstest.New(t, xdstest.Options{})
		set(t, control, clusters(backends, nil, route))
		cfg := integrate.Config{Bootstrap: control.Bootstrap(t.Name()), Linger: -1, RetryThrottling: integrate.RetryThrottling{MaxTokens: 10, TokenRatio: 0.5}}
		cc, err := cfg.NewClient("xds:///"+target, grpc.WithStatsHandler(metrics), grpc.WithTransportCredentials(insecure.NewCredentials()))
		kit.Must(t, err)
		t.Cleanup(func() { _ = cc.Close() })
		for i, code := range []codes.Code{codes.OK, codes.Unavailable, codes.Unavailable, codes.Unavailable, codes.OK, codes.Unavailable, codes.OK, codes.Unavailable} {
			backends[0].Fail(code)
			for range 6 {
				before := backends[0].Calls()
				if i%2 == 0 || code == codes.OK {
					_, _ = call(t, cc, grpc.WaitForReady(true))
				} else {
					stream(t, cc)
				}
				attempts[byHeader] = append(attempts[byHeader], backends[0].Calls()-before)
			}
		}
	}
	if n := metrics.Sum("xdslb.client.retry_rejections", "throttle"); n != float64(unmade(attempts[true])) {
		t.Errorf("%v retries are counted as refused, want %d, of %v", n, unmade(attempts[true]), attempts[true])
	}
	if !slices.Equal(attempts[true], attempts[false]) || slices.Max(attempts[true]) != 3 || !slices.Contains(attempts[true][6:24], 1) {
		t.Errorf("attempts at RPCs:\nby gRPC        %v\nby interceptor %v", attempts[false], attempts[true])
	}
}

// unmade returns how many RPCs of the phases that fail, of six RPCs each, had fewer attempts than
// their route allows: they were throttled.
func unmade(attempts []uint64) (n int64) {
	for i, made := range attempts {
		if phase := i / 6; phase != 0 && phase != 4 && phase != 6 && made < 3 {
			n++
		}
	}
	return n
}

// TestRetryThrottlingRefused: a setting that gRPC would not accept is an error.
func TestRetryThrottlingRefused(t *testing.T) {
	for _, bad := range []integrate.RetryThrottling{{MaxTokens: 10}, {TokenRatio: 1}, {MaxTokens: 1001, TokenRatio: 1}, {MaxTokens: -1, TokenRatio: 1}, {MaxTokens: 1, TokenRatio: 1e-4}} {
		if _, err := integrate.NewBuilder(integrate.Config{Bootstrap: []byte("{}"), RetryThrottling: bad}); err == nil {
			t.Errorf("%+v is accepted", bad)
		} else {
			t.Log(err)
		}
	}
}
