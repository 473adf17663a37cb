// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/xdstest"
)

const lds, rds, cds, eds = xdstest.LDS, xdstest.RDS, xdstest.CDS, xdstest.EDS

// A scenario is a server that misbehaves about one type of resources, after it has served those of
// a normal target.
type scenario struct {
	name     string
	delta    bool
	typ      string // LDS unless set
	response func(i int) proto.Message
	with     map[string]func(i int) []proto.Message // resources of other types, instead of the normal ones
	each     func(r request) bool                   // requests that are answered; nil: responses come without a pause
	pause    time.Duration                          // or with this one
	ends     bool                                   // each stream ends at once
	silent   bool                                   // the client has nothing to answer
	refused  bool                                   // the client ends the stream instead of an answer
	absent   bool                                   // the normal resource of the type is not sent before
	more     bool                                   // names that are subscribed to later are answered
	fails    bool                                   // RPCs fail afterwards
	options  []grpc.ServerOption

	// Bounds that are not usualAllocated, usualRetained and longestLock: the bytes that the client
	// allocates and retains for each byte of a response, bytes that it retains besides, whatever the
	// size of a response, and the time that it holds a mutex for each MiB of a response.
	allocated, retained float64
	besides             int64
	lock                cpuSeconds
	large               bool // takes too long to be repeated
}

// normal returns the response of a type that the scenario is not about, or nil.
func (s *scenario) normal(typ string) proto.Message {
	switch typ {
	case lds:
		return s.message(lds, 0, xdstest.Listener("l", "r"))
	case rds:
		return s.message(rds, 0, xdstest.RouteConfig("r", xdstest.Route("", "c")))
	case cds:
		return s.message(cds, 0, xdstest.Cluster("c", "e"))
	case eds:
		return s.message(eds, 0, xdstest.Endpoints("e", xdstest.Locality{Endpoints: []xdstest.Endpoint{backend}}))
	}
	return nil
}

// message returns response i with resources.
func (s *scenario) message(typ string, i int, resources ...proto.Message) proto.Message {
	var names []string
	var list []*anypb.Any
	for _, m := range resources {
		names, list = append(names, nameOf(m)), append(list, pack(m))
	}
	return s.packed(typ, i, names, list)
}

func nameOf(m proto.Message) string {
	if e, ok := m.(*endpointv3.ClusterLoadAssignment); ok {
		return e.ClusterName
	}
	return m.(interface{ GetName() string }).GetName()
}

func (s *scenario) packed(typ string, i int, names []string, list []*anypb.Any) proto.Message {
	// The version of the state of the world is never that of a normal response.
	if !s.delta {
		return &discoveryv3.DiscoveryResponse{TypeUrl: typ, VersionInfo: fmt.Sprint("v", i), Nonce: fmt.Sprint("n", i), Resources: list}
	}
	m := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typ, Nonce: fmt.Sprint("n", i)}
	for k, name := range names {
		m.Resources = append(m.Resources, &discoveryv3.Resource{Name: name, Version: fmt.Sprint("v", i), Resource: list[k]})
	}
	return m
}

// one returns response i with an encoded resource of the target's Listener.
func (s *scenario) one(i int, m *anypb.Any) proto.Message {
	return s.packed(lds, i, []string{"l"}, []*anypb.Any{m})
}

// many returns a response of n resources without names that the client watches.
func (s *scenario) many(i, n int, resource *anypb.Any, named func(k int) *discoveryv3.Resource) proto.Message {
	if n > 1 {
		n = atMost(n)
	}
	if s.delta {
		list := make([]*discoveryv3.Resource, n)
		for k := range list {
			list[k] = named(k)
		}
		return &discoveryv3.DeltaDiscoveryResponse{TypeUrl: lds, Nonce: fmt.Sprint(i), Resources: list}
	}
	return &discoveryv3.DiscoveryResponse{TypeUrl: lds, VersionInfo: fmt.Sprint(i), Nonce: fmt.Sprint(i), Resources: slices.Repeat([]*anypb.Any{resource}, n)}
}

