// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// network connects the parties of a scenario, and can do to them what networks
// do: hold back what is sent to an address, for a while or for good, and delay
// it. It knows every connection and who ended it.
//
// It is in memory, so that it works in a bubble of virtual time, unless real is
// set: then connections are TCP's on loopback.
type network struct {
	real bool

	mu     sync.Mutex
	ports  int
	memory map[string]*xdstest.MemoryListener
	holds  map[string]chan struct{}      // by address; closed when the hold is over
	delay  map[string]time.Duration      // of what clients read, by address
	conns  map[string]map[*wire]struct{} // open ones, by who and whom
	onOpen func(who, addr string, others int)
	onEnd  func(who, addr string, opened time.Time, byClient bool)
}

func newNetwork(real bool) *network {
	return &network{
		real: real, memory: map[string]*xdstest.MemoryListener{},
		holds: map[string]chan struct{}{}, delay: map[string]time.Duration{},
		conns: map[string]map[*wire]struct{}{},
	}
}

// listen is for xdstest's Options. In memory every server has an IP of its own.
func (n *network) listen(addr string) (net.Listener, error) {
	if n.real {
		return net.Listen("tcp", addr)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if addr == "127.0.0.1:0" {
		n.ports++
		addr = fmt.Sprintf("10.0.%d.%d:80", n.ports>>8, n.ports&255)
	}
	l := xdstest.NewMemoryListener(addr)
	n.memory[addr] = l
	return l, nil
}

// dialer returns a dialer for the connections of one party.
func (n *network) dialer(who string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		for {
			hold := n.held(addr)
			if hold == nil {
				break
			}
			select {
			case <-hold:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		conn, err := n.connect(ctx, addr)
		if err != nil {
			return nil, err
		}
		w := &wire{Conn: conn, n: n, who: who, addr: addr, opened: time.Now(), closed: make(chan struct{}), failed: make(chan struct{})}
		n.mu.Lock()
		others := len(n.conns[who+" "+addr])
		if others == 0 {
			n.conns[who+" "+addr] = map[*wire]struct{}{}
		}
		n.conns[who+" "+addr][w] = struct{}{}
		n.mu.Unlock()
		if n.onOpen != nil {
			n.onOpen(who, addr, others)
		}
		return w, nil
	}
}

func (n *network) connect(ctx context.Context, addr string) (net.Conn, error) {
	if n.real {
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}
	n.mu.Lock()
	l := n.memory[addr]
	n.mu.Unlock()
	if l != nil {
		if conn, err := l.Dial(ctx); !errors.Is(err, net.ErrClosed) {
			return conn, err
		}
	}
	return nil, fmt.Errorf("connect %s: connection refused", addr)
}

// held returns what is closed when addr can be reached, nil if it can.
func (n *network) held(addr string) chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.holds[addr]
}

// hold makes addr swallow what is sent to it and say nothing, until release,
// when all of it arrives after all.
func (n *network) hold(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.holds[addr] == nil {
		n.holds[addr] = make(chan struct{})
	}
}

func (n *network) release(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.holds[addr] != nil {
		close(n.holds[addr])
		delete(n.holds, addr)
	}
}

// slow makes whatever addr says arrive late by d.
func (n *network) slow(addr string, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay[addr] = d
}

// open returns the addresses that a party has connections to, and how many.
func (n *network) open(who string) map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := map[string]int{}
	for _, conns := range n.conns {
		for w := range conns {
			if w.who == who {
				all[w.addr]++
			}
		}
	}
	return all
}

// wire is the client's end of a connection.
type wire struct {
	net.Conn
	n         *network
	who, addr string
	opened    time.Time

	once   sync.Once
	closed chan struct{}
	failed chan struct{} // closed with the first error
	mu     sync.Mutex
	broken bool   // there was an error
	kept   []byte // what was written while held
}

// pass waits until the address can be reached or the connection is closed.
func (w *wire) pass() {
	for hold := w.n.held(w.addr); hold != nil; hold = w.n.held(w.addr) {
		select {
		case <-hold:
		case <-w.closed:
			return
		}
	}
}

func (w *wire) note(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && !w.broken {
		w.broken = true
		close(w.failed)
	}
}

// Read implements net.Conn.
func (w *wire) Read(b []byte) (int, error) {
	k, err := w.Conn.Read(b)
	w.n.mu.Lock()
	delay := w.n.delay[w.addr]
	w.n.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-w.closed:
		case <-w.failed: // or else gRPC would go on trying to use the connection
		}
	}
	w.pass()
	w.note(err)
	return k, err
}

// Write implements net.Conn. What is held back is kept, as the kernel would, so
// that writers go on.
func (w *wire) Write(b []byte) (int, error) {
	held := w.n.held(w.addr) != nil
	w.mu.Lock()
	if held || len(w.kept) > 0 {
		if len(w.kept) == 0 {
			go w.flush()
		}
		w.kept = append(w.kept, b...)
		w.mu.Unlock()
		return len(b), nil
	}
	w.mu.Unlock()
	k, err := w.Conn.Write(b)
	w.note(err)
	return k, err
}

// flush sends what was kept, once it can.
func (w *wire) flush() {
	w.pass()
	w.mu.Lock()
	_, err := w.Conn.Write(w.kept)
	w.kept = nil
	w.mu.Unlock()
	w.note(err)
}

// RemoteAddr implements net.Conn; it is what an RPC's peer is known by.
func (w *wire) RemoteAddr() net.Addr { return textAddr(w.addr) }

// Close implements net.Conn.
func (w *wire) Close() error {
	w.once.Do(func() {
		close(w.closed)
		w.mu.Lock()
		byClient := !w.broken && w.n.held(w.addr) == nil
		w.mu.Unlock()
		w.n.mu.Lock()
		pair := w.who + " " + w.addr
		delete(w.n.conns[pair], w)
		if len(w.n.conns[pair]) == 0 {
			delete(w.n.conns, pair)
		}
		w.n.mu.Unlock()
		if w.n.onEnd != nil {
			w.n.onEnd(w.who, w.addr, w.opened, byClient)
		}
	})
	return w.Conn.Close()
}

type textAddr string

func (textAddr) Network() string  { return "tcp" }
func (a textAddr) String() string { return string(a) }
