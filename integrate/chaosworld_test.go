// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// deadline is the deadline of the RPCs of a scenario. It is longer than a failover takes.
const deadline = 5 * time.Second

// world is everybody in a scenario: control planes, backends, channels, and the
// oracle that judges the outcomes of RPCs.
type world struct {
	t       testing.TB
	rng     *rand.Rand // of the driver
	service string
	net     *xdstest.Network
	real    bool // over TCP, in real time
	oracle  *oracle
	// attempts are the attempts of the channels' RPCs.
	attempts *attemptLog
	metrics  kit.Recorder // of the channels

	controls []*xdstest.Server
	config   integrate.Config
	backends map[string]*xdstest.Backend
	pools    map[string][]string // addresses, by cluster
	plan     *plan
	defect   defect

	dead, held map[string]bool
	sick       map[string]bool // backends that fail RPCs
	ailing     map[string]bool // backends whose health service reports NOT_SERVING
	health     map[string]*health.Server
	cut, slow  bool // of the first control plane
	lossy      bool // a control plane may have missed a load report
	history    []string
	loads      sync.WaitGroup
	stop       chan struct{} // closed when the loads are to end
	stopped    sync.Once
	conns      openConns
	mu         sync.Mutex
	dialed     map[*grpc.ClientConn]bool // not closed; guarded by mu
}

// newWorld starts servers: control planes, the second of which is the fallback of the first, and
// backends of two clusters. Nothing is served yet.
func newWorld(t testing.TB, seed uint64, real bool, controls int) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(9, seed)), service: fmt.Sprintf("chaos-%d-%t", seed, real), real: real, net: xdstest.NewNetwork(),
		backends: map[string]*xdstest.Backend{}, pools: map[string][]string{},
		dead: map[string]bool{}, held: map[string]bool{}, sick: map[string]bool{}, ailing: map[string]bool{}, health: map[string]*health.Server{}, stop: make(chan struct{}), dialed: map[*grpc.ClientConn]bool{},
	}
	w.attempts = &attemptLog{w: w, sums: map[string]attemptCounts{}, retrying: map[string]int{}}
	w.oracle = newOracle(50*time.Millisecond, 3*time.Second)
	if real {
		w.oracle = newOracle(time.Second, 5*time.Second)
	}
	w.net.TCP = real
	w.net.OnOpen = func(who, addr string, others int) {
		w.conns.add(who, addr, 1)
		if !strings.HasPrefix(who, "control") {
			w.oracle.opened(who, addr, others)
		}
	}
	w.net.OnEnd = func(who, addr string, opened time.Time, byClient bool) {
		w.conns.add(who, addr, -1)
		if byClient && who == "steady" {
			w.oracle.ended(who, addr, opened)
		}
	}
	server := grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second})
	for name, n := range map[string]int{"a": 5, "b": 3} {
		for range n {
			h := health.NewServer()
			h.SetServingStatus("s", healthpb.HealthCheckResponse_SERVING)
			b := xdstest.NewBackends(t, 1, xdstest.BackendOptions{
				Listen: w.net.Listen, Server: append(echoHeaders(), server),
				Register: func(s *grpc.Server) { healthpb.RegisterHealthServer(s, h) },
			})[0]
			w.backends[b.Addr().String()], w.health[b.Addr().String()] = b, h
			w.pools[name] = append(w.pools[name], b.Addr().String())
		}
	}
	for range controls {
		w.controls = append(w.controls, xdstest.New(t, xdstest.Options{Listen: w.net.Listen}))
	}
	w.config = integrate.Config{
		Logger:                  slog.New(slog.DiscardHandler), // the default one is the tests', which keeps all lines
		Bootstrap:               w.bootstrap(),
		Linger:                  -1,
		FailoverTimeout:         time.Second,
		Resources:               integrate.ResourceOptions{KeepDeleted: true},
		Delta:                   seed%2 == 0, // every other world speaks the incremental variant
		Keepalive:               &keepalive.ClientParameters{Time: 10 * time.Second, Timeout: time.Second},
		Idempotent:              func(string) bool { return true },
		ControlPlaneDialOptions: []grpc.DialOption{grpc.WithContextDialer(w.net.Dialer("control"))},
	}
	t.Cleanup(w.clear)
	first := firstPlan(w.rng, w.pools)
	first.hedged, first.perTry = seed%3 == 1, 300*time.Millisecond
	if real {
		first.perTry = time.Hour
	}
	w.push(first, noDefect)
	return w
}

// clear ends the goroutines that a failed test has left, without which its bubble could not
// end and would take the other tests along.
func (w *world) clear() {
	w.end()
	w.mu.Lock()
	left := slices.Collect(maps.Keys(w.dialed))
	w.mu.Unlock()
	for _, cc := range left {
		w.hangUp(cc)
	}
}

