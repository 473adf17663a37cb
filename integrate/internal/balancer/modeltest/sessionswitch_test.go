// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"context"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	lb "github.com/xdslb/xdslb/integrate/internal/balancer"
	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/picker"
)

// TestSessionPolicySwitch: an RPC whose latest attempt went where no sessions are, for its
// cluster has come to have such a policy, gets no cookie of the endpoint that an earlier attempt
// went to.
func TestSessionPolicySwitch(t *testing.T) {
	for name, policy := range map[string]picker.Policy{
		"pick_first": {Kind: picker.PolicyPickFirst, First: &picker.PickFirst{}},
		"custom":     {Kind: picker.PolicyCustom, Custom: &picker.CustomPolicy{Name: string(prompt), Config: []byte(`{}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc := &modelChannel{}
				b, source := newModelBalancer(cc, integrate.Config{}, nil, new(loadServers).intercept)
				defer source.Close()
				defer b.Close()
				switchTo := func(p picker.Policy) {
					cfg := configOf(picker.Leaf{Policy: p, Priorities: []picker.Priority{zone("0", member(1), member(2))}})
					cfg.Filters = []picker.Filter{sessionFilter()}
					b.Update(cfg)
					for range 5 {
						kit.Pass(lb.PublishPause)
						for _, conn := range cc.open() {
							for conn.state != connectivity.Ready && conn.step(true) {
							}
						}
					}
				}
				cookieAfter := func(between func()) []string {
					var header metadata.MD
					err := rpc.Unary(t.Context(), b.Table(), "/c/m", nil, nil, nil, func(ctx context.Context, method string, _, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
						for attempt := range 2 {
							if attempt > 0 {
								between()
							}
							p, _ := cc.seen()
							res, err := p.Pick(balancer.PickInfo{FullMethodName: method, Ctx: ctx})
							if err != nil {
								return err
							}
							res.Done(balancer.DoneInfo{})
						}
						*opts[0].(grpc.HeaderCallOption).HeaderAddr = metadata.Pairs("k", "v")
						return nil
					}, grpc.Header(&header))
					if err != nil {
						t.Fatal(err)
					}
					return header.Get("set-cookie")
				}
				switchTo(picker.Policy{})
				if got := cookieAfter(func() {}); len(got) != 1 {
					t.Errorf("an RPC without a session gets the cookies %q, want one", got)
				}
				if got := cookieAfter(func() { switchTo(policy) }); len(got) != 0 {
					t.Errorf("an RPC that was answered where no sessions are gets the cookie %q", got)
				}
			})
		})
	}
}
