// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstest

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// TestPort checks that the port of a stopped server refuses connections and stays reserved, and
// that the server gets it again. An automatically assigned port is simulated by a listener for
// this port that does not allow reuse.
func TestPort(t *testing.T) {
	s := New(t, Options{})
	b := NewBackends(t, 1, BackendOptions{})[0]
	strict := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 0)
		}), err)
	}}
	for range 2 {
		s.Stop()
		b.Stop()
		for _, addr := range []string{s.Addr(), b.Addr().String()} {
			if conn, err := net.Dial("tcp", addr); err == nil {
				t.Errorf("a stopped server accepts a connection to %s", addr)
				_ = conn.Close()
			}
			if lis, err := strict.Listen(t.Context(), "tcp", addr); err == nil {
				t.Errorf("the port of %s can be another's", addr)
				_ = lis.Close()
			}
		}
		if err := errors.Join(s.Restart(), b.Start()); err != nil {
			t.Error(err)
		}
	}
}
