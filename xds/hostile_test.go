// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/internal/adscodec"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestLargeResponse (LB-SEC-1): a response beyond the limit ends the stream without being read, and
// has no other effect; earlier resources stay in use, and later responses are applied.
func TestLargeResponse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, cp, w := serving(t, Options{})
		large := wrap(endpointsAt("svc", 2))
		// An unknown field.
		large.Value = append(append(large.Value, 0xfa, 0x7f, 0x81, 0x80, 0x80, 0x20), make([]byte, maxResponse+1)...)
		streams := cp.opened()
		cp.respond(eds, &discoveryv3.DiscoveryResponse{VersionInfo: "large", Resources: []*anypb.Any{large}})
		advance(time.Minute)
		if got := ports(w.cluster(t, "svc")); got != "svc 1" || w.got().errs != 0 {
			t.Errorf("endpoints = %q after %d errors, want those from before", got, w.got().errs)
		}
		if n := cp.opened() - streams; n != 1 {
			t.Errorf("%d new streams, want 1", n)
		}
		cp.serve(endpointsAt("svc", 3))
		w.serves(t, "svc", "svc 3")
	})
}

// TestUnasked (LB-SEC-1): of unrequested resources nothing is kept, however
// many they are and however long their names.
func TestUnasked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp, w := serving(t, Options{})
		before := h.entries()
		resp := &discoveryv3.DiscoveryResponse{VersionInfo: "many"}
		for i := range 100_000 {
			resp.Resources = append(resp.Resources, &anypb.Any{TypeUrl: eds.URL(), Value: fmt.Appendf([]byte{10, 8}, "%08d", i)})
		}
		resp.Resources = append(resp.Resources, wrap(endpointsAt(strings.Repeat("x", 1<<20), 2)))
		cp.respond(eds, resp)
		if req := cp.last(eds); req.VersionInfo != "many" || req.ErrorDetail != nil {
			t.Errorf("answered with %v", req)
		}
		if n := h.entries(); n != before {
			t.Errorf("%d entries, before the response there were %d", n, before)
		}
		if n := w.got().updates; n != 1 {
			t.Errorf("%d updates, want 1", n)
		}
	})
}

// TestLongNames (LB-SEC-1): a name does not make a NACK larger than a NACK may be.
func TestLongNames(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, cp, _ := serving(t, Options{})
		name := strings.Repeat("x", 1<<20)
		cp.send(eds, "2", endpointsAt(name, 1), endpointsAt(name, 1))
		if n := len(cp.last(eds).GetErrorDetail().GetMessage()); n == 0 || n > 9<<10 {
			t.Errorf("the NACK has %d bytes, want some, and no more than 9 KiB", n)
		}
	})
}

// TestRegexpCaps (LB-SEC-1): a regular expression is refused for its length, and for
// the cost of compiling it.
func TestRegexpCaps(t *testing.T) {
	for _, tt := range []struct {
		name, expr string
		ok         bool
	}{
		{"short", "a+", true},
		{"long", strings.Repeat("a", 9<<10), false},
		{"repeats repetitions", strings.Repeat("((a{100}){10})", 300), false},
	} {
		r := xdstest.RouteConfig("r", xdstest.Route("", "c"))
		r.VirtualHosts[0].Routes[0].Match.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: tt.expr}}
		if _, err := resource.Decode(rds, wrap(r).Value, resource.Options{}); (err == nil) != tt.ok {
			t.Errorf("%s: error %v", tt.name, err)
		}
	}
}

// TestSecurityNamesTests: every line of SECURITY.md's tables names tests that exist.
func TestSecurityNamesTests(t *testing.T) {
	text, err := os.ReadFile("SECURITY.md")
	kit.Must(t, err)
	text, _, _ = bytes.Cut(text, []byte("\n## Costs\n")) // bench/hostile has the tests of that section
	row := regexp.MustCompile(`(?m)^\|.*\|$`)
	test := regexp.MustCompile("`([a-z/]+)\\.((?:Test|Fuzz)[A-Za-z0-9]+)`")
	rows := 0
	for _, line := range row.FindAll(text, -1) {
		if bytes.HasPrefix(line, []byte("|-")) || bytes.Contains(line, []byte("| shown by |")) {
			continue
		}
		rows++
		named := test.FindAllSubmatch(line, -1)
		if len(named) == 0 {
			t.Errorf("no test is named in %s", line)
		}
		for _, n := range named {
			if !declared(t, string(n[1]), string(n[2])) {
				t.Errorf("package %s has no %s", n[1], n[2])
			}
		}
	}
	if rows < 10 {
		t.Errorf("%d rows", rows)
	}
}

