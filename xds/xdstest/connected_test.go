// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestWaitConnected waits for a future connection, and checks the error that names a backend
// without one.
func TestWaitConnected(t *testing.T) {
	backends := xdstest.NewBackends(t, 2, xdstest.BackendOptions{})
	cc, err := grpc.NewClient(backends[0].Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	kit.Must(t, err)
	defer cc.Close()
	if n := backends[0].Connections(); n != 0 {
		t.Errorf("%d connections are open before there is a client", n)
	}
	cc.Connect()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	kit.Must(t, xdstest.WaitConnected(ctx, backends[0]))
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := xdstest.WaitConnected(short, backends...); err == nil || !strings.Contains(err.Error(), backends[1].Addr().String()) {
		t.Errorf("WaitConnected() = %v, want an error that names %v", err, backends[1].Addr())
	}
	backends[0].Stop()
	if n := backends[0].Connections(); n != 0 {
		t.Errorf("%d connections are open of a backend that was stopped", n)
	}
}
