// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
)

// DNS is a DNS server on loopback. Answers over UDP are truncated, so that clients ask again over TCP.
type DNS struct {
	Addr string // of both

	mu    sync.Mutex
	hosts map[string][]netip.Addr // by name, without a dot at the end
}

// NewDNS starts a server, which ends with the test.
func NewDNS(t testing.TB) *DNS {
	t.Helper()
	d := &DNS{hosts: map[string][]netip.Addr{}}
	for range 100 { // the TCP port may be taken
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		d.Addr = tcp.Addr().String()
		udp, err := net.ListenPacket("udp", d.Addr)
		if err != nil {
			_ = tcp.Close()
			continue
		}
		var tasks sync.WaitGroup
		tasks.Go(func() { d.serveUDP(udp) })
		tasks.Go(func() { d.serveTCP(tcp, &tasks) })
		t.Cleanup(func() {
			_, _ = udp.Close(), tcp.Close()
			tasks.Wait()
		})
		return d
	}
	t.Fatal("no port is free for both UDP and TCP")
	return nil
}

// Set sets the addresses of a name. Without addresses the name does not exist.
func (d *DNS) Set(name string, addrs ...netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hosts[name] = addrs
}

func (d *DNS) serveUDP(conn net.PacketConn) {
	for b := make([]byte, 1500); ; {
		n, from, err := conn.ReadFrom(b)
		if err != nil {
			return
		}
		_, _ = conn.WriteTo(d.answer(b[:n], true), from)
	}
}

func (d *DNS) serveTCP(lis net.Listener, tasks *sync.WaitGroup) {
	for {
		conn, err := lis.Accept()
		if err != nil {
			return
		}
		tasks.Go(func() {
			defer func() { _ = conn.Close() }()
			length := make([]byte, 2)
			for {
				if _, err := io.ReadFull(conn, length); err != nil {
					return
				}
				b := make([]byte, binary.BigEndian.Uint16(length))
				if _, err := io.ReadFull(conn, b); err != nil {
					return
				}
				out := d.answer(b, false)
				_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...))
			}
		})
	}
}

// answer returns the answer to a question about A or AAAA records (RFC 1035, 4.1).
func (d *DNS) answer(query []byte, truncate bool) []byte {
	const header, records, missing = 12, 1, 3
	var labels []string
	end := header
	for query[end] != 0 {
		n := int(query[end])
		labels = append(labels, string(query[end+1:end+1+n]))
		end += 1 + n
	}
	end += 5 // the root, type and class
	kind := binary.BigEndian.Uint16(query[end-4:])
	d.mu.Lock()
	addrs := d.hosts[strings.ToLower(strings.Join(labels, "."))]
	d.mu.Unlock()
	out := append([]byte(nil), query[:end]...)
	out[2], out[3] = 0x81, 0x80 // a response
	clear(out[6:header])
	if len(addrs) == 0 {
		out[3] |= missing
		return out
	}
	if truncate {
		out[2] |= 2
		return out
	}
	n := uint16(0)
	for _, a := range addrs {
		if want := map[bool]uint16{true: 1, false: 28}[a.Is4()]; kind == want {
			n++
			out = append(out, 0xc0, header, byte(kind>>8), byte(kind), 0, records, 0, 0, 0, 1)
			out = append(binary.BigEndian.AppendUint16(out, uint16(len(a.AsSlice()))), a.AsSlice()...)
		}
	}
	binary.BigEndian.PutUint16(out[6:], n)
	return out
}
