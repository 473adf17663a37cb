// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestLogger: the lines of a channel go to its Logger, with target, node and cluster: RPCs that
// fail, failover and return, failure of the target, each at its level and once in a minute; and so
// do the lines of its XdsClient. A Logger may ask for the status of channels, since no lock is
// held.
func TestLogger(t *testing.T) {
	backends := xdstest.NewBackends(t, 2, xdstest.BackendOptions{})
	backends[0].Stop()
	backends[1].Stop()
	control := xdstest.New(t, xdstest.Options{})
	all := xdstest.BackendEndpoints(backends...)
	r := xdstest.Service(target, xdstest.Locality{Endpoints: all[:1]}, xdstest.Locality{Place: xdstest.Place{Zone: "b"}, Priority: 1, Endpoints: all[1:]})
	set(t, control, r)
	own := &kit.Logs{OnLog: func(string) { integrate.Status() }}
	cc := dialConfig(t, integrate.Config{Bootstrap: control.Bootstrap("node-of-log"), Linger: -1, Logger: slog.New(own)})
	logged := func(texts ...string) {
		t.Helper()
		own.WantOne(t, append(texts, "node=node-of-log")...)
	}
	if _, err := call(t, cc); err == nil {
		t.Fatal("an RPC succeeded without a backend")
	}
	about := []string{"target=xds:///" + target, "cluster=" + target}
	logged(append(about, "WARN xdslb: RPCs of a cluster fail", "error=", "no endpoint of priority 1 is reachable")...)
	logged(append(about, "WARN xdslb: a cluster fails over", "from_priority=0", "to_priority=1")...)
	kit.Must(t, backends[1].Start())
	if _, err := call(t, cc, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	logged(append(about, "INFO xdslb: RPCs of a cluster recovered")...)
	kit.Must(t, backends[0].Start())
	logged(append(about, "INFO xdslb: a cluster returns to a higher priority", "from_priority=1", "to_priority=0")...)

	good := r.Routes[0].VirtualHosts
	for range 3 {
		r.Routes[0].VirtualHosts = nil
		set(t, control, r)
		kit.WaitFor(t, "an error in the status", func() bool { return statusOf(t, cc).Error != "" })
		r.Routes[0].VirtualHosts = good
		set(t, control, r)
		kit.WaitFor(t, "the end of the error", func() bool { return statusOf(t, cc).Error == "" })
	}
	logged("WARN xdslb: the target cannot be served", "has no virtual host")
	logged("INFO xdslb: the target is served again")
	if found := logs.With("node-of-log"); len(found) > 0 {
		t.Errorf("the process's Logger has lines of the channel: %q", found)
	}
	if n := len(eventsLike(statusOf(t, cc), "TargetFailed")); n != 3 {
		t.Errorf("the journal has %d events of the target's failing, want 3", n)
	}
}

// TestLoggerOfClient: the XdsClient that channels with different Loggers share writes to the first,
// and each other Logger gets a line about that.
func TestLoggerOfClient(t *testing.T) {
	control := xdstest.New(t, xdstest.Options{})
	r := xdstest.Service(target, xdstest.Locality{Endpoints: []xdstest.Endpoint{nobody}})
	r.Routes[0].VirtualHosts = nil
	set(t, control, r)
	var loggers [2]kit.Logs
	for i := range loggers {
		cc := dialConfig(t, integrate.Config{Bootstrap: control.Bootstrap("shared"), Linger: -1, Logger: slog.New(&loggers[i])})
		cc.Connect()
		kit.WaitFor(t, "the error about the virtual host", func() bool { return strings.Contains(statusOf(t, cc).Error, "has no virtual host") })
	}
	if open, _ := control.Streams(); open != 1 {
		t.Errorf("%d streams to the control plane, want 1", open)
	}
	loggers[1].WantOne(t, "is shared")
}
