// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

// An outbox collects what lower layers leave for the end of an event: see lb.settle.
type outbox struct {
	// closing shuts down the connections that have no endpoint any more, once no published
	// snapshot leads to them.
	closing []func()
	// repick is set when SubConns left READY since gRPC got its latest picker: RPCs that picked
	// one of them wait for a new one.
	repick  bool
	publish bool // a publication is due
	wake    bool // RPCs that wait are to pick again, since a child policy has another picker
}