func pack(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err) // a defect of the test
	}
	return a
}

// invalid is a Listener whose api_listener is of no type.
var invalid = &anypb.Any{TypeUrl: lds, Value: []byte{10, 1, 'l', 0x9a, 1, 2, 10, 0}}

// divisor is that of all sizes. Figures per byte hardly depend on it.
var divisor = func() int {
	if n, err := strconv.Atoi(os.Getenv(divisorVariable)); err == nil {
		return n
	}
	return 1
}()

// atMost returns a number of elements at most, which is used undivided if there is no divisor.
func atMost(n int) int { return max(n/divisor, 1) }

var text = sync.OnceValue(func() string { return strings.Repeat("x", 60<<20) })

// big returns a text of n bytes at most.
func big(n int) string { return text()[:atMost(n)] }

// scenarioOf returns the scenario with a name.
func scenarioOf(name string) *scenario {
	all := scenarios()
	i := slices.IndexFunc(all, func(s *scenario) bool { return s.name == name })
	if i < 0 {
		panic(errors.New("no such scenario: " + name))
	}
	return all[i]
}

// scenarios returns all of them: products, and dense resources of each type and servers that misbehave
// in either variant of ADS.
func scenarios() (list []*scenario) {
	list = productScenarios()
	for _, delta := range []bool{false, true} {
		for _, s := range slices.Concat(denseScenarios(), bothScenarios()) {
			s.delta, s.name = delta, s.name+map[bool]string{false: ", state of the world", true: ", incremental"}[delta]
			list = append(list, s)
		}
	}
	for _, s := range deltaScenarios() {
		s.delta = true
		list = append(list, s)
	}
	list = append(list, endScenarios()...)
	for _, s := range list {
		if s.typ == "" {
			s.typ = lds
		}
	}
	return list
}

// named returns Listener k of a delta response, with content.
func named(k int, content *anypb.Any) *discoveryv3.Resource {
	return &discoveryv3.Resource{Name: fmt.Sprintf("%07d", k), Resource: content}
}

