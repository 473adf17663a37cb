// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/debug"
)

// TestHandedOverShows checks that a channel handed to stock is on the debug page, in its JSON
// and in the metrics, with the reason and the way back; and that it is removed once it is ours.
func TestHandedOverShows(t *testing.T) {
	name, _ := service(t, 1, nil)
	target := "xds:///" + name
	value := "other, " + name + "<b>" // as a part of a list
	t.Setenv("XDSLB_DISABLE", value+","+name)
	page, metrics := debug.Handler(), &kit.Recorder{}
	cc := closing(t)(integrate.NewClient(target, plaintext, grpc.WithStatsHandler(metrics)))
	for range 2 { // by the second the interceptors know whose the channel is
		kit.Must(t, call(t, cc))
	}
	var channel integrate.Channel
	for _, c := range integrate.Channels() {
		if c.Target() == target {
			channel = c
		}
	}
	s := channel.Inspect()
	if s.Channel == 0 || s.Channel != channel.Number() || s.Connectivity != connectivity.Ready.String() || s.Rollout == nil || s.Rollout.Pattern != name || s.Rollout.Value != value+","+name {
		t.Errorf("the channel is %+v, %+v", s, s.Rollout)
	}
	if _, err := channel.Explain(context.Background(), "/a/b"); err == nil || !strings.Contains(err.Error(), s.Stock) {
		t.Errorf("Explain: %v", err)
	}
	of := fmt.Sprintf("/?channel=%d", s.Channel)
	text := get(t, page, of)
	for _, want := range []string{target, "READY", "uses google.golang.org/grpc/xds", "note:", "XDSLB_DISABLE has", "&lt;b&gt;", "take the pattern out of XDSLB_DISABLE, and restart the program"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q: %s", want, text)
		}
	}
	if strings.Contains(text, "route 0") || strings.Contains(text, "Explain an RPC") || strings.Contains(text, "<b>"+name) {
		t.Errorf("the page has fields that stock's channels lack: %s", text)
	}
	var d debug.Document
	if err := json.Unmarshal([]byte(get(t, page, of+"&format=json")), &d); err != nil || len(d.Channels) != 1 || *d.Channels[0].Rollout != *s.Rollout {
		t.Errorf("the document is %+v (%v)", d, err)
	}
	handedOver := func() float64 {
		return metrics.Sum("xdslb.client.channels_handed_over", target, "XDSLB_DISABLE")
	}
	if n := handedOver(); n != 1 {
		t.Errorf("the metric counts %v channels that were handed over, want 1", n)
	}
	_ = cc.Close()
	t.Setenv("XDSLB_DISABLE", "")
	kit.Must(t, call(t, closing(t)(integrate.NewClient(target, plaintext, grpc.WithStatsHandler(metrics)))))
	if stock, ours := handedOver(), metrics.Sum("xdslb.client.channels", target); stock != 0 || ours != 1 {
		t.Errorf("after the way back the metrics count %v channels that were handed over, and %v of ours; want 0 and 1", stock, ours)
	}
}

// TestNoBootstrapForStock checks that in a program that passes Config.Bootstrap and has no
// bootstrap in its environment, XDSLB_DISABLE=all is no outage: stock builds no resolver, and the
// channel uses xdslb and shows why. It runs in a process without a bootstrap in the environment.
func TestNoBootstrapForStock(t *testing.T) {
	if os.Getenv("GRPC_XDS_BOOTSTRAP") != "" {
		out, err := command("", "-test.run=^TestNoBootstrapForStock$", fmt.Sprintf("-rollout.stockfirst=%v", *stockFirst)).CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	t.Setenv("XDSLB_DISABLE", "all")
	name, _ := service(t, 1, nil)
	metrics := &kit.Recorder{}
	cc := closing(t)(integrate.Config{Bootstrap: control.Bootstrap("n")}.NewClient("xds:///"+name, plaintext, grpc.WithStatsHandler(metrics)))
	kit.Must(t, call(t, cc))
	s, err := integrate.StatusOf(cc)
	if err != nil || s.Stock != "" || s.Rollout == nil || !strings.Contains(s.Rollout.Failed, "set GRPC_XDS_BOOTSTRAP or GRPC_XDS_BOOTSTRAP_CONFIG") {
		t.Errorf("status: stock %q, rollout %+v, %v", s.Stock, s.Rollout, err)
	}
	if n := metrics.Sum("xdslb.client.channels_not_handed_over", "xds:///"+name, "XDSLB_DISABLE"); n != 1 {
		t.Errorf("the metric counts %v channels that were not handed over, want 1", n)
	}
	kit.WaitFor(t, "an error in the log", func() bool {
		return len(lines.With("ERROR xdslb: channels of a target stay with xdslb", name, `XDSLB_DISABLE has "all"`)) == 1
	})
	if got := requests.asked(name); got != ourAgent {
		t.Errorf("clients of the control plane are %q, want %q", got, ourAgent)
	}
}

// get sends a request to a handler.
func get(t testing.TB, h http.Handler, to string) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+to, nil))
	if w.Code != http.StatusOK {
		t.Fatalf("GET %s: %d: %s", to, w.Code, w.Body)
	}
	return w.Body.String()
}

// TestOutsideShows checks that the status and the debug page of a channel on a host outside of the percentage have
// the position of the host.
func TestOutsideShows(t *testing.T) {
	name, _ := service(t, 1, nil)
	t.Setenv("XDSLB_ENABLE", "0%")
	cc := closing(t)(integrate.NewClient("xds:///"+name, plaintext))
	kit.Must(t, call(t, cc))
	s, err := integrate.StatusOf(cc)
	kit.Must(t, err)
	if !strings.HasPrefix(s.Stock, "host ") || !strings.HasSuffix(s.Stock, ` %, outside of "0%" in XDSLB_ENABLE`) {
		t.Errorf("the status has the reason %s", s.Stock)
	}
	if text := get(t, debug.Handler(), fmt.Sprintf("/?channel=%d", s.Channel)); !strings.Contains(text, html.EscapeString(s.Stock)) {
		t.Errorf("the page lacks %q: %s", s.Stock, text)
	}
}
