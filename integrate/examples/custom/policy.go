// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package custom is an example of a custom LB policy: it draws an endpoint by its EDS weight,
// with a preference for endpoints of the client's own zone.
//
// A program imports it for its side effect, and a control plane selects it with a TypedStruct
// (A52), directly or inside wrr_locality:
//
//	{"@type": "type.googleapis.com/xds.type.v3.TypedStruct",
//	 "type_url": "type.googleapis.com/example.ZoneAffinity",
//	 "value": {"zone": "a", "factor": 4}}
package custom

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/endpointsharding"
	"google.golang.org/grpc/balancer/pickfirst"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/xdslb/xdslb/integrate"
)

// Name is the policy's name in gRPC's registry.
const Name = "example.ZoneAffinity"

func init() { balancer.Register(builder{}) }

// config is the policy's configuration.
type config struct {
	serviceconfig.LoadBalancingConfig `json:"-"`

	Zone   string  `json:"zone"`
	Factor float64 `json:"factor"` // multiplies the weights in the zone
}

type builder struct{}

func (builder) Name() string { return Name }

// ParseConfig is called before the cluster is accepted: its error is sent to the control plane.
func (builder) ParseConfig(js json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	c := &config{Factor: 1}
	if err := json.Unmarshal(js, c); err != nil {
		return nil, err
	}
	if !(c.Factor >= 0) {
		return nil, fmt.Errorf("factor %v is negative", c.Factor)
	}
	return c, nil
}

// Build leaves the connections to gRPC's endpointsharding, which has a pick_first for each
// endpoint.
func (builder) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	p := &policy{ClientConn: cc}
	p.Balancer = endpointsharding.NewBalancer(p, opts, balancer.Get(pickfirst.Name).Build, endpointsharding.Options{})
	return p
}

type policy struct {
	balancer.ClientConn
	balancer.Balancer

	mu  sync.Mutex
	cfg *config
}

func (p *policy) UpdateClientConnState(s balancer.ClientConnState) error {
	p.mu.Lock()
	p.cfg = s.BalancerConfig.(*config)
	p.mu.Unlock()
	return p.Balancer.UpdateClientConnState(balancer.ClientConnState{ResolverState: pickfirst.EnableHealthListener(s.ResolverState)})
}

// UpdateState builds a picker from the states of the endpoints.
func (p *policy) UpdateState(s balancer.State) {
	if s.ConnectivityState == connectivity.Ready {
		p.mu.Lock()
		cfg := p.cfg
		p.mu.Unlock()
		s.Picker = newPicker(endpointsharding.ChildStatesFromPicker(s.Picker), cfg)
	}
	p.ClientConn.UpdateState(s)
}

// picker draws by weight.
type picker struct {
	pickers []balancer.Picker
	upTo    []float64 // cumulative weights
}

func newPicker(endpoints []endpointsharding.ChildState, cfg *config) *picker {
	p := &picker{}
	sum := 0.0
	for _, e := range endpoints {
		if e.State.ConnectivityState != connectivity.Ready {
			continue
		}
		sum += weightOf(e.Endpoint, cfg)
		p.pickers = append(p.pickers, e.State.Picker)
		p.upTo = append(p.upTo, sum)
	}
	return p
}

// weightOf returns the weight of an endpoint. Resolvers other than xDS set no weight.
func weightOf(e resolver.Endpoint, cfg *config) float64 {
	info := integrate.EndpointInfoOf(e)
	if info == nil {
		return 1
	}
	w := float64(info.LocalityWeight) * float64(info.Weight)
	if info.Locality.Zone == cfg.Zone {
		w *= cfg.Factor
	}
	return w
}

// Pick is O(endpoints).
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	x := rand.Float64() * p.upTo[len(p.upTo)-1]
	i := 0
	for i < len(p.upTo)-1 && x >= p.upTo[i] {
		i++
	}
	return p.pickers[i].Pick(info)
}
