// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"encoding/binary"
	"net/netip"

	"github.com/zeebo/xxh3"
)

// parseAddr parses an IP address without a zone, and unmaps it (T-EDS-4). It does not allocate
// for IPv4 addresses, whereas netip.ParseAddr needs a string.
func parseAddr(b []byte) (addr netip.Addr, ok bool) {
	if v4, ok := parseIPv4(b); ok {
		return netip.AddrFrom4(v4), true
	}
	addr, err := netip.ParseAddr(string(b))
	return addr.Unmap(), err == nil && addr.Zone() == ""
}

// parseIPv4 parses four decimal numbers without leading zeros.
func parseIPv4(b []byte) (addr [4]byte, ok bool) {
	if len(b) > len("255.255.255.255") {
		return addr, false
	}
	octet, digits, value := 0, 0, 0
	for _, c := range b {
		switch {
		case '0' <= c && c <= '9':
			if digits > 0 && value == 0 {
				return addr, false
			}
			value = 10*value + int(c-'0')
			digits++
			if value > 255 {
				return addr, false
			}
		case c == '.' && digits > 0 && octet < 3:
			addr[octet] = byte(value)
			octet, digits, value = octet+1, 0, 0
		default:
			return addr, false
		}
	}
	addr[3] = byte(value)
	return addr, octet == 3 && digits > 0
}

// An addrKey is an address in 18 bytes without pointers. As a map key it takes half the memory
// of a netip.AddrPort and no time of the garbage collector. Names are hashed.
type addrKey [18]byte

func keyOf(addr netip.AddrPort) (k addrKey) {
	ip := addr.Addr().As16() // IPv4 as mapped addresses, which parseAddr unmaps
	if name := addr.Addr().Zone(); name != "" {
		ip = xxh3.HashString128(name).Bytes()
	}
	copy(k[:], ip[:])
	binary.BigEndian.PutUint16(k[16:], addr.Port())
	return k
}

// hash returns a hash for filters: it is fast, and easy to predict.
func (k *addrKey) hash() uint64 {
	h := binary.LittleEndian.Uint64(k[:])*0x9e3779b97f4a7c15 + binary.LittleEndian.Uint64(k[8:]) + uint64(k[16])<<8 + uint64(k[17])
	h *= 0xd6e8feb86659fd93
	return h ^ h>>32
}
