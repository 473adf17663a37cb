// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

// bonds is what few endpoints have to do with others that handle their connection.
// The balancer's mutex guards it.
type bonds struct {
	// multi connects an endpoint that has several addresses (A61); the endpoint's
	// conn is then the SubConn that it chose, while it is READY.
	multi *multiHomed
	// holder is whose SubConn the endpoint's conn is, of those that children have
	// made; nil if it is no child's.
	holder *childConn
	// heir is the endpoint that took the connection over when an update moved the
	// address to another locality; the listener of conn follows it.
	heir *endpoint
}

// bond returns the endpoint's bonds, to be changed.
func (e *endpoint) bond() *bonds {
	if e.bonds == nil {
		e.bonds = new(bonds)
	}
	return e.bonds
}

func (e *endpoint) multi() *multiHomed {
	if e.bonds == nil {
		return nil
	}
	return e.bonds.multi
}

func (e *endpoint) holder() *childConn {
	if e.bonds == nil {
		return nil
	}
	return e.bonds.holder
}

// unhold makes the endpoint's connection nobody's, if it is a child's.
func (e *endpoint) unhold() {
	if e.bonds != nil {
		e.bonds.holder = nil
	}
}

// bequeath makes another endpoint, which is new, the heir: multi is handed over,
// holder has to find its way by itself.
func (e *endpoint) bequeath(heir *endpoint) {
	if m := e.multi(); m != nil {
		heir.bond().multi = m
	}
	e.bonds = &bonds{heir: heir}
}

// current follows the endpoint's connection to who has it now.
func (e *endpoint) current() *endpoint {
	for e.bonds != nil && e.bonds.heir != nil {
		e = e.bonds.heir
	}
	return e
}
