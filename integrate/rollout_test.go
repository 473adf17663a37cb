// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"errors"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/debug"
	"github.com/xdslb/xdslb/integrate/internal/rollout"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// brokenStock is a resolver builder for scheme xds that builds no resolver, as that of
// google.golang.org/grpc/xds in a program without a bootstrap.
type brokenStock struct{}

func (brokenStock) Scheme() string { return "xds" }

func (brokenStock) Build(resolver.Target, resolver.ClientConn, resolver.BuildOptions) (resolver.Resolver, error) {
	return nil, errors.New("no bootstrap for stock")
}

// cannotHandOver runs a test in a program without stock, and in one whose stock builds no
// resolver, with each variable selecting stock. cause is part of the reason.
func cannotHandOver(t *testing.T, test func(t *testing.T, variable, name, cause string)) {
	before := rollout.Earlier
	defer func() { rollout.Earlier = before }()
	for cause, stock := range map[string]resolver.Builder{"import google.golang.org/grpc/xds": nil, "no bootstrap for stock": brokenStock{}} {
		for variable, value := range map[string]string{"XDSLB_DISABLE": "all", "XDSLB_ENABLE": "other"} {
			t.Run(fmt.Sprintf("%s stock=%v", variable, stock != nil), func(t *testing.T) {
				rollout.Earlier = stock
				t.Setenv(variable, value)
				test(t, variable, fmt.Sprintf("%s.%v.rollback.test", strings.ToLower(variable), stock != nil), cause)
			})
		}
	}
}

// metricsOfRollout returns the counts of channels that were and were not handed over.
func metricsOfRollout(m *kit.Recorder, name, variable string) [2]float64 {
	return [2]float64{m.Sum("xdslb.client.channels_handed_over", "xds:///"+name, variable), m.Sum("xdslb.client.channels_not_handed_over", "xds:///"+name, variable)}
}

// TestNotHandedOver checks that a channel which stock cannot serve uses xdslb, so that a
// roll-back is no outage: its RPCs succeed, the log has one error, and status, debug page and
// metrics have the variable and the reason.
func TestNotHandedOver(t *testing.T) {
	backends, control := start(t, 1)
	cannotHandOver(t, func(t *testing.T, variable, name, cause string) {
		set(t, control, xdstest.Service(name, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)}))
		metrics := &kit.Recorder{}
		for range 2 {
			cc, err := integrate.Config{Bootstrap: control.Bootstrap("n"), Linger: -1}.NewClient("xds:///"+name,
				grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStatsHandler(metrics))
			kit.Must(t, err)
			defer func() { _ = cc.Close() }()
			if err := integrate.WaitReady(t.Context(), cc, "/a/b"); err != nil {
				t.Error(err)
			}
			if _, err := call(t, cc); err != nil {
				t.Error(err)
			}
			s := statusOf(t, cc)
			if s.Stock != "" || s.Rollout == nil || s.Rollout.Variable != variable || !strings.Contains(s.Rollout.Failed, cause) {
				t.Errorf("status: stock %q, rollout %+v, want %q", s.Stock, s.Rollout, cause)
			}
			page := httptest.NewRecorder()
			debug.Handler().ServeHTTP(page, httptest.NewRequest(http.MethodGet, fmt.Sprintf("http://localhost/?channel=%d", s.Channel), nil))
			if text := html.UnescapeString(page.Body.String()); !strings.Contains(text, "not handed to google.golang.org/grpc/xds, although "+s.Rollout.Why()) || !strings.Contains(text, cause) {
				t.Errorf("the debug page lacks %q and %s", cause, variable)
			}
		}
		if got := metricsOfRollout(metrics, name, variable); got != [2]float64{0, 2} {
			t.Errorf("the metrics count %v channels handed over, and not; want 0 and 2", got)
		}
		logs.WantOne(t, "ERROR xdslb: channels of a target stay with xdslb", name, variable, cause)
	})
}

