// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"cmp"
	"context"
	"fmt"
	"html"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

const (
	fleetChannels  = 300
	fleetEndpoints = 10_000 // of the target catalog
	fleetClusters  = 150    // of the target gateway
	fleetCalls     = 300    // to each of both
)

// fleet opens 300 channels: one with 10,000 endpoints, one with 150 clusters, five with errors, one
// that has failed over, and simple ones. One of 16 endpoints of the first, and one of 16 clusters of
// the second, fail their RPCs.
func fleet(t testing.TB) {
	t.Helper()
	backends := xdstest.NewBackends(t, 2, xdstest.BackendOptions{})
	backends[1].Fail(codes.Internal)
	healthy := xdstest.Locality{Place: xdstest.Place{Region: "eu", Zone: "a"}, Endpoints: xdstest.BackendEndpoints(backends[:1]...)}
	dead := xdstest.Locality{Place: xdstest.Place{Region: "eu", Zone: "b"}, Endpoints: []xdstest.Endpoint{{Addr: netip.MustParseAddrPort("192.0.2.1:1")}}}
	r := xdstest.Service("invalid", healthy)
	r.Clusters[0].LbPolicy = 99
	secondary := healthy
	secondary.Priority = 1
	r.Add(xdstest.Service("failed-over", dead, secondary), xdstest.Service("unreachable-1", dead), xdstest.Service("unreachable-2", dead), catalog(), gateway())
	targets := []string{"missing-1", "missing-2", "invalid", "failed-over", "unreachable-1", "unreachable-2"}
	for i := len(targets); i < fleetChannels-2; i++ {
		targets = append(targets, fmt.Sprintf("svc-%03d", i))
		r.Add(xdstest.Service(targets[i], healthy))
	}
	control := start(t, r)
	targets = append(targets, "catalog", "gateway")
	for _, target := range targets {
		cc := fleetChannel(t, control, target, backends)
		use(t, cc, 1)
		if target == "catalog" || target == "gateway" {
			for _, c := range integrate.Channels() {
				if c.Target() == cc.Target() {
					c.Inspect() // counts RPCs by endpoint for a minute
				}
			}
			use(t, cc, fleetCalls)
		}
	}
}

// use makes RPCs, which may fail.
func use(t testing.TB, cc *grpc.ClientConn, calls int) {
	for i := range calls {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "user", strconv.Itoa(i))
		_, _ = testgrpc.NewTestServiceClient(cc).EmptyCall(ctx, &testgrpc.Empty{})
	}
}

// catalog returns a service with 10,000 endpoints in five localities.
func catalog() xdstest.Resources {
	var localities []xdstest.Locality
	for i := range 5 {
		l := xdstest.Locality{Place: xdstest.Place{Region: "eu", Zone: string(rune('a' + i))}, Weight: uint32(i + 1)}
		for k := range fleetEndpoints / 5 {
			l.Endpoints = append(l.Endpoints, xdstest.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i), byte(k >> 8), byte(k)}), 8080)})
		}
		localities = append(localities, l)
	}
	r := xdstest.Service("catalog", localities...)
	r.Clusters[0] = xdstest.Cluster("catalog", "", testplane.RingHash(20_000, 20_000))
	r.Routes[0] = xdstest.RouteConfig("catalog", testplane.HashHeader(xdstest.Route("", "catalog"), "user"))
	return r
}

// gateway returns a service with 150 clusters of two endpoints.
func gateway() xdstest.Resources {
	r := xdstest.Resources{Listeners: xdstest.Service("gateway").Listeners}
	var routes []testplane.Weighted
	for i := range fleetClusters {
		name := fmt.Sprintf("backend-%03d.shop.example.com", i)
		s := xdstest.Service(name, xdstest.Locality{Endpoints: []xdstest.Endpoint{
			{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 8, byte(i), 1}), 8080)}, {Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 8, byte(i), 2}), 8080)},
		}})
		r.Clusters, r.Endpoints = append(r.Clusters, s.Clusters...), append(r.Endpoints, s.Endpoints...)
		routes = append(routes, testplane.Weighted{Cluster: name, Weight: 1})
	}
	r.Routes = append(r.Routes, xdstest.RouteConfig("gateway", testplane.WeightedRoute("", routes...)))
	return r
}

