// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package testplane

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/xdstest"
)

func subscribe(t string, names ...string) *discoveryv3.DeltaDiscoveryRequest {
	return &discoveryv3.DeltaDiscoveryRequest{TypeUrl: t, ResourceNamesSubscribe: names}
}

func unsubscribe(t string, names ...string) *discoveryv3.DeltaDiscoveryRequest {
	return &discoveryv3.DeltaDiscoveryRequest{TypeUrl: t, ResourceNamesUnsubscribe: names}
}

func answerTo(t, nonce string) *discoveryv3.DeltaDiscoveryRequest {
	return &discoveryv3.DeltaDiscoveryRequest{TypeUrl: t, ResponseNonce: nonce}
}

// having has a first request claim versions, as name=version.
func having(req *discoveryv3.DeltaDiscoveryRequest, versions ...string) *discoveryv3.DeltaDiscoveryRequest {
	req.InitialResourceVersions = map[string]string{}
	for _, v := range versions {
		name, version, _ := strings.Cut(v, "=")
		req.InitialResourceVersions[name] = version
	}
	return req
}

// hello makes req the first of its stream.
func hello(req *discoveryv3.DeltaDiscoveryRequest) *discoveryv3.DeltaDiscoveryRequest {
	req.Node = first(&discoveryv3.DiscoveryRequest{}).Node
	return req
}

func sent(t, nonce string, resources ...string) *discoveryv3.DeltaDiscoveryResponse {
	resp := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: t, Nonce: nonce}
	for _, r := range resources {
		name, version, _ := strings.Cut(r, "=")
		resp.Resources = append(resp.Resources, &discoveryv3.Resource{Name: name, Version: version})
	}
	return resp
}

// TestCheckerDelta is TestChecker for the incremental variant.
func TestCheckerDelta(t *testing.T) {
	rejects := func(nonce, why string) *discoveryv3.DeltaDiscoveryRequest {
		req := answerTo(xdstest.LDS, nonce)
		req.ErrorDetail = &statuspb.Status{Code: 3, Message: why}
		return req
	}
	both := answerTo(xdstest.LDS, "1")
	both.ResourceNamesSubscribe = []string{"b"}
	a := hello(subscribe(xdstest.LDS, "a"))
	for _, tt := range []struct {
		name     string
		messages []any // requests, responses, and nil for a new stream
		want     string
	}{
		{"subscription, ACK, NACK, change", []any{a, sent(xdstest.LDS, "1", "a=7"), subscribe(xdstest.LDS, "b"), answerTo(xdstest.LDS, "1"), sent(xdstest.LDS, "2", "b=7"), rejects("2", "bad"), unsubscribe(xdstest.LDS, "a")}, ""},
		{"versions kept on a new stream", []any{a, sent(xdstest.LDS, "1", "a=7"), answerTo(xdstest.LDS, "1"), nil, hello(having(subscribe(xdstest.LDS, "a"), "a=7"))}, ""},
		{"subscribed to again", []any{a, subscribe(xdstest.LDS, "a")}, ""},
		{"no node", []any{subscribe(xdstest.LDS, "a")}, "A27-NODE-1"},
		{"unknown type", []any{hello(subscribe("type.googleapis.com/x", "a"))}, "T-XDS-12"},
		{"wildcard of old", []any{hello(unsubscribe(xdstest.LDS))}, "asks for everything"},
		{"wildcard", []any{hello(subscribe(xdstest.LDS, "*"))}, "asks for everything"},
		{"twice", []any{hello(subscribe(xdstest.LDS, "a", "a"))}, "twice"},
		{"nothing", []any{a, subscribe(xdstest.LDS)}, "says nothing"},
		{"left twice", []any{a, unsubscribe(xdstest.LDS, "a"), unsubscribe(xdstest.LDS, "a")}, "was not subscribed to"},
		{"versions too late", []any{a, sent(xdstest.LDS, "1", "a=7"), answerTo(xdstest.LDS, "1"), having(subscribe(xdstest.LDS, "b"), "a=7")}, "in a later request"},
		{"version out of thin air", []any{hello(having(subscribe(xdstest.LDS, "a"), "a=7"))}, "never sent"},
		{"version of another", []any{a, sent(xdstest.LDS, "1", "a=7"), answerTo(xdstest.LDS, "1"), nil, hello(having(subscribe(xdstest.LDS, "b"), "b=7"))}, "never sent"},
		{"version of what is not wanted", []any{a, sent(xdstest.LDS, "1", "a=7"), answerTo(xdstest.LDS, "1"), nil, hello(having(subscribe(xdstest.LDS, "b"), "a=7"))}, "not subscribed to"},
		{"answered twice", []any{a, sent(xdstest.LDS, "1", "a=7"), answerTo(xdstest.LDS, "1"), answerTo(xdstest.LDS, "1")}, "has been answered"},
		{"answered out of order", []any{a, sent(xdstest.LDS, "1", "a=7"), sent(xdstest.LDS, "2", "a=8"), answerTo(xdstest.LDS, "2")}, "before it was not"},
		{"change in an answer", []any{a, sent(xdstest.LDS, "1", "a=7"), both}, "in an answer"},
		{"NACK without a nonce", []any{a, func() any { r := rejects("", "bad"); r.ResourceNamesSubscribe = []string{"b"}; return r }()}, "without a nonce"},
		{"NACK without a reason", []any{a, sent(xdstest.LDS, "1", "a=7"), rejects("1", "")}, "does not say why"},
	} {
		c := NewChecker(nil)
		s := c.Stream()
		for i, m := range tt.messages {
			switch m := m.(type) {
			case nil:
				s = c.Stream()
			case *discoveryv3.DeltaDiscoveryRequest:
				s.DeltaRequest(m)
			case *discoveryv3.DeltaDiscoveryResponse:
				s.DeltaResponse(m)
			}
			if v := c.Violations(); i < len(tt.messages)-1 && len(v) > 0 {
				t.Fatalf("%s: too early: %q", tt.name, v)
			}
		}
		if v := c.Violations(); tt.want == "" && len(v) > 0 || tt.want != "" && (len(v) != 1 || !strings.Contains(v[0], tt.want)) {
			t.Errorf("%s: violations = %q, want one with %q", tt.name, v, tt.want)
		}
	}
}

