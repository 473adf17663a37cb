// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"sync"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
)

// A process is a running program of Istio's. Its output is captured.
type process struct {
	cmd    *exec.Cmd
	output *kit.Logs
	exited chan struct{}
}

// start runs a program in a folder, with only the given environment. The program is killed at
// the end of the test, and its output is logged if the test fails.
func start(t testing.TB, dir string, env []string, path string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(path, args...), output: new(kit.Logs), exited: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env = dir, env
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	kit.Must(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // the exit status of a killed program is irrelevant
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("output of %s:\n%s", path, p.output)
		}
	})
	return p
}

// kill ends the program without notice, and returns when it has exited.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if the program has exited
	<-p.exited
}

// waitFor waits for a condition, and fails the test if the program exits before.
func (p *process) waitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	kit.WaitFor(t, what, func() bool {
		select {
		case <-p.exited:
			t.Fatalf("%s exited while the test waited for %s", p.cmd.Path, what)
		default:
		}
		return cond()
	})
}

// freeAddr returns an unused address of loopback.
func freeAddr(t testing.TB) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	defer lis.Close()
	return lis.Addr().String()
}

// accepts reports whether something accepts connections at an address.
func accepts(network, addr string) bool {
	conn, err := net.Dial(network, addr)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// forward listens on an address and forwards connections to another one, until the returned
// function is called or the test ends. That closes all connections.
func forward(t testing.TB, from, to string) (stop func()) {
	t.Helper()
	lis, err := net.Listen("tcp", from)
	kit.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			in, err := lis.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer in.Close()
				out, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer out.Close()
				defer context.AfterFunc(ctx, func() { _, _ = in.Close(), out.Close() })()
				running.Go(func() {
					_, _ = io.Copy(in, out)
					_, _ = in.Close(), out.Close()
				})
				_, _ = io.Copy(out, in)
			})
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		_ = lis.Close()
		running.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// port returns the port of an address.
func port(addr string) string {
	_, p, err := net.SplitHostPort(addr)
	if err != nil {
		panic(fmt.Sprintf("address %q: %v", addr, err))
	}
	return p
}
