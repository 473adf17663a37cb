// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/picker"
)

// lostConn is a connection on which no stream can be created.
type lostConn struct{ grpc.ClientConnInterface }

func (lostConn) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unavailable, "connection reset by peer")
}

// TestHealthStreamOfLostConn checks that the end of a health stream is not reported if it is due to
// the loss of the connection, which stops the watch, and is reported otherwise (A17).
func TestHealthStreamOfLostConn(t *testing.T) {
	for _, lost := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var reported []connectivity.State
			w := &healthWatch{service: "s", cancel: cancel}
			go w.run(ctx, lostConn{}, func(s balancer.SubConnState) { reported = append(reported, s.ConnectivityState) })
			synctest.Wait()
			if lost {
				cancel()
			}
			time.Sleep(lossDelay + time.Millisecond)
			synctest.Wait()
			cancel()
			synctest.Wait()
			if failed := len(reported) == 1 && reported[0] == connectivity.TransientFailure; failed == lost {
				t.Errorf("connection lost %v: reported %v", lost, reported)
			}
		})
	}
}

// TestHealthWatchReplaced checks that a connection whose cluster had a health check of its own uses
// the health that gRPC reports once the cluster has none (A17), also if the change was not applied
// to the connection at the time, since the cluster's policy had child policies.
func TestHealthWatchReplaced(t *testing.T) {
	b, cc := newTestLB(t, Config{HealthCheckService: "s"})
	checked := clusterOf("c", prio(eps(1)))
	checked.Leaves[0].HealthCheck = &picker.HealthCheck{Service: "silent"}
	b.set(configOf(checked))
	b.to(cc.conn(t, 1), ready)
	b.lock()
	l := b.live()[0]
	if len(l.watches) != 1 {
		t.Errorf("%d watches of READY connections, want 1", len(l.watches))
	}
	l.cfg = &clusterOf("c", prio(eps(1))).Leaves[0]
	for e := range l.endpoints {
		e.resume()
	}
	l.priorities[0].recount()
	b.unlock()
	wantPick(t, b, 1)
}
