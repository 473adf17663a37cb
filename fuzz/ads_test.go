// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// adsSeeds are responses of servers to a client with target "s".
func adsSeeds(tb testing.TB) [][]byte {
	nonce := 0
	respond := func(url string, resources ...*anypb.Any) []byte {
		nonce++
		return encode(tb, &discoveryv3.DiscoveryResponse{TypeUrl: url, VersionInfo: strings.Repeat("v", nonce), Nonce: strings.Repeat("n", nonce), Resources: resources})
	}
	named := func(a *anypb.Any) *anypb.Any { return wrap(&discoveryv3.Resource{Name: "s", Resource: a}) }
	l, r, c, e := wrap(xdstest.Listener("s", "s")), wrap(xdstest.RouteConfig("s", xdstest.Route("", "s"))), wrap(xdstest.Cluster("s", "s")), wrap(endpointSeeds()[0])
	lds, rds, cds, eds := respond(xdstest.LDS, l), respond(xdstest.RDS, r), respond(xdstest.CDS, c), respond(xdstest.EDS, e)
	inline := respond(xdstest.LDS, wrap(testplane.InlineListener("s", xdstest.RouteConfig("r", xdstest.Route("", "s")))))
	dns, aggregate := clusterSeeds()[1], clusterSeeds()[2]
	dns.Name, aggregate.Name = "a", "s"
	bad := proto.CloneOf(e)
	bad.Value = append(bad.Value, "\x12\x00"...)
	list := [][]byte{
		say(lds, rds, cds, eds),
		say(inline, cds, eds),
		say(respond(xdstest.LDS, named(l)), respond(xdstest.RDS, named(r)), respond(xdstest.CDS, named(c)), respond(xdstest.EDS, named(e))),
		say(inline, cds, respond(xdstest.EDS, bad), eds),                                              // a NACK, then not
		say(inline, cds, eds, respond(xdstest.CDS)),                                                   // a deletion
		say(lds, lds, respond(xdstest.LDS, l, l), respond(xdstest.LDS, l, e)),                         // again, twice, of another type
		say(eds, respond("type.googleapis.com/x"), respond(""), lds),                                  // not requested, or of unknown type
		say(inline, respond(xdstest.CDS, wrap(aggregate), wrap(dns), wrap(xdstest.Cluster("b", "")))), // DNS in an aggregate
		say(encode(tb, &discoveryv3.DiscoveryResponse{TypeUrl: xdstest.LDS, ResourceErrors: []*discoveryv3.ResourceError{{
			ResourceName: &discoveryv3.ResourceName{Name: "s"}, ErrorDetail: &statuspb.Status{Code: 7, Message: "no"},
		}}})),
		say([]byte("\xff")),
	}
	for _, seeds := range [][][]byte{recorded(tb, resource.EndpointsType, "-eds", "endpoints.txt")[:2], recorded(tb, resource.ClusterType, "-cds", "cluster.txt")[:2]} {
		for i, b := range seeds {
			list = append(list, say(lds, rds, respond([]string{xdstest.CDS, xdstest.EDS}[i%2], &anypb.Any{TypeUrl: xdstest.CDS, Value: b})))
		}
	}
	return list
}

// FuzzADS sends a script to an XdsClient and checks its requests. The client answers each
// response of a requested type with the response's nonce: with an ACK of its version if the
// response is valid, otherwise with a NACK that keeps the previous version and has an error of
// bounded size (T-XDS-1), where validity is decided by a naive check; it does not answer other
// responses. Configurations that it delivers can be built. After its release no goroutines are
// left, or the bubble would not end.
func FuzzADS(f *testing.F) {
	for _, b := range adsSeeds(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		synctest.Test(t, func(t *testing.T) { checkADS(t, script(b, 12)) })
	})
}

// follower is a Watcher that keeps the latest value.
type follower struct {
	mu  sync.Mutex
	cfg *picker.Config
}

// Update implements xds.Watcher.
func (w *follower) Update(cfg *picker.Config) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cfg = cfg
}

// latest returns the latest value, or nil.
func (w *follower) latest() *picker.Config {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cfg
}

