// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	clusterprovidedv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/cluster_provided/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	"google.golang.org/grpc/balancer/randomsubsetting"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/lbpolicy"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// offering serves backends, a locality for each, and lists policies.
func offering(t *testing.T, control *xdstest.Server, backends []*xdstest.Backend, policies ...proto.Message) {
	t.Helper()
	var localities []xdstest.Locality
	for i, b := range backends {
		localities = append(localities, xdstest.Locality{
			Place: xdstest.Place{Zone: string(rune('a' + i))}, Weight: uint32(i + 1), Endpoints: xdstest.BackendEndpoints(b),
		})
	}
	r := xdstest.Service(target, localities...)
	r.Clusters = []*clusterv3.Cluster{xdstest.Cluster(target, target, testplane.LoadReports(), testplane.Policies(policies...))}
	set(t, control, r)
}

// TestTypedStruct: a policy of gRPC's registry is selected by TypedStruct behind
// one that is not registered (A52-TS-3, A52-EX-1), replaced by one of the
// snapshot's and selected again, under load and without an error; a configuration
// that its parser refuses is a NACK (A52-NACK-2).
func TestTypedStruct(t *testing.T) {
	backends := xdstest.NewBackends(t, 2, xdstest.BackendOptions{})
	control := xdstest.New(t, xdstest.Options{})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	subset := func(size float64) proto.Message {
		return testplane.WrrLocality(
			testplane.TypedStruct("myorg.MyCustomLeastRequestPolicy", map[string]any{"choiceCount": 2.}),
			testplane.TypedStruct(randomsubsetting.Name, map[string]any{
				"subsetSize": size, "childPolicy": []any{map[string]any{"round_robin": map[string]any{}}},
			}),
		)
	}
	offering(t, control, backends, subset(1))
	cc := dial(t, control.Bootstrap("n"))
	stop, done := make(chan struct{}), make(chan error)
	for range 4 {
		go func() {
			for {
				select {
				case <-stop:
					done <- nil
					return
				default:
				}
				if _, err := call(t, cc); err != nil {
					done <- err
					return
				}
			}
		}()
	}
	for i := range 6 {
		was := [2]uint64{backends[0].Calls(), backends[1].Calls()}
		if i%2 == 0 {
			offering(t, control, backends, subset(1))
		} else {
			offering(t, control, backends, testplane.WrrLocality(&roundrobinv3.RoundRobin{}))
		}
		kit.Must(t, control.WaitACK(ctx, xdstest.CDS))
		kit.WaitFor(t, "RPCs to both localities", func() bool { return backends[0].Calls() > was[0]+20 && backends[1].Calls() > was[1]+20 })
	}
	offering(t, control, backends, subset(0))
	nack, err := control.WaitNACK(ctx, xdstest.CDS)
	if err != nil || !strings.Contains(nack, randomsubsetting.Name) {
		t.Errorf("NACK %q, %v, want one that names the policy", nack, err)
	}
	close(stop)
	for range 4 {
		if err := <-done; err != nil {
			t.Errorf("an RPC failed: %v", err)
		}
	}
	reported := func() bool { // each RPC once, by either picker
		counts := control.Loads(target, target)
		for i, b := range backends {
			l := counts.Localities[xdstest.Place{Zone: string(rune('a' + i))}]
			if l.Issued != b.Calls() || l.OK != b.Calls() || l.InProgress != 0 {
				return false
			}
		}
		return true
	}
	if err := control.Wait(ctx, reported); err != nil {
		t.Errorf("%v: got %+v for %d and %d RPCs", err, control.Loads(target, target), backends[0].Calls(), backends[1].Calls())
	}
}

// TestOwnPolicyMessage: a program teaches its channels a message of its control
// plane's (A52-REG-2); channels without it take the next in the list.
func TestOwnPolicyMessage(t *testing.T) { inBubble(t, checkOwnPolicyMessage) }

func checkOwnPolicyMessage(t *testing.T, b *bubble) {
	backends, control := b.backends(2), b.control()
	offering(t, control, backends, &clusterprovidedv3.ClusterProvided{}, &roundrobinv3.RoundRobin{})
	converted := 0
	policies := new(lbpolicy.Registry).With("type.googleapis.com/envoy.extensions.load_balancing_policies.cluster_provided.v3.ClusterProvided",
		func([]byte, lbpolicy.Nested) (picker.Policy, error) {
			converted++
			return picker.Policy{Kind: picker.PolicyPickFirst, Flat: true, First: &picker.PickFirst{}}, nil
		})
	t.Cleanup(func() { time.Sleep(time.Minute) }) // of the bubble: the last reports go out when the channels are closed
	cfg := b.config(control)
	cfg.Policies = policies
	first, plain := b.dial(cfg), b.dial(b.config(control))
	for range 20 {
		if got, err := call(t, first); err != nil || got != backends[0].Addr().String() {
			t.Fatalf("RPC went to %s, %v, want the first backend", got, err)
		}
	}
	kit.WaitFor(t, "RPCs to the other backend", func() bool {
		if _, err := call(t, plain); err != nil {
			t.Fatal(err)
		}
		return backends[1].Calls() > 0
	})
	if converted != 1 {
		t.Errorf("the cluster was converted %d times, want once", converted)
	}
}
