// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package testplane

import (
	"context"
	"net"
)

// Dial connects to the server, for grpc.WithContextDialer. It ignores the address.
func (s *Scripted) Dial(ctx context.Context, _ string) (net.Conn, error) {
	s.mu.Lock()
	refusal, hanging := s.refusal, s.hanging
	s.mu.Unlock()
	switch {
	case refusal != nil:
		return nil, refusal
	case hanging:
		<-ctx.Done()
		return nil, ctx.Err()
	case s.network == nil:
		var d net.Dialer
		return d.DialContext(ctx, s.opts.Listener.Addr().Network(), s.opts.Listener.Addr().String())
	}
	return s.network.Dial(ctx, s.lis.Addr().String())
}

// Refuse breaks all connections, makes Dial fail with err, and breaks other new connections
// immediately. A nil err accepts connections again, also after Hang.
func (s *Scripted) Refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusal, s.hanging = err, false
	if err != nil {
		for conn := range s.conns {
			_ = conn.Close()
		}
		clear(s.conns)
	}
}

// Hang makes new connections hang, as with a server behind a firewall.
func (s *Scripted) Hang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusal, s.hanging = nil, true
}

// Conns returns the number of accepted connections that are not known to be broken.
func (s *Scripted) Conns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// scriptedListener passes on the connections that s accepts.
type scriptedListener struct {
	net.Listener
	s *Scripted
}

func (l scriptedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		l.s.mu.Lock()
		refused, hanging := l.s.refusal != nil, l.s.hanging
		if !refused {
			l.s.conns[conn] = true
		}
		l.s.mu.Unlock()
		switch {
		case refused:
			_ = conn.Close()
		case !hanging:
			return scriptedConn{conn, l.s}, nil
		}
	}
}

// scriptedConn is a connection that unregisters itself when it is closed.
type scriptedConn struct {
	net.Conn
	s *Scripted
}

func (c scriptedConn) Close() error {
	c.s.mu.Lock()
	delete(c.s.conns, c.Conn)
	c.s.mu.Unlock()
	return c.Conn.Close()
}
