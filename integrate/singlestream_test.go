// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

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

// TestConfigsShareStream: channels whose Configs differ in fields that do not concern the
// connection to the control plane, or the resources that are accepted from it, share one stream, also
// if the target of one names an authority with the same server.
func TestConfigsShareStream(t *testing.T) {
	changes := map[string]func(*integrate.Config){
		"nothing": func(*integrate.Config) {},
		"Overlay": func(c *integrate.Config) {
			c.Overlay = []byte(`{"patches": [{"resource": "cluster", "name": "*", "merge": {"connect_timeout": "7s"}}]}`)
		},
		"FailoverTimeout":        func(c *integrate.Config) { c.FailoverTimeout = time.Second },
		"RetireAfter":            func(c *integrate.Config) { c.RetireAfter = time.Second },
		"OverprovisioningFactor": func(c *integrate.Config) { c.OverprovisioningFactor = 140 },
		"IgnoreEndpointWeights":  func(c *integrate.Config) { c.IgnoreEndpointWeights = true },
		"DefaultMaxRequests":     func(c *integrate.Config) { c.DefaultMaxRequests = 5 },
		"HealthCheckService":     func(c *integrate.Config) { c.HealthCheckService = "s" },
		"Keepalive":              func(c *integrate.Config) { c.Keepalive = &keepalive.ClientParameters{Time: time.Minute} },
		"ReconnectOnTLSChange":   func(c *integrate.Config) { c.ReconnectOnTLSChange = true },
		"Linger":                 func(c *integrate.Config) { c.Linger = time.Minute },
		"Resources": func(c *integrate.Config) {
			c.Resources = integrate.ResourceOptions{Timeout: time.Minute, KeepDeleted: true, MaxHashBytes: 1 << 20}
		},
		"ReconnectSpread": func(c *integrate.Config) { c.ReconnectSpread = time.Minute },
		"Delta":           func(c *integrate.Config) { c.Delta = true },
		"LocalCluster":    func(c *integrate.Config) { c.LocalCluster = "fleet" },
		"RetryThrottling": func(c *integrate.Config) { c.RetryThrottling = integrate.RetryThrottling{MaxTokens: 1, TokenRatio: 1} },
		"Idempotent":      func(c *integrate.Config) { c.Idempotent = func(string) bool { return true } },
		"Logger":          func(c *integrate.Config) { c.Logger = slog.New(slog.DiscardHandler) },
	}
	separate := []string{"Bootstrap", "Policies", "ControlPlaneDialOptions"}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[integrate.Config]()) {
		if changes[field.Name] == nil && !slices.Contains(separate, field.Name) {
			t.Errorf("Config.%s is missing", field.Name)
		}
	}
	inBubble(t, func(t *testing.T, b *bubble) {
		backend := b.backends(1)
		agent := xdstest.New(t, xdstest.Options{Listen: b.net.Listen, SingleStream: true})
		const federated = "xdstp://other/envoy.config.listener.v3.Listener/" + target
		r := xdstest.Service(target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backend...)})
		r.Listeners = append(r.Listeners, xdstest.Listener(federated, target))
		set(t, agent, r)
		base := b.config(agent)
		var doc map[string]any
		if err := json.Unmarshal(base.Bootstrap, &doc); err != nil {
			t.Fatal(err)
		}
		doc["authorities"] = map[string]any{"other": map[string]any{"xds_servers": doc["xds_servers"]}}
		base.Bootstrap, _ = json.Marshal(doc)
		names := slices.Sorted(maps.Keys(changes))
		for i, one := range names {
			other := names[(i+1)%len(names)]
			first, second := base, base
			changes[one](&first)
			changes[other](&second)
			_, before := agent.Streams()
			uri := []string{"xds:///" + target, "xds://other/" + target}[i%2]
			channels := []*grpc.ClientConn{b.dialTo(first, target), b.closing(second.NewClient(uri, b.dialer()...))}
			for _, cc := range channels {
				cc.Connect()
			}
			time.Sleep(30 * time.Second)
			for _, cc := range channels {
				if _, err := call(t, cc); err != nil {
					t.Errorf("%s and %s: %v", one, other, err)
				}
			}
			if _, after := agent.Streams(); after != before+1 {
				t.Errorf("%s and %s: %d streams, want 1", one, other, after-before)
			}
			for _, cc := range channels {
				cc.Close()
			}
			time.Sleep(time.Hour)
		}
	})
}
