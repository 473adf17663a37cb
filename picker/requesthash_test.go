// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"context"
	"math"
	"math/rand/v2"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/ringhash"
)

// slowHash computes the hash of a request as described in A42, given the parts of its hash
// policies.
func slowHash(policies []HashPolicy, channel uint64, headers map[string][]string, fn ringhash.Func) (hash uint64, ok bool) {
	for _, p := range policies {
		var parts []uint64
		if p.Header == "" {
			parts = []uint64{channel}
		} else if values, sent := headers[p.Header]; sent && !strings.HasSuffix(p.Header, "-bin") {
			value := strings.Join(values, ",")
			if p.Rewrite != nil {
				value = p.Rewrite.ReplaceAllString(value, p.Substitution)
			}
			parts = []uint64{fn.Sum(value)}
		}
		for _, part := range parts {
			hash = (hash*2 + hash/(1<<63)) ^ part
			ok = true
		}
		if ok && p.Terminal {
			return hash, true
		}
	}
	return hash, ok
}

func TestRequestHash(t *testing.T) {
	rng := newRand(1)
	names := []string{"", "a", "b", "c", "d-bin"}
	rewrite := regexp.MustCompile("(x+)y")
	for range 5000 {
		headers := make(map[string][]string)
		for _, name := range names[1:] {
			for range pick(rng, 0, 0, 1, 1, 2) {
				headers[name] = append(headers[name], pick(rng, "", "xxy", "y", "xyxy"))
			}
		}
		var policies []HashPolicy
		for range rng.IntN(5) {
			p := HashPolicy{Header: pick(rng, names...), Terminal: rng.IntN(3) == 0}
			if rng.IntN(3) == 0 {
				p.Rewrite, p.Substitution = rewrite, "$$${1}z"
			}
			policies = append(policies, p)
		}
		w := newWorld(zone("a", 1, endpoints(0, 1)))
		w.cfg.Routes[0].Hash = policies
		w.env.ChannelID = rng.Uint64()
		w.env.Header = func(_ context.Context, name string) []string { return headers[name] }
		fn := ringhash.Func(rng.IntN(2))
		want, some := slowHash(policies, w.env.ChannelID, headers, fn)
		if got, ok := w.build(t).requestHash(bg, 0, fn, ""); got != want || ok != some {
			t.Fatalf("%+v with headers %v: hash %#x, %t, want %#x, %t", policies, headers, got, ok, want, some)
		}
	}
}

// Values on which all replicas must agree: XXH64 and XXH3 as their authors define them (the
// sanity values of xxHash's repository), and A42's combination of hashes.
func TestRequestHashGolden(t *testing.T) {
	w := newWorld(zone("a", 1, endpoints(0, 1)))
	w.env.ChannelID = 0x8000000000000001
	w.env.Header = func(_ context.Context, name string) []string {
		return map[string][]string{"empty": {""}, "a": {"a"}, "abc": {"abc"}}[name]
	}
	for _, test := range []struct {
		policies []HashPolicy
		fn       ringhash.Func
		want     uint64
	}{
		{[]HashPolicy{{Header: "empty"}}, ringhash.XXH64, 0xef46db3751d8e999},
		{[]HashPolicy{{Header: "a"}}, ringhash.XXH64, 0xd24ec4f1a98c6e5b},
		{[]HashPolicy{{Header: "abc"}}, ringhash.XXH64, 0x44bc2cf5ad770999},
		{[]HashPolicy{{Header: "empty"}}, ringhash.XXH3, 0x2d06800538d394c2},
		{[]HashPolicy{{}}, ringhash.XXH3, 0x8000000000000001},
		{[]HashPolicy{{}, {}}, ringhash.XXH3, 0x8000000000000002},
		{[]HashPolicy{{Header: "gone", Terminal: true}, {}, {Header: "gone", Terminal: true}, {}}, ringhash.XXH3, 0x8000000000000001},
		{[]HashPolicy{{Header: "a"}, {Header: "abc"}}, ringhash.XXH64, 0xa49d89e35318dcb7 ^ 0x44bc2cf5ad770999},
	} {
		w.cfg.Routes = []Route{{Hash: test.policies, Clusters: w.cfg.Routes[0].Clusters}}
		if got, ok := w.build(t).requestHash(bg, 0, test.fn, ""); got != test.want || !ok {
			t.Errorf("%+v: hash %#x, %t, want %#x", test.policies, got, ok, test.want)
		}
	}
}

