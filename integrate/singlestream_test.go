// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestSingleStream: two targets share one stream, so that both work behind an agent of Istio's, which
// ends a client's stream when another one opens: all RPCs succeed through 20 restarts of the agent.
func TestSingleStream(t *testing.T) {
	for _, delta := range []bool{false, true} {
		t.Run(fmt.Sprintf("delta=%t", delta), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				backends := b.backends(2)
				agent := xdstest.New(t, xdstest.Options{Listen: b.net.Listen, SingleStream: true})
				r := xdstest.Service("a", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends[0])})
				r.Add(xdstest.Service("b", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends[1])}))
				set(t, agent, r)
				cfg := b.config(agent)
				cfg.Delta = delta
				ours, err := integrate.DialOptions(cfg)
				if err != nil {
					t.Fatal(err)
				}
				var channels []*grpc.ClientConn
				for _, name := range []string{"a", "b"} {
					cc, err := grpc.NewClient("xds:///"+name, append(ours, grpc.WithContextDialer(b.net.Dialer("client")),
						grpc.WithTransportCredentials(insecure.NewCredentials()))...)
					if err != nil {
						t.Fatal(err)
					}
					defer cc.Close()
					channels = append(channels, cc)
				}
				const restarts = 20
				for i := range restarts + 1 {
					if i > 0 {
						if err := agent.Restart(); err != nil {
							t.Fatal(err)
						}
					}
					for range 40 {
						for j, cc := range channels {
							if got, err := call(t, cc); err != nil || got != backends[j].Addr().String() {
								t.Fatalf("after %d restarts, an RPC of channel %d: %q, %v", i, j, got, err)
							}
						}
						time.Sleep(time.Second / 2)
					}
				}
				if _, total := agent.Streams(); total != restarts+1 {
					t.Errorf("%d streams, want one for each of %d starts of the agent", total, restarts+1)
				}
			})
		})
	}
}
