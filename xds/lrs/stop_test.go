// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lrs

import (
	"context"
	"errors"
	"google.golang.org/grpc"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// A27-CL-6: no stream without a source. The stream ends with the last one, which
// is reported to the end (T-LRS-3), and there is another when there is another.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := start(t)
		streams := func(wantOpen, wantTotal int) {
			t.Helper()
			if open, total := s.LoadStreams(); open != wantOpen || total != wantTotal {
				t.Errorf("%d streams open, %d in all; want %d, %d", open, total, wantOpen, wantTotal)
			}
		}
		pass(time.Hour)
		streams(0, 0)
		for i := range 3 {
			load1, stop1 := r.Report("cluster", "service")
			load2, stop2 := r.Report("cluster", "service")
			pass(time.Second)
			streams(1, i+1)
			newTraffic(t, load1, "a").rpcs(0, 1, picker.CallOK)
			newTraffic(t, load2, "a").rpcs(0, 10, picker.CallOK)
			stop1()
			stop1()
			synctest.Wait()
			streams(1, i+1)
			stop2()
			synctest.Wait()
			streams(0, i+1)
			c := s.Loads("cluster", "service")
			if got, want := c.Total.OK, uint64(11*(i+1)); got != want {
				t.Errorf("%d RPCs reported, want %d", got, want)
			}
			if got := censusOf(r); got != (census{}) {
				t.Errorf("reporter remembers %+v, want nothing", got)
			}
			pass(time.Hour)
		}
	})
}

// refusing is a connection whose streams cannot be opened.
type refusing struct{ grpc.ClientConnInterface }

func (refusing) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("refused")
}

// TestFailed checks that Failed is called for each stream that ends without a response, except
// for streams that Close has ended.
func TestFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard := make(chan error, 10)
		failed := func(err error) { heard <- err }
		r := NewReporter(refusing{}, node, Options{Failed: failed, BackoffBase: time.Minute, BackoffMax: time.Minute})
		r.Report("cluster", "service")
		pass(30 * time.Second)
		if n := len(heard); n != 1 {
			t.Fatalf("heard of %d failures, want one", n)
		}
		if err := <-heard; err.Error() != "refused" {
			t.Errorf("heard of %v", err)
		}
		pass(2 * time.Minute)
		r.Close()
		if len(heard) == 0 {
			t.Error("heard of no further failure")
		}
		for len(heard) > 0 {
			<-heard
		}
		r = NewReporter(offline{}, node, Options{Failed: failed})
		r.Report("cluster", "service")
		pass(time.Second)
		r.Close()
		if len(heard) > 0 {
			t.Errorf("heard of %v", <-heard)
		}
	})
}

// refusingOnce refuses the first stream.
type refusingOnce struct {
	grpc.ClientConnInterface
	refused atomic.Bool
}

func (c *refusingOnce) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if !c.refused.Swap(true) {
		return nil, errors.New("refused")
	}
	return c.ClientConnInterface.NewStream(ctx, desc, method, opts...)
}

// TestFailedEnds checks that Failed is called with nil once, at the first response after a failure.
func TestFailedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := xdstest.NewNetwork()
		s := xdstest.New(t, xdstest.Options{Listen: n.Listen, LoadInterval: 10 * time.Second})
		var got []error
		r := NewReporter(&refusingOnce{ClientConnInterface: dial(t, s.Addr(), grpc.WithContextDialer(n.Dial))}, node, Options{Failed: func(err error) { got = append(got, err) }})
		t.Cleanup(r.Close)
		r.Report("cluster", "service")
		pass(5 * time.Minute)
		if len(got) != 2 || got[0] == nil || got[1] != nil {
			t.Errorf("Failed was called with %v, want an error and nil", got)
		}
	})
}

