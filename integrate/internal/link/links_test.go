// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/xdslb/xdslb/integrate/internal/methodconfig"
)

// connected returns a channel of a target whose resolver gives it the method configs, and
// that has left idle mode.
func connected(t *testing.T, target string, methods ...methodconfig.Config) *grpc.ClientConn {
	t.Helper()
	scheme, _, _ := strings.Cut(target, ":")
	r := manual.NewBuilderWithScheme(scheme)
	r.BuildCallback = func(_ resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) {
		config, err := json.Marshal(map[string]any{"methodConfig": methods})
		if err != nil {
			t.Fatal(err)
		}
		r.InitialState(resolver.State{ServiceConfig: cc.ParseServiceConfig(string(config))})
	}
	cc, err := grpc.NewClient(target, grpc.WithResolvers(r), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithMaxCallAttempts(3))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	cc.Connect()
	return cc
}

// TestLinkOf: channels of one target each lead to their own link, with the attempts that they
// allow, and to none once that is closed. Other channels lead to none, also if their methods
// have the timeout of a link's entry, by default or by its name.
func TestLinkOf(t *testing.T) {
	const target = "xdslb:///link-of"
	var all []*Link
	var channels []*grpc.ClientConn
	for range 3 {
		l := New(Options{Canonical: target})
		l.Register()
		defer l.Close()
		all, channels = append(all, l), append(channels, connected(t, target, l.MethodConfig()))
	}
	for i, cc := range channels {
		if got, attempts := named(cc); got != all[i] || attempts != 3 {
			t.Errorf("channel %d leads to link %v and allows %d attempts, want link %d and 3", i, got, attempts, all[i].Number())
		}
	}
	byDefault, retries := all[0].MethodConfig(), all[0].MethodConfig().RetryPolicy
	byDefault.Name = []map[string]string{{}}
	timeout := byDefault
	timeout.RetryPolicy = nil
	for name, cc := range map[string]*grpc.ClientConn{
		"the entry, and another target": connected(t, "xds:///another", all[0].MethodConfig()),
		"a default of another target":   connected(t, "xds:///another", byDefault),
		"a default timeout":             connected(t, target, timeout),
		"a default without timeout":     connected(t, target, methodconfig.Config{Name: byDefault.Name, RetryPolicy: retries}),
		"no method config":              connected(t, target),
		"another scheme":                connected(t, "passthrough:///x"),
	} {
		if got := Of(cc); got != nil {
			t.Errorf("%s: the channel leads to link %d, want none", name, got.Number())
		}
	}
	all[1].Close()
	if got := Of(channels[1]); got != nil {
		t.Errorf("a channel leads to link %d, which is closed", got.Number())
	}
}

// TestLinksByTarget: links are found by their targets, in their order, until they close.
func TestLinksByTarget(t *testing.T) {
	var all []*Link
	for i := range 6 {
		target := fmt.Sprintf("xds:///by-target-%d", i%2)
		l := New(Options{Canonical: target, Bypassed: i >= 2})
		l.Register()
		defer l.Close()
		all = append(all, l)
	}
	if got := To("xds:///by-target-1"); !slices.Equal(got, []*Link{all[1], all[3], all[5]}) {
		t.Errorf("To() = %v, want those of indexes 1, 3, 5 of %v", got, all)
	}
	for i, l := range all {
		if l.Close(); i == 3 && first(l.Canonical, isBypassed) != all[5] {
			t.Error("the last link that stands aside is not found")
		}
	}
	if got, one := To("xds:///by-target-1"), first("xds:///by-target-1", isBypassed); len(got) > 0 || one != nil {
		t.Errorf("links that are closed are found: %v, %v", got, one)
	}
}

// TestFindWaitsForConfirm checks that interceptors wait while another package's resolver is being
// built: they let RPCs pass once it is confirmed, and find this package's link if it is not.
func TestFindWaitsForConfirm(t *testing.T) {
	for _, confirmed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			const target = "xds:///confirm"
			r := manual.NewBuilderWithScheme("xds") // sends no state
			cc, err := grpc.NewClient(target, grpc.WithResolvers(r), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cc.Close() }()
			cc.Connect()
			other := New(Options{Canonical: target, Bypassed: true})
			other.Register()
			defer other.Close()
			found := make(chan *Link, 1)
			go func() { found <- Find(context.Background(), cc) }()
			synctest.Wait()
			select {
			case l := <-found:
				t.Fatalf("Find() = %v before the decision", l)
			default:
			}
			var want *Link
			if confirmed {
				other.Confirm()
			} else {
				other.Close()
				want = New(Options{Canonical: target})
				want.Register()
				defer want.Close()
				config, err := json.Marshal(map[string]any{"methodConfig": []methodconfig.Config{want.MethodConfig()}})
				if err != nil {
					t.Fatal(err)
				}
				r.UpdateState(resolver.State{ServiceConfig: r.CC().ParseServiceConfig(string(config)), Addresses: []resolver.Address{{Addr: "127.0.0.1:0"}}})
			}
			if l := <-found; l != want {
				t.Errorf("confirmed %v: Find() = %v, want %v", confirmed, l, want)
			}
		})
	}
}
