// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/bootstrap"
)

// maxSimilar is the number of lines of one message and group that the log writes in an
// eventlog.Interval.
const maxSimilar = 32

// TestLog checks the lines of the log and their attributes: NACKs, deletions, missing
// resources, failures, fallback and return.
func TestLog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		book := &kit.Logs{}
		h := newHarness(t, Options{Logger: slog.New(book), Linger: -1}, []string{serverDoc("one"), serverDoc("two")}, "")
		one, two := h.servers["one"], h.servers["two"]
		one.serve(targetOf("svc", 1)...)
		h.watch("svc").must(t)
		one.send(cds, "7", badCluster("svc"))
		book.WantOne(t, "WARN", "NACK", "server=passthrough:///one", "type=Cluster", "resource=svc", "version=7", "resources=1", "node=node-1", "lrs_server")

		one.send(lds, "8")
		book.WantOne(t, "WARN", "deleted", "keeping the last version", "type=Listener", "resource=svc", "server=passthrough:///one")
		one.send(lds, "9", targetOf("svc", 1)[0])
		book.WantOne(t, "INFO", "resource recovered", "type=Listener", "resource=svc", "version=9")

		one.hangUp(nil)
		book.WantOne(t, "INFO", "stream", "ended", "server=passthrough:///one")
		one.refuse(errRefused)
		two.serve(targetOf("new", 2)...)
		h.watch("new")
		advance(time.Minute)
		book.WantOne(t, "WARN", "falling back", "server=passthrough:///one", "next=passthrough:///two", "error=", "node=node-1")
		if n := len(book.With("WARN", "cannot be reached", "server=passthrough:///one")); n == 0 {
			t.Error("nothing about the server that is away")
		}
		one.refuse(nil)
		advance(10 * time.Minute)
		book.WantOne(t, "INFO", "recovered, leaving", "server=passthrough:///one", "left=passthrough:///two")
		book.WantOne(t, "WARN", "not received", "type=Listener", "resource=new", "server=passthrough:///one")
	})
}

// TestLogEqualLines checks that equal lines are logged once in a minute, whatever their versions,
// with the number of suppressed lines.
func TestLogEqualLines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		book := &kit.Logs{}
		h, cp := only(t, Options{Logger: slog.New(book)})
		h.watch("svc")
		const rounds = 150 // seconds
		for i := range rounds {
			cp.send(lds, fmt.Sprint(i), listenerTo("svc", ""))
			advance(time.Second)
		}
		lines := book.With("NACK")
		if len(lines) != 3 {
			t.Fatalf("%d lines about the same fault in %d s, want 3", len(lines), rounds)
		}
		if strings.Contains(lines[0], "suppressed") || !strings.Contains(lines[1], "suppressed=5") || !strings.Contains(lines[2], "suppressed=5") {
			t.Errorf("lines = %q, want suppressed=50 or so in the second and the third", lines)
		}
		cp.send(lds, "x", listenerTo("svc", "r"))
		bad := listenerTo("svc", "")
		bad.ApiListener.ApiListener.TypeUrl = "another fault"
		cp.send(lds, "y", bad)
		advance(time.Second)
		book.WantOne(t, "NACK", "another fault")
	})
}

// TestLogUnlocked checks that a Logger may call the client: no lock is held.
func TestLogUnlocked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		book := &kit.Logs{}
		h, cp := only(t, Options{Logger: slog.New(book)})
		called := 0
		book.OnLog = func(string) {
			// Others may have the lock for a moment.
			for tries := 0; !h.c.mu.TryLock(); tries++ {
				if tries == 1_000_000 {
					t.Error("the Logger was called with the lock held")
					return
				}
				runtime.Gosched()
			}
			h.c.mu.Unlock()
			for range h.c.Resources() {
			}
			h.c.Servers()
			h.c.view().Events("svc", "svc")
			called += len(Clients())
		}
		h.watch("svc")
		cp.send(lds, "1", listenerTo("svc", ""))
		if called == 0 {
			t.Error("nothing was logged")
		}
	})
}

// TestLogStorm: thousands of resources that go wrong at once are some lines, which say that
// there are more, and leave room for others.
func TestLogStorm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		book := &kit.Logs{}
		h, cp := only(t, Options{Logger: slog.New(book)})
		const n = 2560
		var names []string
		var clusters []proto.Message
		for i := range n {
			names = append(names, fmt.Sprint("c", i))
			clusters = append(clusters, clusterTo(names[i], names[i]))
		}
		routes := routesTo("svc", "c0")
		routes.VirtualHosts[0].Routes = []*routev3.Route{testplane.WeightedRoute("", weighted(names)...)}
		cp.serve(append(clusters, listenerTo("svc", "svc"), routes)...)
		h.watch("svc")
		advance(time.Minute) // there are no endpoints for any of them
		cp.refuse(errRefused)
		advance(10 * time.Second)
		if got := book.With("not received"); len(got) != maxSimilar || !strings.Contains(got[maxSimilar-1], "similar_suppressed_for=1m0s") {
			t.Errorf("%d lines, the last is %q", len(got), got[len(got)-1])
		}
		if len(book.With("does not keep up")) > 0 || len(book.With("cannot be reached")) == 0 {
			t.Errorf("lines are lost: %q", book.With("")[maxSimilar:])
		}
		cp.refuse(nil)
		cp.serve(listenerTo("more", "more"), routesTo("more", "missing"))
		h.watch("more")
		advance(time.Minute)
		book.WantOne(t, "not received", "missing", fmt.Sprint("suppressed_similar=", n-maxSimilar))
	})
}

