// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"slices"

	"github.com/xdslb/xdslb/picker"
)

// This file handles priorities whose endpoints are not connected before they are needed, since
// the hash of an RPC selects the endpoint (A42, A61).

// requestConnect connects an endpoint that was picked for an RPC. Of the RPCs that pick the
// same endpoint, only the first after it became IDLE costs more than a load. RPCs never take
// the mutex.
func requestConnect(e *endpoint) {
	if e.RequestConnect() {
		go e.loc.leaf.entry.do(e.connectRequested)
	}
}

// connectRequested connects the endpoint, unless it has left its locality or no longer waits
// for RPCs.
func (e *endpoint) connectRequested() {
	l, i := e.loc, slices.Index(e.loc.endpoints, e)
	if i < 0 || l.tally.phase == dormant || l.leaf.delegates() {
		e.ResetConnectRequest()
		return
	}
	if e.connect(l.cfg.At(i)); e.Connectivity == picker.Idle { // it is draining
		e.ResetConnectRequest()
	}
}
