// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package testplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// talk is a client controlled by the test.
type talk struct {
	t   *testing.T
	ads discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
}

func connect(t *testing.T, s *Scripted) *talk {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///scripted", grpc.WithContextDialer(s.Dial), grpc.WithTransportCredentials(insecure.NewCredentials()))
	kit.Must(t, err)
	t.Cleanup(func() { cc.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	ads, err := discoveryv3.NewAggregatedDiscoveryServiceClient(cc).StreamAggregatedResources(ctx)
	kit.Must(t, err)
	return &talk{t, ads}
}

func (c *talk) say(req *discoveryv3.DiscoveryRequest) {
	c.t.Helper()
	if err := c.ads.Send(req); err != nil {
		c.t.Fatal(err)
	}
}

// hear returns the next response as "type version nonce resources".
func (c *talk) hear() string {
	c.t.Helper()
	resp, err := c.ads.Recv()
	if err != nil {
		c.t.Fatal(err)
	}
	url := resp.GetTypeUrl()
	return fmt.Sprint(url[strings.LastIndex(url, ".")+1:], " ", resp.GetVersionInfo(), " ", resp.GetNonce(), " ", len(resp.GetResources()))
}

func (c *talk) hears(want ...string) {
	c.t.Helper()
	for _, w := range want {
		if got := c.hear(); got != w {
			c.t.Errorf("response %q, want %q", got, w)
		}
	}
}

// quiet checks that nothing more was sent; it works in bubbles.
func (c *talk) quiet() {
	c.t.Helper()
	got := make(chan error, 1)
	go func() { _, err := c.ads.Recv(); got <- err }()
	synctest.Wait()
	select {
	case err := <-got:
		c.t.Errorf("there is one more response, or error %v", err)
	default:
	}
}

// TestScripted checks the automatic responses: all Listeners and Clusters, only changed
// assignments, and no response to a stale nonce.
func TestScripted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewScripted(t, ScriptedOptions{})
		c := connect(t, s)
		c.say(first(request(xdstest.LDS, "", "", "a", "b")))
		synctest.Wait()
		kit.Must(t, s.Set(xdstest.Resources{}))
		all := xdstest.Service("a")
		all.Add(xdstest.Service("b"))
		kit.Must(t, s.Update(all))
		c.hears("Listener 2 1 2")
		c.say(request(xdstest.EDS, "", "", "a", "b"))
		c.hears("ClusterLoadAssignment 2 2 2")
		kit.Must(t, s.Update(xdstest.Resources{Endpoints: xdstest.Service("a", xdstest.Locality{}).Endpoints}))
		c.hears("ClusterLoadAssignment 3 3 1")
		kit.Must(t, s.Resend(xdstest.LDS, "b"))
		c.hears("Listener 4 4 2")
		c.say(request(xdstest.LDS, "2", "1", "a")) // stale
		c.say(request(xdstest.LDS, "4", "4", "a"))
		synctest.Wait()
		s.Remove(xdstest.LDS, "a")
		c.hears("Listener 5 5 0")
		s.Remove(xdstest.EDS, "a")
		if err := s.Resend(xdstest.EDS, "a"); err == nil {
			t.Error("resent a resource that is not served")
		}
		c.say(nack(request(xdstest.LDS, "4", "5", "b"), "no"))
		c.hears("Listener 6 6 1")
		synctest.Wait()
		if got, want := fmt.Sprint(s.Stats(xdstest.LDS)), "{4 4 1 1 [b] no}"; got != want {
			t.Errorf("Stats = %s, want %s", got, want)
		}
		if open, total := s.Streams(); open != 1 || total != 1 || s.Conns() != 1 {
			t.Errorf("%d of %d streams, %d connections", open, total, s.Conns())
		}
		c.quiet()
	})
}

// TestScript checks the scripted behavior: unchanged responses, in order, with given nonces.
func TestScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewScripted(t, ScriptedOptions{})
		if s.Stream() != nil {
			t.Error("a stream out of nowhere")
		}
		c := connect(t, s)
		c.say(first(request(xdstest.LDS, "", "", "a")))
		synctest.Wait()
		if n := s.Stats(xdstest.LDS).Requests; n != 1 {
			t.Fatalf("%d requests, want 1", n)
		}
		st := s.Stream()
		if got := st.Send(xdstest.LDS, "v", xdstest.Listener("a", "a")); got != "1" {
			t.Errorf("nonce %q, want 1", got)
		}
		st.Respond(&discoveryv3.DiscoveryResponse{TypeUrl: "what", Nonce: "mine"})
		st.Respond(&discoveryv3.DiscoveryResponse{TypeUrl: xdstest.LDS, VersionInfo: "w", Nonce: "1"})
		c.hears("Listener v 1 1", "what  mine 0", "Listener w 1 0")
		if n := len(st.Requests("")); n != 1 || len(st.Requests(xdstest.CDS)) != 0 || st.Number() != 1 {
			t.Errorf("%d requests, stream %d", n, st.Number())
		}
		st.Close(errors.New("enough"))
		if _, err := c.ads.Recv(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "enough") {
			t.Errorf("the stream ended with %v", err)
		}
		again := connect(t, s)
		again.say(first(request(xdstest.LDS, "w", "", "a")))
		synctest.Wait()
		s.BreakStreams()
		if _, err := again.ads.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("the stream ended with %v", err)
		}
	})
}

