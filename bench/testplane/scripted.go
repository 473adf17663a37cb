// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package testplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// ScriptedOptions configures a Scripted. The zero value is ready to use.
type ScriptedOptions struct {
	// Listener accepts the server's connections. The default is in memory, for clients that
	// connect with Scripted.Dial.
	Listener net.Listener
	// Tamper, if not nil, replaces each automatic response. Zero results omit it, two repeat
	// it, holding one back until the next call reorders them, and blocking delays it. It must
	// not modify resp but may return modified copies. Responses without a nonce get a new one.
	// It is called by one goroutine for each stream; ctx ends with the stream.
	Tamper func(ctx context.Context, resp *discoveryv3.DiscoveryResponse) []*discoveryv3.DiscoveryResponse
	// Report is called for each protocol violation of a client; see Checker.
	Report func(violation string)
}

// A Scripted is a control plane that interprets the protocol strictly and can be scripted to
// behave like a faulty or unreachable one. It serves only ADS.
//
// It checks every request (see Checker), ignores requests with a stale nonce, and
// automatically sends the resources of Set and Update: all subscribed resources in responses of
// type Listener and Cluster, only changed ones for other types. It does not wait for an answer
// before it sends the next response. Before the first Set or Update it sends no automatic
// responses.
//
// It works in a bubble of testing/synctest, if the server is started there.
//
// A Scripted must be made by StartScripted or NewScripted. It is safe for concurrent use.
type Scripted struct {
	opts    ScriptedOptions
	checker *Checker
	lis     net.Listener
	network *xdstest.Network // nil with ScriptedOptions.Listener
	grpc    *grpc.Server
	done    chan struct{}

	mu      sync.Mutex
	refusal error
	hanging bool
	conns   map[net.Conn]bool
	auto    bool
	version uint64
	served  map[string]map[string]servedResource // by type and name
	streams []openStream                         // the open streams, oldest first

	noSotW, noDelta bool // see Serve
	total           int
	finished        map[string]xdstest.Stats // of ended streams, by type
}

// servedResource is a version of a resource that a Scripted serves.
type servedResource struct {
	any   *anypb.Any
	since uint64
}

// StartScripted returns a server that runs until Stop.
func StartScripted(opts ScriptedOptions) *Scripted {
	s := &Scripted{
		opts:     opts,
		lis:      opts.Listener,
		checker:  NewChecker(opts.Report),
		grpc:     grpc.NewServer(grpc.WaitForHandlers(true)),
		done:     make(chan struct{}),
		conns:    make(map[net.Conn]bool),
		served:   map[string]map[string]servedResource{xdstest.LDS: {}, xdstest.RDS: {}, xdstest.CDS: {}, xdstest.EDS: {}},
		finished: make(map[string]xdstest.Stats),
	}
	if s.lis == nil {
		s.network = xdstest.NewNetwork()
		s.lis, _ = s.network.Listen("127.0.0.1:0") // never fails in memory
	}
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s.grpc, scriptedADS{s: s})
	go func() {
		defer close(s.done)
		_ = s.grpc.Serve(scriptedListener{s.lis, s}) // the error only indicates Stop
	}()
	return s
}

// NewScripted is StartScripted for tests: protocol violations of clients fail the test, and the
// server is stopped at the end of the test.
func NewScripted(tb xdstest.TB, opts ScriptedOptions) *Scripted {
	tb.Helper()
	report := opts.Report
	opts.Report = func(violation string) {
		tb.Errorf("testplane: %s", violation)
		if report != nil {
			report(violation)
		}
	}
	s := StartScripted(opts)
	tb.Cleanup(s.Stop)
	return s
}

// Stop closes all connections and returns when all goroutines have ended.
func (s *Scripted) Stop() {
	s.grpc.Stop()
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		_ = conn.Close() // including hanging ones
	}
	clear(s.conns)
}

// Set replaces the served resources; see xdstest.Server.Set. Resources need not be valid.
func (s *Scripted) Set(r xdstest.Resources) error { return s.put(r, true) }

// Update is Set without removals.
func (s *Scripted) Update(r xdstest.Resources) error { return s.put(r, false) }

