// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/internal/adscodec"
	"github.com/xdslb/xdslb/xds/internal/timing"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

const (
	lds = resource.ListenerType
	rds = resource.RouteConfigType
	cds = resource.ClusterType
	eds = resource.EndpointsType
)

// harness is a client and the fake servers it can reach, in a bubble where
// time passes only when everybody waits.
type harness struct {
	t       testing.TB
	c       *Client
	servers map[string]*fake
}

// view returns the view with the TargetOptions that the Client was made with.
func (c *Client) view() View { return c.View(nil, "").With(c.opts.TargetOptions) }

// bubble runs a test in a bubble.
func bubble(t *testing.T, f func(t *testing.T)) { t.Helper(); synctest.Test(t, f) }

// serverDoc describes a server of the bootstrap, with features.
func serverDoc(name string, features ...string) string {
	return fmt.Sprintf(`{"server_uri": "passthrough:///%s", "channel_creds": [{"type": "insecure"}], "server_features": ["%s"]}`,
		name, strings.Join(features, `","`))
}

// newHarness makes a client of the servers, which are named like their URIs.
// extra are further members of the bootstrap.
func newHarness(t testing.TB, opts Options, servers []string, extra string) *harness {
	t.Helper()
	fakes := map[string]*fake{}
	opts.DialOptions = append(opts.DialOptions, grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		return fakes[addr].Dial(ctx, addr)
	}))
	h := newClientHarness(t, opts, servers, extra)
	h.servers = fakes
	for _, s := range h.c.pool.known {
		name := strings.TrimPrefix(s.URI, "passthrough:///")
		if fakes[name] == nil {
			fakes[name] = newFake(t, name)
			t.Cleanup(fakes[name].Stop)
		}
	}
	return h
}

// newClientHarness is newHarness without the servers, which opts has to lead to.
func newClientHarness(t testing.TB, opts Options, servers []string, extra string) *harness {
	t.Helper()
	doc := fmt.Sprintf(`{"xds_servers": [%s], "node": {"id": "node-1", "cluster": %q}%s}`, strings.Join(servers, ","), t.Name(), extra)
	cfg, err := bootstrap.Parser{}.Parse("test", []byte(doc))
	kit.Must(t, err)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	h := &harness{t: t, c: Acquire(cfg, opts)}
	t.Cleanup(func() {
		h.c.Release()
		<-h.c.done
		synctest.Wait()
	})
	return h
}

// only returns the harness of a single server named "cp", with the features.
func only(t *testing.T, opts Options, features ...string) (*harness, *fake) {
	t.Helper()
	h := newHarness(t, opts, []string{serverDoc("cp", features...)}, "")
	return h, h.servers["cp"]
}

// entries returns how many resources the client has in its cache, and targets how
// many targets.
func (h *harness) entries() int {
	synctest.Wait()
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	return len(h.c.cache.entries)
}

func (h *harness) targets() int {
	synctest.Wait()
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	return len(h.c.targets.managers)
}

// advance lets time pass.
func advance(d time.Duration) {
	synctest.Wait()
	<-timing.After(d)
	synctest.Wait()
}

// recorder is a Watcher that remembers.
type recorder struct {
	cancel func()

	mu    sync.Mutex
	calls calls
	block chan struct{} // if not nil, calls wait until it is closed
	takes time.Duration // the duration of a call
}

// calls are the calls of a Watcher.
type calls struct {
	updates, errs int
	config        *picker.Config // of the latest call, nil if that was an error
	err           error
}

func (r *recorder) Update(c *picker.Config) { r.note(c, nil) }
func (r *recorder) Error(err error)         { r.note(nil, err) }

func (r *recorder) note(c *picker.Config, err error) {
	r.mu.Lock()
	r.calls.config, r.calls.err = c, err
	if err == nil {
		r.calls.updates++
	} else {
		r.calls.errs++
	}
	block := r.block
	r.mu.Unlock()
	time.Sleep(r.takes)
	if block != nil {
		<-block
	}
}

