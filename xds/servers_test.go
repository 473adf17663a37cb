// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/internal/adscodec"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// controlPlane is the common interface of xdstest.Server and testplane.Scripted. Tests that use it
// run with both: with go-control-plane, because many control planes are built on it, and with the
// scripted one, because it takes the protocol literally.
type controlPlane interface {
	Set(xdstest.Resources) error
	Update(xdstest.Resources) error
	Resend(typeURL, name string) error
	BreakStreams()
	Stats(typeURL string) xdstest.Stats
	Streams() (open, total int)
	Violations() []string
	Stop()
}

var controlPlanes = map[string]func(t *testing.T, lis net.Listener) controlPlane{
	"go-control-plane": func(t *testing.T, lis net.Listener) controlPlane {
		checker := testplane.NewChecker(nil)
		cp, err := xdstest.Start(xdstest.Options{
			Listen: func(string) (net.Listener, error) { return lis, nil },
			Server: []grpc.ServerOption{checker.ServerOption()},
		})
		kit.Must(t, err)
		return checkedServer{cp, checker}
	},
	"scripted": func(t *testing.T, lis net.Listener) controlPlane {
		return testplane.StartScripted(testplane.ScriptedOptions{Listener: lis})
	},
}

// checkedServer is a Server with a Checker.
type checkedServer struct {
	*xdstest.Server
	*testplane.Checker
}

// withServers runs a test with each kind of control plane and each variant of ADS, n
// servers in a chain, in a bubble. After it, everything that was said is held against
// the protocol.
func withServers(t *testing.T, n int, opts Options, features []string, f func(t *testing.T, h *harness, cps []*plane)) {
	withVariant(t, "", n, opts, features, f)
	opts.Delta = true
	withVariant(t, "delta/", n, opts, features, f)
}

func withVariant(t *testing.T, prefix string, n int, opts Options, features []string, f func(t *testing.T, h *harness, cps []*plane)) {
	for kind, start := range controlPlanes {
		t.Run(prefix+kind, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var docs []string
				var cps []*plane
				planes := map[string]*plane{}
				network := xdstest.NewNetwork()
				for i := range n {
					p := &plane{t: t, name: fmt.Sprint("cp", i), net: network}
					lis, err := network.Listen(p.name)
					kit.Must(t, err)
					p.controlPlane = start(t, lis)
					docs = append(docs, serverDoc(p.name, features...))
					cps, planes[p.name] = append(cps, p), p
				}
				opts.DialOptions = []grpc.DialOption{
					grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return planes[addr].dial(ctx) }),
					grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
						s, err := streamer(ctx, desc, cc, method, opts...)
						if err != nil {
							return nil, err
						}
						return planes[strings.TrimPrefix(cc.Target(), "passthrough:///")].tap(s), nil
					}),
				}
				h := newClientHarness(t, opts, docs, fmt.Sprintf(`, "authorities": {"auth": {"xds_servers": [%s]}}`, docs[0]))
				t.Cleanup(func() {
					for _, p := range cps {
						p.Stop()
						p.checkAnswers()
					}
				})
				f(t, h, cps)
				for _, p := range cps {
					for _, v := range p.Violations() {
						t.Errorf("%s: %s", p.name, v)
					}
				}
			})
		})
	}
}

// plane is a control plane in a bubble, its network address, and the messages that it exchanges
// with the client, in the order in which the client has them.
type plane struct {
	controlPlane
	t    *testing.T
	name string
	net  *xdstest.Network

	mu      sync.Mutex
	refusal error
	conns   []net.Conn
	streams []*tapped
}

func (p *plane) dial(ctx context.Context) (net.Conn, error) {
	p.mu.Lock()
	refusal := p.refusal
	p.mu.Unlock()
	if refusal != nil {
		return nil, refusal
	}
	conn, err := p.net.Dial(ctx, p.name)
	if err == nil {
		p.mu.Lock()
		p.conns = append(p.conns, conn)
		p.mu.Unlock()
	}
	return conn, err
}

// refuse breaks all connections, and lets no others through until called with
// nil.
func (p *plane) refuse(err error) {
	p.mu.Lock()
	conns := p.conns
	p.conns, p.refusal = nil, err
	p.mu.Unlock()
	for _, conn := range conns {
		conn.Close()
	}
	synctest.Wait()
}

// set and update are the server's methods of the same names, for any resources.
func (p *plane) set(resources ...proto.Message) {
	p.t.Helper()
	if err := p.Set(collect(resources)); err != nil {
		p.t.Fatal(err)
	}
	synctest.Wait()
}

