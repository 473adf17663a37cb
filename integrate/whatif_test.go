// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"net/netip"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/picker"
)

// updateGolden writes what is tested, after a change of the text.
var updateGolden = flag.Bool("explain.update", false, "write testdata/explain.golden")

// shop is what TestExplainText asks.
func shop(t testing.TB) WhatIf {
	text, err := os.ReadFile("testdata/explain.json")
	if err != nil {
		t.Fatal(err)
	}
	return WhatIf{
		Target: "xds:///shop", Method: "/shop.Cart/Add", Resources: text,
		States: map[netip.AddrPort]connectivity.State{
			netip.MustParseAddrPort("10.0.0.1:80"): failure,
			netip.MustParseAddrPort("10.0.1.2:80"): connecting,
			netip.MustParseAddrPort("10.0.2.2:80"): failure,
		},
	}
}

// TestExplainText: the text of an explanation is what testdata/explain.golden has, in lines
// of 80 columns, and JSON carries all that the text says.
func TestExplainText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := metadata.AppendToOutgoingContext(context.Background(), "X-User", "bob")
		x, err := ExplainWhatIf(ctx, shop(t))
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if n, err := x.WriteTo(&text); err != nil || int(n) != text.Len() {
			t.Errorf("WriteTo wrote %d bytes of %d: %v", n, text.Len(), err)
		}
		if *updateGolden {
			if err := os.WriteFile("testdata/explain.golden", []byte(text.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile("testdata/explain.golden")
		if err != nil || text.String() != string(want) {
			t.Errorf("the text is not that of testdata/explain.golden (-explain.update writes it): %v\n%s", err, text.String())
		}
		for line := range strings.Lines(text.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
		js, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		var back report.Explanation
		if err := json.Unmarshal(js, &back); err != nil || !reflect.DeepEqual(&back, x) {
			t.Errorf("JSON\n%s\nis read as\n%v: %v", js, &back, err)
		}
	})
}

// TestExplainWhatIfResources: resources are found wherever they are in a file, and what is
// wrong with it is an error that says where.
func TestExplainWhatIfResources(t *testing.T) {
	const (
		listener = `{"@type":"type.googleapis.com/envoy.config.listener.v3.Listener","name":"a","apiListener":{"apiListener":{` +
			`"@type":"type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",` +
			`"httpFilters":[{"name":"r","typedConfig":{"@type":"type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],` +
			`"routeConfig":{"name":"r","virtualHosts":[{"domains":["*"],"routes":[{"match":{"prefix":""},"route":{"cluster":"c"}}]}]}}}}`
		cluster   = `{"name":"c","type":"EDS","edsClusterConfig":{"edsConfig":{"ads":{}}}}`
		bad       = `{"name":"c","type":"STATIC"}`
		dns       = `{"name":"c","type":"LOGICAL_DNS","loadAssignment":{"endpoints":[{"lbEndpoints":[{"endpoint":{"address":{"socketAddress":{"address":"h","portValue":80}}}}]}]}}`
		aggregate = `{"name":"c","clusterType":{"name":"envoy.clusters.aggregate","typedConfig":{` +
			`"@type":"type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig","clusters":["d"]}}}`
		collected = `{"clusterName":"c","endpoints":[{"locality":{"zone":"z"},"loadBalancingWeight":1,"ledsClusterLocalityConfig":{` +
			`"ledsConfig":{"ads":{}},"ledsCollectionName":"xdstp://b/envoy.config.endpoint.v3.LbEndpoint/e/*"}}]}`
		member = `{"name":"xdstp://b/envoy.config.endpoint.v3.LbEndpoint/e/1","resource":{"@type":"type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint",` +
			`"endpoint":{"address":{"socketAddress":{"address":"10.0.0.1","portValue":80}}}}}`
	)
	for _, row := range []struct {
		name, resources, want string // in the error or the text
	}{
		{"DiscoveryResponse, and a list", `{"versionInfo":"1","resources":[` + listener + `]} {"cds":[` + cluster + `],"eds":[{"clusterName":"c"}]}`, "no targets to pick from"},
		{"CSDS", `{"config":[{"genericXdsConfigs":[{"xdsConfig":` + listener + `}]}]}`, `Cluster "c" is not among the resources`},
		{"no endpoints", listener + `{"clusters":[` + cluster + `]}`, `ClusterLoadAssignment "c" is not among the resources`},
		{"DNS cluster", listener + `{"clusters":[` + dns + `]}`, "names are not looked up"},
		{"aggregate of nothing", listener + `{"clusters":[` + aggregate + `]}`, `Cluster "d" is not among the resources`},
		{"empty collection", listener + `{"clusters":[` + cluster + `],"endpoints":[` + collected + `]}`, `LbEndpoint "xdstp://b/envoy.config.endpoint.v3.LbEndpoint/e/*" is not among the resources`},
		{"collection", listener + `{"clusters":[` + cluster + `],"endpoints":[` + collected + `]}` + member, "10.0.0.1:80 100 %, READY"},
		{"bad cluster", listener + `{"clusters":[` + bad + `]}`, `must be EDS or LOGICAL_DNS (it is STATIC)`},
		{"no listener", `{"cds":[` + cluster + `]}`, `Listener "a" is not among the resources`},
		{"nothing", `{}`, "there are none"},
		{"twice", listener + listener, `Listener "a" occurs twice`},
		{"no JSON", `{"a":`, "document 1: unexpected EOF"},
		{"no such field's type", `{"x":{"clusters":[{"name":1}]}}`, "$.x.clusters[0]"},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			x, err := ExplainWhatIf(context.Background(), WhatIf{Target: "xds:///a", Method: "/s/m", Resources: []byte(row.resources)})
			if d := time.Since(begin); d > 0 {
				t.Errorf("%s: took %v: a timer had to expire", row.name, d)
			}
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				got = strings.Join(strings.Fields(x.String()), " ")
			}
			if !strings.Contains(got, row.want) {
				t.Errorf("%s: %q lacks %q", row.name, got, row.want)
			}
		})
	}
}

