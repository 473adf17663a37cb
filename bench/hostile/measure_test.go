// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"fmt"
	"log/slog"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xdslb/xdslb/bench/cputime"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
)

// figures are the costs of a server for the client.
type figures struct {
	served
	allocated uint64        // bytes
	heap      uint64        // bytes at the peak, minus the initial ones
	kept      uint64        // bytes when the client is closed
	cpu       float64       // of one core
	lines     int64         // in the log
	longest   int64         // of them, in bytes
	lock      time.Duration // the longest call of Client.Waiting
	closing   time.Duration // until all goroutines have ended
}

// perByte returns n for each byte of the largest response.
func (f *figures) perByte(n uint64) float64 { return float64(n) / float64(max(f.largest, 1)) }

// A lineCounter is a log that counts lines.
type lineCounter struct{ lines, longest atomic.Int64 }

func (l *lineCounter) Write(b []byte) (int, error) {
	l.lines.Add(1)
	l.longest.Store(max(int64(len(b)), l.longest.Load()))
	return len(b), nil
}

// noWatcher ignores configurations and counts the longest error as a line.
type noWatcher struct{ *lineCounter }

func (noWatcher) Update(*picker.Config) {}
func (w noWatcher) Error(err error) {
	w.longest.Store(max(int64(len(err.Error())), w.longest.Load()))
}

// measure has a client watch a target of the server for a time, or until it has answered the
// only response.
func measure(t *testing.T, s *scenario, d time.Duration) (f figures) {
	t.Helper()
	once := d == 0
	server := start(t, s, once)
	cfg, err := bootstrap.Parser{}.Parse("hostile", fmt.Appendf(nil, `{"xds_servers": [{"server_uri": "passthrough:///%s", "channel_creds": [{"type": "insecure"}]}], "node": {"id": "n"}}`, server.addr))
	if err != nil {
		t.Fatal(err)
	}
	var log lineCounter
	goroutines := runtime.NumGoroutine()
	before := memory(true)
	client := xds.Acquire(cfg, xds.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Linger: -1, Delta: s.delta})
	cancel := viewOf(client).Watch("l", "l", noWatcher{&log})
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end) && !s.ends && server.counts(t).responses == 0; {
		time.Sleep(10 * time.Millisecond) // a response may take long to build
	}
	began, used := time.Now(), cputime.Process()
	stop := sample(client, &f)
	for end := began.Add(max(d, time.Minute)); time.Now().Before(end) && (once || time.Since(began) < d); time.Sleep(10 * time.Millisecond) {
		if f.served = server.counts(t); once && (f.answers > 0 || s.refused && f.requests > 1) {
			break
		}
	}
	f.served = server.counts(t)
	stop()
	f.cpu = (cputime.Process() - used).Seconds() / time.Since(began).Seconds()
	f.heap -= min(before.heap, f.heap)

	ended := time.Now()
	cancel()
	client.Release()
	for runtime.NumGoroutine() > goroutines && time.Since(ended) < 20*time.Second {
		time.Sleep(time.Millisecond)
	}
	f.closing = time.Since(ended)
	t.Logf("%d responses, %d requests, %d NACKs, %d lines of log", f.responses, f.requests, f.nacks, f.lines)
	after := memory(true)
	f.allocated, f.kept = after.allocated-before.allocated, after.heap-min(before.heap, after.heap)
	f.lines, f.longest = log.lines.Load(), log.longest.Load()
	return f
}

// viewOf returns the view of the client with which the scenarios watch.
func viewOf(c *xds.Client) xds.View {
	return c.View(nil, "").With(xds.TargetOptions{DropDeleted: true})
}

// sample looks at the heap and at the client's lock until stop is called.
func sample(client *xds.Client, f *figures) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			f.heap = max(f.heap, memory(false).heap)
			begin := time.Now()
			_ = viewOf(client).Waiting("l", "l")
			f.lock = max(f.lock, time.Since(begin))
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// use is of memory, in bytes.
type use struct{ heap, allocated uint64 }

// memory returns the use of memory at the moment, of live objects only if collect is true.
func memory(collect bool) use {
	for range 3 { // the pools of gRPC lose their buffers in the second collection
		if collect {
			runtime.GC()
		}
	}
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(samples)
	return use{samples[0].Value.Uint64(), samples[1].Value.Uint64()}
}
