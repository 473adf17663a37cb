// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/leak"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/xds/xdstest"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }

// dial returns a channel to a target of the control plane that has made an RPC.
func dial(t testing.TB, control *xdstest.Server, target string) *grpc.ClientConn {
	t.Helper()
	opts, err := integrate.DialOptions(integrate.Config{Bootstrap: control.Bootstrap("n"), Linger: -1})
	kit.Must(t, err)
	cc, err := grpc.NewClient("xds:///"+target, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	kit.Must(t, err)
	t.Cleanup(func() { _ = cc.Close() })
	call(t, cc)
	return cc
}

func call(t testing.TB, cc *grpc.ClientConn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := testgrpc.NewTestServiceClient(cc).EmptyCall(ctx, &testgrpc.Empty{}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
}

// start starts a control plane with resources.
func start(t testing.TB, r xdstest.Resources) *xdstest.Server {
	t.Helper()
	control := xdstest.New(t, xdstest.Options{})
	kit.Must(t, control.Set(r))
	return control
}

// get sends a request to a handler, and makes the checks that hold for each answer.
func get(t testing.TB, h http.Handler, to string, code int) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/debug/xdslb/"+to, nil))
	if w.Code != code {
		t.Fatalf("GET %s: %d, want %d: %.300s", to, w.Code, code, w.Body)
	}
	policy := w.Header().Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-") || strings.Contains(policy, "unsafe") || w.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("GET %s: the headers are %v", to, w.Header())
	}
	return w.Body.String()
}

// decode reads the JSON of an answer.
func decode[T any](t testing.TB, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %.300s", err, text)
	}
	return v
}

// wellFormed checks that a page's elements are nested as they should be, and returns the
// names and values of all attributes and the text, to look for what should not be there.
func wellFormed(t testing.TB, page string) (elements []string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(strings.Replace(page, "<!DOCTYPE html>", "", 1)))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	open := []string{}
	for {
		token, err := d.RawToken()
		if errors.Is(err, io.EOF) {
			break
		}
		kit.Must(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			name := token.Name.Local
			elements = append(elements, name)
			for _, a := range token.Attr {
				elements = append(elements, name+" "+a.Name.Local)
			}
			switch name {
			case "meta", "input", "br":
			default:
				open = append(open, name)
			}
		case xml.EndElement:
			switch name := token.Name.Local; {
			case len(open) == 0 || open[len(open)-1] != name:
				t.Fatalf("</%s> within %v", name, open)
			default:
				open = open[:len(open)-1]
			}
		}
	}
	if len(open) > 0 {
		t.Errorf("%v are not closed", open)
	}
	return elements
}

