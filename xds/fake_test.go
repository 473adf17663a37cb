// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/xds/resource"
)

// fake is an ADS server that takes the protocol literally. It checks every
// request (see check), ignores those with a stale nonce, and answers from its
// resources if told to; otherwise tests say what to send.
type fake struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	t    *testing.T
	name string
	lis  *bufconn.Listener
	srv  *grpc.Server

	mu        sync.Mutex
	down      error // what dialing fails with, nil if it works
	silent    bool  // dialing neither works nor fails
	auto      bool  // answer requests and changes from resources
	resources [4]map[string]*anypb.Any
	changed   [4]map[string]int // version in which a resource was last set
	version   int
	streams   []*fakeStream
	conns     []net.Conn
}

// fakeStream is one stream of a fake.
type fakeStream struct {
	f    *fake
	ads  discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer
	end  chan error
	done bool

	requests []*discoveryv3.DiscoveryRequest
	types    [4]fakeType
}

type fakeType struct {
	names       []string // as last asked for
	asked       bool
	nonces      int               // sent
	sent        map[string]int    // what the client has, by version, if auto
	versions    map[string]string // by nonce
	detail      string            // of the latest NACK
	acks, nacks int
}

func newFake(t *testing.T, name string) *fake {
	f := &fake{t: t, name: name, lis: bufconn.Listen(1 << 20), srv: grpc.NewServer()}
	for i := range f.resources {
		f.resources[i] = map[string]*anypb.Any{}
		f.changed[i] = map[string]int{}
	}
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(f.srv, f)
	go f.srv.Serve(f.lis)
	return f
}

func (f *fake) dial(ctx context.Context) (net.Conn, error) {
	f.mu.Lock()
	down, silent := f.down, f.silent
	f.mu.Unlock()
	if down != nil {
		return nil, down
	}
	if silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	conn, err := f.lis.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.conns = append(f.conns, conn)
	f.mu.Unlock()
	return conn, nil
}

// stop ends the server for good.
func (f *fake) stop() { f.srv.Stop() }

// refuse makes connections fail, and breaks the present ones, or lets them work
// again.
func (f *fake) refuse(down error) {
	f.mu.Lock()
	f.down = down
	conns := f.conns
	if down != nil {
		f.conns = nil
	}
	f.mu.Unlock()
	if down != nil {
		for _, c := range conns {
			c.Close()
		}
	}
	synctest.Wait()
}

// hangUp ends the present stream.
func (f *fake) hangUp(err error) {
	if s := f.current(); s != nil {
		s.end <- status.Error(codes.Unavailable, fmt.Sprint(err))
		synctest.Wait()
	}
}

// StreamAggregatedResources implements the service.
func (f *fake) StreamAggregatedResources(ads discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	s := &fakeStream{f: f, ads: ads, end: make(chan error)}
	f.mu.Lock()
	f.streams = append(f.streams, s)
	f.mu.Unlock()
	gone := make(chan error, 1)
	go func() {
		for {
			req, err := ads.Recv()
			if err != nil {
				gone <- err
				return
			}
			f.mu.Lock()
			s.request(req)
			f.mu.Unlock()
		}
	}()
	var err error
	select {
	case err = <-s.end:
	case err = <-gone:
	}
	f.mu.Lock()
	s.done = true
	f.mu.Unlock()
	return err
}

// request takes note of a request, checks it, and answers if auto; mu is held.
func (s *fakeStream) request(req *discoveryv3.DiscoveryRequest) {
	s.requests = append(s.requests, req)
	typ, ok := resource.TypeOf(req.GetTypeUrl())
	if !ok {
		s.f.t.Errorf("%s: request for type %q", s.f.name, req.GetTypeUrl())
		return
	}
	t := &s.types[typ]
	s.check(req, typ, t)
	nonce := fmt.Sprint(t.nonces)
	if t.nonces > 0 && req.ResponseNonce != nonce {
		return // stale: another request is on its way (T-XDS-4)
	}
	if req.ErrorDetail != nil {
		t.nacks++
		t.detail = req.ErrorDetail.Message
	} else if req.ResponseNonce != "" {
		t.acks++
	}
	for name := range t.sent {
		if !slices.Contains(req.ResourceNames, name) {
			delete(t.sent, name)
		}
	}
	t.names, t.asked = req.ResourceNames, true
	if s.f.auto {
		s.answer(typ, t)
	}
}

// check checks what the protocol asks of every request.
func (s *fakeStream) check(req *discoveryv3.DiscoveryRequest, typ resource.Type, t *fakeType) {
	errorf := func(format string, args ...any) {
		s.f.t.Helper()
		s.f.t.Errorf("%s, stream %d: %s: %v", s.f.name, len(s.f.streams), fmt.Sprintf(format, args...), req)
	}
	if first := len(s.requests) == 1; first != (req.Node != nil) {
		errorf("A27-NODE-1: node in the first request, and only there")
	}
	if !t.asked && len(req.ResourceNames) == 0 {
		errorf("T-XDS-2: a first request without names asks for everything")
	}
	if !slices.IsSorted(req.ResourceNames) || len(slices.Compact(slices.Clone(req.ResourceNames))) != len(req.ResourceNames) {
		errorf("names are not sorted, or not unique")
	}
	if _, known := t.versions[req.ResponseNonce]; req.ResponseNonce != "" && !known {
		errorf("T-XDS-2: a nonce that this stream has not seen")
	}
	if req.ResponseNonce == "" && t.nonces == 0 && t.asked && req.ErrorDetail != nil {
		errorf("a NACK of nothing")
	}
}

