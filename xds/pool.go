// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"maps"
	"slices"

	"github.com/xdslb/xdslb/xds/bootstrap"
)

// pool holds the servers in use by a Client, by bootstrap.Server.Key, and the channels to them.
// Authorities share servers; load reports share channels.
type pool struct {
	core  *core
	cache *cache
	known map[string]*bootstrap.Server // all servers of the bootstrap
	order []*bootstrap.Server          // the same, in order

	servers  map[string]*server      // with a stream, or trying to open one
	stats    map[string]*serverStats // of all servers that have been used
	channels map[string]*channel     // in use
}

func newPool(core *core, cache *cache) *pool {
	p := &pool{
		core:     core,
		cache:    cache,
		known:    map[string]*bootstrap.Server{},
		servers:  map[string]*server{},
		stats:    map[string]*serverStats{},
		channels: map[string]*channel{},
	}
	p.add(core.cfg.Servers)
	for _, name := range slices.Sorted(maps.Keys(core.cfg.Authorities)) {
		p.add(core.cfg.Authorities[name].Servers)
	}
	return p
}

// add adds servers of the bootstrap to known and order.
func (p *pool) add(servers []*bootstrap.Server) {
	for _, s := range servers {
		if p.known[s.Key()] == nil {
			p.known[s.Key()] = s
			p.order = append(p.order, s)
		}
	}
}

// serverLocked returns the server of a description, and starts it if it is not in use.
func (p *pool) serverLocked(cfg *bootstrap.Server) *server {
	s := p.servers[cfg.Key()]
	if s != nil {
		return s
	}
	ctx, cancel := context.WithCancel(p.core.ctx)
	s = &server{channel: p.channelLocked(cfg), cancel: cancel}
	s.initLocked(p.core, p.cache, cfg, p.serverStatsLocked(cfg))
	p.servers[cfg.Key()] = s
	p.core.tasks.Go(func() { s.run(ctx) })
	return s
}

// closeLocked stops a server, unless it is stopped.
func (p *pool) closeLocked(s *server) {
	if p.servers[s.cfg.Key()] != s {
		return
	}
	delete(p.servers, s.cfg.Key())
	s.stopLocked()
	p.releaseChannelLocked(s.channel)
}

// closeAllLocked stops all servers.
func (p *pool) closeAllLocked() {
	for _, s := range p.servers {
		p.closeLocked(s)
	}
	forgetOpenings(p.core)
}

// serverStatsLocked returns the state of a server, creating it if necessary.
func (p *pool) serverStatsLocked(cfg *bootstrap.Server) *serverStats {
	r := p.stats[cfg.Key()]
	if r == nil {
		r = &serverStats{status: serverStatus{URI: cfg.URI, Description: cfg.String(), Key: cfg.Key()}}
		p.stats[cfg.Key()] = r
	}
	return r
}

// statusesLocked returns the status of the servers that have been used, in order.
func (p *pool) statusesLocked() (all []serverStatus) {
	for _, cfg := range p.order {
		if r := p.stats[cfg.Key()]; r != nil {
			s := r.status
			s.InUse = p.servers[cfg.Key()] != nil
			all = append(all, s)
		}
	}
	return all
}
