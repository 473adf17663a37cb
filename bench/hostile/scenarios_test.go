// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
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

// A scenario is a server that misbehaves about one type of resources.
type scenario struct {
	name     string
	delta    bool
	typ      string // LDS unless set
	response func(i int) proto.Message
	each     func(r request) bool // requests that are answered; nil: responses come without a pause
	pause    time.Duration        // or with this one
	ends     bool                 // each stream ends at once
	silent   bool                 // the client has nothing to answer
	refused  bool                 // the client ends the stream instead of an answer
	options  []grpc.ServerOption

	// allocated is how many bytes the client allocates at most for each byte of a single
	// response; 0 is usualAllocated.
	allocated float64
}

// normal returns the response of a type that the scenario is not about.
func (s *scenario) normal(typ string) proto.Message {
	resources := map[string]proto.Message{
		lds: xdstest.Listener("l", "r"), rds: xdstest.RouteConfig("r", xdstest.Route("", "c")), cds: xdstest.Cluster("c", "e"),
		eds: xdstest.Endpoints("e", xdstest.Locality{Endpoints: []xdstest.Endpoint{{Addr: netip.MustParseAddrPort("127.0.0.1:1")}}}),
	}
	m := resources[typ]
	if m == nil {
		return nil
	}
	return s.whole(typ, 0, m)
}

// names of the target's resources, by type.
var names = map[string]string{lds: "l", rds: "r", cds: "c", eds: "e"}

// whole returns response i with one resource of the target.
func (s *scenario) whole(typ string, i int, m proto.Message) proto.Message {
	return s.packed(typ, i, pack(m))
}

func (s *scenario) packed(typ string, i int, m *anypb.Any) proto.Message {
	if s.delta {
		return &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typ, Nonce: fmt.Sprint(i), Resources: []*discoveryv3.Resource{{Name: names[typ], Version: fmt.Sprint(i), Resource: m}}}
	}
	return &discoveryv3.DiscoveryResponse{TypeUrl: typ, VersionInfo: fmt.Sprint(i), Nonce: fmt.Sprint(i), Resources: []*anypb.Any{m}}
}

