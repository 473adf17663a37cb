// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"context"
	"regexp"
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

func TestRequestHashAllocs(t *testing.T) {
	w := newWorld(zone("a", 1, endpoints(0, 1)))
	w.cfg.Routes[0].Hash = []HashPolicy{{Header: "a"}, {}}
	value := []string{"some-user-0123456789"}
	w.env.Header = func(context.Context, string) []string { return value }
	s := w.build(t)
	for _, header := range []string{"", "a"} {
		if n := testing.AllocsPerRun(1000, func() { s.requestHash(bg, 0, ringhash.XXH64, header) }); n != 0 {
			t.Errorf("the hash of header %q allocates %v times", header, n)
		}
	}
}
