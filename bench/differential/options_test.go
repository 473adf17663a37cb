// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// An optionCase is something that applications do around their RPCs.
type optionCase struct {
	name string
	// interceptors are the application's, and dial its other dial options; nil means no
	// options.
	interceptors, dial func(e *env) []grpc.DialOption
	// do makes RPCs, and records the results.
	do func(e *env)
}

// The methods of option cases, by where their RPCs are routed: tokenMethod to
// canary always, shopMethod by header x-tenant to canary or else to shop.
const (
	shopMethod  = "/shop.Cart/Add"
	tokenMethod = "/auth.Tokens/Get"
	shop        = "c0"
	canary      = "c1"
)

// variants are configurations of shop's RPCs, which decide whether our interceptors are active.
var variants = []struct {
	name   string
	change func(w *world, shop *route)
}{
	{"plain", func(*world, *route) {}},
	{"timeout", func(_ *world, r *route) { d := 3 * time.Second; r.timeout = &d }},
	{"retry", func(_ *world, r *route) {
		on := []string{"cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable"}
		r.retry = &retry{on: on, n: 2, base: 10 * time.Millisecond, max: 10 * time.Millisecond}
	}},
	{"retry for all", func(w *world, _ *route) {
		w.hosts[0].retry = &retry{on: []string{"unavailable"}, n: 2, base: 10 * time.Millisecond, max: 10 * time.Millisecond}
	}},
	{"retry by budget", func(w *world, r *route) {
		r.retry = &retry{on: []string{"unavailable", "internal"}, n: 2, base: 10 * time.Millisecond, max: 10 * time.Millisecond}
		w.clusters[0].maxRetries = 100
	}},
	{"hedge", func(_ *world, r *route) { // no attempt takes so long that another one is made besides
		r.retry = &retry{on: []string{"unavailable", "internal"}, n: 2, base: 10 * time.Millisecond, max: 10 * time.Millisecond, hedge: time.Hour}
	}},
	{"filter", func(w *world, _ *route) { w.fault = &fault{abort: fraction{0, 100}, code: 14} }},
	{"abort", func(w *world, r *route) {
		w.fault = &fault{abort: fraction{0, 100}, code: 14}
		r.fault = &fault{abort: fraction{100, 100}, code: 7}
	}},
}

// places are how an application brings its own dial options and the client's together.
var places = []struct {
	name string
	dial func(e *env, theirs []grpc.DialOption) (*grpc.ClientConn, error)
}{
	{"before", func(e *env, theirs []grpc.DialOption) (*grpc.ClientConn, error) {
		return grpc.NewClient("xds:///"+service, slices.Concat(theirs, e.side.xdsOptions(e.t), e.side.transportOptions())...)
	}},
	{"behind", func(e *env, theirs []grpc.DialOption) (*grpc.ClientConn, error) {
		return grpc.NewClient("xds:///"+service, slices.Concat(e.side.xdsOptions(e.t), e.side.transportOptions(), theirs)...)
	}},
	{"NewClient", func(e *env, theirs []grpc.DialOption) (*grpc.ClientConn, error) {
		if e.side.name == stock { // which reads the environment once for the whole process
			theirs = append(e.side.xdsOptions(e.t), theirs...)
			return grpc.NewClient("xds:///"+service, append(theirs, e.side.transportOptions()...)...)
		}
		e.t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", string(e.side.bootstrap(e.t)))
		return integrate.NewClient("xds:///"+service, append(theirs, e.side.transportOptions()...)...)
	}},
}

// TestCallOptions runs typical application code with both clients: interceptors before and
// after the client's own, nested RPCs, call options, stats handlers. The observations must be
// the same.
func TestCallOptions(t *testing.T) {
	for _, c := range slices.Concat(callCases, retryCases, streamCases, interceptorCases, statsCases, dialCases) {
		t.Run(c.name, func(t *testing.T) {
			for _, v := range variants {
				t.Run(v.name, func(t *testing.T) {
					usual := "NewClient"
					if v.name == "hedge" {
						usual = "before" // NewClient takes no Config, which allows hedges
					}
					for _, p := range places {
						if testing.Short() && p.name != usual {
							continue
						}
						t.Run(p.name, func(t *testing.T) {
							// A stream's view of a response in flight depends on the scheduler,
							// on both sides; real differences persist.
							var found []*optionDifference
							for range 3 {
								if found = c.differences(t, v.name, v.change, p.name, p.dial); len(found) == 0 {
									return
								}
							}
							for _, d := range found {
								t.Error(d)
							}
						})
					}
				})
			}
		})
	}
}