// deltaTalk is a client of the incremental variant controlled by the test.
type deltaTalk struct {
	t   *testing.T
	ads discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
}

func connectDelta(t *testing.T, addr string, opts ...grpc.DialOption) *deltaTalk {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+addr, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	kit.Must(t, err)
	t.Cleanup(func() { cc.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	ads, err := discoveryv3.NewAggregatedDiscoveryServiceClient(cc).DeltaAggregatedResources(ctx)
	kit.Must(t, err)
	return &deltaTalk{t, ads}
}

func (c *deltaTalk) say(req *discoveryv3.DeltaDiscoveryRequest) {
	c.t.Helper()
	if err := c.ads.Send(req); err != nil {
		c.t.Fatal(err)
	}
}

// hear returns the next response as "nonce name=version ... -removed ...".
func (c *deltaTalk) hear() string {
	c.t.Helper()
	resp, err := c.ads.Recv()
	if err != nil {
		c.t.Fatal(err)
	}
	b := resp.GetNonce()
	for _, r := range resp.GetResources() {
		b += fmt.Sprintf(" %s=%.4s", r.GetName(), r.GetVersion())
	}
	for _, name := range resp.GetRemovedResources() {
		b += " -" + name
	}
	return b
}

// TestScriptedDelta checks that the server sends new resources, and repeated ones on request;
// removals, except of resources that never existed; and accepts the initial versions of
// clients.
func TestScriptedDelta(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := StartScripted(ScriptedOptions{Report: func(v string) { t.Error(v) }})
		defer s.Stop()
		kit.Must(t, s.Set(xdstest.Resources{Listeners: []*listenerv3.Listener{xdstest.Listener("a", "r"), xdstest.Listener("b", "r")}}))
		c := connectDelta(t, "s", grpc.WithContextDialer(s.Dial))
		want := func(want string) {
			t.Helper()
			if got := c.hear(); got != want {
				t.Errorf("heard %q, want %q", got, want)
			}
		}
		c.say(hello(subscribe(xdstest.LDS, "a", "nobody")))
		want("1 a=1")
		c.say(answerTo(xdstest.LDS, "1"))
		c.say(subscribe(xdstest.LDS, "b"))
		want("2 b=1")
		c.say(answerTo(xdstest.LDS, "2"))
		kit.Must(t, s.Update(xdstest.Resources{Listeners: []*listenerv3.Listener{xdstest.Listener("a", "other")}}))
		want("3 a=2")
		c.say(answerTo(xdstest.LDS, "3"))
		s.Remove(xdstest.LDS, "b")
		want("4 -b")
		c.say(answerTo(xdstest.LDS, "4"))
		c.say(subscribe(xdstest.LDS, "a"))
		want("5 a=2")
		c.say(answerTo(xdstest.LDS, "5"))
		synctest.Wait()
		if stats := s.Stats(xdstest.LDS); stats.ACKs != 5 || stats.NACKs != 0 || len(stats.Names) != 3 || s.DeltaStream().Number() != 1 || s.Stream() != nil {
			t.Errorf("stats %+v", stats)
		}
		s.DeltaStream().Close(errBroken)
		c = connectDelta(t, "s", grpc.WithContextDialer(s.Dial))
		c.say(hello(having(subscribe(xdstest.LDS, "a", "b"), "a=2", "b=1")))
		want("1 -b")
		s.Serve(true, false)
		if _, err := c.ads.Recv(); err == nil {
			t.Error("the stream is still open")
		}
		c = connectDelta(t, "s", grpc.WithContextDialer(s.Dial))
		if _, err := c.ads.Recv(); status.Code(err) != codes.Unimplemented {
			t.Errorf("error %v", err)
		}
	})
}

