// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/xdslb/xdslb/integrate/internal/link"
	"github.com/xdslb/xdslb/integrate/internal/methodconfig"
	"github.com/xdslb/xdslb/integrate/internal/rpc"
)

// TestForgetMethodConfigs checks that the timeouts and retries of routes are withdrawn from gRPC once
// the target has an error, and sent again with its next configuration.
func TestForgetMethodConfigs(t *testing.T) {
	b, _ := newTestLB(t, Config{})
	var sent []methodconfig.Config
	b.src = &Source{
		Channel:   rpc.NewChannel(link.Options{}, rpc.ChannelOptions{}),
		Configure: func(methods []methodconfig.Config) { sent = methods },
	}
	limit := 77 * time.Millisecond
	update := configOf(clusterOf("c", prio(eps(1))))
	update.Routes[0].Timeout = &limit
	for i, step := range []struct {
		update func()
		want   bool
	}{
		{func() { b.Update(update) }, true},
		{func() { b.Error(errors.New("deleted")) }, false},
		{func() { b.Update(update) }, true},
		{func() { b.Error(errors.New("deleted")); b.Update(update) }, true},
		{func() { b.Update(update); b.Error(errors.New("deleted")) }, false},
	} {
		step.update()
		b.calm()
		if got := len(sent) > 0 && strings.HasPrefix(sent[0].Timeout, "0.077"); got != step.want {
			t.Errorf("step %d: method configs %+v, want a timeout of 77 ms: %t", i, sent, step.want)
		}
	}
}
