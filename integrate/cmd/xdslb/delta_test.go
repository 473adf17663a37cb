// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestDelta: with -delta, the commands use incremental ADS, whatever the bootstrap contains, and
// check reports the variants that a server supports.
func TestDelta(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	control := testplane.StartScripted(testplane.ScriptedOptions{Listener: lis})
	t.Cleanup(control.Stop)
	backends := xdstest.NewBackends(t, 1, xdstest.BackendOptions{})
	kit.Must(t, control.Set(xdstest.Service("orders", xdstest.Locality{Endpoints: xdstest.BackendEndpoints(backends...)})))
	boot := filepath.Join(t.TempDir(), "bootstrap.json")
	text := fmt.Appendf(nil, `{"node": {"id": "node-1"}, "xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}]}]}`, lis.Addr())
	kit.Must(t, os.WriteFile(boot, text, 0o600))
	t.Setenv("GRPC_XDS_BOOTSTRAP", boot)
	control.Serve(true, false) // a stream of the other variant precedes with -delta
	for _, args := range [][]string{
		{"dump", "orders"}, {"explain", "orders", "/a/b"}, {"pick", "orders"},
	} {
		for i, args := range [][]string{args, append(args, "-delta")} {
			_, before := control.Streams()
			wantCall(t, exitOK, args)
			if _, n := control.Streams(); n-before != 1+i {
				t.Errorf("xdslb %v opened %d streams, want %d", args, n-before, 1+i)
			}
		}
	}
	control.Serve(true, true)
	wantCall(t, exitOK, []string{"check", "-timeout", "1m"}, "ADS is available (")
	wantCall(t, exitOK, []string{"check", "-timeout", "1m", "-delta"}, "ADS is available (")
	control.Serve(true, false)
	wantCall(t, exitOK, []string{"check", "-timeout", "1m"}, "ADS is available (")
	wantCall(t, exitFinding, []string{"check", "-timeout", "1m", "-delta"}, "only the state-of-the-world variant")
	control.Serve(false, true)
	wantCall(t, exitOK, []string{"check", "-timeout", "1m"}, "only incremental ADS")
	control.Serve(false, false)
	wantCall(t, exitFinding, []string{"check", "-timeout", "1m"}, "the server does not serve ADS")
}
