// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"context"
	"encoding/json"
	"net"

	"github.com/xdslb/xdslb/bench/memnet"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// A network connects control plane, servers and clients.
type network interface {
	Listen(addr string) (net.Listener, error)
	Dial(ctx context.Context, addr string) (net.Conn, error)
	Creds() map[string]any // of a bootstrap, for a control plane on the network
	Close()
}

// newNetwork returns one within the process, or, if it is to be real, loopback.
func newNetwork(real bool) network {
	if real {
		return loopback{}
	}
	return memnet.New()
}

type loopback struct{}

// Listen implements network.
func (loopback) Listen(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }

// Dial implements network.
func (loopback) Dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}

// Creds implements network.
func (loopback) Creds() map[string]any { return map[string]any{"type": "insecure"} }

// Close implements network.
func (loopback) Close() {}

// bootstrapOf names a control plane on a network, for a client in a zone; "" is none.
func bootstrapOf(n network, control *xdstest.Server, zone string) ([]byte, error) {
	type object = map[string]any
	node := object{"id": "arena"}
	if zone != "" {
		node["locality"] = object{"zone": zone}
	}
	return json.Marshal(object{
		"node":        node,
		"xds_servers": []object{{"server_uri": control.Addr(), "channel_creds": []object{n.Creds()}}},
	})
}
