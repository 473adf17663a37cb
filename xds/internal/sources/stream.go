// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/zeebo/xxh3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// A Stream connects a [Source] with the client that uses it. It is safe for concurrent use until Run
// returns, and must not be used after that.
type Stream struct {
	ctx     context.Context
	report  func(err error, stale bool)
	changed chan struct{}
	wake    chan struct{} // holds a token if there may be a response, or an error

	mu        sync.Mutex
	types     map[string]*typeState // by type URL
	delivered bool
	responses int
	err       error // ends the stream
}

// typeState is the state of a resource type. Its fields are nil or empty before the first set.
type typeState struct {
	names   map[string]struct{}  // subscribed to
	set     map[string]delivered // the latest
	pending map[string]struct{}  // names that the set does not determine
	told    map[string]struct{}  // names that Names has returned; nil before its first call
	decided map[string]struct{}  // those before the set, which determines no later ones; nil for all names
	ready   bool                 // there is a set
	due     map[string]struct{}  // subscribed names that a response has to have
}

// delivered is a resource of a set.
type delivered struct {
	message  proto.Message
	resource *discoveryv3.Resource
}

// Names returns the sorted names of the resources of a type that the client has subscribed to. After it was
// called, a set that lacks a name says so only of the names that the latest call returned: call it once for each set.
func (s *Stream) Names(typeURL string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.typeLocked(typeURL)
	t.told = maps.Clone(t.names)
	return slices.Sorted(maps.Keys(t.names))
}

// Changed returns a channel that receives a value after a change of Names. Changes before it is received
// are combined.
func (s *Stream) Changed() <-chan struct{} { return s.changed }

// Deliver sets the complete set of resources of a type, by name. A resource of another name does not exist,
// unless the name is pending: then the client waits for it, as for that of a server. A source that uses Names
// need only deliver the resources of these names. The resources that others refer to must be delivered before
// those. Messages must not be modified after the call; the same message for a name is not encoded again.
func (s *Stream) Deliver(typeURL string, resources map[string]proto.Message, pending ...string) error {
	s.mu.Lock()
	before := s.typeLocked(typeURL).set
	s.mu.Unlock()
	set := make(map[string]delivered, len(resources))
	for name, m := range resources {
		if same, ok := before[name]; ok && same.message == m {
			set[name] = same
			continue
		}
		value, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			return fmt.Errorf("xdslb: resource %q: %w", name, err)
		}
		set[name] = delivered{m, &discoveryv3.Resource{
			Name: name, Version: strconv.FormatUint(xxh3.Hash(value), 16), Resource: &anypb.Any{TypeUrl: typeURL, Value: value},
		}}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.typeLocked(typeURL)
	before, open := t.set, t.pending
	first := !t.ready
	t.set, t.ready, t.pending, t.decided = set, true, map[string]struct{}{}, t.told
	for _, name := range pending {
		t.pending[name] = struct{}{}
	}
	for name := range t.names {
		old, was := before[name]
		now, is := set[name]
		_, waited := open[name]
		if first || waited || was != is || is && old.resource.Version != now.resource.Version {
			t.due[name] = struct{}{}
		}
	}
	s.delivered = true
	s.notify()
	return nil
}

// Fail reports that the source cannot determine the present resources. The client logs the error at level ERROR,
// and its status has it, until Fail is called with nil. Resources stay in use. Before the first set the client uses
// the next server of the bootstrap, so Fail ends the stream then, and Run should return.
func (s *Stream) Fail(err error) { s.fail(err, false) }

// Stale is Fail for a source that has only earlier resources. The client logs it at level WARN.
func (s *Stream) Stale(err error) { s.fail(err, true) }

func (s *Stream) fail(err error, stale bool) {
	s.mu.Lock()
	delivered := s.delivered
	if !delivered && err != nil && s.err == nil {
		s.err = err
		s.notify()
	}
	s.mu.Unlock()
	if delivered {
		s.report(err, stale)
	}
}

func (s *Stream) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Stream) typeLocked(url string) *typeState {
	t := s.types[url]
	if t == nil {
		t = &typeState{names: map[string]struct{}{}, pending: map[string]struct{}{}, due: map[string]struct{}{}}
		s.types[url] = t
	}
	return t
}

// order are the types in the order in which a response about them follows, so that resources precede
// those that refer to them. Other types follow.
var order = []string{
	"type.googleapis.com/envoy.config.cluster.v3.Cluster",
	"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
	"type.googleapis.com/envoy.config.listener.v3.Listener",
	"type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
}

