// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/internal/diagnosis"
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
				kit.Must(t, err)
				var channels []*grpc.ClientConn
				for _, name := range []string{"a", "b"} {
					cc, err := grpc.NewClient("xds:///"+name, append(ours, grpc.WithContextDialer(b.net.Dialer("client")),
						grpc.WithTransportCredentials(insecure.NewCredentials()))...)
					kit.Must(t, err)
					defer cc.Close()
					channels = append(channels, cc)
				}
				const restarts = 20
				for i := range restarts + 1 {
					if i > 0 {
						kit.Must(t, agent.Restart())
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
		"FailoverTimeout":       func(c *integrate.Config) { c.FailoverTimeout = time.Second },
		"RetireAfter":           func(c *integrate.Config) { c.RetireAfter = time.Second },
		"IgnoreEndpointWeights": func(c *integrate.Config) { c.IgnoreEndpointWeights = true },
		"DefaultMaxRequests":    func(c *integrate.Config) { c.DefaultMaxRequests = 5 },
		"HealthCheckService":    func(c *integrate.Config) { c.HealthCheckService = "s" },
		"Keepalive":             func(c *integrate.Config) { c.Keepalive = &keepalive.ClientParameters{Time: time.Minute} },
		"Linger":                func(c *integrate.Config) { c.Linger = time.Minute },
		"Resources": func(c *integrate.Config) {
			c.Resources = integrate.ResourceOptions{Timeout: time.Minute, KeepDeleted: true, MaxHashBytes: 1 << 20}
		},
		"ReconnectSpread":     func(c *integrate.Config) { c.ReconnectSpread = time.Minute },
		"Delta":               func(c *integrate.Config) { c.Delta = true },
		"LocalCluster":        func(c *integrate.Config) { c.LocalCluster = "fleet" },
		"RetryThrottling":     func(c *integrate.Config) { c.RetryThrottling = integrate.RetryThrottling{MaxTokens: 1, TokenRatio: 1} },
		"IgnoreOverlayErrors": func(c *integrate.Config) { c.IgnoreOverlayErrors = true },
		"Idempotent":          func(c *integrate.Config) { c.Idempotent = func(string) bool { return true } },
		"Logger":              func(c *integrate.Config) { c.Logger = slog.New(slog.DiscardHandler) },
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
		r := service(backend...)
		r.Listeners = append(r.Listeners, xdstest.Listener(federated, target))
		set(t, agent, r)
		base := b.config(agent)
		var doc map[string]any
		kit.Must(t, json.Unmarshal(base.Bootstrap, &doc))
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

// TestDisplacedStreams: clients that displace each other's streams log that once, with cause and
// remedy, and again once it is over; Status and the problems of the debug page contain it. This
// holds for two XdsClients of the process and for a foreign client of Istio's agent, in both ADS variants.
// Without another client of the process and without the agent, streams that end are not called displaced.
func TestDisplacedStreams(t *testing.T) {
	for _, tt := range []struct {
		delta, foreign, agent bool
		other                 string
	}{
		{false, false, false, "another XdsClient of this process"}, {true, false, false, "another XdsClient of this process"},
		{false, true, true, "unknown"}, {true, true, true, "unknown"}, {false, true, false, ""}, {true, true, false, ""},
	} {
		t.Run(fmt.Sprintf("delta=%t,foreign=%t,agent=%t", tt.delta, tt.foreign, tt.agent), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				agent := xdstest.New(t, xdstest.Options{Listen: b.net.Listen, SingleStream: true})
				set(t, agent, service(b.backends(1)...))
				var log kit.Logs
				cfg := b.config(agent)
				cfg.Delta, cfg.Logger = tt.delta, slog.New(slog.NewTextHandler(&log, nil))
				if tt.agent { // as Istio's agent writes it
					cfg.Bootstrap = []byte(`{"xds_servers": [{"server_uri": "unix:///etc/istio/proxy/XDS", "channel_creds": [{"type": "insecure"}]}],
						"node": {"id": "n", "metadata": {"GENERATOR": "grpc"}}}`)
					cfg.ControlPlaneDialOptions = []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
						return b.net.Dial(ctx, agent.Addr())
					})}
				}
				begins, ends, problemText := "streams displace", "no longer displaced", "displace the client's"
				if tt.other == "" {
					begins, ends, problemText = "ends each stream in order", "no longer ends each stream", "ends each stream in order"
				}
				cc := b.dial(cfg)
				succeed(t, cc)
				stop := b.occupy(agent, 0)
				if !tt.foreign {
					stop()
					other := b.config(agent) // with dial options of its own
					other.Delta, other.Logger = tt.delta, slog.New(slog.DiscardHandler)
					second := b.dial(other)
					second.Connect()
					stop = func() { second.Close() }
				}
				displaced := func(lines, closings int) {
					t.Helper()
					synctest.Wait()
					if n, m := strings.Count(log.String(), begins), strings.Count(log.String(), ends); n != lines || m != closings {
						t.Errorf("%d and %d lines, want %d and %d:\n%s", n, m, lines, closings, log.String())
					}
					s, err := integrate.StatusOf(cc)
					kit.Must(t, err)
					problem := slices.ContainsFunc(diagnosis.Find(&s), func(f diagnosis.Finding) bool { return strings.Contains(f.Text, problemText) })
					on, server := lines > closings, &s.Servers[0]
					if !server.Displaced.IsZero() != (on && tt.other != "") || !server.EndsStreams.IsZero() != (on && tt.other == "") || problem != on {
						t.Errorf("Status has displaced streams since %v, ending ones since %v, and the problems: %v; want %v", server.Displaced, server.EndsStreams, problem, on)
					}
					if tt.other == "" && strings.Contains(log.String()+fmt.Sprint(diagnosis.Find(&s)), "displace") {
						t.Errorf("streams are called displaced: %v\n%s", diagnosis.Find(&s), log.String())
					}
				}
				displaced(0, 0)
				time.Sleep(20 * time.Second)
				displaced(1, 0)
				time.Sleep(4 * time.Minute)
				displaced(1, 0)
				texts := []string{"level=WARN", "other=\"" + tt.other, "cause=", "XDSLB_ENABLE", "google.golang.org/grpc/xds", "several processes"}
				if tt.other == "" {
					texts = []string{"level=WARN", "cause=", "by itself", "another process", "log of the server"}
				}
				for _, want := range texts {
					if tt.other == "unknown" {
						want = strings.ReplaceAll(want, "other=\"", "other=")
					}
					if !strings.Contains(log.String(), want) {
						t.Errorf("no %q in the log:\n%s", want, log.String())
					}
				}
				stop()
				time.Sleep(5 * time.Minute)
				displaced(1, 1)
			})
		})
	}
}