func (p *plane) update(resources ...proto.Message) {
	p.t.Helper()
	if err := p.Update(collect(resources)); err != nil {
		p.t.Fatal(err)
	}
	synctest.Wait()
}

// resend sends a resource again.
func (p *plane) resend(typ resource.Type, name string) {
	p.t.Helper()
	if err := p.Resend(typ.URL(), name); err != nil {
		p.t.Fatal(err)
	}
	synctest.Wait()
}

// hangUp ends the stream.
func (p *plane) hangUp() {
	p.BreakStreams()
	synctest.Wait()
}

// asked checks which resources the server knows to be wanted.
func (p *plane) asked(typ resource.Type, names ...string) {
	p.t.Helper()
	synctest.Wait()
	if got := p.Stats(typ.URL()).Names; !slices.Equal(got, names) {
		p.t.Errorf("%s: %v names asked for = %q, want %q", p.name, typ, got, names)
	}
}

// opened returns how many streams there have been.
func (p *plane) opened() int {
	synctest.Wait()
	_, total := p.Streams()
	return total
}

// tapped is a stream and its messages, unless it is of the incremental variant.
type tapped struct {
	grpc.ClientStream
	p     *plane
	said  []*discoveryv3.DiscoveryRequest
	heard []*discoveryv3.DiscoveryResponse
	log   []proto.Message // both
}

func (p *plane) tap(s grpc.ClientStream) *tapped {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &tapped{ClientStream: s, p: p}
	p.streams = append(p.streams, t)
	return t
}

func (t *tapped) SendMsg(m any) error {
	if req, ok := m.(*discoveryv3.DiscoveryRequest); ok {
		t.p.mu.Lock()
		req = proto.CloneOf(req)
		t.said, t.log = append(t.said, req), append(t.log, req)
		t.p.mu.Unlock()
	}
	return t.ClientStream.SendMsg(m)
}

func (t *tapped) RecvMsg(m any) error {
	err := t.ClientStream.RecvMsg(m)
	if r, ok := m.(*adscodec.Response); ok && err == nil {
		t.p.mu.Lock()
		resp := proto.CloneOf(r.DiscoveryResponse)
		t.heard, t.log = append(t.heard, resp), append(t.log, resp)
		t.p.mu.Unlock()
	}
	return err
}

// stream returns the messages of the n-th stream, or on the last for -1, by the
// client.
func (p *plane) stream(n int) *tapped {
	p.t.Helper()
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if n < 0 {
		n += len(p.streams)
	}
	if n < 0 || n >= len(p.streams) {
		p.t.Fatalf("%s: there is no stream %d", p.name, n)
	}
	return p.streams[n]
}

// requests returns the requests of one type, in short form: names, version, nonce, and "!" for a
// NACK.
func (t *tapped) requests(typ resource.Type) (all []string) {
	t.p.mu.Lock()
	defer t.p.mu.Unlock()
	for _, req := range t.said {
		if req.TypeUrl == typ.URL() {
			nack := ""
			if req.ErrorDetail != nil {
				nack = "!"
			}
			all = append(all, fmt.Sprint(req.ResourceNames, req.VersionInfo, "/", req.ResponseNonce, nack))
		}
	}
	return all
}

// checkAnswers checks that each request after a response has its nonce or an older one, never going
// back, and that an ACK has its version (T-XDS-1). It uses the client's end of the connection,
// where the received responses are known.
func (p *plane) checkAnswers() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n, s := range p.streams {
		received := map[string][]*discoveryv3.DiscoveryResponse{}
		answered := map[string]int{} // how many, by type
		for _, m := range s.log {
			switch m := m.(type) {
			case *discoveryv3.DiscoveryResponse:
				received[m.TypeUrl] = append(received[m.TypeUrl], m)
			case *discoveryv3.DiscoveryRequest:
				if m.ResponseNonce == "" {
					if answered[m.TypeUrl] > 0 {
						p.t.Errorf("%s, stream %d: a nonce is forgotten: %v", p.name, n, m)
					}
					continue
				}
				i := slices.IndexFunc(received[m.TypeUrl], func(r *discoveryv3.DiscoveryResponse) bool { return r.Nonce == m.ResponseNonce })
				if i+1 < answered[m.TypeUrl] || i < 0 {
					p.t.Errorf("%s, stream %d: an old or unknown nonce: %v", p.name, n, m)
					continue
				}
				answered[m.TypeUrl] = i + 1
			}
		}
	}
}
