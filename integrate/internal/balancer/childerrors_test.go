// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
)

// TestCustomErrors: gRPC gets the errors of a child's picker: statuses are final, other errors fail
// RPCs that do not wait, and RPCs that wait are picked again when there is another picker, also one
// in the same state.
func TestCustomErrors(t *testing.T) {
	built()
	b, cc := newTestLB(t, Config{})
	b.set(configOf(customOf(false, stubA, `{}`, prio(eps(1)))))
	s := one(t)
	s.mute = true
	drop, plain := status.Error(codes.ResourceExhausted, "dropped"), errors.New("no")
	for _, state := range []connectivity.State{ready, failure, ready} {
		for _, err := range []error{drop, plain, balancer.ErrNoSubConnAvailable} {
			reportState(s, state, err)
			b.flush()
			if _, got := b.pick(); !errors.Is(got, err) {
				t.Errorf("%v: Pick() error = %v, want %v", state, got, err)
			}
		}
	}
	if k := breakerOf(b).InFlight(); k != 0 {
		t.Errorf("%d RPCs in flight, want none", k)
	}
	before := cc.announced
	reportState(s, ready, plain)
	if cc.announced != before+1 {
		t.Errorf("RPCs that waited were woken %d times, want once", cc.announced-before)
	}
	reportState(s, ready, plain)
	if cc.announced != before+1 {
		t.Error("gRPC was called although no RPC waits")
	}
	if cc.state != ready {
		t.Errorf("the channel is %v, want READY", cc.state)
	}
	before = cc.announced
	b.to(cc.conn(t, 1), ready)
	b.to(cc.conn(t, 1), idle)
	b.flush()
	if cc.announced != before+1 {
		t.Error("gRPC got no new picker after the loss of a connection that picked RPCs wait for")
	}
}

// TestPolicyRejectionLogged checks that the log has a line when a child policy rejects its
// configuration, and one when it accepts a later one.
func TestPolicyRejectionLogged(t *testing.T) {
	built()
	book := &kit.Logs{}
	b, _ := newTestLB(t, Config{Logger: slog.New(book)})
	b.set(configOf(customOf(false, stubA, `{}`, prio(eps(1)))))
	b.set(configOf(customOf(false, stubA, `{"N": "no number"}`, prio(eps(1)))))
	book.WantOne(t, "WARN "+msgPolicyRejects, "policy="+stubA, "error=")
	if found := book.With(msgPolicyAccepts); len(found) > 0 {
		t.Errorf("before the configuration is accepted: %q", found)
	}
	b.set(configOf(customOf(false, stubA, `{"N": 1}`, prio(eps(1)))))
	book.WantOne(t, "INFO "+msgPolicyAccepts, "policy="+stubA)
}

// TestCustomNotCompiled: RPCs of a cluster that cannot be compiled fail with the reason unless they are
// wait-for-ready, whatever the state of the child policy, until an update corrects the cluster.
func TestCustomNotCompiled(t *testing.T) {
	for _, state := range []connectivity.State{connecting, ready, failure} {
		built()
		b, cc := newTestLB(t, Config{})
		good, bad := customOf(false, stubA, `{}`, prio(eps(1))), customOf(false, stubA, `{}`, prio(eps(1)))
		bad.Leaves[0].Drops = []picker.Drop{{Category: "x", PerMillion: 1e6 + 1}}
		b.set(configOf(good))
		b.to(cc.conn(t, 1), state)
		b.set(configOf(bad))
		b.flush()
		_, err := b.pick()
		if _, final := status.FromError(err); final || err == nil || !strings.Contains(err.Error(), `drop category "x"`) {
			t.Errorf("child policy in %v: Pick() error = %v, want the reason, for which wait-for-ready RPCs wait", state, err)
		}
		before := cc.announced
		b.set(configOf(good))
		b.to(cc.conn(t, 1), ready)
		b.flush()
		if addr, err := b.pick(); err != nil || cc.announced == before {
			t.Errorf("child policy in %v: after the correction Pick() = %q, %v, and gRPC has %d new pickers", state, addr, err, cc.announced-before)
		}
	}
}

// TestCustomUnregistered: a policy that is not in gRPC's registry fails the
// cluster with an error that names it; the resource should have been refused.
func TestCustomUnregistered(t *testing.T) {
	b, _ := newTestLB(t, Config{})
	b.set(configOf(customOf(false, "xdslb_test.None", `{}`, prio(eps(1)))))
	b.flush()
	if _, err := b.pick(); err == nil || !strings.Contains(err.Error(), "no such balancer") {
		t.Errorf("Pick() error = %v, want one with \"no such balancer\"", err)
	}
}