// differences runs the case once and returns the differences without a reason.
func (c *optionCase) differences(t *testing.T, variant string, change func(*world, *route), place string, dial func(*env, []grpc.DialOption) (*grpc.ClientConn, error)) (found []*optionDifference) {
	notes := [2][]rpcNotes{}
	synctest.Test(t, func(t *testing.T) { notes = c.run(t, change, dial) })
	for i := range max(len(notes[0]), len(notes[1])) {
		d := &optionDifference{c: c, variant: variant, place: place}
		for k := range notes {
			if i < len(notes[k]) {
				d.notes[k] = notes[k][i]
			}
		}
		if !slices.Equal(d.notes[0].lines, d.notes[1].lines) && !d.accepted() {
			found = append(found, d)
		}
	}
	return found
}

// run has both sides go through the case, and returns their notes.
func (c *optionCase) run(t *testing.T, change func(*world, *route), dial func(*env, []grpc.DialOption) (*grpc.ClientConn, error)) (notes [2][]rpcNotes) {
	w := optionWorld()
	change(w, &w.hosts[0].routes[2])
	n := xdstest.NewNetwork()
	f := newFleet(t, n, backendNames())
	for i, name := range both {
		s := newSide(t, name, n)
		s.cfg.Idempotent = func(string) bool { return true }
		kit.Must(t, s.control.Set(w.resources(f.addrs)))
		e := &env{t: t, side: s, fleet: f, notes: []rpcNotes{{}}}
		e.redial = func() *grpc.ClientConn { return e.dial(c, dial) }
		e.cc, e.other = e.redial(), e.redial()
		c.do(e)
		_, _ = e.cc.Close(), e.other.Close()
		time.Sleep(10 * time.Second) // a Config's Linger, and more
		synctest.Wait()
		notes[i] = e.notes
	}
	return notes
}

// rpcNotes are the observations of one RPC, or of everything that a case does without
// (*env).unary and (*env).stream.
type rpcNotes struct {
	rpc   string // kind and script
	lines []string
}

func optionWorld() *world {
	one := func(name string) cluster {
		return cluster{name: name, kind: eds, policy: roundRobin, localities: []locality{{name: "z", weight: 1, endpoints: []endpoint{{backend: name + ".0"}}}}}
	}
	to := func(name string) []weighted { return []weighted{{cluster: name, weight: 1}} }
	return &world{
		clusters: []cluster{one(shop), one(canary)},
		hosts: []host{{domains: []string{"*"}, routes: []route{
			{kind: matchExact, path: tokenMethod, action: forward, clusters: to(canary)},
			{kind: matchPrefix, headers: []header{{name: "x-tenant", kind: matchExact, value: "canary"}}, action: forward, clusters: to(canary)},
			{kind: matchPrefix, action: forward, clusters: to(shop)},
		}}},
	}
}

// env is one side of an option case.
type env struct {
	t         *testing.T
	side      *side
	fleet     *fleet
	cc, other *grpc.ClientConn // both to the service, with the case's dial options
	redial    func() *grpc.ClientConn
	stats     *statsHandler // of cc, if the case has one

	mu    sync.Mutex
	ids   int
	notes []rpcNotes
}

func (e *env) dial(c *optionCase, dial func(*env, []grpc.DialOption) (*grpc.ClientConn, error)) *grpc.ClientConn {
	var theirs []grpc.DialOption
	for _, options := range []func(*env) []grpc.DialOption{c.dial, c.interceptors} {
		if options != nil {
			theirs = append(theirs, options(e)...)
		}
	}
	cc, err := dial(e, theirs)
	if err != nil {
		e.t.Fatal(err)
	}
	return cc
}

// note records an observation.
func (e *env) note(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	last := &e.notes[len(e.notes)-1]
	last.lines = append(last.lines, fmt.Sprintf(format, args...))
}

// begin begins the notes of another RPC.
func (e *env) begin(kind, script string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.notes = append(e.notes, rpcNotes{rpc: fmt.Sprintf("%s, script %q", kind, script)})
}

