// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/resource"
)

// memory is a source that serves the resources that a test sets.
type memory struct {
	mu     sync.Mutex
	stream *SourceStream
	runs   int
	down   error
	silent chan struct{} // unless nil, closed before the first resources
	set    []proto.Message
}

var memories sync.Map // of *memory, by server_uri

func init() {
	RegisterSource("memory", func(uri string) (Source, error) {
		m, _ := memories.Load(uri)
		return m.(*memory), nil
	})
}

// newMemory returns a source and the description of its server.
func newMemory(t *testing.T) (*memory, string) {
	m, uri := &memory{}, "memory:"+t.Name()
	memories.Store(uri, m)
	t.Cleanup(func() { memories.Delete(uri) })
	return m, `{"server_uri": "` + uri + `"}`
}

func (m *memory) Run(ctx context.Context, s *SourceStream) error {
	m.mu.Lock()
	m.runs++
	down, silent := m.down, m.silent
	m.mu.Unlock()
	if silent != nil {
		select {
		case <-silent:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	m.mu.Lock()
	if down == nil {
		m.stream = s
		m.deliverLocked()
	}
	m.mu.Unlock()
	if down != nil {
		s.Fail(down)
		return down
	}
	<-ctx.Done()
	return ctx.Err()
}

func (m *memory) deliverLocked() {
	for _, typ := range []resource.Type{lds, rds, cds, eds} {
		set := map[string]proto.Message{}
		for _, r := range m.set {
			if of, name := nameOf(r); of == typ {
				set[name] = r
			}
		}
		if err := m.stream.Deliver(typ.URL(), set); err != nil {
			panic(err)
		}
	}
}

// serve sets the resources.
func (m *memory) serve(resources ...proto.Message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.set = resources; m.stream != nil {
		m.deliverLocked()
	}
}

// names returns the names that the client has subscribed to.
func (m *memory) names(typ resource.Type) []string { return m.stream.Names(typ.URL()) }

// TestSource: a source in the process is a control plane without channel credentials: its resources are
// in use at once, also when they change, names that its sets lack do not exist without a timer, and its
// errors leave the previous resources in use.
func TestSource(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, doc := newMemory(t)
		m.set = targetOf("svc", 1)
		book := &kit.Logs{}
		h := newClientHarness(t, Options{Logger: slog.New(book)}, []string{doc}, "")
		w, none := h.watch("svc"), h.watch("none")
		w.serves(t, "svc", "svc 1")
		none.fails(t, "none", "does not exist")
		if got, want := m.names(lds), []string{"none", "svc"}; !slices.Equal(got, want) {
			t.Errorf("names %q, want %q", got, want)
		}
		if len(m.stream.Changed()) != 1 {
			t.Error("no notice of changed names")
		}
		m.serve(targetOf("svc", 2, 3)...)
		w.serves(t, "svc", "svc 2 3")
		m.serve(append(targetOf("svc", 2, 3), targetOf("none", 4)...)...)
		none.serves(t, "none", "none 4")
		m.stream.Fail(errors.New("broken"))
		advance(time.Minute)
		w.serves(t, "svc", "svc 2 3")
		book.WantOne(t, "ERROR", "source", "broken")
		if s := h.c.Servers()[0]; s.SourceErr == nil || s.SourceFailures != 1 || !s.Connected {
			t.Errorf("status %+v", s)
		}
		m.stream.Fail(nil)
		if s := h.c.Servers()[0]; s.SourceErr != nil {
			t.Errorf("error %v after the end of the failure", s.SourceErr)
		}
		advance(time.Minute)
		book.WantOne(t, "INFO", "source", "works again")
		if w.got().errs > 0 || m.runs != 1 {
			t.Errorf("%d errors, %d streams", w.got().errs, m.runs)
		}
	})
}

// TestSourceUnavailable: a source that fails before its first resources is a server that cannot be reached,
// and is tried again within two seconds, whatever the duration of the failure.
func TestSourceUnavailable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, doc := newMemory(t)
		m.down = errors.New("no such thing")
		m.set = targetOf("svc", 1)
		h := newClientHarness(t, Options{}, []string{doc}, "")
		w := h.watch("svc")
		advance(time.Second)
		w.fails(t, "no such thing")
		advance(time.Hour)
		m.mu.Lock()
		m.down = nil
		m.mu.Unlock()
		advance(2 * time.Second)
		w.serves(t, "svc", "svc 1")
	})
}

