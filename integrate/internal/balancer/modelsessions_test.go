// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"slices"

	"github.com/xdslb/xdslb/picker"
)

// checkSession checks that an RPC of a session goes to the session's endpoint, if
// that is connected and may be used: a session stays with an endpoint that drains
// if the cluster says so, also if that is the only one that is connected (A55), and with one
// of a priority that is not in use (A75).
func (t *trial) checkSession(r *modelRPC, c *planeCluster) {
	list := c.priorities()
	if r.host == 0 || !t.plane.sessions || !c.routed || len(list) == 0 || len(c.sent.Leaves) != 1 || !list[0].transparent() {
		return // of several leaves, that in use knows its endpoints
	}
	_, e := c.find(r.host)
	if e == nil || e.Health == picker.Draining && !list[0].leaf.Override.Draining {
		return
	}
	connected := slices.ContainsFunc(t.grpc.open(), func(conn *modelConn) bool {
		return has(e, conn.number) && t.usable(conn)
	})
	if connected && (r.conn == nil || !t.isHost(r, e)) {
		t.Fatalf("%v of the session with %d went to %v, error %v, though the endpoint is connected (A55)", r, r.host, r.conn, r.err)
	}
}

// isHost reports whether the RPC is of a session, and went to the session's endpoint.
func (t *trial) isHost(r *modelRPC, e *picker.Endpoint) bool {
	return r.host > 0 && has(e, r.host) && (r.conn == nil || has(e, r.conn.number))
}
