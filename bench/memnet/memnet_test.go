// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package memnet

import (
	"encoding/json"
	"testing"
)

// TestNetwork: an address is reachable while somebody listens and it is not down, and going
// down breaks its connections.
func TestNetwork(t *testing.T) {
	n := New()
	defer n.Close()
	l, err := n.Listen(AnyPort)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	addr := l.Addr().String()
	go func() {
		for {
			if _, err := l.Accept(); err != nil {
				return
			}
		}
	}()
	if _, err := n.Dial(t.Context(), "10.9.9.9:80"); err == nil {
		t.Error("connected to nobody")
	}
	c, err := n.Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	n.SetDown(addr, true)
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlives its address")
	}
	if _, err := n.Dial(t.Context(), addr); err == nil {
		t.Error("connected to what is down")
	}
	n.SetDown(addr, false)
	if c, err = n.Dial(t.Context(), addr); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil || len(n.conns[addr]) != 0 {
		t.Errorf("%d connections after they were closed, %v", len(n.conns[addr]), err)
	}
}

// TestCreds: a bootstrap's credentials are of a network until it is closed.
func TestCreds(t *testing.T) {
	n := New()
	config, err := json.Marshal(n.Creds()["config"])
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := (channelCreds{}).Build(config); err != nil {
		t.Error(err)
	}
	n.Close()
	if _, _, err := (channelCreds{}).Build(config); err == nil {
		t.Error("credentials of a network that was closed")
	}
	if _, _, err := (channelCreds{}).Build([]byte("{}")); err == nil {
		t.Error("credentials of no network")
	}
}
