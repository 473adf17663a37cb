// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"strings"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/experimental/balancer/weight"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/ringhash"
	"google.golang.org/grpc/serviceconfig"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/lbpolicy"
)

// standalonePolicies parse the parameters of the LB policies for channels without xDS, which package
// integrate describes. Their names are in the traits of the kind.
var standalonePolicies = map[picker.PolicyKind]func(json.RawMessage) (picker.Policy, error){
	picker.PolicyEDF: func(js json.RawMessage) (picker.Policy, error) {
		return picker.Policy{}, lbpolicy.DecodeFields(js, &struct{}{})
	},
	picker.PolicyRingHash: func(js json.RawMessage) (picker.Policy, error) {
		p := struct {
			MinRingSize, MaxRingSize        uint64
			RequestHashHeader, HashFunction string
		}{1024, 4096, "", "XXH3"}
		if err := lbpolicy.DecodeFields(js, &p); err != nil {
			return picker.Policy{}, err
		}
		header := strings.ToLower(p.RequestHashHeader) // like metadata
		switch {
		case p.MinRingSize == 0 || p.MinRingSize > p.MaxRingSize || p.MaxRingSize > maxRingSize:
			return picker.Policy{}, fmt.Errorf("ring sizes %d to %d: must be 1 to %d, in order", p.MinRingSize, p.MaxRingSize, maxRingSize)
		case p.HashFunction != "XXH3" && p.HashFunction != "XX_HASH":
			return picker.Policy{}, fmt.Errorf("hashFunction %q: must be XXH3 or XX_HASH", p.HashFunction)
		case strings.HasSuffix(header, "-bin"):
			return picker.Policy{}, fmt.Errorf("requestHashHeader %q: must not be binary", p.RequestHashHeader)
		}
		return picker.Policy{Ring: &picker.RingPolicy{
			MinSize: p.MinRingSize, MaxSize: p.MaxRingSize, RequestHeader: header, XXH64: p.HashFunction == "XX_HASH",
		}}, nil
	},
	picker.PolicyLeastRequest: func(js json.RawMessage) (picker.Policy, error) {
		p := struct{ ChoiceCount uint32 }{2}
		if err := lbpolicy.DecodeFields(js, &p); err != nil {
			return picker.Policy{}, err
		}
		if p.ChoiceCount < 2 {
			return picker.Policy{}, fmt.Errorf("choiceCount %d: must be at least 2", p.ChoiceCount)
		}
		return picker.Policy{Least: &picker.LeastRequest{Choices: min(p.ChoiceCount, 10)}}, nil
	},
	picker.PolicyLeastLatency: func(js json.RawMessage) (picker.Policy, error) { return lbpolicy.LeastLatency(js) },
	picker.PolicyPrequal:      func(js json.RawMessage) (picker.Policy, error) { return lbpolicy.Prequal(js) },
}

const maxRingSize = 8 << 20 // entries that a configuration may request (A42); snapshots cap rings at 4096

// standaloneBuilder builds one of the policies that work without xDS.
type standaloneBuilder struct{ kind picker.PolicyKind }

func (s standaloneBuilder) Name() string { return s.kind.Traits().ServiceConfig }

// standaloneConfig is the parsed configuration of such a policy.
type standaloneConfig struct {
	serviceconfig.LoadBalancingConfig
	policy picker.Policy
}

// ParseConfig implements balancer.ConfigParser.
func (s standaloneBuilder) ParseConfig(js json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	policy, err := standalonePolicies[s.kind](js)
	if err == nil && policy.ZoneAware != nil {
		err = errors.New("locality_lb_config: without xDS there are no localities")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name(), err)
	}
	policy.Kind, policy.Flat = s.kind, true
	return &standaloneConfig{policy: policy}, nil
}

func (s standaloneBuilder) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	b := newBalancer(cc, opts)
	b.randomHashes.perPick = !doneIdentifiesRPC()
	b.setOptions(Options{}.WithDefaults())
	b.rec.channel = []slog.Attr{slog.String("target", opts.Target.URL.String())}
	b.standalone = true
	return &standalone{Balancer: b, name: opts.Target.Endpoint()}
}

