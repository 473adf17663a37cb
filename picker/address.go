// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"net/netip"
	"strconv"
	"strings"
)

// NameAddr returns the address of an endpoint that has a DNS name instead of an IP address. It
// is the unspecified IPv6 address with the name as its zone, so that names are compared and
// stored like all other addresses, which have no zone. ok is false if the name is not a DNS
// name. A name that ends in a number is none (RFC 1123), since it would be a malformed IP address.
func NameAddr(name string, port uint16) (addr netip.AddrPort, ok bool) {
	labels := strings.Split(strings.TrimSuffix(name, "."), ".")
	last := labels[len(labels)-1]
	ok = len(name) < 255 && strings.Trim(last, "0123456789") != ""
	for _, label := range labels {
		ok = ok && isLabel(label)
	}
	if !ok {
		return addr, false
	}
	return netip.AddrPortFrom(netip.IPv6Unspecified().WithZone(name), port), true
}

// isLabel reports whether s is a label of a DNS name. Underscores are accepted as in package net.
func isLabel(s string) bool {
	for _, c := range []byte(s) {
		if lower := c | 0x20; (lower < 'a' || lower > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return 0 < len(s) && len(s) < 64 && s[0] != '-' && s[len(s)-1] != '-'
}

// AddrText returns an address in the form that dialers accept, such as "10.0.0.1:80", "[::1]:80"
// or "localhost:80".
func AddrText(addr netip.AddrPort) string {
	return string(appendAddr(make([]byte, 0, 64), addr))
}

func appendAddr(text []byte, addr netip.AddrPort) []byte {
	if name := addr.Addr().Zone(); name != "" {
		return strconv.AppendUint(append(append(text, name...), ':'), uint64(addr.Port()), 10)
	}
	return addr.AppendTo(text)
}

// ParseAddr returns the address with a text of [AddrText].
func ParseAddr(text string) (addr netip.AddrPort, ok bool) {
	if addr, err := netip.ParseAddrPort(text); err == nil {
		return addr, addr.Addr().Zone() == ""
	}
	colon := strings.LastIndexByte(text, ':')
	port, err := strconv.ParseUint(text[colon+1:], 10, 16)
	if err != nil || colon < 0 {
		return addr, false
	}
	return NameAddr(text[:colon], uint16(port))
}