// answer sends what the client has asked for and does not have; mu is held.
func (s *fakeStream) answer(typ resource.Type, t *fakeType) {
	f := s.f
	news := false
	var list []*anypb.Any
	sent := map[string]int{}
	for _, name := range t.names {
		a, ok := f.resources[typ][name]
		fresh := ok && t.sent[name] != f.changed[typ][name]
		gone := !ok && t.sent[name] != 0
		news = news || fresh || gone
		full := typ == lds || typ == cds
		if ok {
			sent[name] = f.changed[typ][name]
			if full || fresh {
				list = append(list, a)
			}
		} else if gone && !full {
			sent[name] = 0
		}
	}
	if news {
		t.sent = sent
		s.send(typ, fmt.Sprint(f.version), list...)
	}
}

// send sends a response; mu is held.
func (s *fakeStream) send(typ resource.Type, version string, list ...*anypb.Any) {
	s.respond(&discoveryv3.DiscoveryResponse{TypeUrl: typ.URL(), VersionInfo: version, Resources: list}, typ)
}

func (s *fakeStream) respond(resp *discoveryv3.DiscoveryResponse, typ resource.Type) {
	t := &s.types[typ]
	t.nonces++
	resp.Nonce = fmt.Sprint(t.nonces)
	if t.versions == nil {
		t.versions = map[string]string{}
	}
	t.versions[resp.Nonce] = resp.VersionInfo
	_ = s.ads.Send(resp)
}

// current returns the open stream, nil if there is none.
func (f *fake) current() *fakeStream {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.streams); n > 0 && !f.streams[n-1].done {
		return f.streams[n-1]
	}
	return nil
}

// send sends resources of one type in one response.
func (f *fake) send(typ resource.Type, version string, resources ...proto.Message) {
	f.t.Helper()
	var list []*anypb.Any
	for _, m := range resources {
		list = append(list, wrap(m))
	}
	f.respond(typ, &discoveryv3.DiscoveryResponse{VersionInfo: version, Resources: list})
}

// respond sends a response.
func (f *fake) respond(typ resource.Type, resp *discoveryv3.DiscoveryResponse) {
	f.t.Helper()
	s := f.current()
	if s == nil {
		f.t.Fatalf("%s: no stream", f.name)
	}
	if resp.TypeUrl == "" {
		resp.TypeUrl = typ.URL()
	}
	f.mu.Lock()
	s.respond(resp, typ)
	f.mu.Unlock()
	synctest.Wait()
}

// serve sets resources and has all requests answered from now on.
func (f *fake) serve(resources ...proto.Message) {
	f.mu.Lock()
	f.set(resources...)
	f.push()
	f.mu.Unlock()
	synctest.Wait()
}

// set sets those resources that are new; mu is held.
func (f *fake) set(resources ...proto.Message) {
	f.auto = true
	f.version++
	for _, m := range resources {
		typ, name := nameOf(m)
		if a := wrap(m); !proto.Equal(a, f.resources[typ][name]) {
			f.resources[typ][name] = a
			f.changed[typ][name] = f.version
		}
	}
}

func (f *fake) push() {
	if n := len(f.streams); n > 0 && !f.streams[n-1].done {
		for typ := range f.streams[n-1].types {
			s := f.streams[n-1]
			if s.types[typ].asked {
				s.answer(resource.Type(typ), &s.types[typ])
			}
		}
	}
}

// last returns the latest request of a type on the open stream.
func (f *fake) last(typ resource.Type) *discoveryv3.DiscoveryRequest {
	f.t.Helper()
	s := f.current()
	if s == nil {
		f.t.Fatalf("%s: no stream", f.name)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, req := range slices.Backward(s.requests) {
		if req.TypeUrl == typ.URL() {
			return req
		}
	}
	f.t.Fatalf("%s: no request of type %v", f.name, typ)
	return nil
}

// asked checks the names of the latest request of a type.
func (f *fake) asked(typ resource.Type, names ...string) {
	f.t.Helper()
	if got := f.last(typ).ResourceNames; !slices.Equal(got, names) {
		f.t.Errorf("%s: %v names asked for = %q, want %q", f.name, typ, got, names)
	}
}

// count returns how many requests of a type the open stream has carried.
func (f *fake) count(typ resource.Type) (n int) {
	s := f.current()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, req := range s.requests {
		if req.TypeUrl == typ.URL() {
			n++
		}
	}
	return n
}

// counts returns the number of ACKs and NACKs of a type on the open stream,
// and the latest NACK's text.
func (f *fake) counts(typ resource.Type) (acks, nacks int, detail string) {
	s := f.current()
	f.mu.Lock()
	defer f.mu.Unlock()
	t := s.types[typ]
	return t.acks, t.nacks, t.detail
}

// opened returns how many streams there have been.
func (f *fake) opened() int {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.streams)
}
