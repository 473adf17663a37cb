// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"encoding/json"
	"flag"
	"math"
	"net/netip"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/report"
)

// updateGolden writes the expected text, after a change.
var updateGolden = flag.Bool("explain.update", false, "write testdata/explain.golden")

// shop is the question of TestExplainText.
func shop(t testing.TB) WhatIf {
	text, err := os.ReadFile("testdata/explain.json")
	kit.Must(t, err)
	return WhatIf{
		Target: "xds:///shop", Method: "/shop.Cart/Add", Resources: text,
		States: map[netip.AddrPort]connectivity.State{
			netip.MustParseAddrPort("10.0.0.1:80"): connectivity.TransientFailure,
			netip.MustParseAddrPort("10.0.1.2:80"): connectivity.Connecting,
			netip.MustParseAddrPort("10.0.2.2:80"): connectivity.TransientFailure,
		},
	}
}

// TestExplainText: the text of an explanation equals testdata/explain.golden, in lines of 80
// columns, and JSON has all parts of the text.
func TestExplainText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := metadata.AppendToOutgoingContext(context.Background(), "X-User", "bob")
		x, err := ExplainWhatIf(ctx, shop(t))
		kit.Must(t, err)
		var text strings.Builder
		if n, err := x.WriteTo(&text); err != nil || int(n) != text.Len() {
			t.Errorf("WriteTo wrote %d bytes of %d: %v", n, text.Len(), err)
		}
		if *updateGolden {
			kit.Must(t, os.WriteFile("testdata/explain.golden", []byte(text.String()), 0o644))
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
		kit.Must(t, err)
		var back report.Explanation
		if err := json.Unmarshal(js, &back); err != nil || !reflect.DeepEqual(&back, x) {
			t.Errorf("JSON\n%s\nis read as\n%v: %v", js, &back, err)
		}
	})
}

// TestExplainWhatIfResources: resources are found wherever they are in a file, and errors of a
// resource name its place.
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
	)
	for _, row := range []struct {
		name, resources, want string // in the error or the text
	}{
		{"DiscoveryResponse, and a list", `{"versionInfo":"1","resources":[` + listener + `]} {"cds":[` + cluster + `],"eds":[{"clusterName":"c"}]}`, "no targets to pick from"},
		{"CSDS", `{"config":[{"genericXdsConfigs":[{"xdsConfig":` + listener + `}]}]}`, `Cluster "c" is not among the resources`},
		{"no endpoints", listener + `{"clusters":[` + cluster + `]}`, `ClusterLoadAssignment "c" is not among the resources`},
		{"DNS cluster", listener + `{"clusters":[` + dns + `]}`, "names are not looked up"},
		{"aggregate of nothing", listener + `{"clusters":[` + aggregate + `]}`, `Cluster "d" is not among the resources`},
		{"bad cluster", listener + `{"clusters":[` + bad + `]}`, `must be EDS, LOGICAL_DNS or STRICT_DNS (it is STATIC)`},
		{"no listener", `{"cds":[` + cluster + `]}`, `Listener "a" is not among the resources`},
		{"nothing", `{}`, "none found"},
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

// TestInspectWhatIf: the endpoints of a cluster share its RPCs, and those without a share have a reason.
func TestInspectWhatIf(t *testing.T) {
	s, err := InspectWhatIf(shop(t))
	kit.Must(t, err)
	checked := 0
	for i := range s.Clusters {
		c := &s.Clusters[i]
		total := 0.
		for e := range report.Endpoints(c) {
			total += e.Share
			if (e.Share > 0) != (e.Out == "") {
				t.Errorf("%s of %s is %+v", e.Address, c.Name, e)
			}
			checked++
		}
		if c.Error == "" && math.Abs(total-1) > 1e-9 {
			t.Errorf("the endpoints of %s get %v of its RPCs, want all", c.Name, total)
		}
	}
	if checked == 0 || len(s.RouteTable) == 0 {
		t.Errorf("the status is %+v", s)
	}
}

// TestWhatIfBootstrap checks which parts of a bootstrap the resources of a file use: the locality
// of the node, which zone-aware routing needs, and the certificate providers. No server of the
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