// TestServedByNeither checks that a channel which neither stock nor xdslb can serve is in the
// status and the metrics, with an error that has both reasons, and that WaitReady returns it.
func TestServedByNeither(t *testing.T) {
	t.Setenv("GRPC_XDS_BOOTSTRAP", "")
	t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", "{")
	creds := grpc.WithTransportCredentials(insecure.NewCredentials())
	cannotHandOver(t, func(t *testing.T, variable, name, cause string) {
		for way, dial := range map[string]func(string, ...grpc.DialOption) (*grpc.ClientConn, error){"NewClient": integrate.NewClient, "blank import": grpc.NewClient} {
			metrics := &kit.Recorder{}
			cc, err := dial("xds:///"+name, creds, grpc.WithStatsHandler(metrics))
			kit.Must(t, err)
			_, failed := call(t, cc)
			s := statusOf(t, cc)
			for source, err := range map[string]error{"RPC": failed, "WaitReady": integrate.WaitReady(t.Context(), cc, "/a/b"), "status": errors.New(s.Error)} {
				for _, want := range []string{variable, "GRPC_XDS_BOOTSTRAP_CONFIG", cause} {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("%s: %s: error %v, want %q in it", way, source, err, want)
					}
				}
			}
			if all := integrate.Status(); len(all) != 1 || all[0].Target != "xds:///"+name || all[0].Connectivity != "TRANSIENT_FAILURE" {
				t.Errorf("%s: Status() = %+v", way, all)
			}
			if got := metricsOfRollout(metrics, name, variable); got != [2]float64{0, 1} {
				t.Errorf("%s: the metrics count %v channels handed over, and not; want 0 and 1", way, got)
			}
			_ = cc.Close()
			kit.WaitFor(t, "no channel", func() bool { return len(integrate.Channels()) == 0 })
		}
	})
}

// TestMalformedPattern checks that a malformed pattern is logged once as an error, and that the
// other patterns count.
func TestMalformedPattern(t *testing.T) {
	control := xdstest.New(t, xdstest.Options{})
	set(t, control, service(xdstest.NewBackends(t, 1, xdstest.BackendOptions{})...))
	for _, tt := range []struct {
		variable, value string
		decides         bool
	}{
		{"XDSLB_DISABLE", "[e2e, other", true},
		{"XDSLB_ENABLE", "e2e.[, other", true},
		{"XDSLB_ENABLE", "[b, " + target, false},
	} {
		t.Run(tt.variable+" "+tt.value, func(t *testing.T) {
			t.Setenv(tt.variable, tt.value)
			for range 2 {
				cc := dial(t, control.Bootstrap("n"))
				if _, err := call(t, cc); err != nil {
					t.Error(err)
				}
				if s := statusOf(t, cc); s.Stock != "" || (s.Rollout != nil) != tt.decides || tt.decides && !s.Rollout.Malformed {
					t.Errorf("rollout %+v, want it to be decided by the malformed pattern: %v", s.Rollout, tt.decides)
				}
			}
			pattern, _, _ := strings.Cut(tt.value, ",")
			logs.WantOne(t, "environment variable with a malformed pattern", tt.variable+" has the malformed pattern "+strconv.Quote(pattern))
		})
	}
}

// TestDisabledBootstrap checks that with one of the variables, a missing bootstrap fails only the
// channels that use xdslb: their RPCs, WaitReady and the status have the error.
func TestDisabledBootstrap(t *testing.T) {
	t.Setenv("GRPC_XDS_BOOTSTRAP", "")
	t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", "")
	t.Setenv("XDSLB_DISABLE", "other")
	cc, err := integrate.NewClient("xds:///bootstrap.rollback.test", grpc.WithTransportCredentials(insecure.NewCredentials()))
	kit.Must(t, err)
	defer func() { _ = cc.Close() }()
	if _, err := call(t, cc); err == nil || !strings.Contains(err.Error(), "GRPC_XDS_BOOTSTRAP") {
		t.Errorf("RPC of a channel that is ours, without a bootstrap: %v", err)
	}
	ctx := minute(t)
	if err := integrate.WaitReady(ctx, cc, "/a/b"); err == nil || ctx.Err() != nil {
		t.Errorf("WaitReady: %v, want an error at once", err)
	}
	if s := statusOf(t, cc); !strings.Contains(s.Error, "GRPC_XDS_BOOTSTRAP") || s.Rollout != nil {
		t.Errorf("the status is %+v, want the error", s)
	}
}

