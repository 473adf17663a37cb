// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstest_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/xds/bootstrap"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// accepting returns a listener's address, and the connections that it accepts.
func accepting(t *testing.T, n *xdstest.Network) (addr string, conns chan net.Conn) {
	t.Helper()
	l, err := n.Listen("127.0.0.1:0")
	kit.Must(t, err)
	conns = make(chan net.Conn, 10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns <- c
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String(), conns
}

// connect returns both ends of a connection.
func connect(t *testing.T, n *xdstest.Network, addr string, conns chan net.Conn) (client, server net.Conn) {
	t.Helper()
	client, err := n.Dial(t.Context(), addr)
	kit.Must(t, err)
	return client, <-conns
}

// TestNetworkConn checks that data arrives in order in both directions concurrently, including
// data written before Close. After Close, Read reports the end and Write fails.
func TestNetworkConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := xdstest.NewNetwork()
		addr, conns := accepting(t, n)
		client, server := connect(t, n, addr, conns)
		if got := client.RemoteAddr().String(); got != addr || server.LocalAddr().String() != addr {
			t.Errorf("the client is connected to %s, want %s", got, addr)
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
			t.Errorf("Read during Close = %v", err)
		}
		if b, err := io.ReadAll(server); string(b) != "last" || err != nil {
			t.Errorf("ReadAll = %q, %v", b, err)
		}
		if _, err := server.Write([]byte("x")); err == nil {
			t.Error("the peer of a closed connection can write")
		}
	})
}

// TestNetworkDeadline: reads end at their deadline, which can be moved and removed.
func TestNetworkDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := xdstest.NewNetwork()
		addr, conns := accepting(t, n)
		client, server := connect(t, n, addr, conns)
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

// TestNetworkRefused checks that connections are refused without a listener, after the listener
// is closed, and while the address is down, which also breaks open connections. Dial ends with
// its context.
func TestNetworkRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := xdstest.NewNetwork()
		var ended []bool // by the client
		n.OnEnd = func(_, _ string, _ time.Time, byClient bool) { ended = append(ended, byClient) }
		refused := func(addr string) {
			t.Helper()
			if _, err := n.Dial(t.Context(), addr); err == nil || !strings.Contains(err.Error(), "connection refused") {
				t.Errorf("Dial = %v, want that the connection is refused", err)
			}
		}
		refused("10.9.9.9:80")
		addr, conns := accepting(t, n)
		client, _ := connect(t, n, addr, conns)
		n.SetDown(addr, true)
		if _, err := client.Read(make([]byte, 1)); err == nil {
			t.Error("a connection to an address that is down can be read")
		}
		refused(addr)
		n.SetDown(addr, false)
		client, _ = connect(t, n, addr, conns)
		if err := client.Close(); err != nil || len(ended) != 2 || ended[0] || !ended[1] {
			t.Errorf("Close = %v; the connections were ended by the client: %v, want false, true", err, ended)
		}

		l, err := n.Listen("busy")
		kit.Must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.Dial(ctx, "busy"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Dial, not accepted = %v", err)
		}
		time.AfterFunc(time.Second, func() { _ = l.Close() })
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept = %v", err)
		}
		refused("busy")
		if err := l.Close(); err != nil {
			t.Errorf("second Close = %v", err)
		}
	})
}

// TestNetworkHold checks that a held address neither accepts connections nor delivers data
// until the release. A delay applies to data that the client reads.
func TestNetworkHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := xdstest.NewNetwork()
		opened := map[string]int{}
		ended := 0
		n.OnOpen = func(client, _ string, others int) { opened[client] = others }
		n.OnEnd = func(string, string, time.Time, bool) { ended++ }
		addr, conns := accepting(t, n)
		dial := func(want time.Duration) (client, server net.Conn) {
			t.Helper()
			begin := time.Now()
			client, err := n.Dialer("a")(t.Context(), addr)
			if err != nil || time.Since(begin) != want {
				t.Errorf("connected after %v, %v, want after %v", time.Since(begin), err, want)
			}
			return client, <-conns
		}
		client, server := dial(0)
		exchange := func(from, to net.Conn, want time.Duration) {
			t.Helper()
			begin := time.Now()
			if _, err := from.Write([]byte("x")); err != nil || time.Since(begin) != 0 {
				t.Errorf("Write took %v, %v", time.Since(begin), err)
			}
			if _, err := to.Read(make([]byte, 1)); err != nil || time.Since(begin) != want {
				t.Errorf("read after %v, %v, want after %v", time.Since(begin), err, want)
			}
		}
		for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
			n.Hold(addr)
			time.AfterFunc(time.Second, func() { n.Release(addr) })
			exchange(way[0], way[1], time.Second)
		}
		n.Hold(addr)
		time.AfterFunc(time.Second, func() { n.Release(addr) })
		second, _ := dial(time.Second)
		if opened["a"] != 1 || ended != 0 {
			t.Errorf("%d other connections when the second was opened, %d ended", opened["a"], ended)
		}
		n.SetDelay(addr, time.Minute)
		exchange(client, server, 0)
		exchange(server, client, time.Minute)
		if err := errors.Join(client.Close(), second.Close()); err != nil || ended != 2 {
			t.Errorf("Close = %v, %d of 2 connections ended", err, ended)
		}
	})
}

// TestNetworkCreds checks that credentials in a bootstrap name a network, and do not keep it alive.
func TestNetworkCreds(t *testing.T) {
	n := xdstest.NewNetwork()
	creds := bootstrap.GetChannelCredentials(n.Creds()["type"].(string))
	config, err := json.Marshal(n.Creds()["config"])
	kit.Must(t, err)
	if _, _, err := creds.Build(config); err != nil {
		t.Error(err)
	}
	runtime.KeepAlive(n)
	runtime.GC() // n is not used below
	for _, config := range []string{string(config), "{}"} {
		if _, _, err := creds.Build([]byte(config)); err == nil {
			t.Errorf("credentials of network %s, which does not exist", config)
		}
	}
}

// TestLoopback: the same over TCP.
func TestLoopback(t *testing.T) {
	n := xdstest.NewNetwork()
	n.TCP = true
	ended := 0
	n.OnEnd = func(string, string, time.Time, bool) { ended++ }
	addr, conns := accepting(t, n)
	client, server := connect(t, n, addr, conns)
	if _, err := server.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if _, err := client.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	n.SetDown(addr, true)
	if _, err := n.Dial(t.Context(), addr); err == nil || ended != 1 {
		t.Errorf("Dial = %v with the address down, %d of 1 connections ended", err, ended)
	}
	_ = server.Close()
}