func (s *Scripted) put(r xdstest.Resources, replace bool) error {
	encoded, err := encode(r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.auto = true
	s.version++
	for t, next := range encoded {
		for name, a := range next {
			if old := s.served[t][name].any; old == nil || string(old.GetValue()) != string(a.GetValue()) {
				s.served[t][name] = servedResource{a, s.version}
			}
		}
		if replace {
			for name := range s.served[t] {
				if next[name] == nil {
					delete(s.served[t], name)
				}
			}
		}
	}
	s.notifyLocked()
	return nil
}

// Remove stops serving resources of type t.
func (s *Scripted) Remove(t string, names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	for _, name := range names {
		delete(s.served[t], name)
	}
	s.notifyLocked()
}

// Resend assigns a new version to a resource of type t without changing its content, which
// sends it again.
func (s *Scripted) Resend(t, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.served[t][name]
	if !ok {
		return fmt.Errorf("testplane: resend %s %q: not served", t, name)
	}
	s.version++
	s.served[t][name] = servedResource{r.any, s.version}
	s.notifyLocked()
	return nil
}

// encode returns resources by type and name.
func encode(r xdstest.Resources) (map[string]map[string]*anypb.Any, error) {
	all := map[string]map[string]*anypb.Any{xdstest.LDS: {}, xdstest.RDS: {}, xdstest.CDS: {}, xdstest.EDS: {}}
	var errs []error
	put := func(m proto.Message) {
		a := new(anypb.Any)
		// Deterministic, since another order of a map is not a change.
		if err := anypb.MarshalFrom(a, m, proto.MarshalOptions{Deterministic: true}); err != nil {
			errs = append(errs, fmt.Errorf("testplane: encode %q: %w", nameOf(m), err))
			return
		}
		all[a.GetTypeUrl()][nameOf(m)] = a
	}
	for _, m := range r.Listeners {
		put(m)
	}
	for _, m := range r.Routes {
		put(m)
	}
	for _, m := range r.Clusters {
		put(m)
	}
	for _, m := range r.Endpoints {
		put(m)
	}
	return all, errors.Join(errs...)
}

// notifyLocked makes all streams check for pending responses.
func (s *Scripted) notifyLocked() {
	for _, st := range s.streams {
		st.common().notify()
	}
}

// Stream returns the newest open state-of-the-world stream, or nil.
func (s *Scripted) Stream() *Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return youngest[*Stream](s.streams)
}

// Streams returns the number of open streams, and the total number so far.
func (s *Scripted) Streams() (open, total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams), s.total
}

// BreakStreams ends the open streams with UNAVAILABLE. Connections stay open.
func (s *Scripted) BreakStreams() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		st.common().close(errBroken)
	}
}

// Stats returns the statistics of type t on all streams so far.
func (s *Scripted) Stats(t string) xdstest.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.finished[t]
	var names []string
	for _, st := range s.streams {
		of := st.statsLocked(t)
		add(&stats, of)
		names = append(names, of.Names...)
	}
	slices.Sort(names)
	stats.Names = slices.Compact(names)
	return stats
}

// Violations returns the protocol violations of clients; see Checker.
func (s *Scripted) Violations() []string { return s.checker.Violations() }

// scriptedADS is the service, without the methods for tests.
type scriptedADS struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	s *Scripted
}

func (a scriptedADS) StreamAggregatedResources(ads discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	st := &Stream{scriptedStream: a.s.newStream(), ads: ads, types: make(map[string]*streamType)}
	return a.s.handle(ads.Context(), st, func() error {
		req, err := ads.Recv()
		if err == nil {
			st.request(req)
		}
		return err
	})
}

// newStream returns the common part of a new stream.
func (s *Scripted) newStream() *scriptedStream {
	return &scriptedStream{s: s, wake: make(chan struct{}, 1), check: s.checker.Stream()}
}

// handle handles a stream until it ends; receive handles one request.
func (s *Scripted) handle(ctx context.Context, st openStream, receive func() error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	common := st.common()
	common.cancel = cancel
	s.mu.Lock()
	s.total++
	if _, incremental := st.(*DeltaStream); incremental && s.noDelta || !incremental && s.noSotW {
		s.mu.Unlock()
		cancel(nil)
		return errUnimplemented
	}
	common.number = s.total
	s.streams = append(s.streams, st)
	s.mu.Unlock()

	go func() {
		for {
			if err := receive(); err != nil {
				cancel(err)
				return
			}
		}
	}()
	st.send(ctx)
	s.mu.Lock()
	s.streams = slices.DeleteFunc(s.streams, func(other openStream) bool { return other == st })
	st.eachLocked(func(url string, own xdstest.Stats) {
		stats := s.finished[url]
		add(&stats, own)
		s.finished[url] = stats
	})
	s.mu.Unlock()
	switch err := context.Cause(ctx); {
	case err == errOrderly:
		return nil
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, "testplane: the client is gone")
	default:
		return err
	}
}

// errBroken ends streams that are broken deliberately.
var errBroken = status.Error(codes.Unavailable, "testplane: stream broken")

// errUnimplemented is the error for variants that are not served.
var errUnimplemented = status.Error(codes.Unimplemented, "testplane: this variant of ADS is not served")

// Serve sets the variants of ADS that are served from now on, and breaks the open streams.
// Streams of the other variants end with UNIMPLEMENTED. Initially both are served.
func (s *Scripted) Serve(sotw, delta bool) {
	s.mu.Lock()
	s.noSotW, s.noDelta = !sotw, !delta
	s.mu.Unlock()
	s.BreakStreams()
}

// youngest returns the newest stream of a variant, or the zero value.
func youngest[S openStream](streams []openStream) (st S) {
	for _, open := range streams {
		if of, ok := open.(S); ok {
			st = of
		}
	}
	return st
}

// add adds the counters of another Stats, and copies its LastError if set.
func add(s *xdstest.Stats, o xdstest.Stats) {
	s.Requests += o.Requests
	s.Responses += o.Responses
	s.ACKs += o.ACKs
	s.NACKs += o.NACKs
	if o.LastError != "" {
		s.LastError = o.LastError
	}
}
