// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/xds/bootstrap"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// network connects the parties of one test within the process. Any address can be
// made unreachable.
type network struct {
	mu        sync.Mutex
	next      int
	listeners map[string]*xdstest.MemoryListener
	down      map[string]bool
	conns     map[string]map[*conn]struct{} // open ones, by the address dialed
}

func newNetwork() *network {
	return &network{
		listeners: map[string]*xdstest.MemoryListener{},
		down:      map[string]bool{},
		conns:     map[string]map[*conn]struct{}{},
	}
}

// listen is for xdstest's Options, and for backends. Every listener has an address
// of its own; one that is named gets that name again.
func (n *network) listen(addr string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if addr == "127.0.0.1:0" {
		n.next++
		addr = fmt.Sprintf("10.0.%d.%d:80", n.next>>8, n.next&255)
	}
	l := xdstest.NewMemoryListener(addr)
	n.listeners[addr] = l
	return l, nil
}

// dial is for grpc.WithContextDialer.
func (n *network) dial(ctx context.Context, addr string) (net.Conn, error) {
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

// setDown makes an address unreachable, which breaks its connections, or reachable.
func (n *network) setDown(addr string, down bool) {
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
	n    *network
	addr string
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.n.mu.Lock()
	delete(c.n.conns[c.addr], c)
	c.n.mu.Unlock()
	return c.Conn.Close()
}

// memoryCreds are channel credentials of the bootstrap for a control plane on a
// network: stock can be given a dialer only by its credentials.
const memoryCreds = "differential_memory"

// networks are those that bootstraps name.
var networks sync.Map // name to *network

func init() { bootstrap.RegisterChannelCredentials(memoryChannelCreds{}) }

type memoryChannelCreds struct{}

func (memoryChannelCreds) Name() string { return memoryCreds }

func (memoryChannelCreds) Build(config json.RawMessage) (credentials.Bundle, func(), error) {
	var name string
	if err := json.Unmarshal(config, &name); err != nil {
		return nil, nil, err
	}
	n, ok := networks.Load(name)
	if !ok {
		return nil, nil, fmt.Errorf("no network %q", name)
	}
	return memoryBundle{insecure.NewBundle(), n.(*network)}, func() {}, nil
}

type memoryBundle struct {
	credentials.Bundle
	n *network
}

// DialOptions is what both clients look for in a bundle.
func (b memoryBundle) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithContextDialer(b.n.dial)}
}