// A76: the header of the ring's configuration takes precedence over the route's policies, and
// an explicit hash of the RPC over both.
func TestRequestHashSources(t *testing.T) {
	w := newWorld(zone("a", 1, endpoints(0, 1)))
	w.cfg.Routes[0].Hash = []HashPolicy{{}}
	w.env.ChannelID = 7
	sent := []string{"x", "y"}
	w.env.Header = func(context.Context, string) []string { return sent }
	check := func(name string, route int32, header string, want uint64, some bool) {
		t.Helper()
		if got, ok := w.build(t).requestHash(bg, route, ringhash.XXH64, header); got != want || ok != some {
			t.Errorf("%s: hash %#x, %t, want %#x, %t", name, got, ok, want, some)
		}
	}
	check("the route's policies", 0, "", 7, true)
	check("header of the ring", 0, "h", ringhash.XXH64.Sum("x,y"), true)
	check("binary header", 0, "h-bin", 0, false)
	check("content type", 0, "content-type", ringhash.XXH64.Sum("application/grpc"), true)
	check("no route", -1, "", 0, false)
	check("a route that is gone", 1, "", 0, false)
	sent = nil
	check("a header that is not sent", 0, "h", 0, false)
	w.env.RequestHash = func(context.Context) (uint64, bool) { return 9, true }
	check("the RPC's own", 0, "h", 9, true)
	w.env.RequestHash = func(context.Context) (uint64, bool) { return 9, false }
	check("none of the RPC's own", 0, "", 7, true)
}

// TestRewriteOracle checks that a rewritten value is that of regexp, cut at the limit.
func TestRewriteOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	text := func(parts ...string) string {
		var b strings.Builder
		for range rng.IntN(6) {
			b.WriteString(parts[rng.IntN(len(parts))])
		}
		return b.String()
	}
	for range 20_000 {
		re, err := regexp.Compile(text("a", "b", ".", "^", "$", `\b`, "(a)", "(b|c)?", "a*", "(?P<name>c)", "|"))
		if err != nil {
			continue
		}
		p := HashPolicy{Rewrite: re, Substitution: text("a", "$$", "$", "${0}", "${1}", "$1", "$1x", "$name", "${name}", "${2", "}", "{", "é", "\\")}
		value := text("a", "b", "c", "é", "ab", " ")
		if got, want := p.rewrite(value), re.ReplaceAllString(value, p.Substitution); got != want {
			t.Fatalf("%q of %q with %q is %q, want %q", re, value, p.Substitution, got, want)
		}
	}
	for _, tt := range []struct{ pattern, substitution, value string }{
		{".", strings.Repeat("x", 1000), strings.Repeat("a", 100)},
		{".", "${0}", strings.Repeat("a", 12_000)},
		{"b", "", strings.Repeat("a", 1<<20)},
		{"$", "b", strings.Repeat("a", 1<<20)},
		{".*", strings.Repeat("${0}", 100), strings.Repeat("a", 1000)},
	} {
		p := HashPolicy{Rewrite: regexp.MustCompile(tt.pattern), Substitution: tt.substitution}
		want := p.Rewrite.ReplaceAllString(tt.value, p.Substitution)
		if got := p.rewrite(tt.value); got != want[:min(len(want), 16<<10)] {
			t.Errorf("%q with %.10q is %.20q of %d bytes, want %.20q of %d", tt.pattern, tt.substitution, got, len(got), want, min(len(want), 16<<10))
		}
	}
}