// many returns a response of n resources without names that the client watches.
func (s *scenario) many(i, n int, resource *anypb.Any, named func(k int) *discoveryv3.Resource) proto.Message {
	if n > 1 {
		n /= shrink
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

// A child that sends a single response uses an eighth of the size: figures per byte are
// unchanged.
var shrink = map[bool]int{false: 1, true: 8}[os.Getenv(onceVariable) != ""]

var text = sync.OnceValue(func() string { return strings.Repeat("x", 60<<20) })

// big returns a text of n bytes, or of an eighth.
func big(n int) string { return text()[:n/shrink] }

// scenarioOf returns the scenario with a name.
func scenarioOf(name string) *scenario {
	all := scenarios()
	i := slices.IndexFunc(all, func(s *scenario) bool { return s.name == name })
	if i < 0 {
		panic(errors.New("no such scenario: " + name))
	}
	return all[i]
}

// scenarios returns all of them: dense resources of each type, and servers that misbehave in
// either variant of ADS.
func scenarios() (list []*scenario) {
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

// dense returns a scenario of one valid or invalid resource, which grows as a server likes.
func dense(name, typ string, allocated float64, m func() proto.Message) *scenario {
	s := &scenario{name: name, typ: typ, allocated: allocated, pause: 100 * time.Millisecond}
	one := sync.OnceValue(func() *anypb.Any { return pack(m()) })
	s.response = func(i int) proto.Message { return s.packed(typ, i, one()) }
	return s
}

func denseScenarios() []*scenario {
	hosts := func(n int, host *routev3.VirtualHost) *routev3.RouteConfiguration {
		return &routev3.RouteConfiguration{Name: "r", VirtualHosts: slices.Repeat([]*routev3.VirtualHost{host}, n/shrink)}
	}
	routes := func(n int, r *routev3.Route) *routev3.RouteConfiguration {
		c := xdstest.RouteConfig("r")
		c.VirtualHosts[0].Routes = slices.Repeat([]*routev3.Route{r}, n/shrink)
		return c
	}
	return []*scenario{
		dense("Listener of 500,000 empty virtual hosts", lds, 90, func() proto.Message { return testplane.InlineListener("l", hosts(500_000, &routev3.VirtualHost{})) }),
		dense("RouteConfiguration of 500,000 empty virtual hosts", rds, 90, func() proto.Message { return hosts(500_000, &routev3.VirtualHost{}) }),
		dense("RouteConfiguration of 500,000 empty routes", rds, 130, func() proto.Message { return routes(500_000, &routev3.Route{}) }),
		dense("Listener of 260,000 empty HTTP filters", lds, 300, func() proto.Message {
			return &listenerv3.Listener{Name: "l", ApiListener: &listenerv3.ApiListener{ApiListener: pack(&hcmv3.HttpConnectionManager{
				HttpFilters: slices.Repeat([]*hcmv3.HttpFilter{{}}, 260_000/shrink),
			})}}
		}),
		dense("RouteConfiguration of 100,000 routes", rds, 200, func() proto.Message { return routes(100_000, xdstest.Route("/", "c")) }),
		dense("RouteConfiguration of 60 MiB of routes", rds, 200, func() proto.Message { return routes(60<<20/12, xdstest.Route("/", "c")) }),
		dense("Cluster of 500,000 empty metric names", cds, 0, func() proto.Message {
			c := xdstest.Cluster("c", "e")
			c.LrsReportEndpointMetrics = make([]string, 500_000/shrink)
			return c
		}),
		dense("ClusterLoadAssignment of 500,000 empty endpoints", eds, 0, func() proto.Message {
			c := xdstest.Endpoints("e", xdstest.Locality{})
			c.Endpoints[0].LbEndpoints = slices.Repeat([]*endpointv3.LbEndpoint{{}}, 500_000/shrink)
			return c
		}),
		dense("ClusterLoadAssignment of 100,000 endpoints", eds, 0, func() proto.Message {
			l := xdstest.Locality{}
			for i := range 100_000 / shrink {
				l.Endpoints = append(l.Endpoints, xdstest.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1)})
			}
			return xdstest.Endpoints("e", l)
		}),
	}
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
			s.each, s.response = bad, func(i int) proto.Message { return s.packed(lds, i, invalid) }
		}),
		add("invalid resources without a pause", func(s *scenario) {
			s.response = func(i int) proto.Message { return s.packed(lds, i, invalid) }
		}),
		add("empty responses without a pause", func(s *scenario) {
			s.response = func(i int) proto.Message {
				if s.delta {
					return &discoveryv3.DeltaDiscoveryResponse{TypeUrl: lds, Nonce: fmt.Sprint(i)}
				}
				return &discoveryv3.DiscoveryResponse{TypeUrl: lds, Nonce: fmt.Sprint(i)}
			}
		}),
		add("a Listener that changes without a pause", func(s *scenario) {
			s.response = func(i int) proto.Message {
				return s.whole(lds, i, testplane.InlineListener("l", xdstest.RouteConfig("r", xdstest.Route("", fmt.Sprint("c", i%2)))))
			}
		}),
		add("60 MiB that nobody requested", func(s *scenario) {
			s.allocated, s.pause = 8, 100*time.Millisecond
			content := sync.OnceValue(func() *anypb.Any { return &anypb.Any{TypeUrl: lds, Value: raw("0000000", big(60<<20))} })
			s.response = func(i int) proto.Message {
				return s.many(i, 1, content(), func(k int) *discoveryv3.Resource { return named(k, content()) })
			}
		}),
		add("800,000 tiny resources", func(s *scenario) {
			tiny := func(k int) *anypb.Any { return &anypb.Any{TypeUrl: lds, Value: fmt.Appendf([]byte{10, 7}, "%07d", k)} }
			s.response = func(i int) proto.Message {
				if s.delta {
					return s.many(i, 800_000, nil, func(k int) *discoveryv3.Resource { return named(k, tiny(k)) })
				}
				m := &discoveryv3.DiscoveryResponse{TypeUrl: lds, Nonce: fmt.Sprint(i)}
				for k := range 780_000 / shrink {
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
			content := &anypb.Any{TypeUrl: lds, Value: []byte{10, 1, 'l'}}
			s.response = func(i int) proto.Message {
				return s.many(i, 500_000, content, func(int) *discoveryv3.Resource { return &discoveryv3.Resource{Name: "l", Resource: content} })
			}
		}),
		add("1,000,000 errors about one name", func(s *scenario) {
			s.response = func(i int) proto.Message {
				list := make([]*discoveryv3.ResourceError, 1_000_000/shrink)
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
			s.pause = 500 * time.Millisecond
			s.response = func(i int) proto.Message { return s.whole(lds, i, xdstest.Listener("l", big(20<<20)+fmt.Sprint(i))) }
		}),
		add("10,000 new clusters in each version", func(s *scenario) {
			s.allocated = 220
			s.response = func(i int) proto.Message {
				c := xdstest.RouteConfig("r")
				for k := range 10_000 / shrink {
					c.VirtualHosts[0].Routes = append(c.VirtualHosts[0].Routes, xdstest.Route(fmt.Sprint("/", k), fmt.Sprint("c", i, "-", k)))
				}
				return s.whole(lds, i, testplane.InlineListener("l", c))
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
		return &scenario{name: name, each: each, response: func(i int) proto.Message {
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
	return []*scenario{
		{name: "a Listener is removed and created", response: func(i int) proto.Message {
			if i%2 == 0 {
				return removed(i, "l")
			}
			return &discoveryv3.DeltaDiscoveryResponse{TypeUrl: lds, Nonce: fmt.Sprint(i), Resources: []*discoveryv3.Resource{{Name: "l", Version: fmt.Sprint(i), Resource: listener}}}
		}},
		one("a TTL of 1 ns", nil, func(i int) *discoveryv3.Resource {
			return &discoveryv3.Resource{Name: "l", Version: fmt.Sprint(i), Ttl: durationpb.New(1), Resource: listener}
		}),
		one("heartbeats of what was never sent", nil, heartbeat),
		one("a heartbeat for each subscription", func(r request) bool { return r.subscribes }, heartbeat),
		{name: "each request is answered by a removal", each: func(request) bool { return true }, response: func(i int) proto.Message { return removed(i, "l") }},
		{name: "2,000,000 removed names", response: func(i int) proto.Message {
			list := make([]string, 2_000_000/shrink)
			for k := range list {
				list[k] = fmt.Sprintf("%07d", k)
			}
			return removed(i, list...)
		}},
		one("100,000 aliases of 8 MiB", nil, func(i int) *discoveryv3.Resource {
			aliases := make([]string, 100_000/shrink)
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
