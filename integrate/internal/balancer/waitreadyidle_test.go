// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xdslb/xdslb/picker"
)

// TestWaitReadyRests (A52): a child policy that stays IDLE is asked to connect by WaitReady
// once, and not over and over while that waits.
func TestWaitReadyRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := newTestLB(t, Config{})
		_ = built()
		b.set(configOf(customOf(true, stubA, `{"Lazy":true}`, prio(eps(1)))))
		b.flush()
		s := one(t)
		s.mu.Lock()
		s.mute = true
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if closed, err := AwaitReady(ctx, b.Balancer, "/s/m"); closed || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("WaitReady returned %v, closed: %v", err, closed)
		}
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.idled == 0 || s.idled > 3 {
			t.Errorf("the policy was asked to connect %d times in a second, want once", s.idled)
		}
	})
}

// lookedAt is a context of somebody who wants to know when it is looked at.
type lookedAt struct {
	context.Context
	look func()
}

func (c lookedAt) Value(key any) any {
	c.look()
	return c.Context.Value(key)
}

// TestWaitReadyAsksUnlocked: the context's own code, which may read the channel's status, is called
// without the mutex, also when the missing parts are determined.
func TestWaitReadyAsksUnlocked(t *testing.T) {
	b, _ := newTestLB(t, Config{})
	cfg := configOf(clusterOf("c", prio(eps(1))))
	cfg.Routes[0].Headers = []picker.HeaderMatch{{Name: "x", Kind: picker.HeaderPresent}}
	b.set(cfg)
	b.flush()
	looks := 0
	ctx := lookedAt{t.Context(), func() {
		looks++
		if !b.unlocked() {
			t.Error("the context is asked with the mutex held")
		}
	}}
	if isReady(ctx, b.Balancer, "/s/m") || Missing(ctx, b.Balancer, "/s/m") == "" || looks < 2 {
		t.Errorf("the cluster is ready, or the context was asked %d times, want 2", looks)
	}
}
