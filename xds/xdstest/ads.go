// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Stats are the statistics of one type of resources on all streams so far.
type Stats struct {
	Requests, Responses int
	ACKs, NACKs         int
	// Names are the names to which open streams subscribe, sorted.
	Names []string
	// LastError is the error_detail of the last NACK.
	LastError string
}

// answered counts an ACK, or a NACK if detail is set.
func (s *Stats) answered(detail *statuspb.Status) {
	if detail == nil {
		s.ACKs++
		return
	}
	s.NACKs++
	s.LastError = detail.GetMessage()
}

// Stats returns the statistics of type t.
func (s *Server) Stats(t string) Stats {
	s.ads.mu.Lock()
	defer s.ads.mu.Unlock()
	stats := s.ads.stats[t]
	names := make(map[string]bool)
	for st := range s.ads.streams {
		if sub := st.subs[t]; sub != nil {
			for name := range sub.names {
				names[name] = true
			}
		}
	}
	stats.Names = slices.Sorted(maps.Keys(names))
	return stats
}

// Streams returns the number of open ADS streams, and the total number so far.
func (s *Server) Streams() (open, total int) {
	s.ads.mu.Lock()
	defer s.ads.mu.Unlock()
	return len(s.ads.streams), s.ads.total
}

// WaitACK returns nil once all clients, and at least one, have accepted the subscribed
// resources of type t from the last Set. It returns an error if a client rejects the latest
// version, or when ctx is done.
func (s *Server) WaitACK(ctx context.Context, t string) error {
	var rejected *nackError
	err := s.events.wait(ctx, "an ACK of "+t, func() bool {
		var done bool
		done, rejected = s.ads.settled(t)
		return done
	})
	if err == nil && rejected != nil {
		return rejected
	}
	return err
}

// WaitNACK returns the error_detail with which a client rejected the resources of type t from
// the last Set. It returns an error if all clients, and at least one, accept them, or when ctx
// is done.
func (s *Server) WaitNACK(ctx context.Context, t string) (detail string, err error) {
	var rejected *nackError
	err = s.events.wait(ctx, "a NACK of "+t, func() bool {
		var done bool
		done, rejected = s.ads.settled(t)
		return done
	})
	if err == nil && rejected == nil {
		err = fmt.Errorf("xdstest: waiting for a NACK of %s: it was accepted", t)
	}
	if err != nil {
		return "", err
	}
	return rejected.detail, nil
}

// nackError is the rejection of a version by a client.
type nackError struct {
	typeURL string
	version uint64
	detail  string
}

func (e *nackError) Error() string {
	return fmt.Sprintf("xdstest: version %d of %s was rejected: %s", e.version, e.typeURL, e.detail)
}

// ads serves ADS streams. Each stream has its own go-control-plane server, with its own
// callbacks, so that it can be ended separately.
type ads struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	store     *store
	events    *events
	onRequest func(stream int64, req *discoveryv3.DiscoveryRequest)

	onDeltaRequest func(stream int64, req *discoveryv3.DeltaDiscoveryRequest)
	single         bool // Options.SingleStream

	mu      sync.Mutex // acquired before store.mu
	total   int
	streams map[*adsStream]bool // the open streams
	stats   map[string]Stats    // by type, without Names
}

func (a *ads) init(store *store, events *events, opts *Options) {
	a.store, a.events, a.onRequest, a.onDeltaRequest = store, events, opts.OnRequest, opts.OnDeltaRequest
	a.single = opts.SingleStream
	a.streams, a.stats = make(map[*adsStream]bool), make(map[string]Stats)
}

// StreamAggregatedResources handles a stream until it ends.
func (a *ads) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	ctx, st, end := a.begin(stream.Context())
	defer end()
	// Ordered, so that a client receives the steps of a Set in order; and with the legacy
	// wildcard, as in most servers, so that a client whose first request has no names receives
	// everything.
	server := sotw.NewServer(ctx, &a.store.mux, st, sotw.WithOrderedADS())
	if err := server.StreamHandler(stream, resource.AnyType); err != nil {
		return err
	}
	if err := context.Cause(ctx); errors.Is(err, errBroken) {
		return err
	}
	return nil
}

