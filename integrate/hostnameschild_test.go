// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"net/netip"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/connectivity"

	"github.com/xdslb/xdslb/picker"
)

// TestHostnameOfKeptConnection: a connection that a child policy keeps, though its endpoint has
// become another one by its addresses, is made anew if the hostname is another, by which it may
// be verified (A101); otherwise it stays.
func TestHostnameOfKeptConnection(t *testing.T) {
	for _, hostname := range []string{"", "other"} {
		synctest.Test(t, func(t *testing.T) {
			cc := &modelChannel{}
			b, source := newModelBalancer(cc, Config{}, modelCredentials(), new(loadServers).intercept)
			defer source.Close()
			defer b.Close()
			update := func(extra *picker.EndpointExtra) {
				c := clusterOf("c", zone("0", []picker.Endpoint{{Addr: addr(1), Weight: 1, Extra: extra}}))
				c.Leaves[0].Policy = picker.Policy{Kind: picker.PolicyCustom, Custom: &picker.CustomPolicy{Name: string(prompt), Config: []byte(`{}`)}}
				push(b, configOf(c))
				for range 5 {
					pass(publishPause)
					for _, conn := range cc.open() {
						for conn.state != connectivity.Ready && conn.step(true) {
						}
					}
				}
			}
			update(nil)
			first := cc.open()
			if len(first) != 1 || !first[0].takesRPCs() {
				t.Fatalf("there are the connections %v, want one", first)
			}
			update(&picker.EndpointExtra{Addrs: []netip.AddrPort{addr(2)}, Hostname: hostname})
			if got, want := first[0].takesRPCs(), hostname == ""; got != want {
				t.Errorf("with hostname %q the connection stays: %v, want %v", hostname, got, want)
			}
			ready := 0
			for _, conn := range cc.open() {
				if conn.number == 1 && conn.takesRPCs() {
					ready++
				}
			}
			if ready != 1 {
				t.Errorf("with hostname %q there are %d connections to the address, want one", hostname, ready)
			}
		})
	}
}