// TestRotatedStreams: a server that limits the age of streams displaces nothing.
func TestRotatedStreams(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		server := xdstest.New(t, xdstest.Options{Listen: b.net.Listen, SingleStream: true})
		set(t, server, service(b.backends(1)...))
		var log kit.Logs
		cfg := b.config(server)
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		cc := b.dial(cfg)
		for range 20 {
			succeed(t, cc)
			b.occupy(server, 1)() // ends the stream in order
			time.Sleep(10 * time.Second)
		}
		if _, total := server.Streams(); total < 30 || strings.Contains(log.String(), "displace") {
			t.Errorf("%d streams, want 30 or more without displacement:\n%s", total, log.String())
		}
	})
}

// occupy opens ADS streams like a client that reconnects at once, n times, or until it is stopped if
// n is 0.
func (b *bubble) occupy(server *xdstest.Server, n int) (stop func()) {
	cc, err := grpc.NewClient("passthrough:///"+server.Addr(), b.dialer()...)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil && (n == 0 || i < n); i++ {
			st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(cc).StreamAggregatedResources(ctx)
			if err != nil {
				continue
			}
			_ = st.Send(&discoveryv3.DiscoveryRequest{TypeUrl: xdstest.LDS, ResourceNames: []string{target}, Node: &corev3.Node{Id: "other"}})
			for err == nil {
				_, err = st.Recv()
				if n > 0 {
					break
				}
			}
		}
	}()
	if n > 0 {
		<-done
	}
	return func() { cancel(); <-done; cc.Close() }
}