func bothScenarios() []*scenario {
	add := func(name string, fill func(s *scenario)) *scenario {
		s := &scenario{name: name}
		fill(s)
		return s
	}
	bad := func(r request) bool { return r.first || r.nack }
	return []*scenario{
		add("a NACK is answered by the same", func(s *scenario) {
			s.each, s.response = bad, func(i int) proto.Message { return s.one(i, invalid) }
		}),
		add("invalid resources without a pause", func(s *scenario) {
			s.response = func(i int) proto.Message { return s.one(i, invalid) }
		}),
		add("empty responses without a pause", func(s *scenario) {
			s.fails = true
			s.response = func(i int) proto.Message {
				if s.delta {
					return &discoveryv3.DeltaDiscoveryResponse{TypeUrl: lds, Nonce: fmt.Sprint(i)}
				}
				return &discoveryv3.DiscoveryResponse{TypeUrl: lds, Nonce: fmt.Sprint(i)}
			}
		}),
		add("a Listener that changes without a pause", func(s *scenario) {
			s.response = func(i int) proto.Message {
				return s.message(lds, i, testplane.InlineListener("l", xdstest.RouteConfig("r", xdstest.Route(fmt.Sprint("/v", i%2), "c"), xdstest.Route("", "c"))))
			}
		}),
		add("60 MiB that nobody requested", func(s *scenario) {
			s.fails = true
			s.allocated, s.pause = 8, 100*time.Millisecond
			content := sync.OnceValue(func() *anypb.Any { return &anypb.Any{TypeUrl: lds, Value: raw("0000000", big(60<<20))} })
			s.response = func(i int) proto.Message {
				return s.many(i, 1, content(), func(k int) *discoveryv3.Resource { return named(k, content()) })
			}
		}),
		add("800,000 tiny resources", func(s *scenario) {
			s.fails = true
			tiny := func(k int) *anypb.Any { return &anypb.Any{TypeUrl: lds, Value: fmt.Appendf([]byte{10, 7}, "%07d", k)} }
			s.response = func(i int) proto.Message {
				if s.delta {
					return s.many(i, 800_000, nil, func(k int) *discoveryv3.Resource { return named(k, tiny(k)) })
				}
				m := &discoveryv3.DiscoveryResponse{TypeUrl: lds, Nonce: fmt.Sprint(i)}
				for k := range atMost(780_000) {
					m.Resources = append(m.Resources, tiny(k))
				}
				return m
			}
		}),
		add("2,000,000 empty resources", func(s *scenario) {
			s.refused = true
			s.response = func(i int) proto.Message {
				return s.many(i, 2_000_000, &anypb.Any{}, func(int) *discoveryv3.Resource { return &discoveryv3.Resource{} })
			}
		}),
		add("80,000 empty resources", func(s *scenario) { // as many as a response may have
			s.allocated = 400 // each has an error, which is garbage but for the first ones
			s.response = func(i int) proto.Message {
				return s.many(i, 80_000, &anypb.Any{}, func(int) *discoveryv3.Resource { return &discoveryv3.Resource{} })
			}
		}),
		add("one name 500,000 times", func(s *scenario) {
			s.fails = true
			content := &anypb.Any{TypeUrl: lds, Value: []byte{10, 1, 'l'}}
			s.response = func(i int) proto.Message {
				return s.many(i, 500_000, content, func(int) *discoveryv3.Resource { return &discoveryv3.Resource{Name: "l", Resource: content} })
			}
		}),
		add("1,000,000 errors about one name", func(s *scenario) {
			s.response = func(i int) proto.Message {
				list := make([]*discoveryv3.ResourceError, atMost(1_000_000))
				for k := range list {
					list[k] = resourceError(k%2, fmt.Sprint(k))
				}
				return s.errors(i, list...)
			}
		}),
		add("an error of 50 MiB", func(s *scenario) {
			s.pause = time.Second
			s.response = func(i int) proto.Message { return s.errors(i, resourceError(i%2, big(50<<20))) }
		}),
		add("a name of 20 MiB", func(s *scenario) {
			s.fails = true
			s.pause = 500 * time.Millisecond
			s.response = func(i int) proto.Message { return s.message(lds, i, xdstest.Listener("l", big(20<<20)+fmt.Sprint(i))) }
		}),
		add("10,000 new clusters in each version", func(s *scenario) {
			s.allocated, s.retained, s.lock = 250, 110, 500*time.Millisecond
			s.response = func(i int) proto.Message {
				c := xdstest.RouteConfig("r")
				for k := range atMost(10_000) {
					c.VirtualHosts[0].Routes = append(c.VirtualHosts[0].Routes, xdstest.Route(fmt.Sprint("/", k), fmt.Sprint("c", i, "-", k)))
				}
				return s.message(lds, i, testplane.InlineListener("l", c))
			}
		}),
		add("unknown types with URLs of 1 MiB", func(s *scenario) {
			s.silent = true
			s.response = func(i int) proto.Message {
				url := fmt.Sprint("type", i) + big(1<<20)
				if s.delta {
					return &discoveryv3.DeltaDiscoveryResponse{TypeUrl: url}
				}
				return &discoveryv3.DiscoveryResponse{TypeUrl: url}
			}
		}),
	}
}

// raw is a Listener with a long field that no client has use for.
func raw(name, text string) []byte {
	b, err := proto.Marshal(&listenerv3.Listener{Name: name, StatPrefix: text})
	if err != nil {
		panic(err) // a defect of the test
	}
	return b
}

func resourceError(code int, text string) *discoveryv3.ResourceError {
	return &discoveryv3.ResourceError{ResourceName: &discoveryv3.ResourceName{Name: "l"}, ErrorDetail: &statuspb.Status{Code: int32(5 + code), Message: text}}
}