// declared reports whether a test is in a package, given by its path in the module.
func declared(t *testing.T, pkg, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(pkg), "*_test.go"))
	kit.Must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		kit.Must(t, err)
		if bytes.Contains(text, []byte("\nfunc "+name+"(")) {
			return true
		}
	}
	return false
}

// These tests limit the cost of one response (LB-SEC-1).

// TestInvalidResourcesMemory: resources that are no resources take no more than 50 bytes for each
// of theirs once they have been read, though every one of them is a fault.
func TestInvalidResourcesMemory(t *testing.T) {
	const n = 1 << 16 // as many as a response may have that are so small
	msg := sotwResponse{&adscodec.Response{}}
	kit.Must(t, adscodec.New().Unmarshal(mem.BufferSlice{mem.SliceBuffer([]byte(strings.Repeat("\x12\x00", n)))}, msg.Response))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	p := splitOf(msg, lds, nil)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 50*2*n {
		t.Errorf("%d resources of two bytes take %d", n, grown)
	}
	if p.faults.n != n {
		t.Errorf("%d faults of %d", p.faults.n, n)
	}
	msg.Free()
}

// TestManyAliases: unrequested aliases of a resource cost nothing, and
// the resource is hashed once: time does not grow with their number times its size.
func TestManyAliases(t *testing.T) {
	d := newDirect(t)
	d.speak("delta")
	d.requests()
	aliases := make([]string, 100_000)
	for i := range aliases {
		aliases[i] = fmt.Sprint("alias-", i)
	}
	large := wrap(xdstest.Listener("x", strings.Repeat("r", 8<<20)))
	r := response{t: &d.s.types[lds], msg: arrived(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: lds.URL(), Nonce: "1", Resources: []*discoveryv3.Resource{
		{Name: "x", Aliases: append(aliases, "svc"), Version: "1", Resource: large},
	}})}
	r.split()
	if len(r.items) != 2 || r.items[1].name != "svc" || r.items[1].alias != "x" || r.items[1].sum != r.items[0].sum {
		t.Errorf("%d items", len(r.items))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.ctx = ctx
	d.c.mu.Lock()
	before := d.s.types[lds].round
	d.c.mu.Unlock()
	r.handle()
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	if d.s.types[lds].round != before {
		t.Error("a response counts after the end of its stream")
	}
}

// TestAliasOfMany: a resource that comes under one own name after the other by the same alias is
// known by the latest only.
func TestAliasOfMany(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{}, deltaFeature)
		h.watch("svc")
		for i := range 50 {
			own := fmt.Sprint("own-", i)
			cp.mustDelta().Respond(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: lds.URL(), Resources: []*discoveryv3.Resource{
				{Name: own, Aliases: []string{"svc"}, Version: own, Resource: wrap(listenerTo(own, "r"))},
			}})
			synctest.Wait()
		}
		h.c.mu.Lock()
		known := len(h.c.pool.servers[h.c.pool.order[0].Key()].types[lds].aliases)
		h.c.mu.Unlock()
		if known != 1 {
			t.Errorf("%d own names are known", known)
		}
		cp.mustDelta().Remove(lds.URL(), "own-0")
		if synctest.Wait(); statusOf(h.c, lds, "svc").State != Acked {
			t.Error("the removal of an earlier own name counts")
		}
		cp.mustDelta().Remove(lds.URL(), "own-49")
		if synctest.Wait(); statusOf(h.c, lds, "svc").State != DoesNotExist {
			t.Error("the removal of the own name does not count")
		}
	})
}