// TestExplainManyRoutes: an RPC that may take each of many routes costs no more for each
// than one that may take a few.
func TestExplainManyRoutes(t *testing.T) {
	allocations := func(routes int) float64 {
		cfg := configOf(clusterOf("c", prio(eps(1))))
		fraction := uint32(1)
		some := cfg.Routes[0]
		some.Fraction = &fraction
		cfg.Routes = append(slices.Repeat([]picker.Route{some}, routes), cfg.Routes...)
		return testing.AllocsPerRun(1, func() {
			s, err := simulate(cfg, options{}.withDefaults(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if x, err := lookRPC(context.Background(), s.lb, "/s/m"); err != nil || len(x.Routes) != routes+1 {
				t.Fatalf("explained: %v, %v", x, err)
			}
		})
	}
	if few, many := allocations(50), allocations(500); many > 15*few {
		t.Errorf("50 routes take %v allocations, 500 take %v", few, many)
	}
}

// TestExplainWhatIfTargets: targets name a listener as gRPC reads them.
func TestExplainWhatIfTargets(t *testing.T) {
	for _, target := range []string{"xds:///shop", "xds:shop", "xdslb:/shop", "xdslb:///shop"} {
		w := shop(t)
		w.Target = target
		if _, err := ExplainWhatIf(context.Background(), w); err != nil {
			t.Errorf("target %q: %v", target, err)
		}
	}
}

// TestExplainWhatIfNested: a file that nests objects with long names takes memory in
// proportion to its size.
func TestExplainWhatIfNested(t *testing.T) {
	const depth = 2000
	key := `{"` + strings.Repeat("k", 1000) + `":`
	w := shop(t)
	w.Resources = append(w.Resources, strings.Repeat(key, depth)+"1"+strings.Repeat("}", depth)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := ExplainWhatIf(context.Background(), w); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := (after.TotalAlloc - before.TotalAlloc) / uint64(len(w.Resources)); took > 100 {
		t.Errorf("a byte of the file takes %d bytes of memory", took)
	}
}

// TestPickWhatIf: picks by resources of a file go as InspectWhatIf has the shares, and each
// is accounted for.
func TestPickWhatIf(t *testing.T) {
	w := shop(t)
	const n = 20_000
	picks, err := PickWhatIf(context.Background(), w, n)
	if err != nil {
		t.Fatal(err)
	}
	s, err := InspectWhatIf(w)
	if err != nil {
		t.Fatal(err)
	}
	byCluster, got := map[string]float64{}, map[string]float64{}
	sum := picks.Waiting + picks.Failed + picks.NoRoute + picks.Refused + picks.Delegated
	for _, e := range picks.Endpoints {
		sum += e.RPCs
		byCluster[e.Cluster] += float64(e.RPCs)
		got[e.Cluster+e.Address] = float64(e.RPCs)
	}
	if picks.RPCs != n || sum != n {
		t.Errorf("of %d RPCs %d were picked, and %d are accounted for: %+v", n, picks.RPCs, sum, picks)
	}
	if byCluster["cart"] < 1000 {
		t.Errorf("cart got %v RPCs of %d: its circuit breaker of 100 holds RPCs that have ended", byCluster["cart"], n)
	}
	checked := 0
	for _, c := range s.Clusters {
		total := 0.
		for _, l := range c.Leaves {
			for _, p := range l.Priorities {
				for _, loc := range p.Localities {
					total += loc.Share
					for _, e := range loc.Endpoints {
						k := byCluster[c.Name]
						if d := math.Abs(got[c.Name+e.Address] - k*e.Share); d > 7*math.Sqrt(k*e.Share*(1-e.Share))+1 {
							t.Errorf("%s of %s got %v of %v RPCs, want a share of %v", e.Address, c.Name, got[c.Name+e.Address], k, e.Share)
						}
						if (e.Share > 0) != (e.Out == "") {
							t.Errorf("%s of %s is %+v", e.Address, c.Name, e)
						}
						checked++
					}
				}
			}
		}
		if c.Error == "" && math.Abs(total-1) > 1e-9 {
			t.Errorf("the endpoints of %s get %v of its RPCs", c.Name, total)
		}
	}
	if checked == 0 || len(s.RouteTable) == 0 {
		t.Errorf("the status is %+v", s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if picks, err := PickWhatIf(ctx, w, n); err == nil || picks.RPCs == n {
		t.Errorf("after the context has ended, there are %d picks (%v)", picks.RPCs, err)
	}
}

// TestSimulation checks which endpoints get RPCs in states that are supposed, for each way of
// connecting: at once, on demand, by a child policy, and with several addresses.
func TestSimulation(t *testing.T) {
	draining := eps(1, 2)
	draining[0].Health = picker.Draining
	double := eps(1, 2)
	double[0].Extra = &picker.EndpointExtra{Addrs: []netip.AddrPort{addr(9)}}
	two := func() *picker.Cluster {
		low := prio(eps(3))
		low.Localities[0].ID.Zone = "low"
		return clusterOf("c", prio(eps(1, 2)), low)
	}
	for _, row := range []struct {
		name    string
		cluster *picker.Cluster
		down    []int
		pending []int
		want    string // shares of endpoints 1 to 3, the states of 1 and 2, and the priority in use
	}{
		{"all READY", two(), nil, nil, "0.5 0.5 0 READY READY 0"},
		{"one is down", two(), []int{1}, nil, "0 1 0 TRANSIENT_FAILURE READY 0"},
		{"one connects", two(), nil, []int{1}, "0 1 0 CONNECTING READY 0"},
		{"the first priority is down", two(), []int{1, 2}, nil, "0 0 1   1"},
		{"the first priority connects", two(), nil, []int{1, 2}, "0 0 1   1"},
		{"the first that connects", two(), []int{3}, []int{1, 2}, "0 0 0 CONNECTING CONNECTING 0"},
		{"all down", two(), []int{1, 2, 3}, nil, "0 0 0   1"},
		{"draining", clusterOf("c", prio(draining)), nil, nil, "0 1 0 READY READY 0"},
		{"draining and down", clusterOf("c", prio(draining)), []int{1}, nil, "0 1 0 IDLE READY 0"},
		{"ring", ring(two()), nil, nil, "? ? 0 READY READY 0"},
		{"ring, one is down", ring(two()), []int{1}, nil, "0 1 0 TRANSIENT_FAILURE READY 0"},
		{"ring, all of a priority down", ring(two()), []int{1, 2}, nil, "0 0 1   1"},
		{"pick_first", firstOf(true, false, prio(eps(1, 2))), nil, nil, "1 0 0 READY IDLE 0"},
		{"pick_first, one is down", firstOf(true, false, prio(eps(1, 2))), []int{1}, nil, "0 1 0 IDLE READY 0"},
		{"custom", customOf(true, stubA, `{}`, prio(eps(1, 2))), nil, nil, "0 0 0 READY READY 0"},
		{"two addresses", clusterOf("c", prio(double)), nil, nil, "0.5 0.5 0 READY READY 0"},
		{"two addresses, both are down", clusterOf("c", prio(double)), []int{1}, nil, "0 1 0 TRANSIENT_FAILURE READY 0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				states := map[netip.AddrPort]connectivity.State{}
				for _, n := range row.down {
					states[addr(n)] = failure
				}
				for _, n := range row.pending {
					states[addr(n)] = connecting
				}
				begin := time.Now()
				s, err := simulate(configOf(row.cluster), options{}.withDefaults(), states)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				x, err := lookRPC(context.Background(), s.lb, "/s/m")
				if err != nil || time.Since(begin) > 0 || x.Pending {
					t.Fatalf("after %v: %v\n%v", time.Since(begin), err, x)
				}
				c, got, names := onlyCluster(t, x), "", ""
				for n := 1; n <= 3; n++ {
					share := "0"
					if e := endpointIn(c, addr(n).String()); e != nil {
						if share = fmt.Sprintf("%.3g", e.Share); strings.Contains(row.want, "?") && e.Share > 0 {
							share = "?" // by the ring
						}
						if n < 3 {
							names += e.State
						}
					}
					if got += share + " "; n < 3 {
						names += " "
					}
				}
				live := s.list.all[0]
				if got += fmt.Sprint(names, slices.Index(live.order, live.inUse)); got != row.want {
					t.Errorf("the cluster is %s, want %s:\n%v", got, row.want, x)
				}
			})
		})
	}
}

// TestSimulationIsApart checks that a simulation shares nothing with the channels of the
// process: neither circuit breakers nor what is logged once.
func TestSimulationIsApart(t *testing.T) {
	weightsNoted.Store(false)
	b, cc := newTestLB(t, Config{})
	b.set(configOf(clusterOf("cart", prio(eps(1)))))
	b.to(cc.conn(t, 1), ready)
	b.flush()
	if _, err := b.picker.Pick(balancer.PickInfo{FullMethodName: "/s/m", Ctx: t.Context()}); err != nil {
		t.Fatal(err)
	}
	before := breakersInUse()
	weighted := prio(eps(1, 2))
	edit(&weighted, 0, func(e *picker.Endpoint) { e.Weight = 3 })
	s, err := simulate(configOf(clusterOf("cart", weighted)), options{}.withDefaults(), nil)
	if err != nil {
		t.Fatal(err)
	}
	x, err := lookRPC(context.Background(), s.lb, "/s/m")
	if err != nil || onlyCluster(t, x).Status.LeafInUse().InFlight != 0 || breakersInUse() != before {
		t.Errorf("%v: the simulation has %d RPCs of a channel in flight, and the process %d breakers of %d", err, onlyCluster(t, x).Status.LeafInUse().InFlight, breakersInUse(), before)
	}
	s.Close()
	if l := b.live()[0]; l.breaker.InFlight() != 1 || weightsNoted.Load() || breakersInUse() != before {
		t.Errorf("after the simulation the channel has %d RPCs in flight, %d breakers; noted: %v", l.breaker.InFlight(), breakersInUse(), weightsNoted.Load())
	}
}

// TestWhatIfBootstrap checks what resources of a file take from a bootstrap: the locality of
// the node, by which zone-aware routing goes, and the certificate providers. No server of the
// bootstrap is connected to.
func TestWhatIfBootstrap(t *testing.T) {
	const fleet = `{"clusterName":"fleet","endpoints":[{"locality":{"zone":"a"},"loadBalancingWeight":1,"lbEndpoints":[` +
		`{"endpoint":{"address":{"socketAddress":{"address":"10.9.0.1","portValue":80}}}}]}]}`
	boot := func(providers string) []byte {
		return []byte(`{"xds_servers":[{"server_uri":"127.0.0.1:1","channel_creds":[{"type":"insecure"}]}],"node":{"id":"n","locality":{"zone":"a"}},` +
			`"authorities":{"b":{"xds_servers":[{"server_uri":"127.0.0.1:2","channel_creds":[{"type":"insecure"}]}]}},"certificate_providers":{` + providers + `}}`)
	}
	resources := func(cluster string) []byte {
		return []byte(`{"lds":[{"name":"a","apiListener":{"apiListener":{` +
			`"@type":"type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",` +
			`"httpFilters":[{"name":"r","typedConfig":{"@type":"type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],` +
			`"routeConfig":{"virtualHosts":[{"domains":["*"],"routes":[{"match":{"prefix":""},"route":{"cluster":"c"}}]}]}}}}],` +
			`"cds":[{"name":"c","type":"EDS","edsClusterConfig":{"edsConfig":{"ads":{}}},` + cluster + `}],` +
			`"eds":[` + strings.Replace(fleet, "fleet", "c", 1) + `,` + fleet + `]}`)
	}
	tls := `"transportSocket":{"name":"envoy.transport_sockets.tls","typedConfig":{"@type":"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",` +
		`"commonTlsContext":{"validationContext":{"caCertificateProviderInstance":{"instanceName":"certs"}}}}}`
	for _, row := range []struct {
		name, cluster string
		boot          []byte
		want          string
	}{
		{"zones", `"commonLbConfig":{"zoneAwareLbConfig":{"minClusterSize":"1"}}`, boot(""), "zones: not in force: there is one locality"},
		{"no provider", tls, boot(""), `provider instance name "certs" missing in bootstrap`},
		{"provider", tls, boot(`"certs":{"plugin_name":"file_watcher","config":{"ca_certificate_file":"/nothing"}}`), `TLS: roots of instance "certs"`},
		{"any provider", tls, nil, `TLS: roots of instance "certs"`},
	} {
		w := WhatIf{Target: "xds:///a", Method: "/s/m", Resources: resources(row.cluster), Config: Config{LocalCluster: "fleet", Bootstrap: row.boot}}
		x, err := ExplainWhatIf(t.Context(), w)
		if err != nil || !strings.Contains(strings.Join(strings.Fields(x.String()), " "), row.want) {
			t.Errorf("%s: %v\n%v\nlacks %q", row.name, err, x, row.want)
		}
	}
}
