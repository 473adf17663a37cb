// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// deltaSeeds are responses of incremental servers to a client with target "s".
func deltaSeeds(tb testing.TB) [][]byte {
	nonce := 0
	respond := func(url string, resp *discoveryv3.DeltaDiscoveryResponse) []byte {
		nonce++
		resp.TypeUrl, resp.Nonce = url, strings.Repeat("n", nonce)
		return encode(tb, resp)
	}
	with := func(url, name string, m proto.Message) []byte {
		return respond(url, &discoveryv3.DeltaDiscoveryResponse{Resources: []*discoveryv3.Resource{{Name: name, Version: "v", Resource: wrap(m)}}})
	}
	gone := func(url string, names ...string) []byte {
		return respond(url, &discoveryv3.DeltaDiscoveryResponse{RemovedResources: names})
	}
	e := endpointSeeds()[0]
	l, r := with(xdstest.LDS, "s", xdstest.Listener("s", "s")), with(xdstest.RDS, "s", xdstest.RouteConfig("s", xdstest.Route("", "s")))
	c, good := with(xdstest.CDS, "s", xdstest.Cluster("s", "s")), with(xdstest.EDS, "s", e)
	bad := wrap(e)
	bad.Value = append(bad.Value, "\x12\x00"...)
	res := func(name string, a *anypb.Any) *discoveryv3.Resource {
		return &discoveryv3.Resource{Name: name, Version: "v", Resource: a}
	}
	odd := func(list ...*discoveryv3.Resource) []byte {
		return respond(xdstest.EDS, &discoveryv3.DeltaDiscoveryResponse{Resources: list})
	}
	at := func(addrs ...string) *anypb.Any {
		var list []xdstest.Endpoint
		for _, addr := range addrs {
			list = append(list, xdstest.Endpoint{Addr: netip.MustParseAddrPort(addr)})
		}
		return wrap(xdstest.Endpoints("s", xdstest.Locality{Endpoints: list}))
	}
	mortal, renewed := res("s", at("10.0.0.1:80")), res("s", nil)
	mortal.Ttl, renewed.Ttl = durationpb.New(7*time.Second), durationpb.New(9*time.Second)
	ill := xdstest.Endpoints("s", xdstest.Locality{Endpoints: []xdstest.Endpoint{
		{Addr: netip.MustParseAddrPort("10.0.0.1:80")}, {Addr: netip.MustParseAddrPort("10.0.0.2:80"), Health: corev3.HealthStatus_UNHEALTHY},
	}})
	return [][]byte{
		say(l, r, c, odd(mortal), odd(renewed), odd(res("s", at("10.0.0.2:80")))),
		say(l, r, c, odd(res("s", at("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"))), gone(xdstest.EDS, "s"), odd(res("s", at("10.0.0.2:80", "10.0.0.2:80")))),
		say(l, r, c, odd(res("s", wrap(ill)))),
		say(l, r, c, good),
		say(l, r, c, odd(res("s", bad)), good, odd(res("s", wrap(e)), res("s", wrap(e)))),
		say(l, gone(xdstest.LDS, "s"), gone(xdstest.LDS, "s", "s", "x"), l, r, gone(xdstest.RDS, "s")),
		say(gone(xdstest.LDS, "s"), l),
		say(l, r, c, odd(res("x", wrap(e))), odd(res("", wrap(e))), odd(res("s", nil)), odd(res("s", wrap(xdstest.Cluster("s", "s"))))),
		say(l, r, c, odd(&discoveryv3.Resource{Name: "x", Aliases: []string{"s"}, Version: "v", Resource: wrap(e)})),
		say(l, r, c, odd(&discoveryv3.Resource{Name: "x", Aliases: []string{"s"}, Version: "v", Resource: wrap(e)}), gone(xdstest.EDS, "x"), gone(xdstest.EDS, "s")),
		say(l, r, c, good, odd(&discoveryv3.Resource{Name: "s", Version: "v", Ttl: durationpb.New(time.Second)})),
		say(good, respond("type.googleapis.com/x", &discoveryv3.DeltaDiscoveryResponse{}), l),
		say(respond(xdstest.LDS, &discoveryv3.DeltaDiscoveryResponse{ResourceErrors: []*discoveryv3.ResourceError{{
			ResourceName: &discoveryv3.ResourceName{Name: "s"}, ErrorDetail: &statuspb.Status{Code: 5, Message: "no"},
		}}})),
		say([]byte("\xff")),
	}
}

// FuzzDelta is FuzzADS for the incremental variant: each response of a requested type is
// answered once, with its nonce; with a NACK of bounded size if a naive check rejects it,
// otherwise with an ACK.
func FuzzDelta(f *testing.F) {
	for _, b := range deltaSeeds(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		synctest.Test(t, func(t *testing.T) { checkDelta(t, script(b, 12)) })
	})
}

// TestDeltaSeeds: the seeds lead to assignments that are accepted and that are rejected, and to
// endpoints that RPCs would be sent to.
func TestDeltaSeeds(t *testing.T) {
	var all deltaOutcome
	for _, b := range deltaSeeds(t) {
		synctest.Test(t, func(t *testing.T) {
			o := checkDelta(t, script(b, 12))
			all.valid, all.invalid = all.valid+o.valid, all.invalid+o.invalid
			all.endpoints, all.unhealthy = max(all.endpoints, o.endpoints), all.unhealthy || o.unhealthy
		})
	}
	if all.valid < 10 || all.invalid < 5 || all.endpoints < 3 || !all.unhealthy {
		t.Errorf("the assignments of the seeds have the outcome %+v", all)
	}
}