// got returns the calls so far.
func (r *recorder) got() calls {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls
}

// watch watches a target whose listener and authority have the same name.
func (h *harness) watch(target string) *recorder {
	r := &recorder{}
	r.cancel = h.c.view().Watch(target, target, r)
	return r
}

// must returns the configuration in use, or ends the test.
func (r *recorder) must(t *testing.T) *picker.Config {
	t.Helper()
	got := r.got()
	if got.config == nil {
		t.Fatalf("no configuration; the latest error is %v", got.err)
	}
	return got.config
}

// fails ends the test unless the latest call was an error with all the texts.
func (r *recorder) fails(t *testing.T, texts ...string) {
	t.Helper()
	got := r.got()
	if got.err == nil {
		t.Fatalf("no error; %d updates so far", got.updates)
	}
	for _, text := range texts {
		if !strings.Contains(got.err.Error(), text) {
			t.Errorf("error %q lacks %q", got.err, text)
		}
	}
}

// cluster returns the named cluster of the configuration in use.
func (r *recorder) cluster(t *testing.T, name string) *picker.Cluster {
	t.Helper()
	for _, c := range r.must(t).Clusters {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no cluster %q in the configuration", name)
	return nil
}

// serves checks the endpoints of a cluster of the configuration in use, as ports returns them. when
// describes the situation.
func (r *recorder) serves(t *testing.T, cluster, want string, when ...string) {
	t.Helper()
	if got := ports(r.cluster(t, cluster)); got != want {
		t.Errorf("cluster %q has endpoints %q, want %q %s", cluster, got, want, strings.Join(when, " "))
	}
}

// ports returns the ports of all endpoints of a cluster, leaf by leaf, for
// short comparisons.
func ports(c *picker.Cluster) string {
	var b strings.Builder
	for i, l := range c.Leaves {
		if i > 0 {
			b.WriteString(" | ")
		}
		b.WriteString(l.Name)
		for _, p := range l.Priorities {
			for _, loc := range p.Localities {
				for _, e := range loc.Endpoints.All() {
					fmt.Fprintf(&b, " %d", e.Addr.Port())
				}
			}
		}
	}
	return b.String()
}

// splitOf returns the resources of a response, compared with the places of the latest one.
func splitOf(msg message, typ resource.Type, latest []slot) splitResponse {
	p := splitResponse{typ: typ, latest: latest, stopped: func() bool { return false }, wants: func(string) bool { return true }}
	msg.readInto(&p)
	return p
}

// arrived returns a response as a stream receives it.
func arrived(msg proto.Message) message {
	switch msg := msg.(type) {
	case message:
		return msg
	case *discoveryv3.DeltaDiscoveryResponse:
		return deltaResponse{msg}
	case *adscodec.Response:
		return sotwResponse{msg}
	}
	data, err := proto.Marshal(msg)
	if err != nil {
		panic(err)
	}
	r := &adscodec.Response{}
	if err := adscodec.New().Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, r); err != nil {
		panic(err)
	}
	return sotwResponse{r}
}

