// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"net/netip"
	"testing"

	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/picker"
)

// TestKernelAddr checks that addresses of resolvers that differ in their text or server name differ
// in the kernel too, and that IP addresses and DNS names keep their text.
func TestKernelAddr(t *testing.T) {
	seen := map[netip.AddrPort]resolver.Address{}
	for _, a := range []resolver.Address{
		{Addr: "10.0.0.1:80"}, {Addr: "10.0.0.1:80", ServerName: "a"}, {Addr: "10.0.0.1:80 \"a\""}, {Addr: "010.0.0.1:80"},
		{Addr: "[::1]:80"}, {Addr: "[::1%eth0]:80"}, {Addr: "[::%a]:0"}, {Addr: "a.example:80"}, {Addr: "a.example"}, {Addr: ":80"}, {Addr: ""},
		{Addr: "/run/a.sock"}, {Addr: "unix:/run/a.sock"}, {Addr: "bufnet"}, {ServerName: "bufnet"},
	} {
		key := kernelAddr(a)
		if !key.IsValid() {
			t.Errorf("%v has no valid address", a)
		}
		if b, ok := seen[key]; ok {
			t.Errorf("%v and %v have the same address %v", a, b, key)
		}
		seen[key] = a
	}
	for _, text := range []string{"10.0.0.1:80", "[::1]:80", "a.example:80"} {
		if got := picker.AddrText(kernelAddr(resolver.Address{Addr: text})); got != text {
			t.Errorf("address %q is %q", text, got)
		}
	}
}
