// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	lrsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/xds/lrs"
)

// lrsSeeds are responses of servers, with the reason for each.
func lrsSeeds(tb testing.TB) (list [][]byte) {
	respond := func(all bool, interval *durationpb.Duration, clusters ...string) []byte {
		return encode(tb, &lrsv3.LoadStatsResponse{SendAllClusters: all, LoadReportingInterval: interval, Clusters: clusters})
	}
	second := durationpb.New(time.Second)
	return [][]byte{
		say(),
		say(respond(true, second)),
		say(respond(false, second, "a", "a", "")),
		say(respond(true, nil)),                                                                              // no interval (T-LRS-1)
		say(respond(true, &durationpb.Duration{Seconds: -1})),                                                // less than none
		say(respond(true, &durationpb.Duration{Nanos: 1})),                                                   // next to none
		say(respond(true, &durationpb.Duration{Seconds: 1 << 62, Nanos: -1 << 31})),                          // not a duration
		say(respond(true, second), respond(false, durationpb.New(10*time.Second), "b"), respond(false, nil)), // changes of mind (T-LRS-2)
		say([]byte("\xff")),
	}
}

// loadConn is a connection to a server that the test controls.
type loadConn struct{ streams chan *wire }

// Invoke implements grpc.ClientConnInterface.
func (loadConn) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return errors.New("not a stream")
}

// NewStream implements grpc.ClientConnInterface.
func (c loadConn) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	w := newWire(ctx, opts)
	select {
	case c.streams <- w:
	default: // enough is known of such streams
	}
	return w, nil
}

// FuzzLRS sends a script to a load reporter, a message every three seconds. The reporter sends
// its node once (T-LRS-4), reports only requested clusters and never more than once a second
// (T-LRS-1), follows changed requests (T-LRS-2), and ends in time.
func FuzzLRS(f *testing.F) {
	for _, b := range lrsSeeds(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		synctest.Test(t, func(t *testing.T) { checkLRS(t, script(b, 8)) })
	})
}

func checkLRS(t *testing.T, messages [][]byte) {
	const step = 3 * time.Second
	conn := loadConn{make(chan *wire, 1)}
	r := lrs.NewReporter(conn, &corev3.Node{Id: "n"}, lrs.Options{})
	defer r.Close()
	for _, cluster := range []string{"a", "b"} {
		load, stop := r.Report(cluster, "s")
		defer stop()
		load.Drop("d").Add()
	}
	w := <-conn.streams
	for _, b := range messages {
		resp := new(lrsv3.LoadStatsResponse)
		wellFormed := proto.Unmarshal(b, resp) == nil
		before := len(w.sent())
		select {
		case w.down <- b:
		case <-w.ctx.Done():
		}
		<-time.After(step)
		synctest.Wait()
		if !wellFormed {
			break
		}
		reports := w.sent()[before:]
		if len(reports) > 1+int(step/time.Second) { // the first at once
			t.Fatalf("%d reports in %v after %v", len(reports), step, resp)
		}
		for _, m := range reports {
			for _, stats := range m.(*lrsv3.LoadStatsRequest).GetClusterStats() {
				if !resp.GetSendAllClusters() && !slices.Contains(resp.GetClusters(), stats.GetClusterName()) {
					t.Fatalf("cluster %q is reported, requested was %v", stats.GetClusterName(), resp)
				}
			}
		}
	}
	for i, m := range w.sent() {
		if hasNode := m.(*lrsv3.LoadStatsRequest).GetNode() != nil; hasNode != (i == 0) {
			t.Errorf("message %d has a node: %t", i, hasNode)
		}
	}
	begun := time.Now()
	r.Close()
	if d := time.Since(begun); d > time.Second {
		t.Errorf("Close took %v", d)
	}
}