// TestRewriteBounds checks that a pick allocates at most 1 MiB for a rewritten value, whatever the
// expression, the substitution and the header are (T-SEC-2).
func TestRewriteBounds(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes sync.Pool drop buffers of package regexp at random")
	}
	for name, p := range map[string]HashPolicy{
		"a long substitution": {Rewrite: regexp.MustCompile("."), Substitution: strings.Repeat("x", 1<<10)},
		"many references":     {Rewrite: regexp.MustCompile(".*"), Substitution: strings.Repeat("${0}", 512)},
		"many groups":         {Rewrite: regexp.MustCompile(strings.Repeat("()", 2000)), Substitution: "${1}"},
		"nothing":             {Rewrite: regexp.MustCompile("(.)")},
	} {
		value := strings.Repeat("a", 16<<10)
		// Package regexp keeps its buffers, unless the garbage collector takes them. Other
		// goroutines may allocate as well.
		size, n := uint64(math.MaxUint64), 0
		for range 10 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			n = len(p.rewrite(value))
			runtime.ReadMemStats(&after)
			size = min(size, after.TotalAlloc-before.TotalAlloc)
		}
		if size > 1<<20 || n > 16<<10 {
			t.Errorf("%s: a value allocates %d bytes, and %d are hashed", name, size, n)
		}
	}
}

// keptHashes is the plainest randomHashes: RPCs have contexts of their own.
type keptHashes map[context.Context]uint64

func (k keptHashes) Of(ctx context.Context, drawn uint64, wait bool) uint64 {
	if hash, ok := k[ctx]; ok {
		return hash
	}
	if wait {
		k[ctx] = drawn
	}
	return drawn
}

// forgotten is for tests that pick once for each RPC.
type forgotten struct{}

func (forgotten) Of(_ context.Context, drawn uint64, _ bool) uint64 { return drawn }

type rpcNumber struct{}

// A hashlessRPC is one that has nothing to hash, and is picked for until it gets an endpoint.
type hashlessRPC struct {
	ctx  context.Context
	hash uint64 // of its first pick
}

// hashlessTrial is a ring whose endpoints come up and go as RPCs without a hash ask for them.
type hashlessTrial struct {
	*world
	rng     *rand.Rand
	ring    *ringhash.Ring
	built   []Connectivity // the states in the latest build
	waiting []hashlessRPC
	made    int
	seen    [PickedConnect + 1]int
}

// try picks for an RPC, as the walk on the ring from its first hash does, and reports whether
// it has ended.
func (h *hashlessTrial) try(t *testing.T, rpc hashlessRPC, r uint64) (over bool) {
	t.Helper()
	index, _, outcome := slowSeek(h.ring, h.built, rpc.hash, false)
	got := h.snapshot.Pick(rpc.ctx, "/s/m", r)
	if want := (Result{outcome, 0, 0, int32(index)}); got != want {
		t.Fatalf("RPC with random hash %#x: Pick = %+v, want %+v; endpoints are in %v", rpc.hash, got, want, h.built)
	}
	h.seen[outcome]++
	switch outcome {
	case Picked:
		h.flat(0)[index].Finish(CallOK)
		return true
	case QueueConnect:
		if e := h.flat(0)[index]; e.Connectivity == Idle {
			e.Connectivity = Connecting
		}
	}
	return outcome == Failed
}

// publish builds a snapshot, and picks again for all RPCs that wait.
func (h *hashlessTrial) publish(t *testing.T) {
	t.Helper()
	h.states[0].Version++
	h.build(t)
	h.built = nil
	for _, e := range h.flat(0) {
		h.built = append(h.built, e.Connectivity)
	}
	var left []hashlessRPC
	for _, rpc := range h.waiting {
		if !h.try(t, rpc, h.rng.Uint64()) {
			left = append(left, rpc)
		}
	}
	h.waiting = left
}

