// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"net/netip"
	"strings"
	"testing"
)

func TestNameAddr(t *testing.T) {
	long := strings.Repeat("a.", 126) + "aa" // 254 bytes
	for _, name := range []string{"localhost", "a", "Back-End_1.example.com", "example.com.", "_srv.1.x2", "0.1.2.0x3", long, strings.Repeat("a", 63)} {
		addr, ok := NameAddr(name, 8080)
		if text := AddrText(addr); !ok || text != name+":8080" {
			t.Errorf("NameAddr(%q) = %v, %t, with text %q", name, addr, ok, text)
		}
		if key := keyOf(&Endpoint{Addr: addr}); key != AddrText(addr) {
			t.Errorf("the hash key of %s is %q", name, key)
		}
		if back, ok := ParseAddr(AddrText(addr)); !ok || back != addr {
			t.Errorf("ParseAddr(%q) = %v, %t, want %v", AddrText(addr), back, ok, addr)
		}
	}
	for _, name := range []string{"", ".", "a..b", ".a", "1.2.3.4", "1.2.3.256", "1.2.3", "7", "a.7", "a.7.", "::1", "[::1]", "fe80::1%eth0", "a%b", "a b", "a:80", "a/b", "-a", "a-", "ä.de",
		"a\x00", long + "a", strings.Repeat("a", 64)} {
		if addr, ok := NameAddr(name, 1); ok || addr.IsValid() {
			t.Errorf("NameAddr(%q) = %v, %t, want not ok", name, addr, ok)
		}
	}
	for _, text := range []string{"10.0.0.1:80", "[::1]:80", "[::]:0"} {
		if addr, ok := ParseAddr(text); !ok || addr != netip.MustParseAddrPort(text) || AddrText(addr) != text {
			t.Errorf("ParseAddr(%q) = %v, %t, with text %q", text, addr, ok, AddrText(addr))
		}
	}
	for _, text := range []string{"", "a", "a:", ":80", "a:65536", "a:-1", "a:+1", "a:http", "[::%a]:80", "[fe80::1%eth0]:80", "1.2.3.4.5:80", "::1:80"} {
		if addr, ok := ParseAddr(text); ok {
			t.Errorf("ParseAddr(%q) = %v, want not ok", text, addr)
		}
	}
}
