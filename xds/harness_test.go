// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/internal/adscodec"
	"github.com/xdslb/xdslb/xds/internal/timing"
	"github.com/xdslb/xdslb/xds/resource"
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