// TestServerDelta: go-control-plane does the same, and WaitACK, WaitNACK and Stats hold
// for both variants; also if a client has everything already.
func TestServerDelta(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	requests := 0
	checker := NewChecker(nil)
	s := xdstest.New(t, xdstest.Options{
		OnDeltaRequest: func(int64, *discoveryv3.DeltaDiscoveryRequest) { requests++ },
		Server:         []grpc.ServerOption{checker.ServerOption()},
	})
	kit.Must(t, s.Set(xdstest.Resources{Clusters: []*clusterv3.Cluster{xdstest.Cluster("a", "a"), xdstest.Cluster("b", "b")}}))
	c := connectDelta(t, s.Addr())
	c.say(hello(subscribe(xdstest.CDS, "a", "b")))
	resp, err := c.ads.Recv()
	if err != nil || len(resp.GetResources()) != 2 {
		t.Fatalf("%v, %v", resp, err)
	}
	have := map[string]string{}
	for _, r := range resp.GetResources() {
		have[r.GetName()] = r.GetVersion()
	}
	c.say(answerTo(xdstest.CDS, resp.GetNonce()))
	if err := s.WaitACK(ctx, xdstest.CDS); err != nil {
		t.Error(err)
	}
	kit.Must(t, s.Update(xdstest.Resources{Clusters: []*clusterv3.Cluster{xdstest.Cluster("a", "other")}}))
	if resp, err = c.ads.Recv(); err != nil || len(resp.GetResources()) != 1 || resp.GetResources()[0].GetName() != "a" {
		t.Fatalf("%v, %v; want the changes", resp, err)
	}
	nack := answerTo(xdstest.CDS, resp.GetNonce())
	nack.ErrorDetail = &statuspb.Status{Code: 3, Message: "bad"}
	c.say(nack)
	if detail, err := s.WaitNACK(ctx, xdstest.CDS); detail != "bad" || err != nil {
		t.Errorf("%q, %v", detail, err)
	}
	have["a"] = resp.GetResources()[0].GetVersion()
	_ = c.ads.CloseSend()
	s.BreakStreams()
	kit.Must(t, s.Wait(ctx, func() bool { open, _ := s.Streams(); return open == 0 }))
	c = connectDelta(t, s.Addr())
	again := hello(subscribe(xdstest.CDS, "a", "b"))
	again.InitialResourceVersions = have
	c.say(again)
	if err := s.WaitACK(ctx, xdstest.CDS); err != nil {
		t.Error(err)
	}
	if stats := s.Stats(xdstest.CDS); stats.Responses != 2 || stats.ACKs != 1 || stats.NACKs != 1 || stats.Requests != 4 || requests != 4 {
		t.Errorf("stats %+v, %d requests", stats, requests)
	}
	if v := checker.Violations(); len(v) > 0 {
		t.Errorf("violations: %q", v)
	}
}
