// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package counters

import (
	"sync"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/lrs"
)

// reporter is the load reporter for one server, shared by all channels that use the same
// XdsClient. The last user closes it.
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

// ReportLoad returns counters of a cluster that are reported to a server until stop. It fails
// only if the bootstrap lacks the server, or the server cannot be dialed at all.
func ReportLoad(client *xds.Client, boot *bootstrap.Config, server, cluster, service string) (load *picker.ClusterLoad, stop func(), err error) {
	reporters.mu.Lock()
	defer reporters.mu.Unlock()
	k := reporterKey{client, server}
	r := reporters.m[k]
	if r == nil {
		conn, release, err := client.Conn(server)
		if err != nil {
			return nil, nil, err
		}
		r = &reporter{Reporter: lrs.NewReporter(conn, boot.LRSNode(), lrs.Options{
			Failed: func(err error) { client.LogLoadReports(server, err) },
			Ended:  func(err error) { client.LogLoadReportsEnded(server, err) },
		}), key: k, release: release}
		reporters.m[k] = r
	}
	r.refs++
	load, quit := r.Report(cluster, service)
	return load, func() { quit(); r.unref() }, nil
}

// unref releases one use. After the last use the final report is sent in the background, so
// that closing a channel does not wait for a server.
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
