// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/xdslb/xdslb/bench/fakegrpc"
)

// clientVariable is the variable of the environment that has the test binary be a client
// apart. Its value is a clientSpec.
const clientVariable = "XDSLB_BENCH_CLIENT"

func TestMain(m *testing.M) {
	if doc := os.Getenv(clientVariable); doc != "" {
		if err := beApart(doc); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// clientSpec is the configuration of a client in a separate process.
type clientSpec struct {
	Impl      string
	Bootstrap []byte
	Endpoints int // to wait for

	// For impl=none: the address of the control plane, and the resources to request, by type.
	Addr  string
	Names map[string][]string
}

// usage is the resource usage of a client.
type usage struct {
	CPU            time.Duration
	Bytes, Mallocs uint64
	Err            string
}

// apart is an xDS client in a separate process, with a fakegrpc.Channel for its connections. So
// its usage need not be separated from the control plane's, which is many times larger.
type apart struct {
	ask   io.Writer
	reply *bufio.Reader
}

// startApart starts a client, and returns when its endpoints are READY.
func startApart(b *testing.B, spec clientSpec) *apart {
	b.Helper()
	doc := must(b, func() ([]byte, error) { return json.Marshal(spec) })
	cmd := exec.Command(must(b, os.Executable), "-test.run=^$")
	cmd.Env, cmd.Stderr = append(os.Environ(), clientVariable+"="+string(doc)), os.Stderr
	in, out := must(b, cmd.StdinPipe), must(b, cmd.StdoutPipe)
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	a := &apart{ask: in, reply: bufio.NewReader(out)}
	a.usage(b)
	return a
}

// usage returns the client's usage so far, once it is idle.
func (a *apart) usage(b *testing.B) (u usage) {
	b.Helper()
	_, err := io.WriteString(a.ask, "\n")
	if err == nil {
		var line []byte
		if line, err = a.reply.ReadBytes('\n'); err == nil {
			err = json.Unmarshal(line, &u)
		}
	}
	if err != nil || u.Err != "" {
		b.Fatal("the client apart: ", err, u.Err)
	}
	return u
}

// beApart is a client apart, until its standard input ends.
func beApart(doc string) error {
	var spec clientSpec
	if err := json.Unmarshal([]byte(doc), &spec); err != nil {
		return err
	}
	var first usage
	s, err := spec.start()
	if err != nil {
		first.Err = err.Error()
	}
	runtime.GC()
	out := json.NewEncoder(os.Stdout)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		settle(s)
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		first.CPU, first.Bytes, first.Mallocs = time.Duration(cpuTime()), m.TotalAlloc, m.Mallocs
		if err := out.Encode(first); err != nil {
			return err
		}
	}
	return nil
}

// start starts the client in this process.
func (spec clientSpec) start() (*fakegrpc.Channel, error) {
	if spec.Impl == "none" {
		return nil, spec.startNull()
	}
	s := fakegrpc.New(nil)
	builder, err := builderOf(spec.Impl, spec.Bootstrap)
	if err == nil {
		err = s.Resolve(builder, "xds:///"+service)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	_, err = s.Wait(ctx, spec.Endpoints, 0)
	return s, err
}

// A contender is a client apart whose updates are measured, with a control plane of its own.
type contender struct {
	client *apart
	// update has the control plane make an update, and returns when the client has accepted it.
	update func() error
}

// updateCost is the cost of an update for the client.
type updateCost struct{ cpu, bytes, allocs float64 }

// pauseAfterUpdate is between updates, so that each is published by itself: publications
// follow each other after a millisecond at the earliest.
const pauseAfterUpdate = 2 * time.Millisecond

// measureUpdates returns the cost of an update for each of the contenders, which alternate in
// rounds of each updates.
func measureUpdates(b *testing.B, list map[string]contender, rounds, each int) map[string]updateCost {
	if testing.Short() {
		each = 1
	}
	result := make(map[string]updateCost)
	for name, of := range turns(list, rounds, func(c contender) updateCost { return c.round(b, each) }) {
		result[name] = updateCost{
			cpu:    quantile(of, median, func(c updateCost) float64 { return c.cpu }),
			bytes:  quantile(of, median, func(c updateCost) float64 { return c.bytes }),
			allocs: quantile(of, median, func(c updateCost) float64 { return c.allocs }),
		}
	}
	return result
}

// round makes n updates.
func (c contender) round(b *testing.B, n int) updateCost {
	before := c.client.usage(b)
	for range n {
		if err := c.update(); err != nil {
			b.Fatal(err)
		}
		time.Sleep(pauseAfterUpdate)
	}
	after := c.client.usage(b)
	per := func(x float64) float64 { return x / float64(n) }
	return updateCost{
		cpu:   per(float64((after.CPU - before.CPU).Nanoseconds()) / 1e3),
		bytes: per(float64(after.Bytes - before.Bytes)), allocs: per(float64(after.Mallocs - before.Mallocs)),
	}
}

// report reports the cost as that of an operation.
func (c updateCost) report(b *testing.B) {
	b.ReportMetric(0, "ns/op") // not reported
	b.ReportMetric(c.cpu, "client-cpu-µs/op")
	b.ReportMetric(c.bytes/1024, "client-KiB/op")
	b.ReportMetric(c.bytes, "B/op")
	b.ReportMetric(c.allocs, "allocs/op")
}