// TestOverlay: the page of a channel shows the patches of the overlay, and the resources that they change.
func TestOverlay(t *testing.T) {
	control := start(t, xdstest.Service("orders", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(xdstest.NewBackends(t, 1, xdstest.BackendOptions{})...)}))
	opts, err := integrate.DialOptions(integrate.Config{Bootstrap: control.Bootstrap("n"), Linger: -1, Overlay: []byte(`{"patches": [
		{"resource": "cluster", "name": "orders", "merge": {"lb_policy": "LEAST_REQUEST"}},
		{"resource": "cluster", "name": "<other>", "merge": {"lb_policy": "LEAST_REQUEST"}}]}`)})
	kit.Must(t, err)
	cc, err := grpc.NewClient("xds:///orders", append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	kit.Must(t, err)
	t.Cleanup(func() { _ = cc.Close() })
	call(t, cc)
	page := get(t, Handler(), "", http.StatusOK)
	wellFormed(t, page)
	for _, want := range []string{
		"changed by Config.Overlay: patches[0]", "changes Cluster orders", "cluster &#34;&lt;other&gt;&#34;", "matches no resource of the target",
		"with grpc-go: an overlay (Cluster orders, by Config.Overlay: patches[0])", "it does not apply the patches",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// TestPage: the page of a channel shows where its RPCs go, and where they went since
// somebody began to look.
func TestPage(t *testing.T) {
	backends := xdstest.NewBackends(t, 2, xdstest.BackendOptions{})
	weighted := xdstest.BackendEndpoints(backends...)
	weighted[1].Weight = 3
	r := xdstest.Service("orders", xdstest.Locality{Place: xdstest.Place{Region: "eu", Zone: "a"}, Endpoints: weighted},
		xdstest.Locality{Priority: 1, Endpoints: []xdstest.Endpoint{{Addr: netip.MustParseAddrPort("192.0.2.1:1")}}})
	testplane.Drop(r.Endpoints[0], "none", 0)
	cc := dial(t, start(t, r), "orders")
	h := Handler()
	if page := get(t, h, "", http.StatusOK); !strings.Contains(page, "xds:///orders") || !strings.Contains(page, "192.0.2.1:1") {
		t.Errorf("the page of the only channel is not shown: %s", page)
	}
	settle(t, h, weighted)
	before := decode[Document](t, get(t, h, "json", http.StatusOK)).Channels[0]
	for range 40 {
		call(t, cc)
	}
	d := decode[Document](t, get(t, h, "?format=json", http.StatusOK))
	s := d.Channels[0]
	locality := s.Clusters[0].Leaves[0].Priorities[0].Localities[0]
	sum := 0
	for i, share := range []float64{.25, .75} {
		e := locality.Endpoints[i]
		n := int(e.OK - before.Clusters[0].Leaves[0].Priorities[0].Localities[0].Endpoints[i].OK)
		sum += n
		// A publication in between may restart the sequence.
		if e.Share != share || math.Abs(float64(n)-40*share) > 8 {
			t.Errorf("endpoint %d got %d of 40 RPCs and is %+v, want a share of %v", i, n, e, share)
		}
	}
	if sum != 40 {
		t.Errorf("%d RPCs are counted, want 40", sum)
	}
	if d.Process.PID == 0 || d.Time.IsZero() || s.Channel == 0 || len(s.RouteTable) != 1 || s.RouteTable[0].Clusters[0].Share != 1 {
		t.Errorf("the document is %+v", d)
	}
	page := get(t, h, "", http.StatusOK)
	wellFormed(t, page)
	for _, want := range []string{
		"25 %", "75 %", "eu/a", "its priority is not in use", "*priority 0 serving: 2 of 2 READY", "any path", "ConfigurationApplied", "ClusterLoadAssignment",
		"listener: orders", "node: n", "in force since", "connected since", "RPCs by endpoint: counted since",
		"1 channel, no errors", `lang="en"`, "weighted round robin", "cluster orders: 25 % of the RPCs go to other endpoints by endpoint weights",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	slim := decode[Document](t, get(t, h, "json?detail=0", http.StatusOK)).Channels[0]
	if slim.RouteTable != nil || slim.Clusters[0].Leaves[0].Priorities[0].Localities != nil || slim.Clusters[0].State != "READY" {
		t.Errorf("without detail the channel is %+v", slim)
	}
	_ = cc.Close()
	if page := get(t, h, "", http.StatusOK); !strings.Contains(page, "No active channel of this process") {
		t.Errorf("without a channel the page is %s", page)
	}
}

// settle waits until the endpoints of priority 0 are READY.
func settle(t testing.TB, h http.Handler, endpoints []xdstest.Endpoint) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		s := decode[Document](t, get(t, h, "json", http.StatusOK)).Channels[0]
		if !s.Pending && s.Clusters[0].Leaves[0].Priorities[0].Endpoints.Ready == len(endpoints) && s.Clusters[0].Leaves[0].Priorities[0].Localities[0].Endpoints[len(endpoints)-1].Share > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the endpoints are not READY: %+v", s)
		}
	}
}

