// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package memnet connects control planes, servers and clients within the process, stock's
// clients too. It is for bubbles of testing/synctest, in which no connection may leave the
// process. Any address can be made unreachable.
package memnet

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/xds/bootstrap"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// A Network is a set of addresses. Any number of goroutines may use it.
type Network struct {
	id string

	mu        sync.Mutex
	next      int
	listeners map[string]*xdstest.MemoryListener
	down      map[string]bool
	conns     map[string]map[*conn]struct{} // open ones, by the address dialed
}

// New returns a network that bootstraps can name until it is closed.
func New() *Network {
	n := &Network{
		id:        strconv.FormatInt(made.Add(1), 10),
		listeners: map[string]*xdstest.MemoryListener{},
		down:      map[string]bool{},
		conns:     map[string]map[*conn]struct{}{},
	}
	networks.Store(n.id, n)
	return n
}

// Close has bootstraps not know the network any more. Its connections stay.
func (n *Network) Close() { networks.Delete(n.id) }

// AnyPort has Listen choose an address.
const AnyPort = "127.0.0.1:0"

// Listen is for xdstest's Options, and for servers. AnyPort is an address that nobody has had;
// another one may be listened on again.
func (n *Network) Listen(addr string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if addr == AnyPort {
		n.next++
		addr = fmt.Sprintf("10.0.%d.%d:80", n.next>>8, n.next&255)
	}
	l := xdstest.NewMemoryListener(addr)
	n.listeners[addr] = l
	return l, nil
}

// Dial is for grpc.WithContextDialer.
func (n *Network) Dial(ctx context.Context, addr string) (net.Conn, error) {
	n.mu.Lock()
	l, down := n.listeners[addr], n.down[addr]
	n.mu.Unlock()
	if l == nil || down {
		return nil, fmt.Errorf("connect %s: connection refused", addr)
	}
	c, err := l.Dial(ctx)
	if err != nil {
		return nil, err
	}
	w := &conn{Conn: c, n: n, addr: addr}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conns[addr] == nil {
		n.conns[addr] = map[*conn]struct{}{}
	}
	n.conns[addr][w] = struct{}{}
	return w, nil
}

// SetDown makes an address unreachable, which breaks its connections, or reachable.
func (n *Network) SetDown(addr string, down bool) {
	n.mu.Lock()
	n.down[addr] = down
	var broken []*conn
	if down {
		for c := range n.conns[addr] {
			broken = append(broken, c)
		}
	}
	n.mu.Unlock()
	for _, c := range broken {
		_ = c.Close()
	}
}

// conn is the dialing end of a connection.
type conn struct {
	net.Conn
	n    *Network
	addr string
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.n.mu.Lock()
	delete(c.n.conns[c.addr], c)
	c.n.mu.Unlock()
	return c.Conn.Close()
}

// Creds are the channel_creds of a bootstrap for a control plane on the network: stock can be
// given a dialer only by its credentials.
func (n *Network) Creds() map[string]any { return map[string]any{"type": credsType, "config": n.id} }

const credsType = "memnet"

// Networks are those that bootstraps name.
var (
	networks sync.Map // id to *Network
	made     atomic.Int64
)

func init() { bootstrap.RegisterChannelCredentials(channelCreds{}) }

type channelCreds struct{}

// Name is the type in a bootstrap.
func (channelCreds) Name() string { return credsType }

// Build finds the network.
func (channelCreds) Build(config json.RawMessage) (credentials.Bundle, func(), error) {
	var id string
	if err := json.Unmarshal(config, &id); err != nil {
		return nil, nil, err
	}
	n, ok := networks.Load(id)
	if !ok {
		return nil, nil, fmt.Errorf("memnet: there is no network %q", id)
	}
	return bundle{insecure.NewBundle(), n.(*Network)}, func() {}, nil
}

type bundle struct {
	credentials.Bundle
	n *Network
}

// DialOptions is what both clients look for in a bundle.
func (b bundle) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithContextDialer(b.n.Dial)}
}
