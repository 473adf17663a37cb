// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	grpcbootstrap "google.golang.org/grpc/xds/bootstrap"
)

// anyPort makes Network.Listen choose an address. A Server and Backends pass it the first time.
const anyPort = "127.0.0.1:0"

// A Network connects clients to servers and injects network faults: it drops or delays data to
// an address, refuses connections, and breaks them. Without TCP it is in memory and also works in
// a bubble of testing/synctest, whose clock waits for data in flight.
//
// In memory, writes never block: unread data is buffered. Unlike in gRPC's bufconn, no
// connection starts a timer that is due immediately, which can crash the race detector in a
// bubble (Go 1.26).
//
// A Network must be made by NewNetwork. It is safe for concurrent use; a connection may have one
// reader and any number of writers at a time.
type Network struct {
	// TCP makes the network use TCP instead of memory. It must be set before the first use.
	TCP bool
	// OnOpen, if not nil, is called for each connection with the name passed to Dialer, the
	// address, and the number of connections between the two that are already open. It must be
	// set before the first connection.
	OnOpen func(client, addr string, others int)
	// OnEnd, if not nil, is called when the client closes its end. byClient is false if there
	// was an error before, or if the address is held or down.
	OnEnd func(client, addr string, opened time.Time, byClient bool)

	id    string // in bootstraps
	mu    sync.Mutex
	hosts map[string]*host
	last  int // number of the latest chosen address
}

// host is the state of an address.
type host struct {
	lis   *memoryListener                  // guarded by Network.mu, like the next two fields
	down  bool                             //
	conns map[string]map[*netConn]struct{} // open connections, by client
	held  atomic.Pointer[chan struct{}]    // closed by Release; nil if not held
	delay atomic.Int64                     // of what clients read, in nanoseconds
}

// NewNetwork returns a network in memory; see Network.TCP.
func NewNetwork() *Network {
	n := &Network{hosts: map[string]*host{}, id: strconv.FormatInt(networksMade.Add(1), 10)}
	networks.Store(n.id, weak.Make(n))
	runtime.AddCleanup(n, func(id string) { networks.Delete(id) }, n.id)
	return n
}

// host returns the state of an address.
func (n *Network) host(addr string) *host {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.hosts[addr]
	if h == nil {
		h = &host{conns: map[string]map[*netConn]struct{}{}}
		n.hosts[addr] = h
	}
	return h
}

// Listen is for Options, BackendOptions and other servers. In memory, the address
// "127.0.0.1:0" assigns a separate IP to each listener; any other replaces its previous listener.
func (n *Network) Listen(addr string) (net.Listener, error) {
	if n.TCP {
		return net.Listen("tcp", addr)
	}
	if addr == anyPort {
		n.mu.Lock()
		n.last++
		addr = fmt.Sprintf("10.0.%d.%d:80", n.last>>8, n.last&255)
		n.mu.Unlock()
	}
	h, l := n.host(addr), newMemoryListener(addr)
	n.mu.Lock()
	defer n.mu.Unlock()
	h.lis = l
	return l, nil
}

// Dial is for grpc.WithContextDialer.
func (n *Network) Dial(ctx context.Context, addr string) (net.Conn, error) {
	return n.dial(ctx, "", addr)
}

// Dialer is Dial for the connections of one client, whose name OnOpen and OnEnd receive.
func (n *Network) Dialer(client string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) { return n.dial(ctx, client, addr) }
}

func (n *Network) dial(ctx context.Context, client, addr string) (net.Conn, error) {
	h := n.host(addr)
	for hold := h.held.Load(); hold != nil; hold = h.held.Load() {
		select {
		case <-*hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	conn, err := n.connect(ctx, h, addr)
	if err != nil {
		return nil, err
	}
	c := &netConn{Conn: conn, n: n, h: h, client: client, addr: addr, opened: time.Now(), closed: make(chan struct{}), failed: make(chan struct{})}
	n.mu.Lock()
	others := len(h.conns[client])
	if others == 0 {
		h.conns[client] = map[*netConn]struct{}{}
	}
	h.conns[client][c] = struct{}{}
	n.mu.Unlock()
	if n.OnOpen != nil {
		n.OnOpen(client, addr, others)
	}
	return c, nil
}

func (n *Network) connect(ctx context.Context, h *host, addr string) (net.Conn, error) {
	n.mu.Lock()
	l, down := h.lis, h.down
	n.mu.Unlock()
	switch {
	case down:
	case n.TCP:
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	case l != nil:
		if conn, err := l.dial(ctx); !errors.Is(err, net.ErrClosed) {
			return conn, err
		}
	}
	return nil, fmt.Errorf("connect %s: connection refused", addr)
}

// Hold makes an address unresponsive until Release, as if packets were lost: data in both
// directions, and calls of Dial, are delayed until then.
func (n *Network) Hold(addr string) {
	hold := make(chan struct{})
	n.host(addr).held.CompareAndSwap(nil, &hold)
}

// Release ends Hold.
func (n *Network) Release(addr string) {
	if hold := n.host(addr).held.Swap(nil); hold != nil {
		close(*hold)
	}
}

// SetDelay delays what clients receive from an address.
func (n *Network) SetDelay(addr string, d time.Duration) { n.host(addr).delay.Store(int64(d)) }

// SetDown breaks the connections to an address and refuses new ones, or ends that.
func (n *Network) SetDown(addr string, down bool) {
	h := n.host(addr)
	n.mu.Lock()
	h.down = down
	var broken []*netConn
	for _, conns := range h.conns {
		for c := range conns {
			if down {
				broken = append(broken, c)
			}
		}
	}
	n.mu.Unlock()
	for _, c := range broken {
		c.fail(net.ErrClosed)
		_ = c.Close()
	}
}

// Creds returns the channel_creds for a bootstrap with which an xDS client, including
// grpc-go's, connects to its control plane through the network, which must be kept alive.
func (n *Network) Creds() map[string]any { return map[string]any{"type": credsType, "config": n.id} }

const credsType = "xdstest_network"

var (
	networks     sync.Map // id to weak.Pointer[Network]
	networksMade atomic.Int64
)

func init() { grpcbootstrap.RegisterChannelCredentials(networkCreds{}) }

type networkCreds struct{}

// Name is the type in a bootstrap.
func (networkCreds) Name() string { return credsType }

// Build returns credentials with the network's dialer: grpc-go's xDS client accepts a dialer
// only in this way.
func (networkCreds) Build(config json.RawMessage) (credentials.Bundle, func(), error) {
	var id string
	if err := json.Unmarshal(config, &id); err != nil {
		return nil, nil, fmt.Errorf("xdstest: network credentials: %w", err)
	}
	if p, ok := networks.Load(id); ok {
		if n := p.(weak.Pointer[Network]).Value(); n != nil {
			return networkBundle{insecure.NewBundle(), n}, func() {}, nil
		}
	}
	return nil, nil, fmt.Errorf("xdstest: network credentials: no network %q", id)
}

type networkBundle struct {
	credentials.Bundle
	n *Network
}

// DialOptions is called by xDS clients.
func (b networkBundle) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithContextDialer(b.n.Dial)}
}
