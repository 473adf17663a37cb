// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestResponseAtEndOfStream: a response counts though the server closes the stream right after
// it, however long it takes to decode.
func TestResponseAtEndOfStream(t *testing.T) {
	resp := &discoveryv3.DiscoveryResponse{TypeUrl: lds.URL(), VersionInfo: "1", Nonce: "1"}
	for i := range 2000 {
		resp.Resources = append(resp.Resources, wrap(xdstest.Listener(fmt.Sprint("other-", i), "r")))
	}
	resp.Resources = append(resp.Resources, wrap(xdstest.Listener("svc", "r")))
	for range 10 {
		bubble(t, func(t *testing.T) {
			h, cp := only(t, Options{})
			h.watch("svc")
			s := cp.must()
			s.Respond(resp)
			s.Close(nil)
			if synctest.Wait(); statusOf(h.c, lds, "svc").State != Acked {
				t.Error("the response was dropped")
			}
		})
	}
}

// TestDisplacedStream checks that a stream that ends in order as soon as it is open, which Istio's
// agent does when another client opens one, is repeated once, and that the backoff grows although
// the second stream has a response.
func TestDisplacedStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		h.watch("svc")
		attempts := 0
		for begin := time.Now(); time.Since(begin) < 10*time.Minute; advance(50 * time.Millisecond) {
			if !cp.connected() {
				continue
			}
			attempts++
			cp.hangUp(nil)
			if !cp.connected() {
				t.Fatalf("attempt %d: no second stream", attempts)
			}
			cp.send(lds, "1", listenerTo("svc", "r"))
			advance(time.Second) // until the other client returns
			cp.hangUp(nil)
			if cp.connected() {
				t.Fatalf("attempt %d: a third stream", attempts)
			}
		}
		if attempts < 6 || attempts > 60 {
			t.Errorf("%d attempts in 10 minutes, want a growing backoff", attempts)
		}
		// The other client is gone.
		for !cp.connected() {
			advance(50 * time.Millisecond)
		}
		cp.hangUp(nil)
		cp.send(lds, "1", listenerTo("svc", "r"))
		advance(30 * time.Minute)
		cp.hangUp(nil)
		if advance(time.Second); !cp.connected() {
			t.Error("not connected a second after the end of a long stream")
		}
	})
}

// TestDisplacedTwice checks that a stream is repeated only once, and only if it ended in order.
func TestDisplacedTwice(t *testing.T) {
	for _, tt := range []struct {
		first, second error
		streams       int
	}{{nil, nil, 2}, {nil, errors.New("overloaded"), 2}, {errors.New("overloaded"), nil, 1}} {
		bubble(t, func(t *testing.T) {
			h, cp := only(t, Options{})
			w := h.watch("svc")
			cp.hangUp(tt.first)
			cp.hangUp(tt.second)
			if n := cp.opened(); n != tt.streams {
				t.Errorf("%v, %v: %d streams, want %d", tt.first, tt.second, n, tt.streams)
			}
			w.fails(t, "svc")
		})
	}
}

// countdown is a context that ends when Err has been called some times.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestSplittingStops checks that a client that is closed does not read all resources of a response
// with many small ones.
func TestSplittingStops(t *testing.T) {
	d := newDirect(t)
	many := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: lds.URL()}
	all := &discoveryv3.DiscoveryResponse{TypeUrl: lds.URL()}
	for i := range 5000 {
		l := wrap(xdstest.Listener(fmt.Sprint("l", i), "r"))
		many.Resources = append(many.Resources, &discoveryv3.Resource{Version: "1", Resource: l})
		all.Resources = append(all.Resources, l)
	}
	for _, msg := range []proto.Message{many, all} {
		r := response{ctx: &countdown{t.Context(), 1}, t: &d.s.types[lds], msg: arrived(msg)}
		if r.split(); len(r.unwanted) != 1024 {
			t.Errorf("%T: read %d resources after the end, want 1024", msg, len(r.unwanted))
		}
	}
}

// TestDecodingStops: a client that is closed does not decode a large resource to its end, and the
// decoded part has no effect.
func TestDecodingStops(t *testing.T) {
	d := newDirect(t)
	d.speak("delta")
	d.requests()
	routes := xdstest.RouteConfig("r")
	for range 1000 {
		routes.VirtualHosts[0].Routes = append(routes.VirtualHosts[0].Routes, xdstest.Route("/", "c"))
	}
	ctx := &countdown{t.Context(), 100}
	r := response{ctx: ctx, t: &d.s.types[lds], msg: deltaResponse{&discoveryv3.DeltaDiscoveryResponse{TypeUrl: lds.URL(), Nonce: "1", Resources: []*discoveryv3.Resource{
		{Name: "svc", Version: "1", Resource: wrap(testplane.InlineListener("svc", routes))},
	}}}}
	r.handle()
	if state := statusOf(d.c, lds, "svc").State; state == Acked || state == Nacked {
		t.Errorf("the state is %v after half of a resource", state)
	}
	if ctx.left < -5 {
		t.Errorf("asked %d times after the end", -ctx.left)
	}
}

