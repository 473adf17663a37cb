// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// connected returns the two ends of a connection.
func connected(t *testing.T) (client, server net.Conn) {
	t.Helper()
	l := xdstest.NewMemoryListener("10.0.0.1:80")
	done := make(chan error, 1)
	go func() {
		var err error
		server, err = l.Accept()
		done <- err
	}()
	client, err := l.Dial(t.Context())
	if err := errors.Join(err, <-done, l.Close()); err != nil {
		t.Fatal(err)
	}
	return client, server
}

// TestMemoryConn: both ways at once, whatever is written arrives, in order, also
// what was written before the end; after it there is nothing, and no writing.
func TestMemoryConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := connected(t)
		if got := client.RemoteAddr().String(); got != "10.0.0.1:80" || server.LocalAddr().String() != got {
			t.Errorf("the client is connected to %s", got)
		}
		const size = 1 << 20
		var ends sync.WaitGroup
		for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
			ends.Go(func() {
				for i := range size / 1024 {
					b := make([]byte, 1024)
					for j := range b {
						b[j] = byte(i*1024 + j/7)
					}
					if n, err := way[0].Write(b); n != len(b) || err != nil {
						t.Errorf("Write = %d, %v", n, err)
					}
				}
			})
			ends.Go(func() {
				b := make([]byte, size)
				if _, err := io.ReadFull(way[1], b); err != nil {
					t.Error(err)
				}
				for i := range b {
					if b[i] != byte(i/1024*1024+i%1024/7) {
						t.Fatalf("byte %d is %d", i, b[i])
					}
				}
			})
		}
		ends.Wait()
		if _, err := client.Write([]byte("last")); err != nil {
			t.Error(err)
		}
		waits := make(chan error)
		go func() {
			_, err := client.Read(make([]byte, 1))
			waits <- err
		}()
		synctest.Wait()
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		if err := <-waits; !errors.Is(err, net.ErrClosed) {
			t.Errorf("a Read during Close = %v", err)
		}
		if b, err := io.ReadAll(server); string(b) != "last" || err != nil {
			t.Errorf("ReadAll = %q, %v", b, err)
		}
		if _, err := server.Write([]byte("x")); err == nil {
			t.Error("the peer of a closed connection can write")
		}
	})
}

// TestMemoryDeadline: reads end when they should, and no earlier.
func TestMemoryDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := connected(t)
		begin := time.Now()
		read := func(want error, after time.Duration) {
			t.Helper()
			if _, err := client.Read(make([]byte, 1)); !errors.Is(err, want) || time.Since(begin) != after {
				t.Errorf("Read = %v after %v, want %v after %v", err, time.Since(begin), want, after)
			}
		}
		set := func(at time.Time) {
			if err := client.SetReadDeadline(at); err != nil {
				t.Error(err)
			}
		}
		set(begin.Add(time.Second))
		read(os.ErrDeadlineExceeded, time.Second)
		set(begin)
		read(os.ErrDeadlineExceeded, time.Second)
		set(begin.Add(2 * time.Second))
		set(begin.Add(3 * time.Second)) // instead
		read(os.ErrDeadlineExceeded, 3*time.Second)
		set(begin.Add(4 * time.Second))
		set(time.Time{})
		time.AfterFunc(5*time.Second, func() { _, _ = server.Write([]byte("x")) })
		read(nil, 8*time.Second)
		set(begin.Add(9 * time.Second))
		if err := errors.Join(client.Close(), server.Close()); err != nil {
			t.Error(err)
		}
	})
}

// TestMemoryListenerClosed: nobody waits for a listener that is closed, nor longer
// than he wants to.
func TestMemoryListenerClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := xdstest.NewMemoryListener("")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Dial(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Dial = %v", err)
		}
		time.AfterFunc(time.Second, func() { _ = l.Close() })
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept = %v", err)
		}
		if _, err := l.Dial(t.Context()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Dial = %v", err)
		}
		if err := l.Close(); err != nil {
			t.Errorf("Close, again = %v", err)
		}
	})
}
