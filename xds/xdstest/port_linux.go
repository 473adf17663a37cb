// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstest

import (
	"net/netip"
	"os"
	"syscall"
)

// A port is a TCP port on an IPv4 address that stays reserved while its server is stopped. It
// is a bound socket that does not listen: connections are refused, and a listener for the port
// can bind it, since both allow reuse. The zero value reserves no port.
type port struct{ socket *os.File } // closed by its finalizer

// hold reserves the port for a new listener on addr, and returns its address. If that fails it
// returns addr, and the listener will return the error.
func (p *port) hold(addr string) string {
	if p.socket != nil {
		return addr
	}
	want, err := netip.ParseAddrPort(addr)
	if err != nil || !want.Addr().Is4() {
		return addr
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return addr
	}
	socket := os.NewFile(uintptr(fd), "port")
	if syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1) == nil &&
		syscall.Bind(fd, &syscall.SockaddrInet4{Addr: want.Addr().As4(), Port: int(want.Port())}) == nil {
		if got, err := syscall.Getsockname(fd); err == nil {
			p.socket = socket
			return netip.AddrPortFrom(want.Addr(), uint16(got.(*syscall.SockaddrInet4).Port)).String()
		}
	}
	_ = socket.Close()
	return addr
}
