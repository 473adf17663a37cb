// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"github.com/xdslb/xdslb/xds/bootstrap"
)

// peer is the part of a server that the subscriptions of all types share. It exists while the
// server is in use. Its fields are guarded by core.mu.
type peer struct {
	core  *core
	cache *cache
	cfg   *bootstrap.Server
	stats *serverStats
	// users are the authorities that use the server. The value is true if the server is the last one
	// of its chain that the authority uses (A71).
	users map[serverUser]bool
	wake  chan struct{} // holds a token if a request may be due

	variant      variant // of ADS that the server speaks; changes between streams only
	up           bool    // a stream is open
	sentVersions bool    // a request of this stream has had versions of resources
	// exhausted means that the previous stream ended with RESOURCE_EXHAUSTED and no response. The
	// limit of the server may be below maxRequest, so the next stream does not claim versions.
	exhausted bool
}

// serverUser is an authority, as its servers see it.
type serverUser interface {
	// checkLocked is called when a server cannot be reached, or a resource has to be fetched again.
	checkLocked()
	// respondedLocked is called when a server has sent the first response of a stream.
	respondedLocked(p *peer)
	// hasNextLocked reports whether there is a server after the last one in use.
	hasNextLocked() bool
}

// hasNextLocked reports whether all users have another server to use.
func (p *peer) hasNextLocked() bool {
	for u := range p.users {
		if !u.hasNextLocked() {
			return false
		}
	}
	return true
}

// notify makes the goroutines of the server check for due work.
func (p *peer) notify() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// replacedLocked reports whether an authority uses another server instead (A71).
func (p *peer) replacedLocked() bool {
	for _, last := range p.users {
		if !last {
			return true
		}
	}
	return false
}