// end ends the loads.
func (w *world) end() {
	w.stopped.Do(func() { close(w.stop) })
	w.loads.Wait()
}

func (w *world) bootstrap() []byte {
	type object = map[string]any
	var servers []object
	for _, c := range w.controls {
		servers = append(servers, object{"server_uri": c.Addr(), "channel_creds": []object{{"type": "insecure"}}, "server_features": []string{"trusted_xds_server"}})
	}
	b, err := json.Marshal(object{"node": object{"id": w.service}, "xds_servers": servers})
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

// dial makes a channel.
func (w *world) dial(who string, opts ...grpc.DialOption) *grpc.ClientConn {
	ours, err := integrate.DialOptions(w.config)
	if err != nil {
		w.t.Fatal(err)
	}
	cc, err := grpc.NewClient("xds:///"+w.service, slices.Concat(ours, opts, []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(w.net.Dialer(who)),
		grpc.WithStatsHandler(w.attempts), grpc.WithStatsHandler(&w.metrics),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 2 * time.Second,
		}),
	})...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dialed[cc] = true
	return cc
}

// hangUp closes a channel.
func (w *world) hangUp(cc *grpc.ClientConn) {
	if err := cc.Close(); err != nil {
		w.t.Error(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.dialed, cc)
}

// push serves a configuration on all control planes, or one with a defect, of
// which nothing may take effect.
func (w *world) push(p *plan, d defect) {
	w.oracle.push(p)
	w.plan, w.defect = p, d
	for _, c := range w.controls {
		if err := c.Set(p.resources(w.service, d)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// settled reports whether the clients have answered all that is served.
func (w *world) settled() bool {
	if !w.real {
		synctest.Wait()
	}
	now, cancel := context.WithCancel(context.Background())
	cancel()
	heard := false
	for _, c := range w.controls {
		if open, _ := c.Streams(); open == 0 {
			continue
		}
		for _, typ := range []string{xdstest.LDS, xdstest.RDS, xdstest.CDS, xdstest.EDS} {
			if err := c.WaitACK(now, typ); err != nil && errors.Is(err, context.Canceled) {
				return false
			}
		}
		heard = true
	}
	return heard
}

// unsettled is settled for await.
func (w *world) unsettled() string {
	if w.settled() {
		return ""
	}
	return "a configuration that is not acknowledged"
}

// pass lets time pass, and tells the oracle when configurations take effect.
func (w *world) pass(d time.Duration) {
	for end := time.Now().Add(d); ; {
		if w.settled() {
			w.oracle.settle()
		}
		left := time.Until(end)
		if left <= 0 {
			return
		}
		<-time.After(min(left, 100*time.Millisecond))
	}
}

// await lets time pass until nothing is wrong, for no longer than is reasonable.
func (w *world) await(wrong func() string) {
	w.t.Helper()
	for range 600 * w.haste() {
		if wrong() == "" {
			return
		}
		w.pass(500 * time.Millisecond / w.haste())
	}
	w.fail("in vain was waited for the end of: %s", wrong())
}

// note records an action of the driver.
func (w *world) note(format string, args ...any) {
	w.history = append(w.history, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf(format+"\nwhat happened:\n%s", append(args, strings.Join(w.history[max(0, len(w.history)-40):], "\n"))...)
}

// rest waits for d at most, and reports whether the loads are to go on.
func (w *world) rest(d time.Duration) bool {
	select {
	case <-time.After(max(d, 1)): // no timer is due at once: see timing.After
		return true
	case <-w.stop:
		return false
	}
}

// load runs f, which makes RPCs, until the end of the scenario.
func (w *world) load(f func(rng *rand.Rand)) {
	rng := rand.New(rand.NewPCG(w.rng.Uint64(), w.rng.Uint64()))
	w.loads.Go(func() { f(rng) })
}

// outgoing is the context of an RPC.
func outgoing(rng *rand.Rand) (context.Context, context.CancelFunc) {
	ctx := metadata.AppendToOutgoingContext(context.WithValue(context.Background(), rpcKey{}, &loggedRPC{begin: time.Now()}), "user", fmt.Sprint(rng.IntN(100)))
	return context.WithTimeout(ctx, deadline)
}

// echoed are the request headers that backends send back.
var echoed = []string{"x-plan", "x-cluster", "user", ":authority"}

// echoHeaders has a backend send request headers back. RPCs that fail get no headers, after which they
// would not be retried.
func echoHeaders() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			res, err := handler(ctx, req)
			if err == nil {
				err = grpc.SetHeader(ctx, echoOf(ctx))
			}
			return res, err
		}),
		grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			return handler(srv, echoStream{s})
		}),
	}
}