func (s *scenario) errors(i int, list ...*discoveryv3.ResourceError) proto.Message {
	if s.delta {
		return &discoveryv3.DeltaDiscoveryResponse{TypeUrl: lds, Nonce: fmt.Sprint(i), ResourceErrors: list}
	}
	return &discoveryv3.DiscoveryResponse{TypeUrl: lds, Nonce: fmt.Sprint(i), ResourceErrors: list}
}

// deltaScenarios returns the scenarios that exist only in incremental ADS.
func deltaScenarios() []*scenario {
	one := func(name string, each func(request) bool, r func(i int) *discoveryv3.Resource) *scenario {
		return &scenario{name: name, each: each, fails: true, response: func(i int) proto.Message {
			return &discoveryv3.DeltaDiscoveryResponse{TypeUrl: lds, Nonce: fmt.Sprint(i), Resources: []*discoveryv3.Resource{r(i)}}
		}}
	}
	listener := pack(testplane.InlineListener("l", xdstest.RouteConfig("r", xdstest.Route("", "c"))))
	heartbeat := func(i int) *discoveryv3.Resource {
		return &discoveryv3.Resource{Name: "l", Version: fmt.Sprint(i), Ttl: durationpb.New(time.Hour)}
	}
	removed := func(i int, names ...string) proto.Message {
		return &discoveryv3.DeltaDiscoveryResponse{TypeUrl: lds, Nonce: fmt.Sprint(i), RemovedResources: names}
	}
	never := func(s *scenario) *scenario { s.absent = true; return s }
	return []*scenario{
		{name: "a Listener is removed and created", fails: true, response: func(i int) proto.Message {
			if i%2 == 0 {
				return removed(i, "l")
			}
			return &discoveryv3.DeltaDiscoveryResponse{TypeUrl: lds, Nonce: fmt.Sprint(i), Resources: []*discoveryv3.Resource{{Name: "l", Version: fmt.Sprint(i), Resource: listener}}}
		}},
		one("a TTL of 1 ns", nil, func(i int) *discoveryv3.Resource {
			return &discoveryv3.Resource{Name: "l", Version: fmt.Sprint(i), Ttl: durationpb.New(1), Resource: listener}
		}),
		never(one("heartbeats of what was never sent", nil, heartbeat)),
		never(one("a heartbeat for each subscription", func(r request) bool { return r.names > 0 }, heartbeat)),
		{name: "each request is answered by a removal", fails: true, each: func(request) bool { return true }, response: func(i int) proto.Message { return removed(i, "l") }},
		{name: "2,000,000 removed names", refused: true, response: func(i int) proto.Message {
			list := make([]string, atMost(2_000_000))
			for k := range list {
				list[k] = fmt.Sprintf("%07d", k)
			}
			return removed(i, list...)
		}},
		one("100,000 aliases of 8 MiB", nil, func(i int) *discoveryv3.Resource {
			aliases := make([]string, atMost(100_000))
			for k := range aliases {
				aliases[k] = fmt.Sprint(k)
			}
			return &discoveryv3.Resource{Name: "x", Aliases: aliases, Resource: &anypb.Any{TypeUrl: lds, Value: raw("x", big(8<<20))}}
		}),
		one("one alias of another name of 100 KiB each", nil, func(i int) *discoveryv3.Resource {
			name := fmt.Sprint("own", i) + big(100<<10)
			return &discoveryv3.Resource{Name: name, Aliases: []string{"l"}, Version: fmt.Sprint(i), Resource: pack(testplane.InlineListener(name, xdstest.RouteConfig("r", xdstest.Route("", "c"))))}
		}),
	}
}

// endScenarios are servers that end streams or connections.
func endScenarios() []*scenario {
	return []*scenario{
		{name: "each stream ends at once", ends: true, silent: true},
		{name: "connections of 10 ms", silent: true, response: (&scenario{}).normalListener, pause: time.Hour,
			options: []grpc.ServerOption{grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: 10 * time.Millisecond, MaxConnectionAgeGrace: 10 * time.Millisecond})}},
	}
}

func (s *scenario) normalListener(int) proto.Message { return s.normal(lds) }