// TestExplain: the form has an answer, as text and as JSON, and says what is wrong with a
// question.
func TestExplain(t *testing.T) {
	backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
	r := xdstest.Service("orders", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})
	r.Routes[0].VirtualHosts[0].Routes = append(r.Routes[0].VirtualHosts[0].Routes[:0], testplane.HashHeader(xdstest.Route("/shop.Cart/", "orders"), "user"))
	r.Clusters[0] = xdstest.Cluster("orders", "orders", testplane.RingHash(10, 100))
	r.Routes[0].VirtualHosts[0].Routes = append(r.Routes[0].VirtualHosts[0].Routes, xdstest.Route("", "orders"))
	dial(t, start(t, r), "orders")
	h := Handler()
	ask := func(method, headers string) string {
		return "?" + url.Values{"method": {method}, "headers": {headers}}.Encode()
	}
	page := get(t, h, ask("/shop.Cart/Add", "User: 7\r\n\r\n"), http.StatusOK)
	wellFormed(t, page)
	for _, want := range []string{`value="/shop.Cart/Add"`, "User: 7", "<pre", "hash policies: header &#34;user&#34;", "100 %"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q: %s", want, page)
		}
	}
	x := decode[report.Explanation](t, get(t, h, "explain"+ask("/shop.Cart/Add", "user: 7"), http.StatusOK))
	if x.Method != "/shop.Cart/Add" || len(x.Routes) != 1 || x.Routes[0].Clusters[0].Hash == nil {
		t.Errorf("the explanation is %+v", x)
	}
	for _, row := range []struct{ method, headers, want string }{
		{"no slash", "", "does not begin with a slash"},
		{"/s/m", "nothing", "want name: value"},
	} {
		if page := get(t, h, ask(row.method, row.headers), http.StatusOK); !strings.Contains(page, row.want) || !strings.Contains(page, `role="alert"`) {
			t.Errorf("the page of %+v is %s", row, page)
		}
		if got := decode[jsonError](t, get(t, h, "explain"+ask(row.method, row.headers), http.StatusBadRequest)); !strings.Contains(got.Error, row.want) {
			t.Errorf("the error is %q, want %q", got.Error, row.want)
		}
	}
}

// TestHostile: what others name stays text. The page has the elements and attributes that it
// has for harmless names, and shows the characters that hide.
func TestHostile(t *testing.T) {
	backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
	shape := func(name string) (page string, elements []string) {
		r := xdstest.Service(name, xdstest.Locality{Place: xdstest.Place{Region: name, Zone: name}, Endpoints: xdstest.BackendEndpoints(backends...)})
		testplane.Drop(r.Endpoints[0], name, 0)
		r.Listeners[0].Name = "t"
		r.Routes[0].VirtualHosts[0].Routes[0].Name = name
		cc := dial(t, start(t, r), "t")
		h := Handler()
		page = get(t, h, "?"+url.Values{"method": {"/" + name}, "headers": {"a:" + strings.ReplaceAll(name, "\n", " ")}, "q": {name[:1]}}.Encode(), http.StatusOK)
		if err := cc.Close(); err != nil {
			t.Error(err)
		}
		return page, wellFormed(t, page)
	}
	_, want := shape("harmless")
	for _, name := range []string{
		`<script>alert(1)</script>`, `" onload="alert(1)`, `' onmouseover='alert(1)`, `</td></table><img src=x onerror=alert(1)>`, `javascript:alert(1)`, `&lt;b&gt;`,
		"</style><script>", "</textarea><script>", "</title><script>", "a\u202eb\u2066c", "\x1b[2J", "a\nb", `?channel=2&x=#"`, "{{.}}", strings.Repeat("long", 1000),
	} {
		page, got := shape(name)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the name %.40q changes the page:\n%v\nwant\n%v", name, got, want)
		}
		if strings.ContainsAny(page, "\u202e\u2066\x1b") {
			i := strings.IndexAny(page, "\u202e\u2066\x1b")
			t.Errorf("the page of %.40q has characters that hide: %.200q", name, page[max(0, i-100):])
		}
		if len(page) > 200_000 {
			t.Errorf("the page of %.40q has %d bytes", name, len(page))
		}
	}
}

