// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

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

// A network connects control plane, servers and clients: within the process, or,
// if it is real, over loopback.
type network struct {
	id   string
	real bool

	mu        sync.Mutex
	next      int
	listeners map[string]*xdstest.MemoryListener
}

// newNetwork returns a network that bootstraps can name, until it is closed.
func newNetwork(real bool) *network {
	n := &network{real: real, listeners: map[string]*xdstest.MemoryListener{}}
	n.id = fmt.Sprintf("%p", n)
	networks.Store(n.id, n)
	return n
}

func (n *network) close() { networks.Delete(n.id) }

// listen listens on an address of its own, or again on one it returned before.
func (n *network) listen(addr string) (net.Listener, error) {
	if n.real {
		return net.Listen("tcp", addr)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if addr == anyPort {
		n.next++
		addr = fmt.Sprintf("10.0.%d.%d:80", n.next>>8, n.next&255)
	}
	l := xdstest.NewMemoryListener(addr)
	n.listeners[addr] = l
	return l, nil
}

const anyPort = "127.0.0.1:0"

// dial is for grpc.WithContextDialer.
func (n *network) dial(ctx context.Context, addr string) (net.Conn, error) {
	if n.real {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	}
	n.mu.Lock()
	l := n.listeners[addr]
	n.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("arena: connect %s: refused", addr)
	}
	return l.Dial(ctx)
}

// bootstrap names a control plane on the network, for a client in a zone; "" is none.
func (n *network) bootstrap(control *xdstest.Server, zone string) ([]byte, error) {
	type object = map[string]any
	node := object{"id": "arena"}
	if zone != "" {
		node["locality"] = object{"zone": zone}
	}
	return json.Marshal(object{
		"node": node,
		"xds_servers": []object{{
			"server_uri":    control.Addr(),
			"channel_creds": []object{{"type": networkCreds, "config": n.id}},
		}},
	})
}

// networkCreds are channel credentials of a bootstrap for a control plane on a
// network: stock can be given a dialer only by its credentials.
const networkCreds = "arena_network"

// networks are those that bootstraps name.
var networks sync.Map // id to *network

func init() { bootstrap.RegisterChannelCredentials(networkChannelCreds{}) }

type networkChannelCreds struct{}

func (networkChannelCreds) Name() string { return networkCreds }

func (networkChannelCreds) Build(config json.RawMessage) (credentials.Bundle, func(), error) {
	var id string
	if err := json.Unmarshal(config, &id); err != nil {
		return nil, nil, err
	}
	n, ok := networks.Load(id)
	if !ok {
		return nil, nil, fmt.Errorf("arena: there is no network %q", id)
	}
	return networkBundle{insecure.NewBundle(), n.(*network)}, func() {}, nil
}

type networkBundle struct {
	credentials.Bundle
	n *network
}

// DialOptions is what both clients look for in a bundle.
func (b networkBundle) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithContextDialer(b.n.dial)}
}
