// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/picker"
)

// This file watches the health of backends (A17) for clusters that configure it by health_checks.
// gRPC's own watches use one service name for a channel, Config.HealthCheckService, which applies
// to the other clusters.

// A healthWatch watches the health service of a connection's backend, from the time at which the
// connection is READY until it is lost, shut down, or given to a child policy, or the cluster's
// health check changes. It has one goroutine. The balancer's mutex guards leafState.watches.
type healthWatch struct {
	service string
	cancel  context.CancelFunc
}

// watchHealth starts a healthWatch. report runs with the mutex held, for each change of health while
// the watch is in force.
func (c *conn) watchHealth(sc balancer.SubConn, service string, report func(balancer.SubConnState)) {
	ctx, cancel := context.WithCancel(context.Background())
	w := &healthWatch{service, cancel}
	if c.leaf.watches == nil {
		c.leaf.watches = map[*conn]*healthWatch{}
	}
	c.leaf.watches[c] = w
	producer, release := sc.GetOrBuildProducer(probeProducer)
	go func() {
		defer release()
		w.run(ctx, producer.(*probeConn).cc, func(s balancer.SubConnState) {
			c.leaf.entry.do(func() {
				if c.leaf.watches[c] == w {
					report(s)
				}
			})
		})
	}()
}

// stopHealthWatch ends the connection's healthWatch, if there is one.
func (c *conn) stopHealthWatch() {
	if w := c.leaf.watches[c]; w != nil {
		delete(c.leaf.watches, c)
		w.cancel()
	}
}

// lossDelay is how long gRPC may take to report the loss of a connection after the end of its
// streams. The end of the health stream itself only counts if the connection remains: an endpoint
// that reconnects is CONNECTING, and a failed one would stay in TRANSIENT_FAILURE (A17).
const lossDelay = 100 * time.Millisecond

// run keeps a stream to the health service open. A backend without health service is healthy (A17).
func (w *healthWatch) run(ctx context.Context, cc grpc.ClientConnInterface, report func(balancer.SubConnState)) {
	for failed := 0; ctx.Err() == nil; failed++ {
		if failed > 0 && rpc.Pause(ctx, watchBackoff(failed)) != nil {
			return
		}
		answered, err := w.stream(ctx, cc, report)
		switch {
		case ctx.Err() != nil:
			return
		case status.Code(err) == codes.Unimplemented:
			report(balancer.SubConnState{ConnectivityState: connectivity.Ready})
			return
		case answered:
			failed = -1 // no backoff
		}
		if rpc.Pause(ctx, lossDelay) != nil {
			return
		}
		report(balancer.SubConnState{ConnectivityState: connectivity.TransientFailure,
			ConnectionError: fmt.Errorf("health check of service %q failed: %w", w.service, err)})
	}
}

// stream reports the answers of one stream, until its end. answered reports whether there was one.
func (w *healthWatch) stream(ctx context.Context, cc grpc.ClientConnInterface, report func(balancer.SubConnState)) (answered bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := healthpb.NewHealthClient(cc).Watch(ctx, &healthpb.HealthCheckRequest{Service: w.service})
	if err != nil {
		return false, err
	}
	for {
		m, err := s.Recv()
		if err != nil {
			return answered, err
		}
		answered = true
		if m.GetStatus() == healthpb.HealthCheckResponse_SERVING {
			report(balancer.SubConnState{ConnectivityState: connectivity.Ready})
			continue
		}
		report(balancer.SubConnState{ConnectivityState: connectivity.TransientFailure,
			ConnectionError: fmt.Errorf("health check of service %q: the backend reports %v", w.service, m.GetStatus())})
	}
}

// watchBackoff returns the time before another stream after some that failed: 1 s, growing by 60 %
// up to 2 min, with jitter, as for connections.
func watchBackoff(failed int) time.Duration {
	return rpc.Jitter(time.Duration(min(math.Pow(1.6, float64(failed-1)), 120) * float64(time.Second)))
}

// sameHealthCheck reports whether two leaves have the same health check.
func sameHealthCheck(a, b *picker.Leaf) bool {
	if a.HealthCheck == nil || b.HealthCheck == nil {
		return a.HealthCheck == b.HealthCheck
	}
	return *a.HealthCheck == *b.HealthCheck
}