type echoStream struct{ grpc.ServerStream }

func (s echoStream) SendHeader(md metadata.MD) error {
	return s.ServerStream.SendHeader(metadata.Join(md, echoOf(s.Context())))
}

func echoOf(ctx context.Context) metadata.MD {
	md, _ := metadata.FromIncomingContext(ctx)
	back := metadata.MD{}
	for _, name := range echoed {
		back["echo-"+strings.TrimPrefix(name, ":")] = md[name]
	}
	return back
}

// unary makes an RPC and has it judged.
func (w *world) unary(who string, cc *grpc.ClientConn, rng *rand.Rand) error {
	ctx, cancel := outgoing(rng)
	defer cancel()
	var p peer.Peer
	c := outcome{who: who, begin: time.Now()}
	res, err := testgrpc.NewTestServiceClient(cc).UnaryCall(ctx, new(testgrpc.SimpleRequest), grpc.Peer(&p), grpc.Header(&c.header))
	c.end, c.backend, c.err = time.Now(), res.GetHostname(), err
	if p.Addr != nil {
		c.peer = p.Addr.String()
	}
	w.oracle.judge(c)
	return err
}

// stream opens a stream, sends n messages back and forth, and has it judged.
func (w *world) stream(who string, cc *grpc.ClientConn, rng *rand.Rand, n int) {
	ctx, cancel := outgoing(rng)
	defer cancel()
	var p peer.Peer
	c := outcome{who: who, begin: time.Now()}
	c.err = func() error {
		s, err := testgrpc.NewTestServiceClient(cc).FullDuplexCall(ctx, grpc.Peer(&p))
		if err != nil {
			return err
		}
		header, err := s.Header()
		if err != nil {
			return err
		}
		c.header = header
		if from := header.Get("xdstest-backend"); len(from) > 0 {
			c.backend = from[0]
		}
		for range n {
			if err := s.Send(new(testgrpc.StreamingOutputCallRequest)); err != nil && err != io.EOF {
				return err
			}
			if _, err := s.Recv(); err != nil {
				return err
			}
			w.rest(time.Duration(rng.IntN(200)) * time.Millisecond)
		}
		if err := s.CloseSend(); err != nil {
			return err
		}
		if _, err = s.Recv(); err == io.EOF {
			return nil
		}
		return err
	}()
	c.end = time.Now()
	if p.Addr != nil {
		c.peer = p.Addr.String()
	} else if c.err != nil {
		c.peer = c.backend
	}
	w.oracle.judge(c)
}

// A bubble is the environment of tests that measure durations: control planes, backends and
// channels in virtual time, connected in memory. The machine's load takes no virtual time.
type bubble struct {
	t   *testing.T
	net *xdstest.Network
}

// inBubble runs a test in a bubble of its own.
func inBubble(t *testing.T, test func(t *testing.T, b *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, &bubble{t, xdstest.NewNetwork()}) })
}

func (b *bubble) backends(n int) []*xdstest.Backend {
	return xdstest.NewBackends(b.t, n, xdstest.BackendOptions{Listen: b.net.Listen})
}

func (b *bubble) control() *xdstest.Server {
	return xdstest.New(b.t, xdstest.Options{Listen: b.net.Listen})
}

// config leads a channel to a control plane of the bubble.
func (b *bubble) config(control *xdstest.Server) integrate.Config {
	return integrate.Config{
		Bootstrap: control.Bootstrap(b.t.Name()), Linger: -1,
		ControlPlaneDialOptions: []grpc.DialOption{grpc.WithContextDialer(b.net.Dialer("control"))},
	}
}

// dial returns a channel with everything, as NewClient makes it.
func (b *bubble) dial(cfg integrate.Config, opts ...grpc.DialOption) *grpc.ClientConn {
	return b.dialTo(cfg, target, opts...)
}

func (b *bubble) dialTo(cfg integrate.Config, name string, opts ...grpc.DialOption) *grpc.ClientConn {
	b.t.Helper()
	cc, err := cfg.NewClient("xds:///"+name, append(b.dialer(), opts...)...)
	return b.closing(cc, err)
}

// dialBare returns a channel without interceptors, unless opts have some.
func (b *bubble) dialBare(cfg integrate.Config, opts ...grpc.DialOption) *grpc.ClientConn {
	b.t.Helper()
	builder, err := integrate.NewBuilder(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	cc, err := grpc.NewClient("xds:///"+target, append(append(b.dialer(), grpc.WithResolvers(builder)), opts...)...)
	return b.closing(cc, err)
}

func (b *bubble) dialer() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(b.net.Dialer("client"))}
}

func (b *bubble) closing(cc *grpc.ClientConn, err error) *grpc.ClientConn {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = cc.Close() })
	return cc
}