// TestLarge: the page of a channel with 10,000 endpoints has less than 100 kB, and its filter finds
// each of them.
func TestLarge(t *testing.T) {
	large(t, xdstest.NewBackends(t, 1, xdstest.BackendOptions{}), 10_000)
	h := Handler()
	page := get(t, h, "", http.StatusOK)
	wellFormed(t, page)
	if len(page) > 100_000 || !strings.Contains(page, "and 9801 more endpoints (see the JSON)") {
		t.Errorf("the page has %d bytes", len(page))
	}
	found := get(t, h, "?q=192.0.3.9:", http.StatusOK)
	if strings.Count(found, ":80 ") != 1 || !strings.Contains(found, "192.0.3.9:80") {
		t.Errorf("the endpoint is not found: %s", found)
	}
	d := decode[Document](t, get(t, h, "json", http.StatusOK))
	if n := len(d.Channels[0].Clusters[0].Leaves[0].Priorities[1].Localities[0].Endpoints); n != 10_000 {
		t.Errorf("the JSON has %d endpoints", n)
	}
}

// TestMany: the page of a process with 1,000 channels has less than 150 kB. It lists those with errors
// and then those with notes first, and its filters select channels by problems, state and target.
func TestMany(t *testing.T) {
	var all []integrate.TargetStatus
	for i := range 1000 {
		s := integrate.TargetStatus{Channel: int64(i + 1), Target: fmt.Sprintf("xds:///svc-%03d", i), Connectivity: "READY", Clusters: []report.ClusterStatus{{Name: "c", State: "READY"}}}
		switch {
		case i%100 == 17:
			s.Error, s.Connectivity = "no Listener", "TRANSIENT_FAILURE"
		case i%100 == 18:
			s.Clusters[0].Priority = 1
		case i == 19:
			s.Stock = "XDSLB_DISABLE"
		}
		all = append(all, s)
	}
	for _, tt := range []struct {
		show, text string
		rows       int
		first      string
	}{
		{"", "", 500, "svc-017"}, {"errors", "", 10, "svc-017"}, {"problems", "", 20, "svc-017"}, {"problems", "svc-21", 2, "svc-217"},
		{"TRANSIENT_FAILURE", "", 10, "svc-017"}, {"stock", "", 1, "svc-019"}, {"READY", "svc-01", 9, "svc-018"}, {"", "nothing", 0, ""},
	} {
		p := newPage(all, url.Values{"show": {tt.show}, "text": {tt.text}, "refresh": {"7"}})
		var b strings.Builder
		kit.Must(t, pageTemplate.Execute(&b, p))
		wellFormed(t, b.String())
		links := regexp.MustCompile(`<a href="\?channel=\d+&amp;refresh=7">xds:///([^<]*)</a>`).FindAllStringSubmatch(b.String(), -1)
		if len(links) != tt.rows || tt.rows > 0 && links[0][1] != tt.first || b.Len() > 150_000 || !strings.Contains(b.String(), "10 of 1000 channels have errors") {
			t.Errorf("show %q, text %q: %d channels in %d bytes, the first is %q", tt.show, tt.text, len(links), b.Len(), links[:min(1, len(links))])
		}
		if tt.show == "problems" && tt.text == "" && (links[9][1] != "svc-917" || links[10][1] != "svc-018") {
			t.Errorf("channels with errors are not before those with notes: %q", links)
		}
	}
}

// large returns a channel with n endpoints that are not needed, and one that is.
func large(t testing.TB, backends []*xdstest.Backend, n int) *grpc.ClientConn {
	many := make([]xdstest.Endpoint, n)
	for i := range many {
		many[i].Addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), 80)
	}
	return dial(t, start(t, xdstest.Service("large", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)}, xdstest.Locality{Priority: 1, Endpoints: many})), "large")
}