// TestOtherSchemes checks that without a bootstrap, targets of other schemes work as with
// grpc.NewClient, with and without a Config, so that one helper can make all channels of a
// program. Targets of schemes xds and xdslb are refused.
func TestOtherSchemes(t *testing.T) {
	t.Setenv("GRPC_XDS_BOOTSTRAP", "")
	t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", "")
	creds := grpc.WithTransportCredentials(insecure.NewCredentials())
	addr := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})[0].Addr().String()
	for name, dial := range map[string]func(string, ...grpc.DialOption) (*grpc.ClientConn, error){
		"NewClient": integrate.NewClient, "Config.NewClient": integrate.Config{IgnoreEndpointWeights: true}.NewClient,
	} {
		for _, target := range []string{"dns:///" + addr, "passthrough:///" + addr, addr} {
			cc, err := dial(target, creds)
			if err != nil {
				t.Errorf("%s: %s: %v", name, target, err)
				continue
			}
			if _, err := call(t, cc); err != nil {
				t.Errorf("%s: %s: %v", name, target, err)
			}
			_ = cc.Close()
		}
		for _, target := range []string{"xds:///x", "XDS:///x", "xdslb:///x", "xds://authority/x"} {
			if _, err := dial(target, creds); err == nil || !strings.Contains(err.Error(), "GRPC_XDS_BOOTSTRAP") {
				t.Errorf("%s: %s without a bootstrap: %v", name, target, err)
			}
		}
	}
}

// TestBuilderHasOneScheme: a builder of NewBuilder, which serves scheme xds, does not serve scheme
// xdslb: an RPC fails, and the log names the remedy.
func TestBuilderHasOneScheme(t *testing.T) {
	t.Setenv("GRPC_XDS_BOOTSTRAP", "")
	t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", "")
	b, err := integrate.NewBuilder(integrate.Config{Bootstrap: xdstest.New(t, xdstest.Options{}).Bootstrap("n")})
	kit.Must(t, err)
	cc, err := grpc.NewClient("xdslb:///x", grpc.WithResolvers(b), grpc.WithTransportCredentials(insecure.NewCredentials()))
	kit.Must(t, err)
	defer func() { _ = cc.Close() }()
	if _, err := call(t, cc); err == nil || !strings.Contains(err.Error(), "integrate.DialOptions") {
		t.Errorf("RPC of a channel of scheme xdslb with a builder of scheme xds: %v", err)
	}
	logs.WantOne(t, "scheme xdslb", "integrate.NewBuilder", "integrate.DialOptions")
}

// TestResolverOfOthers: a channel that has our interceptors, and the resolver of another package
// for scheme xds, logs that once, and its RPCs pass.
func TestResolverOfOthers(t *testing.T) {
	theirs := manual.NewBuilderWithScheme("xds")
	theirs.InitialState(resolver.State{Addresses: []resolver.Address{{Addr: xdstest.NewBackends(t, 1, xdstest.BackendOptions{})[0].Addr().String()}}})
	cc, err := grpc.NewClient("xds:///others.log.test", grpc.WithResolvers(theirs), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(integrate.UnaryInterceptor))
	kit.Must(t, err)
	defer func() { _ = cc.Close() }()
	kit.WaitFor(t, "READY", func() bool {
		cc.Connect()
		return cc.GetState() == connectivity.Ready
	})
	for range 2 {
		if _, err := call(t, cc); err != nil {
			t.Error(err)
		}
	}
	logs.WantOne(t, "others.log.test", "resolver of another package")
}