// TestLongTexts: neither a message of a server's nor a name makes a line of the log longer than 8 KiB,
// or an error of RPCs.
func TestLongTexts(t *testing.T) {
	long := strings.Repeat("x", 5<<20)
	for name, say := range map[string]func(*fake){
		"resource error": func(cp *fake) {
			cp.respond(lds, &discoveryv3.DiscoveryResponse{VersionInfo: "1", ResourceErrors: []*discoveryv3.ResourceError{{
				ResourceName: &discoveryv3.ResourceName{Name: "svc"}, ErrorDetail: &statuspb.Status{Code: int32(codes.NotFound), Message: long},
			}}})
		},
		"route configuration": func(cp *fake) { cp.send(lds, "1", listenerTo("svc", long)) },
		"cluster":             func(cp *fake) { cp.send(lds, "1", testplane.InlineListener("svc", routesTo("r", long))) },
		"service": func(cp *fake) {
			cp.send(lds, "1", testplane.InlineListener("svc", routesTo("r", "c")))
			cp.send(cds, "1", clusterTo("c", long))
		},
		"type": func(cp *fake) {
			cp.send(lds, "1", testplane.InlineListener("svc", routesTo("r", "c")))
			cp.respond(cds, &discoveryv3.DiscoveryResponse{VersionInfo: long, Resources: []*anypb.Any{{TypeUrl: long}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var lines strings.Builder
				h, cp := only(t, Options{Logger: slog.New(slog.NewTextHandler(&lines, nil))})
				w := h.watch("svc")
				say(cp)
				advance(time.Minute)
				for _, line := range strings.Split(lines.String(), "\n") {
					if len(line) > 8<<10 {
						t.Errorf("a line of %d bytes: %.200s", len(line), line)
					}
				}
				got := w.got()
				if got.err != nil && len(got.err.Error()) > 8<<10 {
					t.Errorf("an error of %d bytes: %.200s", len(got.err.Error()), got.err)
				}
				if got.config == nil && got.err == nil && name != "type" {
					t.Error("neither a configuration nor an error")
				}
				if got.config != nil {
					for _, c := range got.config.Clusters {
						if c.Err != nil && len(c.Err.Error()) > 8<<10 {
							t.Errorf("an error of %d bytes: %.200s", len(c.Err.Error()), c.Err)
						}
					}
				}
			})
		})
	}
}

// TestErrorsOfOneName: of the errors about one name in a response the first counts.
func TestErrorsOfOneName(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{})
		h.watch("svc")
		resp := &discoveryv3.DiscoveryResponse{VersionInfo: "1"}
		for i := range 100_000 {
			resp.ResourceErrors = append(resp.ResourceErrors, &discoveryv3.ResourceError{
				ResourceName: &discoveryv3.ResourceName{Name: "svc"}, ErrorDetail: &statuspb.Status{Code: int32(codes.NotFound), Message: fmt.Sprint("error ", i)},
			})
		}
		cp.respond(lds, resp)
		if s := statusOf(h.c, lds, "svc"); s.State != ReceivedError || !strings.HasSuffix(s.Err.Error(), "error 0") {
			t.Errorf("status %+v", s)
		}
	})
}

// TestHeartbeatsOfNothing: if a server answers each subscription with a heartbeat for a resource
// that the client does not have, the client requests the resource once a second.
func TestHeartbeatsOfNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{}, deltaFeature)
		h.watch("svc")
		subscriptions := 0
		for begin := time.Now(); time.Since(begin) < 10*time.Second; advance(10 * time.Millisecond) {
			n := 0
			for _, req := range cp.mustDelta().Requests(lds.URL()) {
				n += len(req.ResourceNamesSubscribe)
			}
			if n > subscriptions {
				cp.mustDelta().Respond(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: lds.URL(), Resources: []*discoveryv3.Resource{{Name: "svc", Version: "1", Ttl: durationpb.New(time.Second)}}})
			}
			subscriptions = n
		}
		if subscriptions < 2 || subscriptions > 12 {
			t.Errorf("%d subscriptions in 10 s, want one in each", subscriptions)
		}
	})
}