// T-LRS-3: RPCs of a stopped source are reported as they end, if there is a
// stream, and then the source is forgotten.
func TestStopBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := start(t)
		r.Report("other", "")
		load, stop := r.Report("cluster", "service")
		tr := newTraffic(t, load, "a")
		tr.begin(0, 2)
		stop()
		pass(20 * time.Second)
		tr.end(0, 1, picker.CallFailed)
		pass(10 * time.Second)
		tr.end(0, 1, picker.CallOK)
		if got, want := censusOf(r), (census{clusters: 2, sources: 2, stopped: 1, counters: 1}); got != want {
			t.Errorf("reporter remembers %+v, want %+v", got, want)
		}
		pass(10 * time.Second)
		c := s.Loads("cluster", "service")
		if got, want := c.Total, (xdstest.LocalityCounts{Issued: 2, OK: 1, Failed: 1}); got != want {
			t.Errorf("counts %+v, want %+v", got, want)
		}
		if got, want := censusOf(r), (census{clusters: 1, sources: 1}); got != want {
			t.Errorf("reporter remembers %+v, want %+v", got, want)
		}
	})
}

// slow is a connection on whose streams each message takes a second to send.
type slow struct{ grpc.ClientConnInterface }

func (c slow) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := c.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	return slowStream{stream}, err
}

type slowStream struct{ grpc.ClientStream }

func (s slowStream) SendMsg(m any) error {
	<-time.After(time.Second)
	return s.ClientStream.SendMsg(m)
}

// A source that stops and one that starts before anybody noticed share a stream. The
// reporter notices nothing while it sends.
func TestStopAndStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := start(t)
		r.conn = slow{r.conn}
		_, stop := r.Report("cluster", "service")
		pass(11500 * time.Millisecond) // one second until the server receives it, ten until a report
		stop()
		r.Report("cluster", "service")
		pass(10 * time.Second)
		if open, total := s.LoadStreams(); open != 1 || total != 1 {
			t.Errorf("%d streams open, %d in all, want 1, 1", open, total)
		}
	})
}

// A channel that is closed before the server's first response still reports (T-LRS-3): one that
// was closed together with the reporter, and one that was not the last.
func TestShortLived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := start(t)
		for i, leave := range []func(stop func()){
			func(stop func()) { stop() },
			func(stop func()) {
				stop()
				r.Report("another", "")
			},
			func(func()) { r.Close() },
		} {
			load, stop := r.Report("cluster", "service")
			newTraffic(t, load, "a").rpcs(0, 3, picker.CallOK)
			leave(stop)
			pass(time.Minute)
			c := s.Loads("cluster", "service")
			if got, want := c.Total.OK, uint64(3*(i+1)); got != want {
				t.Errorf("%d RPCs reported after %d times, want %d", got, i+1, want)
			}
		}
	})
}

// A server that never responds is not waited for.
func TestShortLivedSilent(t *testing.T) {
	for _, tt := range []struct {
		rpcs    int
		streams bool // the stream is opened before the source stops
	}{{0, false}, {1, false}, {0, true}, {1, true}} {
		synctest.Test(t, func(t *testing.T) {
			// One reporter for each: a stream that was tried delays the next.
			r := NewReporter(offline{}, node, Options{})
			defer r.Close()
			load, stop := r.Report("cluster", "service")
			newTraffic(t, load, "a").rpcs(0, tt.rpcs, picker.CallOK)
			if tt.streams {
				synctest.Wait()
			}
			begin := time.Now()
			stop()
			r.tasks.Wait()
			if got, want := time.Since(begin), time.Duration(tt.rpcs)*r.opts.FinalTimeout; got != want {
				t.Errorf("%+v: the reporter ends after %v, want %v", tt, got, want)
			}
		})
	}
}

// Sources that come and go while the server is away take bounded
// memory, and none once they are gone.
func TestStoppedBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewReporter(offline{}, node, Options{})
		defer r.Close()
		_, stopLast := r.Report("stays", "")
		for i := range 10 * maxStopped {
			load, stop := r.Report("comes and goes", string(rune('a'+i)))
			load.Overload().Add()
			stop()
		}
		synctest.Wait()
		if got, want := censusOf(r), (census{clusters: maxStopped + 1, sources: maxStopped + 1, stopped: maxStopped}); got != want {
			t.Errorf("reporter remembers %+v, want %+v", got, want)
		}
		pass(time.Second)
		stopLast()
		synctest.Wait()
		if got := censusOf(r); got != (census{}) {
			t.Errorf("reporter remembers %+v after the last source stopped, want nothing", got)
		}
	})
}