// TestNotUnderstood checks that values which xdslb does not understand, and patterns of XDSLB_DISABLE
// that match no channel, are errors of the status and of the debug page, with the accepted forms, for
// channels of xdslb and channels that use stock.
func TestNotUnderstood(t *testing.T) {
	control := xdstest.New(t, xdstest.Options{})
	set(t, control, service(xdstest.NewBackends(t, 1, xdstest.BackendOptions{})...))
	for variable, value := range map[string]string{"XDSLB_DISABLE": "yes", "XDSLB_ENABLE": "on, " + target, "XDSLB_DISABLE ": "gree*er-typo", "XDSLB_IGNORE_ENDPOINT_WEIGHTS": "yes"} {
		variable = strings.TrimSpace(variable)
		t.Run(variable+"="+value, func(t *testing.T) {
			t.Setenv(variable, value)
			cc := dial(t, control.Bootstrap("n"))
			if _, err := call(t, cc); err != nil {
				t.Error(err)
			}
			first, _, _ := strings.Cut(value, ",")
			s := statusOf(t, cc)
			page := httptest.NewRecorder()
			debug.Handler().ServeHTTP(page, httptest.NewRequest(http.MethodGet, fmt.Sprintf("http://localhost/?channel=%d", s.Channel), nil))
			for where, text := range map[string]string{"status": strings.Join(s.EnvironmentErrors, "; "), "page": html.UnescapeString(page.Body.String())} {
				for _, want := range []string{variable, strconv.Quote(first), "use "} {
					if !strings.Contains(text, want) {
						t.Errorf("the %s lacks %q: %.300s", where, want, text)
					}
				}
			}
		})
	}
}

// TestIgnoreWeightsByEnvironment checks that XDSLB_IGNORE_ENDPOINT_WEIGHTS=1 gives endpoints of unequal
// weights equal shares, as Config.IgnoreEndpointWeights does.
func TestIgnoreWeightsByEnvironment(t *testing.T) {
	backends, control := start(t, 2)
	endpoints := xdstest.BackendEndpoints(backends...)
	endpoints[0].Weight, endpoints[1].Weight = 1, 3
	set(t, control, xdstest.Service(target, xdstest.Locality{Endpoints: endpoints}))
	for value, want := range map[string]float64{"1": 0.5, "true": 0.5, "0": 0.25, "": 0.25} {
		t.Setenv("XDSLB_IGNORE_ENDPOINT_WEIGHTS", value)
		cc := dial(t, control.Bootstrap("n"))
		kit.Must(t, integrate.WaitReady(t.Context(), cc, "/a/b"))
		shares := map[string]float64{}
		kit.WaitFor(t, "both endpoints", func() bool {
			clear(shares)
			i := slices.IndexFunc(integrate.Channels(), func(c integrate.Channel) bool { return c.Number() == statusOf(t, cc).Channel })
			x := integrate.Channels()[i].Inspect()
			for _, c := range x.Clusters {
				for _, l := range c.Leaves {
					for _, p := range l.Priorities {
						for _, loc := range p.Localities {
							for _, e := range loc.Endpoints {
								shares[e.Address] = e.Share
							}
						}
					}
				}
			}
			return len(shares) == 2 && shares[endpoints[0].Addr.String()] > 0 && shares[endpoints[1].Addr.String()] > 0
		})
		if got := shares[endpoints[0].Addr.String()]; got != want {
			t.Errorf("value %q: the endpoint of weight 1 of 4 has share %v, want %v", value, got, want)
		}
	}
}

