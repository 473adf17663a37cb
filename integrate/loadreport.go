// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"sync"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/lrs"
)

// reporter is the load reporter for one server, shared by all channels that
// use the same XdsClient. It is gone with its last user.
type reporter struct {
	*lrs.Reporter
	key     reporterKey
	release func() // of the connection
	refs    int    // guarded by reporters.mu
}

type reporterKey struct {
	client *xds.Client
	server string
}

var reporters = struct {
	mu sync.Mutex
	m  map[reporterKey]*reporter
}{m: map[reporterKey]*reporter{}}

// reportLoad returns counters that are reported to a server until stop.
func reportLoad(src *xdsResolver, server, cluster, service string) (load *picker.ClusterLoad, stop func()) {
	reporters.mu.Lock()
	defer reporters.mu.Unlock()
	k := reporterKey{src.client, server}
	r := reporters.m[k]
	if r == nil {
		conn, release, err := src.client.Conn(server)
		if err != nil {
			logger.Errorf("xdslb: no load reports for cluster %q: %v", cluster, err)
			return &picker.ClusterLoad{Silent: true}, func() {}
		}
		r = &reporter{Reporter: lrs.NewReporter(conn, src.bootstrap.LRSNode(), lrs.Options{}), key: k, release: release}
		reporters.m[k] = r
	}
	r.refs++
	load, quit := r.Report(cluster, service)
	return load, func() { quit(); r.unref() }
}

// unref gives up one use. The last one lets the final report go out in the
// background: closing a channel does not wait for a server.
func (r *reporter) unref() {
	reporters.mu.Lock()
	defer reporters.mu.Unlock()
	if r.refs--; r.refs == 0 {
		delete(reporters.m, r.key)
		go func() {
			r.Close()
			r.release()
		}()
	}
}