// responseLocked returns the next response, or nil. Deletions follow all changes, which may end
// the use of the resources that are deleted.
func (s *Stream) responseLocked() *discoveryv3.DeltaDiscoveryResponse {
	for _, deletions := range []bool{false, true} {
		for _, url := range order {
			t := s.types[url]
			if t == nil || !t.ready {
				continue
			}
			resp := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: url}
			for _, name := range slices.Sorted(maps.Keys(t.due)) {
				found, ok := t.set[name]
				_, wait := t.pending[name]
				if _, decided := t.decided[name]; t.decided != nil && !decided {
					wait = true
				}
				switch {
				case ok && !deletions:
					resp.Resources = append(resp.Resources, found.resource)
				case !ok && wait:
					continue
				case !ok && deletions:
					resp.RemovedResources = append(resp.RemovedResources, name)
				default:
					continue
				}
				delete(t.due, name)
			}
			if len(resp.Resources)+len(resp.RemovedResources) > 0 {
				s.responses++
				resp.Nonce = strconv.Itoa(s.responses)
				return resp
			}
		}
	}
	return nil
}

// clientStream is the client's side of a Stream.
type clientStream struct{ *Stream }

// SendMsg implements grpc.ClientStream.
func (s clientStream) SendMsg(m any) error {
	req := m.(*discoveryv3.DeltaDiscoveryRequest)
	if len(req.GetResourceNamesSubscribe())+len(req.GetResourceNamesUnsubscribe()) == 0 {
		return nil // an ACK or a NACK, which the client has logged
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.typeLocked(req.GetTypeUrl())
	for _, name := range req.GetResourceNamesUnsubscribe() {
		delete(t.names, name)
		delete(t.due, name)
	}
	for _, name := range req.GetResourceNamesSubscribe() {
		t.names[name], t.due[name] = struct{}{}, struct{}{}
	}
	s.notify()
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return nil
}

// RecvMsg implements grpc.ClientStream.
func (s clientStream) RecvMsg(m any) error {
	for {
		s.mu.Lock()
		resp, err := s.responseLocked(), s.err
		s.mu.Unlock()
		if resp != nil {
			to := m.(*discoveryv3.DeltaDiscoveryResponse)
			to.TypeUrl, to.Nonce, to.Resources, to.RemovedResources = resp.TypeUrl, resp.Nonce, resp.Resources, resp.RemovedResources
			return nil
		}
		if err != nil {
			return status.Error(codes.Unavailable, err.Error())
		}
		select {
		case <-s.wake:
		case <-s.ctx.Done():
			return status.FromContextError(s.ctx.Err()).Err()
		}
	}
}

// Header, Trailer, CloseSend and Context implement grpc.ClientStream.
func (clientStream) Header() (metadata.MD, error) { return nil, nil }
func (clientStream) Trailer() metadata.MD         { return nil }
func (clientStream) CloseSend() error             { return nil }
func (s clientStream) Context() context.Context   { return s.ctx }

// Serve returns an interceptor that serves incremental ADS from a source. start starts the goroutine of a
// stream, and report receives the errors of [Stream.Fail] and [Stream.Stale] once resources have been delivered.
func Serve(source Source, start func(func()), report func(err error, stale bool)) grpc.StreamClientInterceptor {
	previous := make(chan struct{}, 1) // holds a token while Run is running
	return func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, method string, _ grpc.Streamer, _ ...grpc.CallOption) (grpc.ClientStream, error) {
		if !strings.HasSuffix(method, "/DeltaAggregatedResources") {
			return nil, status.Errorf(codes.Unimplemented, "a source of resources in the process serves incremental ADS only, not %s", method)
		}
		s := &Stream{ctx: ctx, report: report, changed: make(chan struct{}, 1), wake: make(chan struct{}, 1), types: map[string]*typeState{}}
		start(func() {
			select {
			case previous <- struct{}{}:
			case <-ctx.Done():
				return
			}
			defer func() { <-previous }()
			err := run(ctx, source, s)
			if err == nil {
				err = fmt.Errorf("the source of resources ended")
			}
			s.mu.Lock()
			if s.err == nil {
				s.err = err
			}
			s.mu.Unlock()
			s.notify()
		})
		return clientStream{s}, nil
	}
}

// run returns a panic of a source as an error.
func run(ctx context.Context, source Source, s *Stream) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the source of resources panicked: %v", p)
		}
	}()
	return source.Run(ctx, s)
}