// begin makes an RPC.
func (h *hashlessTrial) begin(t *testing.T) {
	t.Helper()
	h.made++
	r := h.rng.Uint64()
	rpc := hashlessRPC{context.WithValue(bg, rpcNumber{}, h.made), draw(r, drawHash)}
	if !h.try(t, rpc, r) {
		h.waiting = append(h.waiting, rpc)
	}
}

// T-RING-6, A42: while an RPC without a hash waits, and endpoints change at random, each of its
// picks uses the hash of the first one. So it waits for another endpoint only if that of its
// hash has failed.
func TestRandomHashIsKept(t *testing.T) {
	var seen [PickedConnect + 1]int
	for seed := range uint64(30) {
		rng := newRand(seed)
		list := make([]uint32, 2+rng.IntN(12))
		for i := range list {
			list[i] = 1 + rng.Uint32N(4)
		}
		localities := []Locality{zone("a", 1, endpoints(0, list...)), zone("b", 2, endpoints(20, 1, 3))}
		w, _, some := ringWorld(PolicyRingHash, RingPolicy{MinSize: 64, MaxSize: 256}, localities...)
		*some = false
		w.env.RandomHashes = keptHashes{}
		h := &hashlessTrial{world: w, rng: rng, ring: slowRing(t, localities, 64, 256, ringhash.XXH3)}
		for _, e := range w.flat(0) {
			e.Connectivity = Idle
		}
		h.publish(t)
		for range 300 {
			for _, e := range w.flat(0) {
				if rng.IntN(8) > 0 {
					continue
				}
				switch e.Connectivity {
				case Connecting:
					e.Connectivity = pick(rng, Ready, Ready, TransientFailure, Idle)
				case Ready:
					e.Connectivity = pick(rng, Ready, Idle, TransientFailure)
				case TransientFailure:
					e.Connectivity = Ready
				}
			}
			if rng.IntN(2) == 0 {
				h.publish(t)
			}
			for range rng.IntN(4) {
				h.begin(t)
			}
		}
		for i, n := range h.seen {
			seen[i] += n
		}
	}
	for _, outcome := range []Outcome{Picked, Queue, QueueConnect, Failed} {
		if seen[outcome] < 10 {
			t.Errorf("outcome %d was seen %d times in all", outcome, seen[outcome])
		}
	}
}

// A42: from the first RPC on, RPCs without a hash are shared by the weights of the ring,
// exactly like their hashes. An endpoint that does not answer delays only its own share.
func TestRandomHashSharesFromTheStart(t *testing.T) {
	localities := []Locality{zone("a", 1, endpoints(0, 1, 1, 2, 4))}
	w, _, some := ringWorld(PolicyRingHash, RingPolicy{MinSize: 1024, MaxSize: 4096}, localities...)
	*some = false
	w.env.RandomHashes = keptHashes{}
	h := &hashlessTrial{world: w, rng: newRand(1), ring: slowRing(t, localities, 1024, 4096, ringhash.XXH3)}
	list := w.flat(0)
	for _, e := range list {
		e.Connectivity = Idle
	}
	h.publish(t)
	const silent = 2
	for round := range 100 {
		for range 20 {
			h.begin(t)
		}
		if i := round % len(list); i != silent && list[i].Connectivity == Connecting {
			list[i].Connectivity = Ready
		}
		h.publish(t)
	}
	if n := len(h.waiting); n < h.made*2/10 || n > h.made*3/10 {
		t.Errorf("%d of %d RPCs wait, want the share of the endpoint that is silent, a quarter", n, h.made)
	}
	for _, rpc := range h.waiting {
		if h.ring.Pick(rpc.hash) != silent {
			t.Errorf("an RPC of endpoint %d waits", h.ring.Pick(rpc.hash))
		}
	}
}
