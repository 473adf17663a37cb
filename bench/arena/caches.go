// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
)

// This file has fleets for combinations of a policy with another feature: caches by key and slow start, failing
// servers and outlier detection, and servers that push back.

const (
	cacheGrows    = "a cache grows by one"
	threeFailFast = "3 of 30 fail fast"
	pushback      = "pushback"
)

// missFactor is how much longer an RPC takes whose key is not in the server's cache.
const missFactor = 5

// combined returns these fleets.
func combined() []Fleet {
	const s = time.Second
	return []Fleet{
		smaller(cacheGrows, .4, "servers cache the keys of RPCs, which take five times as long if theirs is not cached; 20 clients; the last server joins after 20 s; 40 % load").with(func(f *Fleet) {
			f.Clients, f.Keys, f.Joins, f.ChannelsOnly = 20, 2400, true, true
			f.Warm = 15 * s
			f.Only = []string{"stock ring_hash"}
			for _, p := range cacheRows() {
				f.Only = append(f.Only, p.String())
			}
			f.Script = func(f *Fleet, _ *rand.Rand) []Event {
				return []Event{stopAt(0, "", f.Servers-1, false), startAt(20*s, "joins", f.Servers-1, false)}
			}
		}),
		usual(threeFailFast, "three servers refuse everything at once from the sixth second on, to 5 clients; 60 % load").with(func(f *Fleet) {
			f.Clients, f.Load, f.Timeout, f.Run, f.ChannelsOnly = 5, .6, 2*s, 20*s, true
			f.Bad = []int{0, 1, 2}
			f.Only = []string{"stock round_robin", "stock least_request", "ours round_robin", "ours least_request", "ours least_latency"}
			for _, p := range ejecting() {
				f.Only = append(f.Only, p.String())
			}
			f.Script = func(f *Fleet, _ *rand.Rand) (list []Event) {
				for _, i := range f.Bad {
					list = append(list, failAt(6*s, "fails", i, true))
				}
				return list
			}
		}),
		smaller(pushback, .6, "two servers are four times slower; servers queue 10 RPCs, and answer RESOURCE_EXHAUSTED to more; 60 % load").with(func(f *Fleet) {
			f.QueueLimit = 10
			f.Only = []string{"stock round_robin", "stock least_request", "ours round_robin", "ours least_request", "ours least_latency", "ours prequal"}
		}).with(slowed(2, 4)),
	}
}

// cacheRows returns the rows of cacheGrows that hash, with and without slow start.
func cacheRows() (list []Policy) {
	for _, p := range []struct {
		name, policy string
		config       map[string]any
	}{
		{"ring_hash", "ring_hash_experimental", map[string]any{"minRingSize": 4096, "maxRingSize": 4096}},
		{"maglev", "xdslb_maglev", map[string]any{}},
	} {
		list = append(list, Policy{Impl: Ours, Name: p.name + " of keys", Hashed: true, Only: []string{cacheGrows}, Cluster: typedStruct(p.policy, p.config)})
		slow := map[string]any{"slow_start_config": map[string]any{"slow_start_window": "10s"}}
		for k, v := range p.config {
			slow[k] = v
		}
		list = append(list, Policy{Impl: Ours, Name: p.name + " of keys, slow start", Hashed: true, Only: []string{cacheGrows}, Cluster: typedStruct(p.policy, slow)})
	}
	return list
}

// ejecting returns the rows with outlier detection of consecutive failures.
func ejecting() []Policy {
	only := []string{threeFailFast}
	return []Policy{
		{Impl: Ours, Name: "round_robin, consecutive_5xx", Only: only, Cluster: []testplane.ClusterOption{consecutive5xx}},
		{Impl: Ours, Name: "least_latency, consecutive_5xx", Only: only, Cluster: append(typedStruct(integrate.LeastLatency, nil), consecutive5xx)},
	}
}

func consecutive5xx(c *clusterv3.Cluster) {
	c.OutlierDetection = &clusterv3.OutlierDetection{Consecutive_5Xx: wrapperspb.UInt32(5)}
}

// fetch reports whether the server has cached a key, and caches it. The oldest key leaves a full cache.
func (s *Server) fetch(key, limit int) (hit bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cached[key] {
		return true
	}
	if s.cached == nil {
		s.cached = map[int]bool{}
	}
	s.cached[key] = true
	if s.keys = append(s.keys, key); len(s.keys) > limit {
		delete(s.cached, s.keys[0])
		s.keys = s.keys[1:]
	}
	return false
}

// cacheSize is the number of keys that a server caches: twice its share of them.
func (f *Fleet) cacheSize() int { return 2 * f.Keys / f.Servers }

// lookUp returns the need of an RPC at a server, and records whether its key is cached. Before the score starts,
// missing keys cost nothing, so that caches fill.
func (w *world) lookUp(s *Server, number uint32) time.Duration {
	need := w.work[number].need
	if w.fleet.Keys == 0 {
		return need
	}
	hit := s.fetch(w.work[number].key, w.fleet.cacheSize())
	w.calls[number].hit.Store(hit)
	if hit || w.work[number].at < w.fleet.Warm {
		return need
	}
	return need * missFactor
}

// extraWait is the oracle's estimate of the time that an RPC takes longer if its key is not cached.
func (s *Server) extraWait(ctx context.Context, mean time.Duration) float64 {
	md, _ := metadata.FromOutgoingContext(ctx)
	key := md.Get(hashHeader)
	if len(key) == 0 {
		return 0
	}
	k, _ := strconv.Atoi(key[0])
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cached[k] {
		return 0
	}
	return (missFactor - 1) * float64(mean)
}