// begin registers a stream; end unregisters it.
func (a *ads) begin(ctx context.Context) (_ context.Context, st *adsStream, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	st = &adsStream{ads: a, cancel: cancel, subs: make(map[string]*subscription)}
	a.mu.Lock()
	a.total++
	st.number = int64(a.total)
	if a.single {
		for other := range a.streams {
			other.cancel(nil)
		}
	}
	a.streams[st] = true
	a.mu.Unlock()
	a.events.notify()
	return ctx, st, func() {
		cancel(nil)
		a.mu.Lock()
		delete(a.streams, st)
		a.mu.Unlock()
		a.events.notify()
	}
}

// errBroken ends streams that are broken deliberately.
var errBroken = status.Error(codes.Unavailable, "xdstest: stream broken")

func (a *ads) breakStreams() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for st := range a.streams {
		st.cancel(errBroken)
	}
}

// settled reports whether all streams that subscribe to type t, and at least one, have answered
// the current version, and returns a rejection if any.
func (a *ads) settled(t string) (bool, *nackError) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var any bool
	var rejected *nackError
	for st := range a.streams {
		sub := st.subs[t]
		if sub == nil || len(sub.names) == 0 {
			continue
		}
		any = true
		pending := a.store.pending(t, sub)
		switch {
		case sub.nonce != "" && !sub.answered:
			return false, nil
		case pending == 0:
		case sub.nack != nil && sub.nack.version >= pending:
			rejected = sub.nack
		default:
			return false, nil
		}
	}
	return any, rejected
}

// adsStream is an open stream with its go-control-plane callbacks, which are serialized.
type adsStream struct {
	ads    *ads
	number int64
	cancel context.CancelCauseFunc
	subs   map[string]*subscription // by type; guarded by ads.mu
}

// subscription is the state of one type on a stream.
type subscription struct {
	names    map[string]uint64 // with the version at the time of subscription
	nonce    string            // of the last response, "" before the first
	sent     uint64            // version of the last response
	answered bool              // the last response has been answered
	acked    uint64            // the last version accepted
	claimed  map[string]uint64 // initial versions of an incremental stream
	nack     *nackError        // the last rejection
}

// OnStreamOpen implements sotw.Callbacks.
func (st *adsStream) OnStreamOpen(context.Context, int64, string) error { return nil }

// OnStreamClosed implements sotw.Callbacks.
func (st *adsStream) OnStreamClosed(int64, *corev3.Node) {}

// OnStreamRequest implements sotw.Callbacks.
func (st *adsStream) OnStreamRequest(_ int64, req *discoveryv3.DiscoveryRequest) error {
	a := st.ads
	if a.onRequest != nil {
		a.onRequest(st.number, req)
	}
	t := req.GetTypeUrl()
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.events.notify()
	sub := st.subLocked(t)
	if sub.nonce != "" && req.GetResponseNonce() != sub.nonce {
		st.answeredLocked(t, sub, false, nil)
		return nil // stale: ignored by go-control-plane, too
	}
	names := make(map[string]uint64, len(req.GetResourceNames()))
	version := a.store.version(t)
	for _, name := range req.GetResourceNames() {
		since, ok := sub.names[name]
		if !ok {
			since = version
		}
		names[name] = since
	}
	sub.names = names
	st.answeredLocked(t, sub, sub.nonce != "", req.GetErrorDetail())
	return nil
}

// subLocked returns the subscription of a type.
func (st *adsStream) subLocked(t string) *subscription {
	sub := st.subs[t]
	if sub == nil {
		sub = &subscription{names: make(map[string]uint64)}
		st.subs[t] = sub
	}
	return sub
}

// answeredLocked counts a request. If answer is true, the request answers the latest response, and
// the first such request also counts as an ACK, or as a NACK if detail is set.
func (st *adsStream) answeredLocked(t string, sub *subscription, answer bool, detail *statuspb.Status) {
	stats := st.ads.stats[t]
	defer func() { st.ads.stats[t] = stats }()
	stats.Requests++
	if !answer || sub.answered {
		return
	}
	sub.answered = true
	stats.answered(detail)
	if detail != nil {
		sub.nack = &nackError{typeURL: t, version: sub.sent, detail: detail.GetMessage()}
		return
	}
	sub.acked = sub.sent
}

// OnStreamResponse implements sotw.Callbacks.
func (st *adsStream) OnStreamResponse(_ context.Context, _ int64, _ *discoveryv3.DiscoveryRequest, resp *discoveryv3.DiscoveryResponse) {
	st.responded(resp.GetTypeUrl(), resp.GetNonce(), resp.GetVersionInfo())
}
