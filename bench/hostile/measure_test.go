// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/xdslb/xdslb/bench/cputime"
	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds"
)

// figures are the costs of a server for the client.
type figures struct {
	served               // since the server misbehaves
	allocated uint64     // bytes
	retained  uint64     // bytes after the first version, minus the bytes before
	kept      uint64     // bytes when the channel is closed
	lock      lock       // by a version
	cpu       cpuSeconds // for a version, at least
	longest   int64      // line of the log or error of an RPC, in bytes
	closing   time.Duration

	// While responses come without a pause.
	peak  uint64 // heap, minus the initial one
	share float64
}

// cpuSeconds is time of processors.
type cpuSeconds = time.Duration

// lock has the longest times of the process's processors that a call waited for a mutex, of the
// versions with the shortest. Other processes do not count.
type lock struct{ client, balancer cpuSeconds }

func (l lock) longest() cpuSeconds { return max(l.client, l.balancer) }

// perByte returns n for each byte of a version.
func (f *figures) perByte(n uint64) float64 { return float64(n) / float64(max(f.largest, 1)) }

// A lineCounter is a log that measures lines.
type lineCounter struct{ lines, longest atomic.Int64 }

func (l *lineCounter) Write(b []byte) (int, error) {
	l.lines.Add(1)
	l.longest.Store(max(int64(len(b)), l.longest.Load()))
	return len(b), nil
}

// subject is a channel and its server.
type subject struct {
	*testing.T
	scenario *scenario
	server   *child
	cc       *grpc.ClientConn
	client   *xds.Client // of cc
	log      lineCounter
	probes   uint64 // goroutines of the test besides the caller of settle
}

// connect opens a channel to a server's target.
func connect(t *testing.T, s *scenario, divisor int) *subject {
	t.Helper()
	c := &subject{T: t, scenario: s, server: start(t, s, divisor)}
	cc, err := integrate.Config{
		Bootstrap: fmt.Appendf(nil, `{"xds_servers": [{"server_uri": "passthrough:///%s", "channel_creds": [{"type": "insecure"}]}], "node": {"id": "n"}}`, c.server.addr),
		Logger:    slog.New(slog.NewTextHandler(&c.log, nil)),
		Linger:    -1,
		Delta:     s.delta,
	}.NewClient("xds:///l", grpc.WithTransportCredentials(insecure.NewCredentials()))
	kit.Must(t, err)
	c.cc = cc
	t.Cleanup(func() {
		if c.cc != nil {
			_ = c.cc.Close()
		}
	})
	cc.Connect()
	if !s.absent {
		kit.Must(t, c.call())
	}
	for c.client == nil {
		for _, client := range xds.Clients() {
			c.client = client
		}
	}
	c.settle()
	return c
}

// call makes an RPC.
func (c *subject) call() error {
	ctx, cancel := context.WithTimeout(c.Context(), 2*time.Minute)
	defer cancel()
	_, err := testgrpc.NewTestServiceClient(c.cc).EmptyCall(ctx, &testgrpc.Empty{})
	if err != nil {
		c.log.longest.Store(max(int64(len(err.Error())), c.log.longest.Load()))
	}
	return err
}

// step has the server send a version, and returns when the client has handled it, with the time of
// processors that this took.
func (c *subject) step() cpuSeconds {
	c.Helper()
	before := c.server.do(c.T, count)
	used := cputime.Process()
	c.server.do(c.T, step)
	for end := time.Now().Add(2 * time.Minute); !c.scenario.silent; time.Sleep(5 * time.Millisecond) {
		now := c.server.do(c.T, count)
		if now.answers > before.answers || c.scenario.refused && now.requests > before.requests {
			break
		}
		if time.Now().After(end) {
			c.Fatal("the client has not answered a response within two minutes")
		}
	}
	c.settle()
	return cputime.Process() - used
}

// settle waits until the process uses hardly any time of processors, and no goroutine waits for one, as on a busy
// machine.
func (c *subject) settle() {
	const window, parts = 40 * time.Millisecond, 8
	for quiet, end := 0, time.Now().Add(2*time.Minute); quiet < 3 && time.Now().Before(end); {
		used, most := cputime.Process(), uint64(0)
		for range parts {
			time.Sleep(window / parts)
			most = max(most, active())
		}
		quiet++
		if cputime.Process()-used > window/4 || most > 1+c.probes {
			quiet = 0
		}
	}
}