// TestSourceFallback: a source is the fallback of servers that cannot be reached (A71), and the client returns to
// a server that is back, without an error in between.
func TestSourceFallback(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, doc := newMemory(t)
		m.set = targetOf("svc", 2)
		h := newHarness(t, Options{}, []string{serverDoc("first"), doc}, "")
		first := h.servers["first"]
		first.serve(targetOf("svc", 1)...)
		first.Hang()
		w := h.watch("svc")
		advance(2 * time.Second) // the failover time, and a second
		w.serves(t, "svc", "svc 2")
		first.refuse(errRefused)
		advance(time.Minute)
		first.refuse(nil)
		advance(15 * time.Second)
		w.serves(t, "svc", "svc 1")
		if got := w.got(); got.errs > 0 {
			t.Errorf("%d errors: %v", got.errs, got.err)
		}
		for _, s := range h.c.Servers() {
			if strings.HasPrefix(s.URI, "memory:") && s.InUse {
				t.Error("the source is in use while the server works")
			}
		}
	})
}

// TestSourceSilent: a source that delivers nothing within the failover time counts as unreachable if there is another
// server (A71). The client returns to it when it delivers, without an error and without another call of Run. A
// source that is the only server may take longer.
func TestSourceSilent(t *testing.T) {
	for _, another := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			m, doc := newMemory(t)
			m.set, m.silent = targetOf("svc", 1), make(chan struct{})
			servers := []string{doc}
			if another {
				servers = append(servers, serverDoc("second"))
			}
			h := newHarness(t, Options{}, servers, "")
			if another {
				h.servers["second"].serve(targetOf("svc", 2)...)
			}
			w := h.watch("svc")
			advance(2 * time.Second) // the failover time, and a second
			if another {
				w.serves(t, "svc", "svc 2")
			}
			close(m.silent)
			advance(time.Second)
			w.serves(t, "svc", "svc 1")
			if got := w.got(); got.errs > 0 || m.runs != 1 {
				t.Errorf("%d errors: %v; %d streams", got.errs, got.err, m.runs)
			}
		})
	}
}

// TestSourceBootstrap: the scheme of a source makes channel credentials unnecessary, and no other scheme does.
func TestSourceBootstrap(t *testing.T) {
	for uri, ok := range map[string]bool{"memory:x": true, "MEMORY:x": true, "other:x": false, "memory": false} {
		_, err := bootstrap.Parser{}.Parse("test", []byte(`{"xds_servers": [{"server_uri": "`+uri+`"}]}`))
		if (err == nil) != ok {
			t.Errorf("%s: error %v, want valid = %v", uri, err, ok)
		}
	}
}

// namedOnly is a source that delivers what the client has subscribed to, and nothing else.
type namedOnly struct{ all []proto.Message }

func (o namedOnly) Run(ctx context.Context, s *SourceStream) error {
	for {
		for _, typ := range []resource.Type{eds, cds, rds, lds} {
			set := map[string]proto.Message{}
			names := s.Names(typ.URL()) // once: a later call would return names that the set does not consider
			for _, r := range o.all {
				if of, name := nameOf(r); of == typ && slices.Contains(names, name) {
					set[name] = r
				}
			}
			kit.Must(nil, s.Deliver(typ.URL(), set))
		}
		select {
		case <-s.Changed():
			time.Sleep(time.Millisecond)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func init() {
	RegisterSource("named", func(string) (Source, error) {
		return namedOnly{append(targetOf("a", 1), targetOf("b", 2)...)}, nil
	})
}

// TestSourceNames: a source may deliver only the names that the client has subscribed to. A name that is
// subscribed to later has no error before the source has delivered the next set.
func TestSourceNames(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newClientHarness(t, Options{}, []string{`{"server_uri": "named:"}`}, "")
		a := h.watch("a")
		advance(time.Second)
		b := h.watch("b")
		advance(time.Second)
		a.serves(t, "a", "a 1")
		b.serves(t, "b", "b 2")
		for _, w := range []*recorder{a, b} {
			if got := w.got(); got.errs > 0 {
				t.Errorf("%d errors: %v", got.errs, got.err)
			}
		}
	})
}