// Error implements xds.Watcher.
func (w *follower) Error(error) {}

// noDNS is a resolver that never answers.
type noDNS struct{}

func (noDNS) Build(resolver.Target, resolver.ClientConn, resolver.BuildOptions) (resolver.Resolver, error) {
	return noDNS{}, nil
}
func (noDNS) Scheme() string                        { return "dns" }
func (noDNS) ResolveNow(resolver.ResolveNowOptions) {}
func (noDNS) Close()                                {}

// connect returns a client that watches target "s", by either variant, and its stream.
func connect(t *testing.T, delta bool) (client *xds.Client, stream *wire, w *follower) {
	t.Helper()
	cfg, err := bootstrap.Parser{}.Parse("fuzz", []byte(`{"xds_servers":[{"server_uri":"passthrough:///s","channel_creds":[{"type":"insecure"}]}],"authorities":{"":{}},"node":{"id":"n"}}`))
	kit.Must(t, err)
	var mu sync.Mutex
	var latest *wire
	client = xds.Acquire(cfg, xds.Options{Linger: -1, Delta: delta, DNS: noDNS{}, DialOptions: []grpc.DialOption{grpc.WithStreamInterceptor(
		func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, method string, _ grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			if strings.HasSuffix(method, "/DeltaAggregatedResources") != delta {
				t.Errorf("stream of %s with delta %t", method, delta)
			}
			mu.Lock()
			defer mu.Unlock()
			latest = newWire(ctx, opts)
			return latest, nil
		},
	)}})
	t.Cleanup(client.Release)
	w = new(follower)
	t.Cleanup(client.View(nil, "").Watch("s", "s", w))
	synctest.Wait()
	mu.Lock()
	defer mu.Unlock()
	return client, latest, w
}

// deliver sends a response, and reports whether the stream is open after it.
func (w *wire) deliver(b []byte, wellFormed bool) bool {
	select {
	case w.down <- b:
	case <-w.ctx.Done():
		return false
	}
	<-time.After(5 * time.Second) // a NACK with the same text is delayed
	synctest.Wait()
	return wellFormed
}

func checkADS(t *testing.T, messages [][]byte) {
	_, open, w := connect(t, false)
	accepted := map[string]string{} // versions, by type
	for _, b := range messages {
		resp := new(discoveryv3.DiscoveryResponse)
		wellFormed := proto.Unmarshal(b, resp) == nil
		before := open.sent()
		asked := lastOf(before, resp.GetTypeUrl())
		if !open.deliver(b, wellFormed) {
			break
		}
		after := open.sent()
		last := lastOf(after, resp.GetTypeUrl())
		if asked == nil || !isType(resp.GetTypeUrl()) {
			if last != asked {
				t.Fatalf("%v\nwas not requested, but is answered with %v", resp, last)
			}
			continue
		}
		checkAnswer(t, resp, asked, last, accepted)
		if cfg := w.latest(); cfg != nil {
			buildable(t, cfg)
		}
	}
	<-time.After(40 * time.Second) // until timers of resources have run out
}

// lastOf returns the last request of a type, or nil.
func lastOf(requests []proto.Message, url string) *discoveryv3.DiscoveryRequest {
	for _, m := range slices.Backward(requests) {
		if req := m.(*discoveryv3.DiscoveryRequest); req.GetTypeUrl() == url {
			return req
		}
	}
	return nil
}

// checkAnswer checks the request that followed a response.
func checkAnswer(t *testing.T, resp *discoveryv3.DiscoveryResponse, asked, got *discoveryv3.DiscoveryRequest, accepted map[string]string) {
	t.Helper()
	url := resp.GetTypeUrl()
	if got == asked || got.GetResponseNonce() != resp.GetNonce() {
		t.Fatalf("%v\nis answered with %v", resp, got)
	}
	// A resource may already have caused another request of its type, which no longer contains
	// the error. The version shows it.
	bad, certain := naiveNACK(resp, asked.GetResourceNames())
	if !bad {
		accepted[url] = resp.GetVersionInfo()
	}
	if detail := got.GetErrorDetail(); len(detail.GetMessage()) > 9<<10 || detail != nil && detail.GetMessage() == "" {
		t.Fatalf("%v\nis rejected with %d bytes of error", resp, len(detail.GetMessage()))
	}
	if certain && (got.GetVersionInfo() != accepted[url] || !bad && got.GetErrorDetail() != nil) {
		t.Fatalf("%v\nis answered with %v, but it is bad: %v, and the last good version is %q", resp, got, bad, accepted[url])
	}
	if !certain {
		accepted[url] = got.GetVersionInfo()
	}
}

