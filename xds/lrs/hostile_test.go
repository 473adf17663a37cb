// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lrs

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	lrsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// hostile is a server that does something other than LRS.
type hostile struct {
	lrsv3.UnimplementedLoadReportingServiceServer
	handle handler

	mu      sync.Mutex
	streams []time.Time // when they were opened
	open    int
}

type handler func(stream lrsv3.LoadReportingService_StreamLoadStatsServer) error

func (h *hostile) StreamLoadStats(stream lrsv3.LoadReportingService_StreamLoadStatsServer) error {
	h.mu.Lock()
	h.streams = append(h.streams, time.Now())
	h.open++
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		h.open--
		h.mu.Unlock()
	}()
	return h.handle(stream)
}

func startHostile(t *testing.T, handle handler) (*hostile, *Reporter) {
	t.Helper()
	n, h := xdstest.NewNetwork(), &hostile{handle: handle}
	lis, err := n.Listen("127.0.0.1:0")
	kit.Must(t, err)
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	lrsv3.RegisterLoadReportingServiceServer(server, h)
	go func() { _ = server.Serve(lis) }()
	t.Cleanup(server.Stop)
	r := NewReporter(dial(t, lis.Addr().String(), grpc.WithContextDialer(n.Dial)), node, Options{})
	t.Cleanup(r.Close)
	return h, r
}

var errUnfit = status.Error(codes.Unimplemented, "unfit")

// all requests all clusters, each second.
var all = &lrsv3.LoadStatsResponse{SendAllClusters: true}

// The ways servers can be hostile.
var (
	fails  handler = func(lrsv3.LoadReportingService_StreamLoadStatsServer) error { return errUnfit }
	silent handler = func(stream lrsv3.LoadReportingService_StreamLoadStatsServer) error {
		<-stream.Context().Done()
		return nil
	}
	hangsUp handler = func(stream lrsv3.LoadReportingService_StreamLoadStatsServer) error {
		return stream.Send(all)
	}
	neverEnds handler = func(stream lrsv3.LoadReportingService_StreamLoadStatsServer) error {
		_ = stream.Send(all)
		for stream.Context().Err() == nil {
			if _, err := stream.Recv(); err != nil {
				<-stream.Context().Done()
			}
		}
		return nil
	}
	neverReads handler = func(stream lrsv3.LoadReportingService_StreamLoadStatsServer) error {
		_ = stream.Send(all)
		<-stream.Context().Done()
		return nil
	}
	hasTheLastWord handler = func(stream lrsv3.LoadReportingService_StreamLoadStatsServer) error {
		_ = stream.Send(all)
		for {
			if _, err := stream.Recv(); err != nil {
				return stream.Send(all)
			}
		}
	}
)

// fill makes reports larger than the window of a stream, so that the second waits
// for the server to read the first.
func fill(t *testing.T, r *Reporter) {
	t.Helper()
	load, _ := r.Report("full", "")
	newTraffic(t, load, strings.Repeat("z", 1<<18)).begin(0, 1)
}

// Servers that fail immediately see streams at increasing random intervals; servers that answer
// first and then hang up see at most one each second.
func TestBackoff(t *testing.T) {
	for name, tt := range map[string]struct {
		handle   handler
		minutes  time.Duration
		min, max int // streams in that time
	}{
		"fails":    {fails, 60, 40, 150},
		"hangs up": {hangsUp, 5, 150, 301},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, r := startHostile(t, tt.handle)
				r.Report("cluster", "service")
				pass(tt.minutes * time.Minute)
				h.mu.Lock()
				defer h.mu.Unlock()
				if n := len(h.streams); n < tt.min || n > tt.max {
					t.Errorf("%d streams in %d minutes, want %d to %d", n, tt.minutes, tt.min, tt.max)
				}
				for i := range len(h.streams) - 1 {
					if d := h.streams[i+1].Sub(h.streams[i]); d < time.Second || d > 2*time.Minute+time.Second {
						t.Errorf("streams %d and %d are %v apart", i, i+1, d)
					}
				}
			})
		})
	}
}

