// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/leak"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// The environment of a child process: the server to be, and the divisor of its sizes.
const (
	serverVariable  = "XDSLB_HOSTILE_SERVER"
	divisorVariable = "XDSLB_HOSTILE_DIVISOR"
)

// The commands of a child process, one a line. It answers each with its counts.
const (
	count = "count"
	step  = "step"  // sends the next response to each stream
	flood = "flood" // sends responses without a pause from now on
)

// lifetime ends a child process whose parent has not.
const lifetime = 5 * time.Minute

func TestMain(m *testing.M) {
	name := os.Getenv(serverVariable)
	if name == "" {
		leak.VerifyTestMain(m)
		return
	}
	if err := serve(scenarioOf(name)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// counts are of a server. Responses are only the ones of the scenario.
type counts struct {
	requests, answers, nacks, responses atomic.Int64 // answers are ACKs and NACKs of the scenario's type
	bytes, largest                      atomic.Int64 // largest is of all resources of a version
}

// backend is the address of the only endpoint of a normal target.
var backend xdstest.Endpoint

// serve prints its address, and obeys the lines that it reads until its input ends.
func serve(s *scenario) error {
	time.AfterFunc(lifetime, func() { os.Exit(1) })
	backends, err := xdstest.StartBackends(1, xdstest.BackendOptions{})
	if err != nil {
		return err
	}
	backend = xdstest.BackendEndpoints(backends...)[0]
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	a := &ads{scenario: s, streams: map[*sender]struct{}{}}
	g := grpc.NewServer(s.options...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, a)
	if s.response != nil {
		s.response(0) // which takes long if it is large; most keep both
		s.response(1)
	}
	go a.obey(lis.Addr())
	return g.Serve(lis)
}

func (a *ads) obey(addr net.Addr) {
	fmt.Println(addr)
	for in := bufio.NewReader(os.Stdin); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			os.Exit(0)
		}
		switch strings.TrimSpace(line) {
		case step:
			a.begin(false)
		case flood:
			a.begin(true)
		}
		c := &a.counts
		fmt.Println(c.requests.Load(), c.answers.Load(), c.nacks.Load(), c.responses.Load(), c.bytes.Load(), c.largest.Load())
	}
}

// ads serves the resources of a normal target, and misbehaves as its scenario does once it is told to.
type ads struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	scenario *scenario
	counts   counts

	mu       sync.Mutex
	streams  map[*sender]struct{}
	hostile  bool // has begun
	flooding bool
	version  int // of the next response
}

// StreamAggregatedResources implements the state of the world variant.
func (a *ads) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	if a.scenario.delta {
		return a.UnimplementedAggregatedDiscoveryServiceServer.StreamAggregatedResources(stream)
	}
	return a.talk(stream, func() (r request, err error) {
		req, err := stream.Recv()
		return request{req.GetTypeUrl(), req.GetResponseNonce() == "", len(req.GetResourceNames()), req.GetErrorDetail() != nil}, err
	})
}

// DeltaAggregatedResources implements the incremental variant.
func (a *ads) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	if !a.scenario.delta {
		return a.UnimplementedAggregatedDiscoveryServiceServer.DeltaAggregatedResources(stream)
	}
	return a.talk(stream, func() (r request, err error) {
		req, err := stream.Recv()
		return request{req.GetTypeUrl(), req.GetResponseNonce() == "", len(req.GetResourceNamesSubscribe()), req.GetErrorDetail() != nil}, err
	})
}

// request is the common part of both variants' requests.
type request struct {
	typ   string
	first bool // answers no response
	names int  // all of them, or the subscribed ones
	nack  bool
}

// A sender is a stream on which several goroutines send, one at a time.
type sender struct {
	grpc.ServerStream
	end context.CancelFunc

	mu   sync.Mutex
	seen map[string]int // requested types and the numbers of names
}

// talk serves a stream.
func (a *ads) talk(s grpc.ServerStream, receive func() (request, error)) error {
	ctx, end := context.WithCancel(s.Context())
	defer end()
	stream := &sender{ServerStream: s, end: end, seen: map[string]int{}}
	a.mu.Lock()
	a.streams[stream] = struct{}{}
	late := a.hostile && a.scenario.ends
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.streams, stream)
	}()
	if late {
		return io.ErrUnexpectedEOF
	}
	go func() {
		defer end()
		for {
			r, err := receive()
			if err != nil || a.receive(stream, r) != nil {
				return // the client has ended the stream
			}
		}
	}()
	<-ctx.Done()
	return io.ErrUnexpectedEOF
}

// receive counts and answers a request.
func (a *ads) receive(stream *sender, r request) error {
	a.counts.requests.Add(1)
	if r.nack {
		a.counts.nacks.Add(1)
	}
	s := a.scenario
	if r.typ == s.typ && !r.first {
		a.counts.answers.Add(1)
	}
	a.mu.Lock()
	hostile, flooding := a.hostile, a.flooding
	a.mu.Unlock()
	stream.mu.Lock()
	known, requested := stream.seen[r.typ]
	more := r.names != known
	stream.seen[r.typ] = r.names
	if s.delta {
		more = r.names > 0 // each subscription is one to other names
	}
	stream.mu.Unlock()
	switch with := s.with[r.typ]; {
	case flooding && r.typ == s.typ && s.each != nil:
		if s.each(r) {
			return a.respond(stream)
		}
	case hostile && r.typ == s.typ && !requested && flooding: // on a new stream
		go a.flood(stream)
	case hostile && r.typ == s.typ && (!requested || s.more && more):
		return a.respond(stream)
	case with != nil && (!requested || hostile && more):
		return a.send(stream, s.message(r.typ, 0, with(0)...))
	case !requested && (r.typ != s.typ || !s.absent):
		if m := s.normal(r.typ); m != nil {
			return stream.SendMsg(m)
		}
	}
	return nil
}

// begin has the server misbehave.
func (a *ads) begin(flooding bool) {
	a.mu.Lock()
	a.hostile, a.flooding = true, flooding
	var streams []*sender
	for stream := range a.streams {
		streams = append(streams, stream)
	}
	a.mu.Unlock()
	for _, stream := range streams {
		switch {
		case a.scenario.ends:
			stream.end()
		case flooding && a.scenario.each == nil:
			go a.flood(stream)
		default:
			_ = a.respond(stream) // fails if the client has ended the stream
		}
	}
}

// respond sends the next version.
func (a *ads) respond(stream *sender) error {
	a.mu.Lock()
	i := a.version
	a.version++
	a.mu.Unlock()
	if a.scenario.response == nil {
		return nil
	}
	return a.send(stream, a.scenario.response(i))
}

// flood sends responses without a pause until the stream ends.
func (a *ads) flood(stream *sender) {
	for a.respond(stream) == nil {
		time.Sleep(a.scenario.pause)
	}
}

// SendMsg implements grpc.ServerStream. With gRPC's own one of two goroutines may wait for ever.
func (s *sender) SendMsg(m any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ServerStream.SendMsg(m)
}

func (a *ads) send(stream *sender, m proto.Message) error {
	size := int64(proto.Size(m))
	a.counts.responses.Add(1)
	a.counts.bytes.Add(size)
	a.counts.largest.Store(max(size, a.counts.largest.Load()))
	return stream.SendMsg(m)
}
