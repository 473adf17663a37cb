// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"encoding/base64"
	"math"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// shared is a table whose second route shares RPCs among clusters, the first of which gets
// all that no session is for. The first route is for a header that none of them has.
func shared(t *testing.T, clusters ...string) *Table {
	t.Helper()
	limit := time.Minute
	cfg := &picker.Config{Routes: []picker.Route{
		{Headers: []picker.HeaderMatch{{Name: "x", String: picker.StringMatch{Kind: picker.MatchExact, Value: "canary"}}}},
		{Timeout: &limit},
	}}
	for i, name := range clusters {
		cfg.Clusters = append(cfg.Clusters, &picker.Cluster{Name: name})
		cfg.Routes[1].Clusters = append(cfg.Routes[1].Clusters, picker.WeightedCluster{Name: name, Weight: uint32(max(0, 1-i))})
	}
	cfg.Routes[0].Clusters = cfg.Routes[1].Clusters[:1]
	return compiled(t, cfg)
}

// TestSessionClusterStays: an RPC goes to the cluster of its cookie, though the routes have
// changed before its first pick, if its route still leads there (A60).
func TestSessionClusterStays(t *testing.T) {
	old := shared(t, "a", "b")
	for name, c := range map[string]struct {
		in   *Table
		want string
	}{
		"no update":                                {old, "b"},
		"an update":                                {shared(t, "a", "b"), "b"},
		"an update that adds clusters":             {shared(t, "c", "d", "b"), "b"},
		"an update that takes the cluster away":    {shared(t, "c", "d"), "c"},
		"an update after which it has all of them": {shared(t, "b"), "b"},
	} {
		ctx, call := Bind(t.Context(), old, "/s/m")
		cookie := base64.StdEncoding.EncodeToString([]byte("10.0.0.1:80;" + clusterPrefix + "b"))
		call.StartSession(nil).parseCookie(cookie)
		call.keepCluster(&call.matched, old.Config.Routes[1].Clusters)
		for range 2 {
			_, cluster, outcome := call.Resolve(c.in, ctx, "/s/m")
			if outcome != picker.Picked || c.in.Config.Clusters[cluster].Name != c.want {
				t.Errorf("%s: the RPC has cluster %d and outcome %d, want %s", name, cluster, outcome, c.want)
			}
		}
	}
}

// TestSessionNested: an RPC that is made within an attempt at one that is hedged has a session
// of its own, and leaves that of the other alone.
func TestSessionNested(t *testing.T) {
	p := &plan{retry: &picker.RetryPolicy{MaxAttempts: 2, PerTryTimeout: time.Hour}, hedge: true}
	outer, nested := &Call{plan: p, session: &Session{}}, &Call{plan: p, session: &Session{}}
	endpoint := func(s string) *picker.Endpoint { return &picker.Endpoint{Addr: netip.MustParseAddrPort(s)} }
	ctx := context.WithValue(t.Context(), callKey{}, outer)
	err := hedge(ctx, p.retry, new(emptypb.Empty), new(wrapperspb.Int32Value), nil, func(ctx context.Context, _, _ proto.Message, _ []grpc.CallOption) error {
		outer.Picked(ctx, "c", endpoint("10.0.0.1:80"), new(balancer.PickResult))
		nested.Picked(ctx, "c", endpoint("10.0.0.2:80"), new(balancer.PickResult))
		return nil
	})
	kit.Must(t, err)
	for call, want := range map[*Call]string{outer: "10.0.0.1:80", nested: "10.0.0.2:80"} {
		if got := call.session.picked.Load(); got == nil || got.cfg.Addr.String() != want {
			t.Errorf("the session is with %+v, want %s", got, want)
		}
	}
}

// TestSessionLongTTL: the Max-Age of a cookie is positive, or browsers would discard it.
func TestSessionLongTTL(t *testing.T) {
	var s Session
	s.picked.Store(&upstream{cfg: &picker.Endpoint{}})
	header := s.addSetCookie(&resource.Session{Cookie: "s", TTL: math.MaxInt64}, metadata.MD{})
	if got, err := http.ParseSetCookie(header.Get("set-cookie")[0]); err != nil || got.MaxAge < math.MaxInt32 {
		t.Errorf("cookie %+v, error %v", got, err)
	}
}

// TestCookieValue: a cookie is found whatever stands beside it in the header, as net/http's
// server finds it (A55).
func TestCookieValue(t *testing.T) {
	const session = "MTAuMC4wLjE6ODA7Y2x1c3RlcjphCg=="
	for _, line := range []string{
		"s=" + session, "a=1; s=" + session, "s=" + session + "; a=1", `s="` + session + `"`, `prefs={"dark":true}; s=` + session,
		"a; s=" + session, "=x; s=" + session, "s=" + session + ";", "a b=1; s=" + session, `path=C:\x; s=` + session, " s=" + session + " ",
	} {
		request := http.Request{Header: http.Header{"Cookie": {line}}}
		if c, err := request.Cookie("s"); err != nil || c.Value != session {
			t.Fatalf("net/http finds %v in %q, error %v", c, line, err)
		}
		if got, ok := cookieValue([]string{"a=1", line}, "s"); !ok || got != session {
			t.Errorf("cookie s of %q is %q and %t, want %q", line, got, ok, session)
		}
	}
	for _, line := range []string{"", "s", "ss=x", "a=s=x", "S=x"} {
		if got, _ := cookieValue([]string{line}, "s"); got != "" {
			t.Errorf("cookie s of %q is %q, want none", line, got)
		}
	}
}
