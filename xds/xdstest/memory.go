// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstest

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/xdslb/xdslb/xds/internal/timing"
)

// memoryListener accepts in-process connections.
type memoryListener struct {
	addr   memoryAddr
	accept chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func newMemoryListener(addr string) *memoryListener {
	return &memoryListener{addr: memoryAddr(addr), accept: make(chan net.Conn), closed: make(chan struct{})}
}

// dial returns a connection once it is accepted, or an error if l is closed or ctx is done
// before.
func (l *memoryListener) dial(ctx context.Context) (net.Conn, error) {
	there, back := newMemoryPipe(), newMemoryPipe()
	select {
	case l.accept <- &memoryConn{in: there, out: back, local: l.addr, remote: "client"}:
		return &memoryConn{in: back, out: there, local: "client", remote: l.addr}, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *memoryListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *memoryListener) Addr() net.Addr { return l.addr }

type memoryAddr string

func (memoryAddr) Network() string  { return "tcp" }
func (a memoryAddr) String() string { return string(a) }

// memoryConn is one end of a connection.
type memoryConn struct {
	in, out       *memoryPipe
	local, remote memoryAddr
}

func (c *memoryConn) Read(b []byte) (int, error)  { return c.in.read(b) }
func (c *memoryConn) Write(b []byte) (int, error) { return c.out.write(b) }

// Close ends both directions; the peer can still read earlier data.
func (c *memoryConn) Close() error {
	c.out.end(io.EOF, false)
	c.in.end(net.ErrClosed, true)
	return nil
}

func (c *memoryConn) LocalAddr() net.Addr               { return c.local }
func (c *memoryConn) RemoteAddr() net.Addr              { return c.remote }
func (c *memoryConn) SetWriteDeadline(time.Time) error  { return nil }
func (c *memoryConn) SetReadDeadline(t time.Time) error { return c.in.setDeadline(t) }
func (c *memoryConn) SetDeadline(t time.Time) error     { return c.in.setDeadline(t) }

// memoryPipe is one direction.
type memoryPipe struct {
	mu       sync.Mutex
	data     []byte
	ended    error         // returned to readers after all data
	wake     chan struct{} // has a token when there may be new data
	deadline timing.Timer
	expired  bool
}

func newMemoryPipe() *memoryPipe { return &memoryPipe{wake: make(chan struct{}, 1)} }

func (p *memoryPipe) read(b []byte) (int, error) {
	for {
		p.mu.Lock()
		n, err := copy(b, p.data), p.ended
		if p.data = p.data[n:]; len(p.data) == 0 {
			p.data = nil // releases the buffer
		}
		if p.expired {
			err = os.ErrDeadlineExceeded
		}
		p.mu.Unlock()
		if n > 0 || len(b) == 0 {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
		<-p.wake
	}
}

func (p *memoryPipe) write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended != nil {
		return 0, net.ErrClosed
	}
	p.data = append(p.data, b...)
	p.notifyLocked()
	return len(b), nil
}

// end ends the direction, and optionally discards data in flight.
func (p *memoryPipe) end(err error, discard bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == nil {
		p.ended = err
	}
	if discard {
		p.data = nil
		p.deadline.StopLocked()
	}
	p.notifyLocked()
}

// notifyLocked wakes the reader.
func (p *memoryPipe) notifyLocked() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *memoryPipe) setDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadline.StopLocked()
	wait := time.Until(t)
	p.expired = !t.IsZero() && wait <= 0
	if p.expired {
		p.notifyLocked()
	} else if !t.IsZero() {
		p.deadline.StartLocked(wait, &p.mu, func() {
			p.expired = true
			p.notifyLocked()
		})
	}
	return nil
}
