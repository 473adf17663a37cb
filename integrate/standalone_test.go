// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental/balancer/weight"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// A dialer connects to an address.
type dialer func(ctx context.Context, addr string) (net.Conn, error)

func loopback(ctx context.Context, addr string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", addr)
}

// dialStandalone returns a channel without xDS under an LB policy of ours. Its
// addresses are names that only its dialer knows.
func dialStandalone(t *testing.T, dial dialer, loadBalancingConfig string, backends []*xdstest.Backend, weights ...uint32) (*grpc.ClientConn, *manual.Resolver) {
	t.Helper()
	r := manual.NewBuilderWithScheme("test")
	r.InitialState(resolver.State{Endpoints: named(backends, weights...)})
	cc, err := grpc.NewClient("test:///fleet",
		grpc.WithResolvers(r),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [`+loadBalancingConfig+`]}`),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			var i int
			if _, err := fmt.Sscanf(addr, "backend %d", &i); err != nil {
				return nil, err
			}
			return dial(ctx, backends[i].Addr().String())
		}))
	kit.Must(t, err)
	t.Cleanup(func() { _ = cc.Close() })
	return cc, r
}

// named returns the endpoints of a resolver that knows backends by name.
func named(backends []*xdstest.Backend, weights ...uint32) (endpoints []resolver.Endpoint) {
	for i := range backends {
		ep := resolver.Endpoint{Addresses: []resolver.Address{{Addr: fmt.Sprintf("backend %d", i)}}}
		if i < len(weights) {
			ep = weight.Set(ep, weight.EndpointInfo{Weight: weights[i]})
		}
		endpoints = append(endpoints, ep)
	}
	return endpoints
}

// connected makes RPCs until every backend has had one.
func connected(t *testing.T, cc *grpc.ClientConn, backends []*xdstest.Backend) {
	t.Helper()
	for _, b := range backends {
		for b.Calls() == 0 {
			succeed(t, cc, grpc.WaitForReady(true))
		}
	}
}

// TestStandaloneDocs checks the configurations in docs/policies.md: each is valid, and each field
// is known, so that another type of value is an error.
func TestStandaloneDocs(t *testing.T) {
	text, err := os.ReadFile("docs/policies.md")
	kit.Must(t, err)
	documented := regexp.MustCompile("`({\"xdslb_[^`]*)` \\|").FindAllSubmatch(text, -1)
	if len(documented) != 5 {
		t.Fatalf("%d policies are documented, want 5", len(documented))
	}
	for _, match := range documented {
		var entry map[string]map[string]any
		if err := json.Unmarshal(match[1], &entry); err != nil {
			t.Fatalf("%s: %v", match[1], err)
		}
		for name, fields := range entry {
			parse := func() error {
				config, _ := json.Marshal(fields)
				_, err := balancer.Get(name).(balancer.ConfigParser).ParseConfig(config)
				return err
			}
			if err := parse(); err != nil {
				t.Errorf("%s: %v", match[1], err)
			}
			for field, value := range fields {
				if fields[field] = []any{}; parse() == nil {
					t.Errorf("%s: no field %s", name, field)
				}
				fields[field] = value
			}
		}
	}
}

// TestStandaloneWeights: without xDS the EDF policy keeps to the weights that
// the resolver reports, exactly, once they are in force, which is a matter of
// milliseconds (EDF-1, EDF-2, EDF-10..12, EDF-15, EDF-17).
func TestStandaloneWeights(t *testing.T) {
	backends := xdstest.NewBackends(t, 3, xdstest.BackendOptions{})
	cc, r := dialStandalone(t, loopback, `{"xdslb_weighted_round_robin": {}}`, backends, 1, 2, 5)
	connected(t, cc, backends)
	for _, weights := range [][]uint32{{1, 2, 5}, {6, 1, 1}, {1, 1, 1}} {
		r.UpdateState(resolver.State{Endpoints: named(backends, weights...)})
		const periods = 20
		want := [3]uint64{}
		sum := uint64(0)
		for i, w := range weights {
			want[i] = periods * uint64(w)
			sum += want[i]
		}
		var got [3]uint64
		for begin := time.Now(); got != want && time.Since(begin) < time.Minute; {
			for i, b := range backends {
				got[i] = -b.Calls()
			}
			for range sum {
				succeed(t, cc)
			}
			for i, b := range backends {
				got[i] += b.Calls()
			}
		}
		if got != want {
			t.Errorf("weights %v: backends got %v RPCs, want %v", weights, got, want)
		}
	}
}

// TestStandaloneRing: without xDS the ring places RPCs by a header's XXH64, the
// endpoints by the name of their address.
func TestStandaloneRing(t *testing.T) {
	backends := xdstest.NewBackends(t, 4, xdstest.BackendOptions{})
	cc, _ := dialStandalone(t, loopback, `{"xdslb_ring_hash": {"requestHashHeader": "Session", "hashFunction": "XX_HASH"}}`, backends)
	var keys, addrs []string
	for i, b := range backends {
		keys = append(keys, fmt.Sprintf("backend %d", i))
		addrs = append(addrs, b.Addr().String())
	}
	wantRing(t, cc, keys, addrs)
}

// TestStandaloneErrors: parameters that make no sense are refused when the
// service config is parsed, and a resolver without endpoints makes RPCs fail
// until it has some.
func TestStandaloneErrors(t *testing.T) {
	for _, c := range []struct{ policy, config, want string }{
		{integrate.RingHash, `{"minRingSize": 10, "maxRingSize": 9}`, "ring sizes 10 to 9"},
		{integrate.RingHash, `{"minRingSize": 0}`, "ring sizes 0"},
		{integrate.RingHash, `{"hashFunction": "MURMUR"}`, `hashFunction "MURMUR"`},
		{integrate.RingHash, `{"requestHashHeader": "Session-Bin"}`, `requestHashHeader "Session-Bin"`},
		{integrate.RingHash, `{"minRingSize": "many"}`, "MinRingSize"},
		{integrate.LeastRequest, `{"choiceCount": 1}`, "choiceCount 1"},
		{integrate.RingHash, `{"hashHeader": "user"}`, `unknown field "hashHeader"`},
		{integrate.LeastRequest, `{"choices": 3}`, `unknown field "choices"`},
		{integrate.LeastLatency, `{"decay": "1s"}`, `unknown field "decay"`},
		{integrate.WeightedRoundRobin, `{"weights": [1]}`, `unknown field "weights"`},
		{integrate.LeastLatency, `{"decayTime": "0s"}`, "xdslb_least_latency: decayTime 0s is below 1ms"},
		{integrate.LeastLatency, `{"slow_start_config": {"slow_start_window": "-1s"}}`, "slow_start_config.slow_start_window -1s is negative"},
		{integrate.Prequal, `{"locality_lb_config": {"zone_aware_lb_config": {}}}`, "xdslb_prequal: locality_lb_config: without xDS there are no localities"},
	} {
		_, err := balancer.Get(c.policy).(balancer.ConfigParser).ParseConfig([]byte(c.config))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s: error %v, want one with %q", c.policy, c.config, err, c.want)
		}
	}

	backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
	cc, r := dialStandalone(t, loopback, `{"xdslb_weighted_round_robin": {}}`, backends)
	connected(t, cc, backends)
	r.UpdateState(resolver.State{})
	var err error
	for begin := time.Now(); err == nil && time.Since(begin) < time.Minute; {
		_, err = call(t, cc)
	}
	if err == nil || !strings.Contains(err.Error(), "no endpoints") {
		t.Errorf("RPC without endpoints: %v, want an error about missing endpoints", err)
	}
	r.UpdateState(resolver.State{Endpoints: named(backends)})
	if _, err := call(t, cc, grpc.WaitForReady(true)); err != nil {
		t.Errorf("RPC after endpoints are back: %v", err)
	}
}
