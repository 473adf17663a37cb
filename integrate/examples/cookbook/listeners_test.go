// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package cookbook

import (
	"net/http"
	"strings"
	"time"
)

var listenerRecipes = []recipe{
	{"InlineRoutes", "routes inline", InlineRoutes(), func(w *world) {
		w.resources.Routes = nil
		w.update()
		w.dial()
		w.wantCounts(25, 25, 25, 25)
	}},
	{"ListenerTimeout", "`max_stream_duration`", ListenerTimeout(), func(w *world) { wantTimeout(w, 10*time.Second) }},
	{"FaultInjection", "router, fault", FaultInjection(), func(w *world) {
		w.dial()
		slow := 0
		for range 500 {
			switch a := w.call(method); {
			case a.err != nil || a.took != 0 && a.took != 2*time.Second:
				w.Fatalf("an RPC took %v (%v)", a.took, a.err)
			case a.took > 0:
				slow++
			}
		}
		if slow == 0 || slow > 200 {
			w.Errorf("%d of 500 RPCs are delayed, want about 50", slow)
		}
	}},
	{"StatefulSession", "stateful session", StatefulSession(), func(w *world) {
		w.dial()
		first := w.call(method)
		cookie, err := http.ParseSetCookie(strings.Join(first.header.Get("set-cookie"), ""))
		if err != nil {
			w.Fatal(err)
		}
		if n := w.counts(20, "cookie", cookie.Name+"="+cookie.Value); n[first.backend] != 20 {
			w.Errorf("RPCs of a session of backend %d are answered by %v", first.backend, n)
		}
		w.wantCounts(5, 5, 5, 5)
	}},
}