// standalone is an LB policy that gets its endpoints from the channel's resolver: it wraps them
// in a configuration with one cluster for Balancer.
type standalone struct {
	*Balancer
	name string
}

// UpdateClientConnState implements balancer.Balancer.
func (s *standalone) UpdateClientConnState(ccs balancer.ClientConnState) error {
	config, ok := ccs.BalancerConfig.(*standaloneConfig)
	if !ok {
		return fmt.Errorf("xdslb: LB config has type %T", ccs.BalancerConfig)
	}
	book, endpoints := enter(ccs.ResolverState.Endpoints)
	if len(endpoints) == 0 {
		s.Error(errors.New("the resolver has no endpoints"))
		return balancer.ErrBadResolverState
	}
	s.lock()
	s.resolved = book.resolved
	s.unlock()
	s.Update(&picker.Config{
		Routes: []picker.Route{{Clusters: []picker.WeightedCluster{{Name: s.name, Weight: 1}}}},
		Clusters: []*picker.Cluster{{Name: s.name, Leaves: []picker.Leaf{{
			Name:        s.name,
			Policy:      config.policy,
			MaxRequests: math.MaxUint32,
			Priorities:  []picker.Priority{{Localities: []picker.Locality{{Weight: 1, Endpoints: picker.ListOf(endpoints...)}}}},
		}}}},
	})
	return nil
}

// ResolverError implements balancer.Balancer: the last good endpoints stay in use.
func (s *standalone) ResolverError(err error) {
	s.lock()
	served := s.cfg != nil
	s.unlock()
	if !served {
		s.Error(err)
	}
}

// enter returns the addresses of a list of endpoints, and the endpoints in the kernel's form.
// Duplicate addresses are skipped.
func enter(list []resolver.Endpoint) (addressBook, []picker.Endpoint) {
	book := addressBook{}
	endpoints := make([]picker.Endpoint, 0, len(list))
	for _, ep := range list {
		var out picker.Endpoint
		var extra picker.EndpointExtra
		for _, addr := range ep.Addresses {
			key := kernelAddr(addr)
			if _, again := book[key]; again {
				continue
			}
			book[key] = addr
			if out.Addr.IsValid() {
				extra.Addrs = append(extra.Addrs, key)
			} else {
				out.Addr, extra.HashKey = key, addr.Addr
			}
		}
		if !out.Addr.IsValid() {
			continue
		}
		if key := ringhash.HashKey(ep); key != "" {
			extra.HashKey = key
		}
		if extra.HashKey != picker.AddrText(out.Addr) || len(extra.Addrs) > 0 {
			out.Extra = &extra
		}
		out.Weight = max(weight.FromEndpoint(ep).Weight, 1)
		endpoints = append(endpoints, out)
	}
	return book, endpoints
}

// addressBook has the addresses of a resolver by their form in the kernel.
type addressBook map[netip.AddrPort]resolver.Address

// resolved returns the address of a key.
func (a addressBook) resolved(key netip.AddrPort) resolver.Address { return a[key] }

// kernelAddr returns the form of an address in the kernel. Addresses that are neither IP addresses nor DNS
// names, such as sockets, are kept like names, in the zone: see picker.NameAddr. Attributes are not
// part of it, since connections survive their change.
func kernelAddr(addr resolver.Address) netip.AddrPort {
	if addr.ServerName != "" {
		return netip.AddrPortFrom(netip.IPv6Unspecified().WithZone(fmt.Sprintf("%s %q", addr.Addr, addr.ServerName)), 1)
	}
	if key, ok := picker.ParseAddr(addr.Addr); ok && picker.AddrText(key) == addr.Addr {
		return key
	}
	return netip.AddrPortFrom(netip.IPv6Unspecified().WithZone(addr.Addr), 0)
}