// TestReadOnly: other methods than GET and HEAD are refused, HEAD has no body, and nothing
// is registered with the default mux.
func TestReadOnly(t *testing.T) {
	server := httptest.NewServer(Handler())
	defer server.Close()
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions, http.MethodConnect} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(method, "/", nil)
		r.Host = "localhost"
		Handler().ServeHTTP(w, r)
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d, %v", method, w.Code, w.Header())
		}
	}
	client := server.Client()
	defer client.CloseIdleConnections()
	resp, err := client.Head(server.URL)
	kit.Must(t, err)
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || len(body) > 0 || resp.ContentLength <= 0 {
		t.Errorf("HEAD: %v, %d bytes (%v)", resp, len(body), err)
	}
	for _, to := range []string{"/", "/debug/xdslb/", "/json"} {
		if _, pattern := http.DefaultServeMux.Handler(httptest.NewRequest(http.MethodGet, to, nil)); pattern != "" {
			t.Errorf("%s is registered as %q with the default mux", to, pattern)
		}
	}
}

// TestNoSuchChannel: a number that is none of a channel is not found, and nothing breaks for
// parameters that make no sense.
func TestNoSuchChannel(t *testing.T) {
	h := Handler()
	if page := get(t, h, "?channel=-1", http.StatusNotFound); !strings.Contains(page, "not found: it may be closed") {
		t.Errorf("the page is %s", page)
	}
	for _, to := range []string{"json?channel=x", "explain?channel=" + strings.Repeat("9", 1000), "explain?method=/s/m"} {
		if got := decode[jsonError](t, get(t, h, to, http.StatusNotFound)); !strings.Contains(got.Error, "channel") || len(got.Error) > 300 {
			t.Errorf("%s: the error is %q", to, got.Error)
		}
	}
	backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
	dial(t, start(t, xdstest.Service("orders", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})), "orders")
	for _, to := range []string{"?q=nothing", "?q=%ff", "?refresh=0", "?refresh=-9", "?refresh=99999999", "anything/at/all"} {
		wellFormed(t, get(t, h, to, http.StatusOK))
	}
	if page := get(t, h, "?refresh=1", http.StatusOK); !strings.Contains(page, `http-equiv="refresh" content="2"`) {
		t.Errorf("the page does not reload: %s", page)
	}
}

// TestUnencodable: JSON that cannot be encoded is an error, not an empty response.
func TestUnencodable(t *testing.T) {
	w := httptest.NewRecorder()
	writeJSON(w, http.StatusOK, map[string]float64{"x": math.Inf(1)})
	var e jsonError
	if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || w.Code != http.StatusInternalServerError || !strings.Contains(e.Error, "unsupported value") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestMissingListener: a channel without a configuration shows the cause once, and no time at which a
// configuration was received. Channels with errors come first.
func TestMissingListener(t *testing.T) {
	backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
	control := start(t, xdstest.Service("orders", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)}))
	dial(t, control, "orders")
	opts, err := integrate.DialOptions(integrate.Config{Bootstrap: control.Bootstrap("other"), Linger: -1, Resources: integrate.ResourceOptions{Timeout: time.Millisecond}})
	kit.Must(t, err)
	cc, err := grpc.NewClient("xds:///nothing", append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	kit.Must(t, err)
	defer func() { _ = cc.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := testgrpc.NewTestServiceClient(cc).EmptyCall(ctx, &testgrpc.Empty{}); err == nil {
		t.Fatal("the RPC succeeds")
	}
	s, err := integrate.StatusOf(cc)
	kit.Must(t, err)
	page := get(t, Handler(), "?"+url.Values{"channel": {strconv.FormatInt(s.Channel, 10)}}.Encode(), http.StatusOK)
	if strings.Count(page, "ERROR:") != 1 || !strings.Contains(page, "Show all channels") || strings.Contains(page, "00:00:00") || strings.Contains(page, "in force since") {
		t.Errorf("the page shows a configuration: %s", page)
	}
	page = get(t, Handler(), "", http.StatusOK)
	if !strings.Contains(page, "1 of 2 channels has errors") || !strings.Contains(page, "1 error<") || strings.Index(page, "xds:///nothing</a>") > strings.Index(page, "xds:///orders</a>") {
		t.Errorf("the page does not list one channel with one error first: %s", page)
	}
}
