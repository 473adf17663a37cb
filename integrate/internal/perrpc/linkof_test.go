// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import (
	"encoding/json"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
)

// TestLinkOfOthers: to ask for the link of a channel that cannot have one changes no
// service config: whoever looks at all channels of a program may look at many.
func TestLinkOfOthers(t *testing.T) {
	updates := 0
	l := NewLink(LinkOptions{Update: func() { updates++ }})
	l.Register()
	defer l.Close()
	for _, target := range []string{"passthrough:///x", "dns:///localhost"} {
		cc, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		if got := LinkOf(cc); got != nil || updates != 0 {
			t.Errorf("%s: LinkOf() = %v, with %d updates of another channel's service config", target, got, updates)
		}
		if err := cc.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestLinkOfAgain: to look at n channels without interceptors again and again, as a page of
// status does, changes service configs the first time only: then each link is bound, and
// is no matter of the others' search.
func TestLinkOfAgain(t *testing.T) {
	const n = 5
	updates := 0
	var ccs []*grpc.ClientConn
	var links []*Link
	for range n {
		r := manual.NewBuilderWithScheme("xdslb")
		var l *Link
		l = NewLink(LinkOptions{Update: func() {
			updates++
			methods := []MethodConfig{}
			if l.InServiceConfig() {
				methods = append(methods, l.MethodConfig())
			}
			config, err := json.Marshal(map[string]any{"methodConfig": methods})
			if err != nil {
				t.Fatal(err)
			}
			r.UpdateState(resolver.State{ServiceConfig: r.CC().ParseServiceConfig(string(config))})
		}})
		cc, err := grpc.NewClient("xdslb:///x", grpc.WithResolvers(r), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cc.Close() }()
		r.InitialState(resolver.State{})
		cc.Connect()
		l.Register()
		defer l.Close()
		ccs, links = append(ccs, cc), append(links, l)
	}
	for round := range 3 {
		before := updates
		for i, cc := range ccs {
			if got := LinkOf(cc); got != links[i] {
				t.Fatalf("round %d: LinkOf(channel %d) = %p, want %p", round, i, got, links[i])
			}
		}
		if took := updates - before; round > 0 && took > 0 || took > n*(n+2) {
			t.Errorf("round %d: %d updates of service configs of %d channels", round, took, n)
		}
	}
}