// endings are the hostile servers, and how long they can keep a stream open that
// the reporter wants to end.
var endings = map[string]struct {
	handle handler
	want   time.Duration
}{
	"silent":            {silent, 0},
	"fails":             {fails, 0},
	"has the last word": {hasTheLastWord, 0},
	"never ends":        {neverEnds, 500 * time.Millisecond},
	"never reads":       {neverReads, 500 * time.Millisecond},
}

// T-LRS-4: Close returns in time for every behavior of the server, even in the middle of a
// report.
func TestCloseBounded(t *testing.T) {
	for name, tt := range endings {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, r := startHostile(t, tt.handle)
				fill(t, r)
				pass(5 * time.Second)
				begun := time.Now()
				r.Close()
				if d := time.Since(begun); d != tt.want {
					t.Errorf("Close took %v, want %v", d, tt.want)
				}
				load, stop := r.Report("cluster", "service")
				stop()
				if load == nil || !load.Unreported {
					t.Error("Report after Close does not return unreported counters")
				}
				r.Close()
			})
		})
	}
}

// A27-CL-6: when the last source stops the stream ends in time, for every behavior of the
// server.
func TestStopBounded(t *testing.T) {
	for name, tt := range endings {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, r := startHostile(t, tt.handle)
				_, stop := r.Report("cluster", "service")
				pass(5 * time.Second)
				stop()
				pass(tt.want)
				h.mu.Lock()
				defer h.mu.Unlock()
				if h.open != 0 {
					t.Errorf("the stream is open %v after stop", tt.want)
				}
			})
		})
	}
}

// A report that cannot be sent is given up in time and becomes part of the next.
func TestSendBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := xdstest.NewNetwork()
		streams := 0
		first := func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			if streams++; streams == 1 {
				return neverReads(&grpc.GenericServerStream[lrsv3.LoadStatsRequest, lrsv3.LoadStatsResponse]{ServerStream: stream})
			}
			return handler(srv, stream)
		}
		s := xdstest.New(t, xdstest.Options{Listen: n.Listen, Server: []grpc.ServerOption{grpc.StreamInterceptor(first)}})
		r := NewReporter(dial(t, s.Addr(), grpc.WithContextDialer(n.Dial)), node, Options{})
		t.Cleanup(r.Close)
		fill(t, r)
		load, _ := r.Report("cluster", "service")
		tr := newTraffic(t, load, "a")
		pass(1500 * time.Millisecond) // the first report is on the way, for all that is known
		tr.rpcs(0, 3, picker.CallOK)
		pass(2 * time.Second) // the second is being sent
		tr.rpcs(0, 4, picker.CallOK)
		pass(sendTimeout)
		if open, _ := s.LoadStreams(); open != 1 {
			t.Fatalf("%d streams to the server that reads, want 1", open)
		}
		pass(time.Second)
		c := s.Loads("cluster", "service")
		if got := c.Total.OK; got != 7 {
			t.Errorf("%d RPCs reported, want 7", got)
		}
	})
}

// TestEnded: the end of a stream after a response is not silent: counts may be lost, of the ones sent
// last. The end that the reporter causes itself is not reported.
func TestEnded(t *testing.T) {
	tooLarge := status.Error(codes.ResourceExhausted, "too large")
	for name, tt := range map[string]struct {
		handle handler
		want   string // in the error; empty if Ended is not called
	}{
		"refuses a report": {func(stream lrsv3.LoadReportingService_StreamLoadStatsServer) error {
			_ = stream.Send(all)
			for range 2 { // the node and a report
				if _, err := stream.Recv(); err != nil {
					return err
				}
			}
			return tooLarge
		}, "too large"},
		"hangs up":    {hangsUp, "EOF"},
		"never reads": {neverReads, errNotRead.Error()},
		"never ends":  {neverEnds, ""},
		"fails":       {fails, ""}, // without a response: Failed
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, r := startHostile(t, tt.handle)
				var ended []string
				r.opts.Ended = func(err error) { ended = append(ended, err.Error()) }
				fill(t, r)
				pass(30 * time.Second)
				r.Close()
				if got := len(ended) > 0; got != (tt.want != "") || got && !strings.Contains(ended[0], tt.want) {
					t.Errorf("streams ended with %q, want %q", ended, tt.want)
				}
				if len(ended) > 30 {
					t.Errorf("%d streams in 30 seconds", len(ended))
				}
			})
		})
	}
}