// TestTamper omits, repeats, delays and reorders.
func TestTamper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held *discoveryv3.DiscoveryResponse
		tamper := func(ctx context.Context, resp *discoveryv3.DiscoveryResponse) []*discoveryv3.DiscoveryResponse {
			switch resp.GetVersionInfo() {
			case "1": // omitted
				return nil
			case "2": // twice, the same and another
				again := proto.CloneOf(resp)
				again.Nonce = ""
				return []*discoveryv3.DiscoveryResponse{resp, resp, again}
			case "3": // late
				select {
				case <-time.After(time.Minute / 2):
				case <-ctx.Done():
				}
			case "4": // after the next
				held = resp
				return nil
			case "5":
				return []*discoveryv3.DiscoveryResponse{resp, held}
			}
			return []*discoveryv3.DiscoveryResponse{resp}
		}
		s := NewScripted(t, ScriptedOptions{Tamper: tamper})
		kit.Must(t, s.Set(xdstest.Service("a")))
		c := connect(t, s)
		resend := func() {
			t.Helper()
			synctest.Wait()
			kit.Must(t, s.Resend(xdstest.LDS, "a"))
		}
		c.say(first(request(xdstest.LDS, "", "", "a")))
		resend()
		c.hears("Listener 2 2 1", "Listener 2 2 1", "Listener 2 3 1")
		start := time.Now()
		resend()
		c.hears("Listener 3 4 1")
		if d := time.Since(start); d != time.Minute/2 {
			t.Errorf("delayed by %v", d)
		}
		resend()
		resend()
		c.hears("Listener 5 6 1", "Listener 4 5 1")
		c.say(request(xdstest.LDS, "4", "5", "a"))
	})
}

// TestOutage refuses connections, and leaves them hanging.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewScripted(t, ScriptedOptions{})
		c := connect(t, s)
		c.say(first(request(xdstest.LDS, "", "", "a")))
		synctest.Wait()
		refusal := errors.New("no")
		s.Refuse(refusal)
		if _, err := c.ads.Recv(); err == nil {
			t.Error("the connection is not broken")
		}
		if _, err := s.Dial(t.Context(), ""); err != refusal {
			t.Errorf("Dial: %v", err)
		}
		s.Hang()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Dial(ctx, ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Dial: %v", err)
		}
		s.Refuse(nil)
		connect(t, s).say(first(request(xdstest.LDS, "", "", "a")))
	})
}

// TestOutageOnTCP does it to clients that do not dial by Scripted.Dial.
func TestOutageOnTCP(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	s := NewScripted(t, ScriptedOptions{Listener: lis})
	connect(t, s).say(first(request(xdstest.LDS, "", "", "a")))
	s.Refuse(errors.New("no"))
	conn, err := net.Dial("tcp", lis.Addr().String())
	kit.Must(t, err)
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("a connection that works")
	}
	s.Hang()
	if conn, err = net.Dial("tcp", lis.Addr().String()); err != nil {
		t.Fatal(err)
	}
	kit.WaitFor(t, "the connection", func() bool { return s.Conns() == 1 })
	s.Refuse(nil)
	connect(t, s).say(first(request(xdstest.LDS, "", "", "a")))
	s.Stop()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("a connection that outlives the server")
	}
}

// TestViolationsFailTests checks NewScripted's handling of violations, and that ServerOption
// checks clients of another server.
func TestViolationsFailTests(t *testing.T) {
	tb := &recordingTB{TB: t}
	var reported []string
	s := NewScripted(tb, ScriptedOptions{Report: func(v string) { reported = append(reported, v) }})
	c := connect(t, s)
	c.say(request(xdstest.LDS, "", "", "a"))
	kit.WaitFor(t, "the request", func() bool { return s.Stats(xdstest.LDS).Requests == 1 })
	if len(tb.errors) != 1 || len(reported) != 1 || !slices.Equal(s.Violations(), reported) || !strings.Contains(tb.errors[0], "A27-NODE-1") {
		t.Errorf("errors %q, reported %q, violations %q", tb.errors, reported, s.Violations())
	}
	checker := NewChecker(nil)
	real := xdstest.New(t, xdstest.Options{Server: []grpc.ServerOption{checker.ServerOption()}})
	c.t = t
	cc, err := grpc.NewClient(real.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	kit.Must(t, err)
	defer cc.Close()
	if c.ads, err = discoveryv3.NewAggregatedDiscoveryServiceClient(cc).StreamAggregatedResources(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.say(request(xdstest.LDS, "", "", "a"))
	kit.Must(t, real.Wait(t.Context(), func() bool { return real.Stats(xdstest.LDS).Requests == 1 }))
	if v := checker.Violations(); len(v) != 1 || !strings.Contains(v[0], "A27-NODE") {
		t.Errorf("violations %q", v)
	}
}

// recordingTB keeps errors to itself.
type recordingTB struct {
	xdstest.TB
	errors []string
}

func (tb *recordingTB) Errorf(format string, args ...any) {
	tb.errors = append(tb.errors, fmt.Sprintf(format, args...))
}