// deltaOutcome is the result for assignments.
type deltaOutcome struct {
	valid, invalid uint64
	endpoints      int  // that RPCs could be sent to at a time
	unhealthy      bool // some are excluded because of their health
}

// note takes in a configuration.
func (o *deltaOutcome) note(cfg *picker.Config) {
	for _, c := range cfg.Clusters {
		for _, l := range c.Leaves {
			n := 0
			for _, p := range l.Priorities {
				for _, loc := range p.Localities {
					n += loc.Endpoints.Len()
				}
			}
			o.endpoints, o.unhealthy = max(o.endpoints, n), o.unhealthy || len(l.Unhealthy) > 0
		}
	}
}

func checkDelta(t *testing.T, messages [][]byte) (o deltaOutcome) {
	client, open, w := connect(t, true)
	defer func() {
		if servers := client.Servers(); len(servers) > 0 {
			n := servers[0].Types[resource.EndpointsType]
			o.valid, o.invalid = n.Valid, n.Invalid
		}
	}()
	for _, b := range messages {
		resp := new(discoveryv3.DeltaDiscoveryResponse)
		wellFormed := proto.Unmarshal(b, resp) == nil
		names, before := said(open.sent(), resp.GetTypeUrl())
		if !open.deliver(b, wellFormed) {
			break
		}
		_, after := said(open.sent(), resp.GetTypeUrl())
		answers := after[len(before):]
		if len(names) == 0 && !asked(open.sent(), resp.GetTypeUrl()) {
			if len(answers) > 0 {
				t.Fatalf("%v\nwas not requested, but is answered with %v", resp, answers)
			}
			continue
		}
		if len(answers) != 1 || answers[0].GetResponseNonce() != resp.GetNonce() {
			t.Fatalf("%v\nis answered with %v", resp, answers)
		}
		detail := answers[0].GetErrorDetail()
		if len(detail.GetMessage()) > 9<<10 || detail != nil && detail.GetMessage() == "" {
			t.Fatalf("%v\nis rejected with %d bytes of error", resp, len(detail.GetMessage()))
		}
		if bad, certain := naiveDelta(resp, names); certain && bad != (detail != nil) {
			t.Fatalf("%v\nis answered with %v, but it is bad: %v", resp, answers[0], bad)
		}
		if cfg := w.latest(); cfg != nil {
			o.note(cfg)
			buildable(t, cfg)
		}
	}
	<-time.After(40 * time.Second) // until timers of resources have run out
	return o
}

// asked reports whether a type has been requested.
func asked(requests []proto.Message, url string) bool {
	return slices.ContainsFunc(requests, func(m proto.Message) bool { return m.(*discoveryv3.DeltaDiscoveryRequest).GetTypeUrl() == url })
}

// said returns the subscribed names, and the ACKs and NACKs, of a type. An answer to a response
// without a nonce has no nonce either, which has no effect.
func said(requests []proto.Message, url string) (names map[string]bool, answers []*discoveryv3.DeltaDiscoveryRequest) {
	names = map[string]bool{}
	for _, m := range requests {
		req := m.(*discoveryv3.DeltaDiscoveryRequest)
		if req.GetTypeUrl() != url {
			continue
		}
		if len(req.GetResourceNamesSubscribe())+len(req.GetResourceNamesUnsubscribe()) == 0 {
			answers = append(answers, req)
		}
		for _, name := range req.GetResourceNamesSubscribe() {
			names[name] = true
		}
		for _, name := range req.GetResourceNamesUnsubscribe() {
			delete(names, name)
		}
	}
	return names, answers
}

// naiveDelta reports whether a response to a client that requested names is invalid, and
// whether that is certain: xdstp names have more than one form.
func naiveDelta(resp *discoveryv3.DeltaDiscoveryResponse, names map[string]bool) (bad, certain bool) {
	typ, _ := resource.TypeOf(resp.GetTypeUrl())
	seen := map[string]bool{}
	for _, r := range resp.GetResources() {
		if r.GetTtl() != nil {
			return false, false // may be a heartbeat
		}
		name := r.GetName()
		if name == "" {
			name = r.GetResourceName().GetName()
		}
		own, err := resource.Name(typ, r.GetResource().GetValue())
		if r.GetResource().GetTypeUrl() != typ.URL() || err != nil {
			bad = true
			continue
		}
		if name == "" {
			name = own
		}
		if strings.Contains(name+own+strings.Join(r.GetAliases(), ""), "xdstp:") {
			return false, false
		}
		if name != own && !slices.Contains(r.GetAliases(), own) {
			bad = true
			continue
		}
		all := []string{name}
		for _, alias := range r.GetAliases() {
			if alias != name {
				all = append(all, alias)
			}
		}
		for _, name := range all {
			bad, seen[name] = bad || seen[name], true
		}
		if !slices.ContainsFunc(all, func(name string) bool { return names[name] }) {
			continue
		}
		_, err = resource.Decode(typ, r.GetResource().GetValue(), resource.Options{})
		bad = bad || err != nil
	}
	return bad, true
}
