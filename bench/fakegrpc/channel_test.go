// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fakegrpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"google.golang.org/grpc/balancer"
	_ "google.golang.org/grpc/balancer/ringhash"
	"google.golang.org/grpc/balancer/roundrobin"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/leak"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }

func limit(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// The policy picks the endpoints that connected.
func TestStart(t *testing.T) {
	s := New(func(addr string) bool { return strings.HasPrefix(addr, "down") })
	defer s.Close()
	kit.Must(t, s.Start(roundrobin.Name, "{}", []string{"a:1", "b:1", "c:1", "down:1"}))
	p, err := s.Wait(limit(t), 3, 1)
	kit.Must(t, err)
	seen := make(map[balancer.SubConn]int)
	for range 30 {
		r, err := p.Pick(balancer.PickInfo{})
		kit.Must(t, err)
		seen[r.SubConn]++
	}
	for sc, n := range seen {
		if down := sc.(*SubConn[bool]).Data; n != 10 || down {
			t.Errorf("a SubConn, down %v, was picked %d times, want 10 each", down, n)
		}
	}
}

// Resolve starts the policy of an xDS resolver.
func TestResolve(t *testing.T) {
	control := xdstest.New(t, xdstest.Options{})
	backends := xdstest.NewBackends(t, 3, xdstest.BackendOptions{})
	kit.Must(t, control.Set(xdstest.Service("svc", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})))
	b, err := integrate.NewBuilder(integrate.Config{Bootstrap: control.Bootstrap("node"), Linger: -1})
	kit.Must(t, err)
	s := New(nil)
	defer s.Close()
	kit.Must(t, s.Resolve(b, "xds:///svc"))
	p, err := s.Wait(limit(t), 3, 0)
	kit.Must(t, err)
	if _, err := p.Pick(balancer.PickInfo{Ctx: t.Context(), FullMethodName: "/s/m"}); err != nil {
		t.Error(err)
	}
}

// The Go runtime has size classes of 80 and 96 bytes.
func TestSubConnSize(t *testing.T) {
	if got, text := unsafe.Sizeof(SubConn[bool]{}), 16; got <= 80 || int(got)+text > SubConnSize {
		t.Errorf("a SubConn has %d bytes, which are not %d on the heap", got, SubConnSize-text)
	}
}

func TestWaitEnds(t *testing.T) {
	s := New(nil)
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Wait(ctx, 1, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait = %v, want %v", err, context.Canceled)
	}
	if err := s.Start("no such policy", "{}", nil); err == nil {
		t.Error("Start of an unregistered policy succeeded")
	}
}

// Calls that package balancer does not allow, and moves that gRPC does not make, are reported.
func TestErrors(t *testing.T) {
	var got []string
	cc := NewCC[int](func(format string, args ...any) { got = append(got, fmt.Sprintf(format, args...)) })
	dial := func(addr string) *SubConn[int] {
		c, err := cc.NewSubConn([]resolver.Address{{Addr: addr}}, balancer.NewSubConnOptions{})
		kit.Must(t, err)
		return c.(*SubConn[int])
	}
	for _, tt := range []struct {
		want string
		do   func(c *SubConn[int])
	}{
		{"calls Connect of conn 0 to a (IDLE, shut down) after Shutdown", func(c *SubConn[int]) { c.Shutdown(); c.Connect() }},
		{"calls Shutdown of", func(c *SubConn[int]) { c.Shutdown(); c.Shutdown() }},
		{"calls RegisterHealthListener of", func(c *SubConn[int]) { c.Shutdown(); c.RegisterHealthListener(nil) }},
		{"calls UpdateAddresses of", func(c *SubConn[int]) { c.UpdateAddresses(nil) }},
		{"calls UpdateState with READY and picker <nil>", func(*SubConn[int]) { cc.UpdateState(balancer.State{ConnectivityState: connectivity.Ready}) }},
		{"(IDLE) cannot become READY", func(c *SubConn[int]) { c.To(connectivity.Ready) }},
		{"(IDLE) cannot become CONNECTING", func(c *SubConn[int]) { c.Connect(); c.To(connectivity.Ready); c.To(connectivity.Connecting) }},
		{"", func(c *SubConn[int]) { c.Connect(); c.To(connectivity.TransientFailure); c.To(connectivity.Idle) }},
	} {
		got = nil
		tt.do(dial("a"))
		if tt.want == "" && got != nil || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
			t.Errorf("reported %q, want one error that contains %q", got, tt.want)
		}
	}
}
