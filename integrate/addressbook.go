// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"encoding/binary"
	"net/netip"

	"google.golang.org/grpc/resolver"
)

// addressBook gives the addresses of a resolver, which may be names, sockets or
// whatever the channel's dialer knows, the form that the kernel has for
// addresses. Those that are an IP address and a port keep it; others get one that
// nobody has, from the range reserved for discarding (RFC 6666).
type addressBook struct {
	made  uint64 // addresses made up so far
	byKey map[netip.AddrPort]resolver.Address
	keys  map[addressName]netip.AddrPort
}

// addressName is what tells addresses apart. Attributes do not: connections
// survive their change.
type addressName struct{ addr, serverName string }

// add enters an address under the key that it had in old, if any. It reports
// whether it is new to the book.
func (a *addressBook) add(old *addressBook, addr resolver.Address) (key netip.AddrPort, fresh bool) {
	name := addressName{addr.Addr, addr.ServerName}
	if key, ok := a.keys[name]; ok {
		return key, false
	}
	key, ok := old.keys[name]
	if !ok {
		key = a.key(name)
	}
	if a.keys == nil {
		a.byKey, a.keys = map[netip.AddrPort]resolver.Address{}, map[addressName]netip.AddrPort{}
	}
	a.keys[name], a.byKey[key] = key, addr
	return key, true
}

func (a *addressBook) key(name addressName) netip.AddrPort {
	if name.serverName == "" {
		if key, err := netip.ParseAddrPort(name.addr); err == nil && key.String() == name.addr {
			return key
		}
	}
	a.made++
	ip := netip.MustParseAddr("100::").As16()
	binary.BigEndian.PutUint64(ip[8:], a.made)
	return netip.AddrPortFrom(netip.AddrFrom16(ip), 1)
}

// dial returns the address that a key stands for.
func (a addressBook) dial(key netip.AddrPort) resolver.Address { return a.byKey[key] }