// TestLogBlocked checks that a Logger that blocks delays neither a stream nor a Watcher.
func TestLogBlocked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		book, blocked := &kit.Logs{}, make(chan struct{})
		book.OnLog = func(string) { <-blocked }
		h, cp := only(t, Options{Logger: slog.New(book)})
		cp.serve(targetOf("svc", 1)...)
		w := h.watch("svc")
		w.must(t)
		cp.send(eds, "2", badEndpoints("svc")) // logged
		cp.send(eds, "3", endpointsAt("svc", 3))
		w.serves(t, "svc", "svc 3", "while the Logger is blocked")
		close(blocked)
	})
}

// TestLoggerIsShared checks which Logger a client has that several callers share: the first that is
// not nil. A caller with a different Logger gets one line about it.
func TestLoggerIsShared(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg, err := bootstrap.Parser{}.Parse("test", []byte(`{"xds_servers": [`+serverDoc("nowhere")+`], "node": {"id": "`+t.Name()+`"}}`))
		kit.Must(t, err)
		books := []*kit.Logs{{}, {}}
		first, second := slog.New(books[0]), slog.New(books[1])
		var clients []*Client
		for _, l := range []*slog.Logger{nil, first, second, nil, second, first} {
			clients = append(clients, Acquire(cfg, Options{Logger: l}))
		}
		for _, c := range clients {
			if c != clients[0] {
				t.Error("another client for another Logger")
			}
		}
		c := clients[0]
		c.mu.Lock()
		c.logLocked(slog.LevelInfo, "the message", logFields{typ: noType})
		c.unlock()
		synctest.Wait()
		books[0].WantOne(t, "the message")
		if got := books[1].With(""); len(got) != 1 || !strings.Contains(got[0], "its first Logger") {
			t.Errorf("on the other Logger: %q, want one line that names the first Logger", got)
		}
		for _, c := range clients {
			c.Release()
		}
		advance(time.Hour)
	})
}

// TestLogLoadReportsEnded: a server that ends streams of load reports is not silent. It is a warning
// if it refuses reports.
func TestLogLoadReportsEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		book := &kit.Logs{}
		h, _ := only(t, Options{Logger: slog.New(book)})
		for _, tt := range []struct {
			level string
			err   error
		}{
			{"INFO", io.EOF},
			{"INFO", status.Error(codes.Unavailable, "the server is restarted")},
			{"WARN", status.Error(codes.ResourceExhausted, "received message larger than max")},
			{"WARN", errors.New("the server did not read")},
		} {
			for range 3 {
				h.c.LogLoadReportsEnded(h.c.cfg.Servers[0].Key(), tt.err)
			}
			synctest.Wait()
			if got := book.With(tt.level, "the stream of load reports to a server ended", "server=passthrough:///cp", "node=node-1", tt.err.Error()); len(got) != 1 {
				t.Errorf("%v: lines: %q", tt.err, got)
			}
		}
	})
}

// TestLogLoadReports: load that cannot be reported is a line like others, once in a minute.
func TestLogLoadReports(t *testing.T) {
	bubble(t, func(t *testing.T) {
		book := &kit.Logs{}
		h, _ := only(t, Options{Logger: slog.New(book)})
		for range 3 {
			h.c.LogLoadReports(h.c.cfg.Servers[0].Key(), errRefused)
		}
		synctest.Wait()
		if got := book.With("WARN", "load cannot be reported", "server=passthrough:///cp", "node=node-1", errRefused.Error()); len(got) != 1 {
			t.Errorf("lines: %q", got)
		}
		h.c.LogLoadReports(h.c.cfg.Servers[0].Key(), nil)
		h.c.LogLoadReports(h.c.cfg.Servers[0].Key(), nil)
		synctest.Wait()
		if got := book.With("INFO", "load is reported to a server again", "server=passthrough:///cp", "node=node-1"); len(got) != 1 {
			t.Errorf("lines: %q", got)
		}
	})
}