// TestReconnectSpread checks when a client returns to a server after an outage of
// some seconds: as soon as there is a connection, which gRPC's own backoff decides, or
// within Options.ReconnectSpread if it lacks nothing.
func TestReconnectSpread(t *testing.T) {
	// gRPC waits up to 3.1 s for its fifth attempt, which may begin at the end of the outage; the
	// stream follows within a second.
	const backoff = 4500 * time.Millisecond
	for _, tt := range []struct {
		name    string
		spread  time.Duration
		missing bool // a cluster that the server does not have
		late    bool // another target is asked for after the outage
		within  time.Duration
	}{
		{"nothing lacks", 0, false, false, backoff},
		{"nothing lacks, 13 s", 13 * time.Second, false, false, backoff + 13*time.Second},
		{"a cluster does not exist", time.Hour, true, false, backoff},
		{"another target", time.Hour, false, true, backoff},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 10 { // the waits are random
				bubble(t, func(t *testing.T) {
					h, cp := only(t, Options{ReconnectSpread: tt.spread})
					clusters := []string{"svc"}
					if tt.missing {
						clusters = append(clusters, "missing")
					}
					cp.serve(append(targetOf("svc", 1)[1:], listenerTo("svc", "r"), routesTo("r", clusters...))...)
					h.watch("svc")
					advance(time.Minute)
					cp.refuse(errRefused)
					advance(3 * time.Second)
					cp.refuse(nil)
					if tt.late {
						h.watch("late")
					}
					advance(tt.within)
					if n := cp.opened(); n != 2 {
						t.Errorf("%d streams %v after the outage, want 2", n, tt.within)
					}
				})
			}
		})
	}
}

// TestReturnsSoon: an endpoint that changes right after the end of a stream that had worked is in
// use within two seconds, also if the server restarts.
func TestReturnsSoon(t *testing.T) {
	for name, end := range map[string]func(*fake){
		"orderly": func(cp *fake) { cp.hangUp(nil) },
		"failed":  func(cp *fake) { cp.hangUp(errRefused) },
		"restart": func(cp *fake) { cp.refuse(errRefused); cp.refuse(nil) },
	} {
		for _, feature := range []string{"", deltaFeature} {
			t.Run(name+feature, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					h, cp, w := serving(t, Options{}, feature)
					for i := range uint16(10) {
						advance(time.Minute)
						end(cp)
						cp.serve(endpointsAt("svc", 100+i))
						advance(2 * time.Second)
						if got, want := ports(w.cluster(t, "svc")), fmt.Sprint("svc ", 100+i); got != want {
							t.Errorf("end %d: two seconds later endpoints %q, want %q", i, got, want)
						}
						if s := h.c.Servers()[0]; !s.Connected || s.Failures > 0 {
							t.Errorf("server %+v", s)
						}
					}
				})
			})
		}
	}
}

// TestGapIsSeen: a server whose stream is gone does not count as connected for longer than the
// second in which the next attempt begins, and one that spreads the return not even that. It is
// one failure if it cannot be reached.
func TestGapIsSeen(t *testing.T) {
	for _, spread := range []time.Duration{0, time.Hour} {
		bubble(t, func(t *testing.T) {
			h, cp, _ := serving(t, Options{ReconnectSpread: spread})
			advance(time.Minute)
			cp.hangUp(nil)
			if s := h.c.Servers()[0]; s.Connected != (spread == 0) || s.Failures != 0 {
				t.Errorf("spread %v: server %+v after the end of a stream", spread, s)
			}
			cp.refuse(errRefused)
			advance(time.Second + spread)
			if s := h.c.Servers()[0]; s.Connected || s.Failures != 1 {
				t.Errorf("spread %v: server %+v that cannot be reached", spread, s)
			}
			cp.refuse(nil)
			advance(10*time.Minute + spread)
			if s := h.c.Servers()[0]; !s.Connected || s.Failures != 1 {
				t.Errorf("spread %v: server %+v that is back", spread, s)
			}
		})
	}
}

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

// TestRotationDoesNotDisplace: a server that ends all streams in order now and then displaces none,
// although another client of the process connects within a second before each end.
func TestRotationDoesNotDisplace(t *testing.T) {
	for _, tt := range []struct {
		every time.Duration
		want  int
	}{
		{30 * time.Minute, 0},
		{4 * time.Minute, 0},
		{time.Minute, 1}, // more often than any backoff
	} {
		bubble(t, func(t *testing.T) {
			book := &kit.Logs{}
			h, first := only(t, Options{Logger: slog.New(book)})
			other, second := only(t, Options{}) // the same URI
			h.watch("svc")
			other.watch("svc")
			for range 10 {
				first.serve(targetOf("svc", 1)...)
				second.serve(targetOf("svc", 1)...)
				time.Sleep(tt.every)
				opened := second.opened()
				second.hangUp(nil)
				for range 1000 {
					if second.opened() > opened {
						break
					}
					advance(10 * time.Millisecond)
				}
				first.hangUp(nil)
				advance(2 * time.Second)
				synctest.Wait()
			}
			if lines := book.With("WARN", "displace"); len(lines) != tt.want {
				t.Errorf("every %v: %q, want %d lines", tt.every, lines, tt.want)
			}
		})
	}
}