// naiveNACK reports whether a response to a client that requested names is invalid, and whether
// that is certain: xdstp names have more than one form.
func naiveNACK(resp *discoveryv3.DiscoveryResponse, names []string) (bad, certain bool) {
	typ, _ := resource.TypeOf(resp.GetTypeUrl())
	seen := map[string]bool{}
	for _, a := range resp.GetResources() {
		url, value, err := resource.Unwrap(a)
		if err != nil || url != typ.URL() {
			return true, true
		}
		name, err := resource.Name(typ, value)
		if err != nil || seen[name] {
			return true, true
		}
		if strings.HasPrefix(name, "xdstp:") {
			return false, false
		}
		seen[name] = true
		if !slices.Contains(names, name) {
			continue
		}
		_, err = resource.Decode(typ, value, resource.Options{})
		bad = bad || err != nil
	}
	return bad, true
}

// buildable checks that a snapshot can be built from the configuration.
func buildable(t *testing.T, cfg *picker.Config) {
	t.Helper()
	g := target{cfg: *cfg}
	for range cfg.Clusters {
		g.states = append(g.states, picker.ClusterState{Leaf: -1})
	}
	g.build(t)
}

// script splits bytes into the messages of a server, each preceded by its length, up to a
// maximum number.
func script(b []byte, most int) (messages [][]byte) {
	for len(messages) < most {
		m, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return messages
		}
		messages, b = append(messages, m), b[n:]
	}
	return messages
}

// say is the script of messages.
func say(messages ...[]byte) (b []byte) {
	for _, m := range messages {
		b = protowire.AppendBytes(b, m)
	}
	return b
}

// A wire is the client's side of a stream without a network: the bytes that the test puts into
// down arrive, and the client's messages are stored.
type wire struct {
	grpc.ClientStream // nil
	ctx               context.Context
	codec             encoding.CodecV2
	down              chan []byte

	mu sync.Mutex
	up []proto.Message
}

// newWire returns the wire of a stream with options, which may have a codec.
func newWire(ctx context.Context, opts []grpc.CallOption) *wire {
	w := &wire{ctx: ctx, codec: encoding.GetCodecV2(encodingproto.Name), down: make(chan []byte)}
	for _, o := range opts {
		if o, ok := o.(grpc.ForceCodecV2CallOption); ok {
			w.codec = o.CodecV2
		}
	}
	return w
}

// sent returns the client's messages.
func (w *wire) sent() []proto.Message {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.up
}

// SendMsg implements grpc.ClientStream.
func (w *wire) SendMsg(m any) error {
	if w.ctx.Err() != nil {
		return io.EOF
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.up = append(w.up, proto.Clone(m.(proto.Message)))
	return nil
}

// RecvMsg implements grpc.ClientStream. Bytes that are no message end the stream, as
// gRPC has it.
func (w *wire) RecvMsg(m any) error {
	select {
	case b := <-w.down:
		if err := w.codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, m); err != nil {
			return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
		}
		return nil
	case <-w.ctx.Done():
		return status.FromContextError(w.ctx.Err()).Err()
	}
}

// CloseSend implements grpc.ClientStream.
func (w *wire) CloseSend() error { return nil }

// Context implements grpc.ClientStream.
func (w *wire) Context() context.Context { return w.ctx }

// Header implements grpc.ClientStream.
func (w *wire) Header() (metadata.MD, error) { return nil, nil }

// isType reports whether url is that of one of the four types.
func isType(url string) bool {
	return url == xdstest.LDS || url == xdstest.RDS || url == xdstest.CDS || url == xdstest.EDS
}
