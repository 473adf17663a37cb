// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// A client that has the bootstrap reaches the endpoints, and follows a line of the input.
func TestServes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	backends := xdstest.NewBackends(t, 2, xdstest.BackendOptions{})
	first, second := backends[0].Addr().String(), backends[1].Addr().String()
	file := filepath.Join(t.TempDir(), "xds.json")
	input, typed := io.Pipe()
	output, printed := io.Pipe()
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- run(running, "127.0.0.1:0", file, []string{"greeter=" + first}, input, printed) }()
	t.Cleanup(func() {
		stop()
		_ = typed.Close()
		go func() { _, _ = io.Copy(io.Discard, output) }()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		_ = printed.Close()
	})
	lines := make(chan string, 10)
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := output.Read(buf)
			if err != nil {
				return
			}
			lines <- string(buf[:n])
		}
	}()
	await := func(want string) {
		t.Helper()
		for {
			select {
			case got := <-lines:
				if strings.Contains(got, want) {
					return
				}
			case <-ctx.Done():
				t.Fatalf("no line %q", want)
			}
		}
	}
	await("xds:///greeter: 1 endpoint\n")
	text, err := os.ReadFile(file)
	kit.Must(t, err)
	opts, err := integrate.DialOptions(integrate.Config{Bootstrap: text, Linger: -1})
	kit.Must(t, err)
	cc, err := grpc.NewClient("xds:///greeter", append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	kit.Must(t, err)
	defer func() { _ = cc.Close() }()
	answers := func() string {
		res, err := testgrpc.NewTestServiceClient(cc).UnaryCall(ctx, &testgrpc.SimpleRequest{})
		kit.Must(t, err)
		return res.GetHostname()
	}
	before := answers()
	if _, err := io.WriteString(typed, "nonsense\n\ngreeter="+second+"*2\n"); err != nil {
		t.Fatal(err)
	}
	await(`"nonsense": want service=`)
	await("xds:///greeter: 1 endpoint\n")
	for answers() == before {
		if ctx.Err() != nil {
			t.Fatal("the client does not follow")
		}
	}
}

func TestReplace(t *testing.T) {
	p := &plane{services: map[string][]xdstest.Endpoint{}}
	for _, text := range []string{"", "a", "=127.0.0.1:1", "a=127.0.0.1", "a=localhost:1", "a=127.0.0.1:1*0", "a=127.0.0.1:1*x"} {
		if _, err := p.replace(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	if _, err := p.replace("a=127.0.0.1:1*3,[::1]:2"); err != nil || len(p.services["a"]) != 2 || p.services["a"][0].Weight != 3 {
		t.Errorf("got %v, %v", p.services, err)
	}
	if _, err := p.replace("a="); err != nil || len(p.services["a"]) != 0 {
		t.Errorf("no endpoints: got %v, %v", p.services, err)
	}
}
