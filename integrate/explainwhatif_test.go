// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"

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
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > columns {
				t.Errorf("%d columns: %s", n, line)
			}
		}
		js, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		var back Explanation
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
		cluster = `{"name":"c","type":"EDS","edsClusterConfig":{"edsConfig":{"ads":{}}}}`
		bad     = `{"name":"c","type":"STATIC"}`
	)
	for _, row := range []struct {
		name, resources, want string // in the error or the text
	}{
		{"DiscoveryResponse, and a list", `{"versionInfo":"1","resources":[` + listener + `]} {"cds":[` + cluster + `],"eds":[{"clusterName":"c"}]}`, "no targets to pick from"},
		{"CSDS", `{"config":[{"genericXdsConfigs":[{"xdsConfig":` + listener + `}]}]}`, `failure: xds: Cluster "c" is not among the resources`},
		{"no endpoints", listener + `{"clusters":[` + cluster + `]}`, `ClusterLoadAssignment "c" is not among the resources`},
		{"bad cluster", listener + `{"clusters":[` + bad + `]}`, `must be EDS or LOGICAL_DNS (it is STATIC)`},
		{"no listener", `{"cds":[` + cluster + `]}`, `Listener "a" is not among the resources`},
		{"nothing", `{}`, "there are none"},
		{"twice", listener + listener, `Listener "a" occurs twice`},
		{"no JSON", `{"a":`, "document 1: unexpected EOF"},
		{"no such field's type", `{"x":{"clusters":[{"name":1}]}}`, "$.x.clusters[0]"},
	} {
		x, err := ExplainWhatIf(context.Background(), WhatIf{Target: "xds:///a", Method: "/s/m", Resources: []byte(row.resources)})
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = strings.Join(strings.Fields(x.String()), " ")
		}
		if !strings.Contains(got, row.want) {
			t.Errorf("%s: %q lacks %q", row.name, got, row.want)
		}
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
			if x, err := (&WhatIf{Method: "/s/m"}).explain(context.Background(), cfg); err != nil || len(x.Routes) != routes+1 {
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
