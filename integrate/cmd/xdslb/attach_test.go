// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/debug"
	"github.com/xdslb/xdslb/integrate/report"
)

// TestAttach: a running process by its debug page.
func TestAttach(t *testing.T) {
	w := newWorld(t)
	addr := strings.TrimPrefix(w.page.URL, "http://")
	wantCall(t, exitOK, []string{"attach", addr, "-once", "-interval", "10ms"}, "no active channel of the process")
	w.open(t)
	wantCall(t, exitOK, []string{"attach", addr, "-once", "-interval", "10ms"}, "xds:///orders  READY", "route 0", "eu/a", "ConfigurationApplied", "RPCs/s")
	s := wantCall(t, exitOK, []string{"attach", addr, "-once", "-o", "json"})
	var d debug.Document
	if err := json.Unmarshal([]byte(s.out), &d); err != nil || len(d.Channels) != 1 || d.Channels[0].Target != "xds:///orders" {
		t.Errorf("the document is %+v (%v)", d, err)
	}
	s = wantCall(t, exitOK, []string{"attach", w.page.URL, "-count", "3", "-interval", "10ms"}, "xds:///orders READY", "2 of 2 READY", "25 %")
	if n := strings.Count(s.out, "xds:///orders  READY"); n != 3 {
		t.Errorf("%d views, want 3:\n%s", n, s.out)
	}
	if strings.Contains(s.out, "\x1b") {
		t.Errorf("a file gets the control characters of a terminal: %q", s.out)
	}
	wantCall(t, exitOK, []string{"explain", "orders", "/shop.Cart/Add", "-at", addr}, `cluster "orders"`, "READY")
	wantCall(t, exitFinding, []string{"explain", "nothing", "/shop.Cart/Add", "-at", addr}, "xds:///nothing: the process has no active channel", "xds:///orders")
	wantCall(t, exitFinding, []string{"explain", "orders", "noslash", "-at", addr}, "does not begin with a slash")
	wantCall(t, exitFinding, []string{"attach", w.page.URL + "/elsewhere", "-once"}, "404", "check that the process serves package integrate/debug")
	wantCall(t, exitFinding, []string{"attach", "127.0.0.1:1", "-once"}, "refused")
}

// TestAttachTerminal: on a terminal the view is redrawn.
func TestAttachTerminal(t *testing.T) {
	w := newWorld(t)
	w.open(t)
	var out, errors bytes.Buffer
	e := &env{ctx: t.Context(), stdout: &out, stderr: &errors, now: time.Now, terminal: true}
	if code := e.run([]string{"attach", w.page.URL, "-count", "2", "-interval", "10ms"}); code != exitOK {
		t.Fatalf("exit code %d: %s", code, errors.String())
	}
	if n := strings.Count(out.String(), "\x1b[H\x1b[2J"); n != 2 {
		t.Errorf("the view is drawn %d times, want 2", n)
	}
}

// TestAttachHandedOver: a channel that is stock's shows with the reason and the way back.
func TestAttachHandedOver(t *testing.T) {
	d := debug.Document{Channels: []report.TargetStatus{{
		Target: "xds:///orders", Stock: `XDSLB_DISABLE has "ord*"`,
		Rollout: &report.RolloutStatus{Variable: "XDSLB_DISABLE", Value: "ord*", Pattern: "ord*", Forward: "take the pattern out"},
	}}}
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(d)
	}))
	defer page.Close()
	view := []string{"attach", page.URL, "-once", "-interval", "10ms"}
	wantCall(t, exitOK, view, "xds:///orders UNKNOWN", `note: The channel uses google.golang.org/grpc/xds, not xdslb: XDSLB_DISABLE has "ord*".`, "To switch to xdslb: take the pattern out.")
	wantCall(t, exitOK, []string{"attach", page.URL, "-count", "1"}, "xds:///orders UNKNOWN", "decided by: XDSLB_DISABLE=ord*")
	d.Channels[0].Rollout.Malformed = true
	wantCall(t, exitFinding, view, "ERROR: The channel uses google.golang.org/grpc/xds")
}

// TestAttachMany: channels with errors come first; a target and -problems select channels.
func TestAttachMany(t *testing.T) {
	d := debug.Document{}
	for i := range 30 {
		s := integrate.TargetStatus{Target: fmt.Sprintf("xds:///svc-%d", i), Connectivity: "READY"}
		if i == 20 {
			s.Error = "no Listener"
		}
		d.Channels = append(d.Channels, s)
	}
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(d)
	}))
	defer page.Close()
	view := []string{"attach", page.URL, "-once", "-interval", "10ms"}
	s := wantCall(t, exitFinding, view, "1 of 30 channels with errors")
	if strings.Index(s.out, "svc-20") > strings.Index(s.out, "svc-0") {
		t.Errorf("the channel with errors is not the first:\n%s", s.out)
	}
	s = wantCall(t, exitFinding, append(view, "-problems"), "xds:///svc-20 READY ERROR: no Listener")
	if strings.Count(s.out, "xds:///") != 1 {
		t.Errorf("-problems shows other channels:\n%s", s.out)
	}
	s = wantCall(t, exitOK, append(view, "svc-7"), "xds:///svc-7")
	if strings.Count(s.out, "xds:///") != 1 {
		t.Errorf("a target shows other channels:\n%s", s.out)
	}
	wantCall(t, exitFinding, append(view, "nothing"), `none of the 30 channels has a target that contains "nothing"`)
	const none = `none of the 30 channels has a target that contains "xds:///zzz"`
	s = wantCall(t, exitOK, []string{"attach", page.URL, "xds:///zzz", "-count", "3", "-interval", "10ms"}, none)
	if s.out != "" || strings.Count(s.errors, none) != 1 {
		t.Errorf("a target without channels shows others:\n%s%s", s.out, s.errors)
	}
}