// logIncidents cause and end the conditions of the control plane that are logged, by the message
// that begins each.
var logIncidents = map[string]struct {
	texts      []string // of both lines
	begin, end func(h *harness, one *fake)
}{
	"xdslb: an xDS server cannot be reached": {
		[]string{"server=passthrough:///one"},
		func(_ *harness, one *fake) { one.refuse(errRefused); one.hangUp(nil) },
		func(_ *harness, one *fake) { one.refuse(nil) },
	},
	"xdslb: falling back to the next xDS server": {
		[]string{"server=passthrough:///one"},
		func(h *harness, one *fake) {
			one.refuse(errRefused)
			one.hangUp(nil)
			h.servers["two"].serve(targetOf("new", 2)...)
			h.watch("new")
		},
		func(_ *harness, one *fake) { one.refuse(nil) },
	},
	"xdslb: rejecting invalid resources of an xDS server (NACK)": {
		[]string{"server=passthrough:///one", "type=Cluster"},
		func(_ *harness, one *fake) { one.send(cds, "7", badCluster("svc")) },
		func(_ *harness, one *fake) { one.send(cds, "8", clusterTo("svc", "svc")) },
	},
	"xdslb: resource not received from xDS server": {
		[]string{"server=passthrough:///one", "type=Listener", "resource=late"},
		func(h *harness, _ *fake) { h.watch("late") },
		func(_ *harness, one *fake) { one.serve(targetOf("late", 2)...) },
	},
	"xdslb: xDS server deleted a resource": {
		[]string{"server=passthrough:///one", "type=Listener", "resource=svc"},
		func(_ *harness, one *fake) { one.send(lds, "8") },
		func(_ *harness, one *fake) { one.send(lds, "9", listenerTo("svc", "svc")) },
	},
	"xdslb: xDS server reports an error for a resource": {
		[]string{"server=passthrough:///one", "type=Cluster", "resource=svc"},
		func(_ *harness, one *fake) {
			one.respond(cds, &discoveryv3.DiscoveryResponse{VersionInfo: "e", ResourceErrors: []*discoveryv3.ResourceError{{
				ResourceName: &discoveryv3.ResourceName{Name: "svc"},
				ErrorDetail:  &statuspb.Status{Code: int32(codes.NotFound), Message: "the reason"},
			}}})
		},
		func(_ *harness, one *fake) { one.send(cds, "8", clusterTo("svc", "svc")) },
	},
	"xdslb: resource TTL expired": {
		[]string{"server=passthrough:///one", "type=ClusterLoadAssignment", "resource=svc"},
		func(_ *harness, one *fake) { one.sayTTL(eds, "svc", endpointsAt("svc", 2), 10*time.Second) },
		func(_ *harness, one *fake) { one.send(eds, "8", endpointsAt("svc", 2)) },
	},
}

// TestLogUnused checks that the log has the end of a condition of a resource that is not used any more.
func TestLogUnused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		book := &kit.Logs{}
		h, _ := only(t, Options{Linger: -1, Logger: slog.New(book)})
		w := h.watch("late")
		advance(time.Minute)
		w.cancel()
		advance(time.Minute)
		book.WantPair(t, kit.LogPair{Begin: "WARN xdslb: resource not received from xDS server", End: "INFO xdslb: resource no longer used"}, "type=Listener", "resource=late")
	})
}

// TestLogPairs checks that the log has a line for the beginning and the end of each condition of
// the control plane that failures.md lists, and one more of each if it repeats.
func TestLogPairs(t *testing.T) {
	pairs := kit.LogPairs(t, "../integrate/docs/failures.md", "TestLogPairs")
	for message := range logIncidents {
		if _, ok := pairs[message]; !ok {
			t.Errorf("failures.md lacks %q", message)
		}
	}
	for message, pair := range pairs {
		t.Run(message, func(t *testing.T) {
			incident, ok := logIncidents[message]
			if !ok {
				t.Fatal("there is no incident for the row of failures.md")
			}
			bubble(t, func(t *testing.T) {
				h := newHarness(t, Options{Linger: -1}, []string{serverDoc("one"), serverDoc("two")}, "")
				one := h.servers["one"]
				one.serve(targetOf("svc", 1)...)
				h.watch("svc").must(t)
				advance(2 * time.Minute)
				for range 2 {
					book := &kit.Logs{}
					h.c.logger.Store(slog.New(book))
					incident.begin(h, one)
					advance(30 * time.Second)
					if lines := book.With(pair.End); len(lines) > 0 {
						t.Errorf("before the end: %q", lines)
					}
					incident.end(h, one)
					advance(30 * time.Second)
					book.WantPair(t, pair, append(incident.texts, "node=node-1")...)
					advance(10 * time.Minute)
					book.WantPair(t, pair)
					if message == "xdslb: resource not received from xDS server" || message == "xdslb: falling back to the next xDS server" {
						break // the target is watched now
					}
				}
			})
		})
	}
}
