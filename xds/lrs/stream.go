// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lrs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	lrsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"

	"github.com/xdslb/xdslb/xds/internal/timing"
)

// sendTimeout is the maximum time for a server to read a report before its stream is closed.
const sendTimeout = 10 * time.Second

var errNotRead = fmt.Errorf("the server did not read a report within %v", sendTimeout)

// run keeps a stream open while there are sources. Report starts it; it ends after the last
// source has stopped.
func (r *Reporter) run() {
	for tried := false; !r.finished(tried); {
		select {
		case <-timing.After(time.Until(r.backoff.Due(0))):
			tried = true
			r.backoff.Begin(time.Now())
			err := r.report()
			r.backoff.End(time.Now(), err == nil, rand.Float64())
			if err != nil && r.ctx.Err() == nil {
				r.failing = true
				r.opts.Failed(err)
			}
		case <-r.wake:
		case <-r.ctx.Done():
			// Close has stopped the sources.
		}
	}
}

// A response is a response of the server, with its stream.
type response struct {
	*lrsv3.LoadStatsResponse
	stream lrsv3.LoadReportingService_StreamLoadStatsClient
}

// report opens a stream and reports on it until it ends or the last source is stopped. If there
// are unreported counts, it then waits a short time for the server's first response, since
// channels can be short-lived. The error is the reason for the end of the stream, if there was
// no response. If there was one and the server ended the stream, report calls Ended.
func (r *Reporter) report() error {
	ctx, cancelCause := context.WithCancelCause(r.ctx)
	cancel := func() { cancelCause(nil) }
	responses, ended := make(chan response), make(chan error, 1)
	go func() {
		defer close(ended)
		ended <- r.receive(ctx, responses)
	}()
	defer func() {
		cancel()
		for range ended { // until receive has returned
		}
	}()

	var stream lrsv3.LoadReportingService_StreamLoadStatsClient // nil before the first response
	var want wanted
	var interval time.Duration
	var last time.Time       // when the last report was sent, or the first response received
	var due <-chan time.Time // the next report
	// Without sources, the server's first response has a deadline.
	begun := time.Now()
	var late <-chan time.Time
	if r.idle() {
		late = time.After(r.opts.FinalTimeout)
	}
	for {
		select {
		case resp := <-responses:
			if stream == nil {
				stream, last = resp.stream, time.Now()
				if r.failing {
					r.failing = false
					r.opts.Failed(nil)
				}
			}
			want = wantedBy(resp.LoadStatsResponse)
			interval = max(r.opts.MinInterval, resp.GetLoadReportingInterval().AsDuration())
			due = timing.After(time.Until(last.Add(interval)))
		case <-due:
			last = time.Now()
			r.send(stream, want, sendTimeout, func() { cancelCause(errNotRead) })
			due = time.After(interval)
		case err := <-ended:
			if stream == nil {
				return err
			}
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			if r.ctx.Err() == nil {
				r.opts.Ended(err)
			}
			return nil
		case <-r.wake:
			if stream != nil || !r.idle() {
				break
			}
			if !r.owes() {
				return nil
			}
			late = timing.After(time.Until(begun.Add(r.opts.FinalTimeout)))
		case <-late:
			if r.idle() {
				return nil
			}
			late = nil
		}
		if stream != nil && r.idle() {
			r.finish(stream, want, responses, ended, cancel)
			return nil
		}
	}
}

// receive opens a stream, sends the node, and forwards responses until the stream ends.
func (r *Reporter) receive(ctx context.Context, responses chan<- response) error {
	stream, err := lrsv3.NewLoadReportingServiceClient(r.conn).StreamLoadStats(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	// Node is in the first request only (T-LRS-4). If this fails then Recv fails with the
	// reason.
	_ = stream.Send(&lrsv3.LoadStatsRequest{Node: r.node})
	for {
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		select {
		case responses <- response{resp, stream}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// send sends a report. If that fails or exceeds the timeout, the stream ends, and the counts that
// were not sent will be part of the next report.
func (r *Reporter) send(stream lrsv3.LoadReportingService_StreamLoadStatsClient, want wanted, timeout time.Duration, cancel context.CancelFunc) bool {
	report := r.collect(want, time.Now())
	t := time.AfterFunc(timeout, cancel)
	defer t.Stop()
	for _, m := range messages(report) {
		if stream.Send(&lrsv3.LoadStatsRequest{ClusterStats: m.stats}) != nil {
			return false // receive returns the error
		}
		r.commit(m.sent)
	}
	return true
}

// finish sends the last report and closes the send direction of the stream. It waits for the
// server to end the stream, since canceling a stream discards unsent data.
func (r *Reporter) finish(stream lrsv3.LoadReportingService_StreamLoadStatsClient, want wanted, responses <-chan response, ended <-chan error, cancel context.CancelFunc) {
	t := time.AfterFunc(r.opts.FinalTimeout, cancel)
	defer t.Stop()
	if !r.send(stream, want, r.opts.FinalTimeout, cancel) || stream.CloseSend() != nil {
		return
	}
	for {
		select {
		case <-responses:
		case <-ended:
			return
		}
	}
}