// context returns a context with an RPC's id, with a script for the backend.
func (e *env) context(script string, kv ...string) (ctx context.Context, id string) {
	e.mu.Lock()
	e.ids++
	id = fmt.Sprintf("%s-%d", e.side.name, e.ids)
	e.mu.Unlock()
	if script != "" {
		kv = append(kv, scriptHeader, script)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	e.t.Cleanup(cancel)
	return metadata.AppendToOutgoingContext(ctx, append(kv, idHeader, id)...), id
}

// unary makes an RPC to shop, and notes its result and its attempts.
func (e *env) unary(script string, opts ...grpc.CallOption) error {
	e.begin("unary", script)
	ctx, id := e.context(script)
	return e.invoke(ctx, id, shopMethod, opts...)
}

func (e *env) invoke(ctx context.Context, id, method string, opts ...grpc.CallOption) error {
	in, out := wrapperspb.BytesValue{Value: []byte("hello")}, wrapperspb.BytesValue{}
	err := e.cc.Invoke(ctx, method, &in, &out, opts...)
	e.noteEnd(id, err)
	return err
}

// noteEnd records the end of an RPC, and the observations of backends.
func (e *env) noteEnd(id string, err error) {
	synctest.Wait()
	attempts := e.fleet.take(id)
	e.note("%v after %d attempts", status.Code(err), len(attempts))
	for _, a := range attempts {
		e.note("  %s at %s, timeout %v, previous attempts %q, %s", a.method, a.backend, seconds(a.timeout), a.md.Get("grpc-previous-rpc-attempts"), describe(a.md))
	}
}

// stream makes a bidirectional stream with n messages each way, and notes its result.
func (e *env) stream(script string, n int, opts ...grpc.CallOption) error {
	e.begin("stream", script)
	ctx, id := e.context(script)
	err := e.exchange(ctx, n, nil, opts...)
	e.noteEnd(id, err)
	return err
}

// exchange sends and receives n messages in turn, calls between after each, and ends
// the stream.
func (e *env) exchange(ctx context.Context, n int, between func(grpc.ClientStream), opts ...grpc.CallOption) error {
	s, err := e.cc.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, shopMethod, opts...)
	if err != nil {
		return err
	}
	var m wrapperspb.BytesValue
	for range n {
		if err := s.SendMsg(&wrapperspb.BytesValue{Value: []byte("hello")}); err != nil && err != io.EOF {
			return err
		}
		if err := s.RecvMsg(&m); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if between != nil {
			between(s)
		}
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	if err := s.RecvMsg(&m); err != io.EOF {
		return err
	}
	return nil
}

// seconds rounds up, for the time that retries take is random.
func seconds(d time.Duration) time.Duration { return (d + time.Second - 1).Truncate(time.Second) }

// describeOwn is the part of metadata that backends add.
func describeOwn(md metadata.MD) string {
	own := md.Copy()
	delete(own, "content-type")
	return describe(own)
}

// statsKey is the context key that TagRPC adds.
type statsKey struct{}

// statsHandler records the events of RPCs by the tag of TagRPC: sent data in order, with the
// beginning and the end, and separately received data, which other goroutines handle, sorted.
type statsHandler struct {
	e *env

	mu   sync.Mutex
	rpcs []rpcEvents
}

type rpcEvents struct{ sent, received []string }

func (h *statsHandler) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	nested := ctx.Value(statsKey{}) != nil
	h.rpcs = append(h.rpcs, rpcEvents{sent: []string{fmt.Sprintf("Tag %s, in another %t, fails fast %t", info.FullMethodName, nested, info.FailFast)}})
	return context.WithValue(ctx, statsKey{}, len(h.rpcs)-1)
}