// active returns the number of goroutines that run or could run, including the caller.
func active() uint64 {
	samples := []metrics.Sample{{Name: "/sched/goroutines/running:goroutines"}, {Name: "/sched/goroutines/runnable:goroutines"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() + samples[1].Value.Uint64()
}

// probed is step while a goroutine measures how long calls wait for mutexes.
func (c *subject) probed() (l lock) {
	canceled, cancel := context.WithCancel(c.Context())
	cancel()
	stop := repeat(func() {
		l.client = max(l.client, during(func() { _ = c.client.View(nil, "").Waiting("other", "other") }))
		l.balancer = max(l.balancer, during(func() { _ = integrate.WaitReady(canceled, c.cc, "/other/other") }))
	})
	c.probes = 1
	defer func() { stop(); c.probes = 0 }()
	c.step()
	return l
}

// during returns the time of processors that passes during a call.
func during(call func()) cpuSeconds {
	before := cputime.Process()
	call()
	return cputime.Process() - before
}

// repeat calls f in a goroutine until stop is called.
func repeat(f func()) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			f()
			select {
			case <-done:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// measure has a channel handle some versions one after the other, and then responses without a
// pause for a time, if it is not 0.
func measure(t *testing.T, s *scenario, divisor, versions int, d time.Duration) (f figures) {
	t.Helper()
	goroutines := runtime.NumGoroutine()
	empty := memory(true)
	c := connect(t, s, divisor)
	initial, before := c.server.do(t, count), memory(true)
	first := c.probed()
	if !s.fails {
		if err := c.call(); err != nil {
			t.Errorf("an RPC after the first version: %v", err)
		}
		c.settle()
	}
	f.retained = memory(true).heap
	f.retained -= min(before.heap, f.retained)
	limit := s.longestLock(c.server.do(t, count).largest)
	for i := 0; i < versions || i < 10 && f.lock.longest() > limit; i++ { // other work of the process may add to a version
		l := c.probed()
		if i == 0 || l.longest() < f.lock.longest() {
			f.lock = l
		}
	}
	for i := range versions {
		cpu := c.step()
		if i == 0 || cpu < f.cpu {
			f.cpu = cpu
		}
	}
	if d > 0 {
		c.flood(d, &f)
		f.peak -= min(before.heap, f.peak)
	}
	f.served = c.server.do(t, count).since(initial)
	f.allocated = memory(false).allocated - before.allocated
	if err := c.call(); err != nil && !s.fails {
		t.Errorf("an RPC at the end: %v", err)
	}
	f.closing = c.close(goroutines)
	t.Logf("%d responses, %d requests, %d NACKs, %d lines of log; lock of the client %v, of the balancer %v, %v and %v by the first version; CPU per version %v", f.responses, f.requests, f.nacks, c.log.lines.Load(), f.lock.client, f.lock.balancer, first.client, first.balancer, f.cpu)
	after := memory(true)
	f.kept = after.heap - min(empty.heap, after.heap)
	f.longest = c.log.longest.Load()
	return f
}

// flood has the server send without a pause for a time.
func (c *subject) flood(d time.Duration, f *figures) {
	c.server.do(c.T, flood)
	stop := repeat(func() { f.peak = max(f.peak, memory(false).heap) })
	began, used := time.Now(), cputime.Process()
	time.Sleep(d)
	stop()
	f.share = (cputime.Process() - used).Seconds() / time.Since(began).Seconds()
}

// close closes the channel and waits until there are only so many goroutines. It returns how long
// that takes.
func (c *subject) close(goroutines int) time.Duration {
	began := time.Now()
	if err := c.cc.Close(); err != nil {
		c.Error(err)
	}
	c.cc, c.client = nil, nil // so that the memory can be collected
	for runtime.NumGoroutine() > goroutines && time.Since(began) < 2*closing {
		time.Sleep(time.Millisecond)
	}
	return time.Since(began)
}

// since returns the counts since earlier ones.
func (s served) since(earlier served) served {
	s.requests -= earlier.requests
	s.answers -= earlier.answers
	s.nacks -= earlier.nacks
	s.responses -= earlier.responses
	s.bytes -= earlier.bytes
	return s
}

// use is of memory, in bytes.
type use struct{ heap, allocated uint64 }

// most is the memory with which the process ends, so that a defect does not take the machine's.
const most = 12 << 30

// memory returns the use of memory at the moment, of live objects only if collect is true.
func memory(collect bool) use {
	for range 3 { // the pools of gRPC lose their buffers in the second collection
		if collect {
			runtime.GC()
		}
	}
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(samples)
	if samples[0].Value.Uint64() > most {
		panic("too much memory")
	}
	return use{samples[0].Value.Uint64(), samples[1].Value.Uint64()}
}