// wrap packs a resource for a response.
func wrap(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

// nameOf returns the resource's type and name.
func nameOf(m proto.Message) (resource.Type, string) {
	switch m := m.(type) {
	case *listenerv3.Listener:
		return lds, m.Name
	case *routev3.RouteConfiguration:
		return rds, m.Name
	case *clusterv3.Cluster:
		return cds, m.Name
	case *endpointv3.ClusterLoadAssignment:
		return eds, m.ClusterName
	}
	panic(fmt.Sprintf("not a resource: %T", m))
}

var errRefused = errors.New("connect: connection refused")

// fake is a scripted server in a bubble: each of its methods returns when
// everybody has come to rest.
type fake struct {
	*testplane.Scripted
	t    testing.TB
	name string
}

func newFake(t testing.TB, name string) *fake {
	f := &fake{t: t, name: name}
	f.Scripted = testplane.StartScripted(testplane.ScriptedOptions{Report: func(violation string) { t.Errorf("%s: %s", name, violation) }})
	return f
}

// refuse makes connections fail, and breaks the present ones, or lets them work
// again.
func (f *fake) refuse(err error) {
	f.Refuse(err)
	synctest.Wait()
}

// hangUp ends the present stream.
func (f *fake) hangUp(err error) {
	if s := f.current(); s != nil {
		s.Close(err)
	} else if d := f.delta(); d != nil {
		d.Close(err)
	}
	synctest.Wait()
}

// delta returns the open stream of the incremental variant, nil if there is none.
func (f *fake) delta() *testplane.DeltaStream {
	synctest.Wait()
	return f.DeltaStream()
}

// mustDelta returns the open stream of the incremental variant, or ends the test.
func (f *fake) mustDelta() *testplane.DeltaStream {
	f.t.Helper()
	s := f.delta()
	if s == nil {
		f.t.Fatalf("%s: no stream", f.name)
	}
	return s
}

// connected reports whether there is a stream.
func (f *fake) connected() bool {
	synctest.Wait()
	open, _ := f.Streams()
	return open > 0
}

// current returns the open stream, nil if there is none.
func (f *fake) current() *testplane.Stream {
	synctest.Wait()
	return f.Stream()
}

// must returns the open stream, or ends the test.
func (f *fake) must() *testplane.Stream {
	f.t.Helper()
	s := f.current()
	if s == nil {
		f.t.Fatalf("%s: no stream", f.name)
	}
	return s
}

// send sends resources of one type in one response.
func (f *fake) send(typ resource.Type, version string, resources ...proto.Message) {
	f.t.Helper()
	f.must().Send(typ.URL(), version, resources...)
	synctest.Wait()
}

// respond sends a response.
func (f *fake) respond(typ resource.Type, resp *discoveryv3.DiscoveryResponse) {
	f.t.Helper()
	if resp.TypeUrl == "" {
		resp.TypeUrl = typ.URL()
	}
	f.must().Respond(resp)
	synctest.Wait()
}

// serve sets resources and has all requests answered from now on.
func (f *fake) serve(resources ...proto.Message) {
	f.t.Helper()
	if err := f.Update(collect(resources)); err != nil {
		f.t.Fatal(err)
	}
	synctest.Wait()
}

// collect sorts resources by type.
func collect(messages []proto.Message) (r xdstest.Resources) {
	for _, m := range messages {
		switch m := m.(type) {
		case *listenerv3.Listener:
			r.Listeners = append(r.Listeners, m)
		case *routev3.RouteConfiguration:
			r.Routes = append(r.Routes, m)
		case *clusterv3.Cluster:
			r.Clusters = append(r.Clusters, m)
		case *endpointv3.ClusterLoadAssignment:
			r.Endpoints = append(r.Endpoints, m)
		}
	}
	return r
}

// last returns the latest request of a type on the open stream.
func (f *fake) last(typ resource.Type) *discoveryv3.DiscoveryRequest {
	f.t.Helper()
	requests := f.must().Requests(typ.URL())
	if len(requests) == 0 {
		f.t.Fatalf("%s: no request of type %v", f.name, typ)
	}
	return requests[len(requests)-1]
}

// asked checks the names of the latest request of a type.
func (f *fake) asked(typ resource.Type, names ...string) {
	f.t.Helper()
	if got := f.last(typ).ResourceNames; !slices.Equal(got, names) {
		f.t.Errorf("%s: %v names asked for = %q, want %q", f.name, typ, got, names)
	}
}

// count returns how many requests of a type the open stream has carried.
func (f *fake) count(typ resource.Type) int { return f.must().Stats(typ.URL()).Requests }

// counts returns the number of ACKs and NACKs of a type on the open stream,
// and the latest NACK's text.
func (f *fake) counts(typ resource.Type) (acks, nacks int, detail string) {
	stats := f.must().Stats(typ.URL())
	return stats.ACKs, stats.NACKs, stats.LastError
}

// opened returns how many streams there have been.
func (f *fake) opened() int {
	synctest.Wait()
	_, total := f.Streams()
	return total
}