func (h *statsHandler) HandleRPC(ctx context.Context, s stats.RPCStats) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, ok := ctx.Value(statsKey{}).(int)
	if !ok {
		h.e.note("an RPC without tag: %T", s)
		return
	}
	rpc := &h.rpcs[i]
	switch s := s.(type) {
	case *stats.Begin:
		rpc.sent = append(rpc.sent, fmt.Sprintf("Begin(transparent %t, streams %t %t, fails fast %t)", s.IsTransparentRetryAttempt, s.IsClientStream, s.IsServerStream, s.FailFast))
	case *stats.OutHeader:
		rpc.sent = append(rpc.sent, fmt.Sprintf("OutHeader(%s, compression %q, metadata %s, previous attempts %q)", s.FullMethod, s.Compression, describeSent(s.Header), s.Header.Get("grpc-previous-rpc-attempts")))
	case *stats.End:
		rpc.sent = append(rpc.sent, fmt.Sprintf("End(%v, trailer %s)", status.Code(s.Error), describe(s.Trailer)))
	case *stats.OutPayload:
		rpc.sent = append(rpc.sent, fmt.Sprintf("OutPayload(%T of %d bytes, sent as %d)", s.Payload, s.Length, s.WireLength))
	case *stats.InPayload:
		rpc.received = append(rpc.received, fmt.Sprintf("InPayload(%T of %d bytes, received as %d)", s.Payload, s.Length, s.WireLength))
	case *stats.DelayedPickComplete: // depends on the state of connections
	default:
		rpc.received = append(rpc.received, fmt.Sprintf("%T", s))
	}
}

// describeSent returns metadata as text, without the headers that identify the RPC.
func describeSent(md metadata.MD) string {
	own := md.Copy()
	delete(own, idHeader)
	return describe(own)
}

func (h *statsHandler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (h *statsHandler) HandleConn(context.Context, stats.ConnStats)                       {}

// take notes the events so far, and forgets them.
func (h *statsHandler) take() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, rpc := range h.rpcs {
		slices.Sort(rpc.received)
		h.e.note("  sent %v, received %v", rpc.sent, rpc.received)
	}
	h.rpcs = nil
}

// withStats is the handler of a side's channel cc.
func (e *env) withStats() []grpc.DialOption {
	h := &statsHandler{e: e}
	if e.stats == nil {
		e.stats = h
	}
	return []grpc.DialOption{grpc.WithStatsHandler(h)}
}

// statsCases are about stats handlers.
var statsCases = []optionCase{
	{
		name: "StatsHandler",
		dial: (*env).withStats,
		do:   func(e *env) { e.each(func() []grpc.CallOption { return nil }, func() { e.stats.take() }) },
	},
	{
		name: "StatsHandlerCompressor",
		dial: (*env).withStats,
		do: func(e *env) {
			_ = e.unary("14,0", grpc.UseCompressor("gzip"))
			e.stats.take()
		},
	},
	{
		name: "StatsHandlerNested",
		dial: (*env).withStats,
		interceptors: func(e *env) []grpc.DialOption {
			return []grpc.DialOption{grpc.WithChainUnaryInterceptor(around(e.token))}
		},
		do: func(e *env) {
			_ = e.unary("")
			e.stats.take()
		},
	},
}

// dialCases are about other dial options.
var dialCases = []optionCase{
	{name: "DisableRetry", dial: func(*env) []grpc.DialOption { return []grpc.DialOption{grpc.WithDisableRetry()} }, do: (*env).all},
	{name: "MaxCallAttempts", dial: func(*env) []grpc.DialOption { return []grpc.DialOption{grpc.WithMaxCallAttempts(2)} }, do: (*env).all},
	{name: "UserAgent", dial: func(*env) []grpc.DialOption { return []grpc.DialOption{grpc.WithUserAgent("me")} }, do: (*env).all},
	{name: "Authority", dial: func(*env) []grpc.DialOption { return []grpc.DialOption{grpc.WithAuthority("other.example")} }, do: (*env).all},
	{
		name: "DefaultCallOptions",
		dial: func(e *env) []grpc.DialOption {
			return []grpc.DialOption{grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.UseCompressor("gzip"), grpc.OnFinish(func(err error) { e.note("finished: %v", status.Code(err)) }))}
		},
		do: (*env).all,
	},
	{
		name: "DefaultServiceConfig",
		dial: func(*env) []grpc.DialOption {
			return []grpc.DialOption{grpc.WithDefaultServiceConfig(`{"methodConfig":[{"name":[{}],"timeout":"1s"}]}`)}
		},
		do: (*env).all,
	},
	{name: "DisableServiceConfig", dial: func(*env) []grpc.DialOption { return []grpc.DialOption{grpc.WithDisableServiceConfig()} }, do: func(e *env) { _ = e.unary("") }},
	{
		name: "PerRPCCredentialsOfChannel",
		dial: func(e *env) []grpc.DialOption {
			return []grpc.DialOption{grpc.WithPerRPCCredentials(&notedCreds{e: e})}
		},
		do: (*env).all,
	},
}