// TestLossesAreLogged checks that a channel logs once for its target the features that would lose
// RPCs after a roll-back, with the feature and the remedy; and that it logs nothing without such
// features, or if the program does not link the package to return to. bench/rollout verifies the claims against that package.
func TestLossesAreLogged(t *testing.T) {
	const line = "WARN xdslb: a roll-back to google.golang.org/grpc/xds by XDSLB_DISABLE would lose RPCs"
	before := rollout.Earlier
	defer func() { rollout.Earlier = before }()
	for _, tt := range []struct {
		name, target string
		stock        resolver.Builder
		maglev       bool // which stock rejects
		want         int
	}{
		{"losses", "losses.test", brokenStock{}, true, 1},
		{"without losses", "none.losses.test", brokenStock{}, false, 0},
		{"without stock", "unlinked.losses.test", nil, true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rollout.Earlier = tt.stock
			inBubble(t, func(t *testing.T, b *bubble) {
				control, log := b.control(), &kit.Logs{}
				r := xdstest.Service(tt.target, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(b.backends(1)...)})
				if tt.maglev {
					r.Clusters[0].LbPolicy = clusterv3.Cluster_MAGLEV
				}
				set(t, control, r)
				cfg := b.config(control)
				cfg.Logger = slog.New(log)
				channel := func() {
					cc := b.dialTo(cfg, tt.target)
					succeed(t, cc)
					if s, err := integrate.StatusOf(cc); err != nil || (len(s.StockDifferences) > 0 && s.StockDifferences[0].LosesRPCs) != tt.maglev {
						t.Errorf("the status has %+v (%v)", s.StockDifferences, err)
					}
				}
				channel()
				channel()
				time.Sleep(time.Minute)
				for range 2 {
					r.Routes[0].VirtualHosts[0].Routes[0].Name += "x" // another configuration
					set(t, control, r)
					time.Sleep(2 * time.Minute)
				}
				if found := log.With(line, "target=xds:///"+tt.target, "Cluster "+tt.target+": lb_policy: MAGLEV", "remedy=have the control plane"); len(found) != tt.want || len(log.With("would lose RPCs")) != tt.want {
					t.Errorf("%d lines, want %d:\n%s", len(found), tt.want, log)
				}
			})
		})
	}
}

// TestLossesAsTheyComeIntoUse checks that each feature with which a roll-back would lose RPCs is logged
// when the control plane begins to send it, also if another one is in use already, and that the metric has
// their number until they are gone.
func TestLossesAsTheyComeIntoUse(t *testing.T) {
	const name, line = "losses-later.test", "WARN xdslb: a roll-back to google.golang.org/grpc/xds by XDSLB_DISABLE would lose RPCs"
	before := rollout.Earlier
	defer func() { rollout.Earlier = before }()
	rollout.Earlier = brokenStock{}
	inBubble(t, func(t *testing.T, b *bubble) {
		control, log, metrics := b.control(), &kit.Logs{}, &kit.Recorder{}
		r := xdstest.Service(name, xdstest.Locality{Endpoints: xdstest.BackendEndpoints(b.backends(1)...)})
		cfg := b.config(control)
		cfg.Logger = slog.New(log)
		expect := func(when string, features float64, lines ...string) {
			t.Helper()
			set(t, control, r)
			time.Sleep(2 * time.Minute)
			if got := metrics.Sum("xdslb.client.rollback_losses", "xds:///"+name); got != features {
				t.Errorf("%s: the metric is %v, want %v", when, got, features)
			}
			found := log.With(line)
			if len(found) != len(lines) {
				t.Fatalf("%s: %d lines, want %d: %s", when, len(found), len(lines), log)
			}
			for i, want := range lines {
				if !strings.Contains(found[i], want) {
					t.Errorf("%s: line %s, want %q", when, found[i], want)
				}
			}
		}
		set(t, control, r)
		cc := b.dialTo(cfg, name, grpc.WithStatsHandler(metrics))
		succeed(t, cc)
		expect("without such features", 0)
		r.Clusters[0].LbPolicy = clusterv3.Cluster_MAGLEV
		expect("MAGLEV", 1, "features=a Cluster that grpc-go rejects")
		r.Listeners[0] = xdstest.Listener(name, name, httpFilter(t, "session", sticky(t, "")))
		expect("a session filter too", 2, "Cluster", "features=a Listener that grpc-go rejects")
		r.Clusters[0].LbPolicy = clusterv3.Cluster_ROUND_ROBIN
		expect("without MAGLEV", 1, "Cluster", "Listener")
	})
}
