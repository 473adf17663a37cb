// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/sercand/kuberesolver/v6"
	"google.golang.org/grpc/resolver"
)

// TestKuberesolver sends kuberesolver the events of a service with 1,000 pods in 12
// EndpointSlices: the slices, and then a change of one pod. It publishes only the slice of the last
// event, 83 or 84 endpoints. TestThousandPods of integrate/kubernetes has the same pods, and more
// changes. If this test fails because kuberesolver publishes all endpoints, remove it.
func TestKuberesolver(t *testing.T) {
	slices := make([]map[string]any, 12)
	endpoints := make([][]any, 12)
	for i := range 1000 {
		pod := map[string]any{"addresses": []string{fmt.Sprintf("10.1.%d.%d", i/250, i%250)}, "conditions": map[string]bool{"ready": true}}
		endpoints[i%12] = append(endpoints[i%12], pod)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		send := func(typ string, i int) {
			slices[i] = map[string]any{
				"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": "IPv4",
				"metadata": map[string]any{"name": fmt.Sprint("orders-", i), "namespace": "shop"},
				"ports":    []any{map[string]any{"name": "grpc", "port": 9000}}, "endpoints": endpoints[i],
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"type": typ, "object": slices[i]})
		}
		for i := range slices {
			send("ADDED", i)
		}
		endpoints[5] = endpoints[5][1:]
		send("MODIFIED", 5)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()

	cc := &recorder{states: make(chan resolver.State, 100)}
	target := resolver.Target{URL: url.URL{Scheme: "kubernetes", Path: "/orders.shop:grpc"}}
	r, err := kuberesolver.NewBuilder(kuberesolver.NewInsecureK8sClient(server.URL), "kubernetes").Build(target, cc, resolver.BuildOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n := 0
	for i := range 13 {
		select {
		case s := <-cc.states:
			n = len(s.Addresses)
		case <-time.After(time.Minute):
			t.Fatalf("%d states in a minute, want 13", i)
		}
	}
	if n != len(endpoints[5]) {
		t.Errorf("kuberesolver publishes %d of 999 endpoints, not the %d of the last event's slice", n, len(endpoints[5]))
	}
}

// recorder is the channel of a resolver.
type recorder struct {
	resolver.ClientConn
	states chan resolver.State
}

func (r *recorder) UpdateState(s resolver.State) error {
	r.states <- s
	return nil
}
