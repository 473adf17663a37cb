// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"net"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/bootstrap"
)

// notFound is an HTTP/2 server, such as a proxy in front of a control plane that is not
// there, which answers everything with 404. gRPC makes UNIMPLEMENTED of that.
type notFound chan string // the methods that are called

func (n notFound) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusNotFound)
	select {
	case n <- path.Base(r.URL.Path):
	default: // enough
	}
}

// TestNotFound: a server that answers with HTTP's 404 counts as one that does not implement the
// variant, since proxies answer so for a method without a route. So both variants are tried by
// turns, and the server is unreachable until one of them works.
func TestNotFound(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	n := make(notFound, 4)
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: n, Protocols: protocols}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(lis) }()
	defer func() { _ = server.Close(); <-ended }()
	cfg, err := bootstrap.Parser{}.Parse("test", []byte(`{"xds_servers": [{"server_uri": "`+lis.Addr().String()+`",
		"channel_creds": [{"type": "insecure"}], "server_features": ["xdslb.delta_ads"]}], "node": {"id": "node"}}`))
	kit.Must(t, err)
	c := Acquire(cfg, Options{Linger: -1, BackoffBase: 10 * time.Millisecond, BackoffMax: 10 * time.Millisecond, ReconnectSpread: -1})
	defer func() { c.Release(); <-c.done }()
	cancel := c.view().Watch("svc", "svc", &counter{})
	defer cancel()
	var got []string
	for range 4 {
		select {
		case method := <-n:
			got = append(got, method)
		case <-time.After(2 * time.Minute):
			t.Fatalf("called: %q", got)
		}
	}
	const d, s = "DeltaAggregatedResources", "StreamAggregatedResources"
	if !slices.Equal(got, []string{d, s, d, s}) && !slices.Equal(got, []string{d, s, s, d}) {
		t.Errorf("called: %q, want both variants by turns", got)
	}
	if err := c.view().Waiting("svc", "svc"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("waiting: %v, want the reason", err)
	}
}

// TestDeltaRequestedLater: a user that requests incremental ADS, and shares a client with a user that does
// not, has it from the next stream on.
func TestDeltaRequestedLater(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, w := serving(t, Options{})
		opts := h.c.opts
		opts.Delta = true
		c := Acquire(h.c.cfg, opts)
		defer c.Release()
		if c != h.c {
			t.Fatal("another client")
		}
		cp.serve(endpointsAt("svc", 2))
		w.serves(t, "svc", "svc 2")
		if s := c.Servers()[0]; s.Variant != (sotw{}).String() || s.Streams != 1 {
			t.Errorf("server %+v", s)
		}
		cp.hangUp(nil)
		cp.serve(endpointsAt("svc", 3))
		advance(time.Minute)
		w.serves(t, "svc", "svc 3")
		if s := c.Servers()[0]; s.Variant != (delta{}).String() || s.Streams != 2 {
			t.Errorf("server %+v", s)
		}
	})
}
