// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstest

import (
	"net"
	"sync"
	"time"
)

// netConn is the client's end of a connection of a Network.
type netConn struct {
	net.Conn
	n            *Network
	h            *host
	client, addr string
	opened       time.Time

	closeOnce, failOnce sync.Once
	closed              chan struct{}
	failed              chan struct{} // closed with the first error
	mu                  sync.Mutex
	kept                []byte // data written while held
}

// fail records the first error.
func (c *netConn) fail(err error) {
	if err != nil {
		c.failOnce.Do(func() { close(c.failed) })
	}
}

// awaitRelease waits until the address is released, or the connection is closed.
func (c *netConn) awaitRelease() {
	for hold := c.h.held.Load(); hold != nil; hold = c.h.held.Load() {
		select {
		case <-*hold:
		case <-c.closed:
			return
		}
	}
}

// Read implements net.Conn.
func (c *netConn) Read(b []byte) (int, error) {
	k, err := c.Conn.Read(b)
	if d := time.Duration(c.h.delay.Load()); d > 0 {
		select {
		case <-time.After(d):
		case <-c.closed:
		case <-c.failed: // otherwise gRPC would continue to use the connection
		}
	}
	c.awaitRelease()
	c.fail(err)
	return k, err
}

// Write implements net.Conn. While the address is held, data is buffered, as in a kernel, so
// that writers continue.
func (c *netConn) Write(b []byte) (int, error) {
	held := c.h.held.Load() != nil
	c.mu.Lock()
	if held || len(c.kept) > 0 {
		if len(c.kept) == 0 {
			go c.flush()
		}
		c.kept = append(c.kept, b...)
		c.mu.Unlock()
		return len(b), nil
	}
	c.mu.Unlock()
	k, err := c.Conn.Write(b)
	c.fail(err)
	return k, err
}

// flush sends the buffered data after the release.
func (c *netConn) flush() {
	c.awaitRelease()
	c.mu.Lock()
	_, err := c.Conn.Write(c.kept)
	c.kept = nil
	c.mu.Unlock()
	c.fail(err)
}

// Close implements net.Conn.
func (c *netConn) Close() error {
	c.closeOnce.Do(func() {
		close(c.closed)
		byClient := c.h.held.Load() == nil
		select {
		case <-c.failed:
			byClient = false
		default:
		}
		c.n.mu.Lock()
		delete(c.h.conns[c.client], c)
		c.n.mu.Unlock()
		if c.n.OnEnd != nil {
			c.n.OnEnd(c.client, c.addr, c.opened, byClient)
		}
	})
	return c.Conn.Close()
}