// fleetChannel returns a channel whose connections to 10.0.0.0/8 lead to the backends.
func fleetChannel(t testing.TB, control *xdstest.Server, target string, backends []*xdstest.Backend) *grpc.ClientConn {
	t.Helper()
	cfg := integrate.Config{Bootstrap: control.Bootstrap("shop-frontend-7d9f"), Linger: -1, Delta: true}
	if strings.HasPrefix(target, "missing") {
		cfg.Resources.Timeout = time.Millisecond
	}
	opts, err := integrate.DialOptions(cfg)
	if err != nil {
		t.Fatal(err)
	}
	dialer := grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		a := netip.MustParseAddrPort(addr).Addr()
		switch b := a.As4(); {
		case b[0] == 192:
			return nil, fmt.Errorf("connection to %s refused", addr)
		case b[0] == 10 && b[1] == 8 && b[2]%16 == 1, b[0] == 10 && b[1] < 8 && b[3]%16 == 1:
			addr = backends[1].Addr().String()
		default:
			addr = backends[0].Addr().String()
		}
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	})
	cc, err := grpc.NewClient("xds:///"+target, append(opts, dialer, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

var (
	rowPattern  = regexp.MustCompile(`(?s)<tr[^>]*>(<t[hd].*?)</tr>`)
	cellPattern = regexp.MustCompile(`(?s)<t[hd][^>]*>(.*?)</t[hd]>`)
	tagPattern  = regexp.MustCompile(`<[^>]*>`)
)

// cells returns the texts of the cells of a table of the page, without headers.
func cells(page, class string) (rows [][]string) {
	_, table, _ := strings.Cut(page, `<table class="`+class+`">`)
	table, _, _ = strings.Cut(table, "</table>")
	_, table, _ = strings.Cut(table, "</thead>")
	for _, row := range rowPattern.FindAllStringSubmatch(table, -1) {
		var texts []string
		for _, cell := range cellPattern.FindAllStringSubmatch(row[1], -1) {
			texts = append(texts, html.UnescapeString(tagPattern.ReplaceAllString(cell[1], "")))
		}
		rows = append(rows, texts)
	}
	return rows
}

// number is a column of numbers.
func number(t testing.TB, rows [][]string, column int) (numbers []int) {
	t.Helper()
	for _, row := range rows {
		n, err := strconv.Atoi(row[column])
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

func descending(numbers []int) bool {
	return slices.IsSortedFunc(numbers, func(a, b int) int { return cmp.Compare(b, a) }) && len(numbers) > 0 && numbers[0] > 0
}

// TestFleet: in a process with 300 channels, the page lists channels, clusters and endpoints with
// problems first, and its parameters filter and sort them.
func TestFleet(t *testing.T) {
	fleet(t)
	h := Handler()
	page := func(class string, params ...string) (string, [][]string) {
		t.Helper()
		text := get(t, h, string(link(nil, params...)), http.StatusOK)
		wellFormed(t, text)
		if len(text) > 150_000 {
			t.Errorf("the page of %v has %d bytes", params, len(text))
		}
		return text, cells(text, class)
	}
	catalog, gateway := "", ""
	_, rows := page("channel", "show", "READY", "channelsort", "target")
	for _, row := range rows {
		switch row[1] {
		case "xds:///catalog":
			catalog = row[0]
		case "xds:///gateway":
			gateway = row[0]
		}
	}
	t.Run("clusters", func(t *testing.T) {
		_, rows := page("cluster", "channel", gateway)
		if len(rows) != maxClusters || rows[0][8] == "0" {
			t.Errorf("%d clusters, the first is %q", len(rows), rows[0])
		}
		if _, rows := page("cluster", "channel", gateway, "clustersort", "failed"); !descending(number(t, rows, 8)) {
			t.Errorf("sorted by failed RPCs: %q", rows)
		}
		if _, rows := page("cluster", "channel", gateway, "clustersort", "rpcs"); !descending(number(t, rows, 7)) {
			t.Errorf("sorted by RPCs: %q", rows)
		}
		if _, rows := page("cluster", "channel", gateway, "clustershow", "problems"); len(rows) == 0 || len(rows) > fleetClusters/8 || slices.Contains(number(t, rows, 8), 0) {
			t.Errorf("clusters with problems: %q", rows)
		}
		if _, rows := page("cluster", "channel", gateway, "clustertext", "backend-07"); len(rows) != 10 {
			t.Errorf("%d clusters match backend-07", len(rows))
		}
	})
	t.Run("endpoints", func(t *testing.T) {
		_, rows := page("endpoint", "channel", catalog, "endpointsort", "failed")
		if len(rows) != maxAlone || !descending(number(t, rows, 7)) || !strings.Contains(rows[0][0], "priority 0, eu/") {
			t.Errorf("sorted by failed RPCs: %q", rows[:10])
		}
		failed := slices.Index(number(t, rows, 7), 0)
		if _, rows := page("endpoint", "channel", catalog, "endpointsort", "rpcs", "state", "failed"); len(rows) != failed || !descending(number(t, rows, 6)) {
			t.Errorf("%d endpoints with failed RPCs, want %d", len(rows), failed)
		}
		text, _ := page("endpoint", "channel", catalog, "endpointsort", "expected")
		// Bars are scaled to the largest share: the first one has the full length.
		if bar := regexp.MustCompile(`<rect width="([^"]*)"`).FindStringSubmatch(text); bar == nil || bar[1] != "100%" && !strings.Contains(text, `<rect width="100%"/></svg>`) {
			t.Errorf("the first bar is %q", bar)
		}
	})
	t.Run("channels", func(t *testing.T) {
		text, rows := page("channel")
		if !strings.Contains(text, "5 of 300 channels have errors") || !strings.Contains(rows[4][3], "error") || strings.Contains(rows[5][3], "error") || !strings.Contains(rows[5][3], "note") {
			t.Errorf("the first rows are %q", rows[:6])
		}
		if _, rows := page("channel", "show", "errors"); len(rows) != 5 {
			t.Errorf("%d channels with errors", len(rows))
		}
		if _, rows := page("channel", "show", "problems"); len(rows) < 6 {
			t.Errorf("%d channels with errors or notes", len(rows))
		}
		if _, rows := page("channel", "text", "svc-19"); len(rows) != 10 {
			t.Errorf("%d channels match svc-19", len(rows))
		}
		_, first := page("channel", "channelsort", "target")
		text, second := page("channel", "channelsort", "target", "channelpage", "2")
		var targets []string
		for _, row := range slices.Concat(first, second) {
			targets = append(targets, row[1])
		}
		if len(targets) != fleetChannels || !slices.IsSorted(targets) || !strings.Contains(text, `aria-sort="ascending"`) {
			t.Errorf("%d channels in the order %q", len(targets), targets)
		}
	})
}

// TestParameters: links and forms preserve the other parameters of the page, and sorting or filtering
// begins at the first page.
func TestParameters(t *testing.T) {
	q := url.Values{"channel": {"3"}, "text": {"svc"}, "cluster": {"a"}, "state": {"READY"}, "endpointpage": {"4"}, "unknown": {"x"}, "q": {strings.Repeat("x", maxName+1)}}
	kept := keep(q)
	_, v := endpointTable.arrange(nil, 1, kept)
	if got, want := string(v.Heads[0].Link), "?channel=3&cluster=a&endpointsort=address&state=READY&text=svc#clusters"; got != want {
		t.Errorf("the link is %q, want %q", got, want)
	}
	kept.Set("endpointsort", "address")
	_, v = endpointTable.arrange(nil, 1, kept)
	if got, want := string(v.Heads[0].Link), "?channel=3&cluster=a&state=READY&text=svc#clusters"; got != want || v.Heads[0].Sorted != "ascending" {
		t.Errorf("the link to the default order is %q, want %q", got, want)
	}
	if got, want := fmt.Sprint(hidden(kept, "state", "endpointpage")), "[{channel 3} {cluster a} {text svc} {endpointsort address}]"; got != want {
		t.Errorf("the hidden fields are %s, want %s", got, want)
	}
}
