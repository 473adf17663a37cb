// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package balancer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"google.golang.org/grpc/balancer"

	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/picker"
)

// This file gives package modeltest access to the state of a balancer.

// Delays that tests wait for.
const (
	PublishPause = publishPause
	LossDelay    = lossDelay
)

// SetShutdownDelay sets how long SubConns are kept after the publication that removes them. It must
// be called before the first balancer is built.
func SetShutdownDelay(d time.Duration) { shutdownDelay = d }

// Channel returns the channel of the balancer.
func (b *Balancer) Channel() *rpc.Channel { return b.src.Channel }

// Table returns the table that new RPCs use.
func (b *Balancer) Table() *rpc.Table { return b.picker.table() }

// Published returns a value that identifies the published state, and whether it has a snapshot.
func (b *Balancer) Published() (id any, ok bool) {
	s := b.picker.current.Load()
	return s, s.Snapshot != nil
}

// IsReady reports whether WaitReady would return for RPCs of a method.
func (b *Balancer) IsReady(ctx context.Context, method string) bool { return isReady(ctx, b, method) }

// IsPending reports whether a publication is pending.
func (b *Balancer) IsPending() bool {
	b.rt.Lock()
	defer b.rt.Unlock()
	return b.pending != nil && !b.rt.Closed()
}

// InFlight returns the sum of the RPCs in flight that policies compare, over all endpoints.
func (b *Balancer) InFlight() (n int) {
	b.lock()
	defer b.unlock()
	for l := range b.leaves() {
		for _, p := range l.priorities {
			for e := range p.endpoints {
				if in := e.InFlight(); in != 0 {
					n += max(in, 1)
				}
			}
		}
	}
	return n
}

// NamedConns returns the number of connections that have a hostname for their TLS handshake.
func (b *Balancer) NamedConns() (n int) {
	b.lock()
	defer b.unlock()
	for l := range b.leaves() {
		n += len(l.hosts)
	}
	return n
}

func (b *Balancer) leaves() func(func(*leaf) bool) {
	return func(yield func(*leaf) bool) {
		for _, c := range b.clusters {
			for _, l := range c.leaves {
				if !yield(l) {
					return
				}
			}
		}
	}
}

// A PublishedCluster refers to the data of a cluster that picks read, and has a copy of it. RPCs
// may use the data at any later time, so it must not change.
type PublishedCluster struct {
	view        *clusterView
	groups      []*group
	picks       []balancer.SubConn
	connectable []*endpoint
	localities  []picker.LocalityState
	endpoints   [][]*picker.EndpointState
}

func newPublishedCluster(view *clusterView, localities []picker.LocalityState) *PublishedCluster {
	p := &PublishedCluster{view: view, groups: slices.Clone(view.groups), connectable: slices.Clone(view.connectable), localities: localities}
	for _, k := range view.results {
		p.picks = append(p.picks, k.sc)
	}
	for _, l := range localities {
		p.endpoints = append(p.endpoints, endpointStates(l.Endpoints))
	}
	return p
}

func endpointStates(list picker.EndpointStates) (all []*picker.EndpointState) {
	for i := range list.Len() {
		all = append(all, list.State(i))
	}
	return all
}

// unchanged reports whether the data equals the copy.
func (p *PublishedCluster) unchanged() bool {
	return slices.Equal(p.groups, p.view.groups) && slices.Equal(p.connectable, p.view.connectable) &&
		slices.EqualFunc(p.picks, p.view.results, func(sc balancer.SubConn, k result) bool { return sc == k.sc }) &&
		slices.EqualFunc(p.endpoints, p.localities, func(e []*picker.EndpointState, l picker.LocalityState) bool {
			return slices.Equal(e, endpointStates(l.Endpoints))
		})
}

// CheckPublished returns an error if data that was published before has changed, or if picks of the
// published snapshot differ from those of a snapshot built from scratch. It returns the data that
// is published now.
func (b *Balancer) CheckPublished(before []*PublishedCluster) (now []*PublishedCluster, err error) {
	for _, p := range before {
		if !p.unchanged() {
			return nil, errors.New("the data of a cluster that picks read has changed after its publication")
		}
	}
	b.lock()
	defer b.unlock()
	current := b.picker.current.Load()
	if current.Snapshot == nil {
		return nil, nil
	}
	if err := b.checkSnapshot(current.Snapshot); err != nil {
		return nil, err
	}
	for i, c := range b.list.all {
		if !c.dirty && i < current.clusters.Len() {
			now = append(now, newPublishedCluster(current.cluster(int32(i)), c.state.Localities))
		}
	}
	return now, nil
}

// checkSnapshot compares the published snapshot, which shares unchanged parts with earlier ones,
// with one that is built from scratch. It skips clusters whose picks depend on the time: those in
// slow start, or whose policies measure latencies.
func (b *Balancer) checkSnapshot(current *picker.Snapshot) error {
	states, cfg := make([]picker.ClusterState, len(b.list.all)), *b.cfg
	cfg.Clusters = make([]*picker.Cluster, len(b.list.all))
	for i, c := range b.list.all {
		states[i], cfg.Clusters[i] = c.state, c.stateCfg
		if c.stateCfg == nil {
			return nil // this list has not been published yet
		}
		states[i].Localities = slices.Clone(c.state.Localities)
		for k := range states[i].Localities {
			states[i].Localities[k].Version = 0
		}
	}
	if b.list.whole {
		return nil
	}
	scratch, err := picker.Build(nil, &cfg, states, b.env())
	if err != nil {
		return fmt.Errorf("the published snapshot cannot be built from scratch: %w", err)
	}
	for i, c := range b.list.all {
		if c.dirty || current.InSlowStart(i) || c.inUse != nil && c.inUse.leaf.cfg.Policy.TimesRPCs() {
			continue
		}
		got, want := current.ExplainCluster(context.Background(), -1, int32(i)), scratch.ExplainCluster(context.Background(), -1, int32(i))
		if !reflect.DeepEqual(got, want) {
			return fmt.Errorf("picks of cluster %s: %+v; with a snapshot built from scratch: %+v", c.cfg.Name, got, want)
		}
	}
	return nil
}
