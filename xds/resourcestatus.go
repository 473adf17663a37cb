// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/xds/resource"
)

// oldStyle is the Authority of resources whose names are not xdstp names, as in A78.
const oldStyle = "#old"

// ResourceStatus is the status of a resource (A40).
type ResourceStatus struct {
	Type resource.Type
	Name string
	// Authority is the authority of an xdstp name, which may be empty, or "#old" for other names.
	Authority string

	State State
	Since time.Time // when State last changed
	// Err is why there is no version in use, or why it is not the latest; nil otherwise.
	Err     error
	ErrTime time.Time // when Err last occurred

	// Watched means that a target uses the resource. Other resources are kept until the servers
	// are known to have processed the unsubscription.
	Watched bool
	Asked   time.Time // since when it is watched without interruption

	// The version in use; empty without a version.
	Version string
	Updated time.Time // when its content arrived; a new Version with the same content does not count
	Server  string    // URI of the server that sent it
	// Raw is the version in use as it was received; nil without KeepBytes. It must
	// not be changed.
	Raw *anypb.Any

	// RejectedByStock is [resource.RejectedByStock] of the version in use as it was received.
	RejectedByStock []string

	// Patched has the forms of the resource with overlays that targets use. In
	// View.TargetResources it has the one of the target.
	Patched []patchedForm
	// Unpatched means that a target uses the resource as it was received.
	Unpatched bool

	// Rejected is the latest version if that is invalid (State is Nacked), and the
	// zero value otherwise: A40's error_state.
	Rejected rejectedStatus
}

// rejectedStatus is an invalid version of a resource.
type rejectedStatus struct {
	Version string
	Time    time.Time // when it last arrived
	Server  string    // URI of the server that sent it
	Err     error     // why it is invalid
}

// ResourceKind has the attributes by which CountResources counts resources.
type ResourceKind struct {
	Type      resource.Type
	Authority string
	State     State
	InUse     bool // whether there is a version in use
}

// kind returns the resource's kind.
func (s *ResourceStatus) kind() ResourceKind {
	return ResourceKind{s.Type, s.Authority, s.State, !s.Updated.IsZero()}
}

// statusesLocked returns the status of about n entries, without DNS names.
func (c *core) statusesLocked(entries iter.Seq[*entry], n int) []ResourceStatus {
	all := make([]ResourceStatus, 0, n)
	for e := range entries {
		if e.key.typ != dnsType {
			s := e.statusLocked()
			if !c.bytes {
				s.Raw = nil // it may be incomplete
			}
			all = append(all, s)
		}
	}
	return all
}

// inOrder sorts by type and name.
func inOrder(all []ResourceStatus) iter.Seq[ResourceStatus] {
	slices.SortFunc(all, func(a, b ResourceStatus) int {
		return compareKeys(entryKey{a.Type, a.Name}, entryKey{b.Type, b.Name})
	})
	return slices.Values(all)
}

// statusLocked returns the status of the entry.
func (e *entry) statusLocked() ResourceStatus {
	if p := e.patchedLocked(); p != nil {
		s := p.base.statusLocked()
		s.Patched, s.Unpatched = nil, p.key == keepKey
		if form, ok := p.statusLocked(); ok {
			s.Patched = []patchedForm{form}
		}
		return s
	}
	s := ResourceStatus{
		Type:      e.key.typ,
		Name:      e.key.name,
		Authority: oldStyle,
		State:     e.state,
		Since:     e.entered,
		Err:       e.err,
		ErrTime:   e.erred,
	}
	if a := authorityOf(e.key.name); a.xdstp {
		s.Authority = a.name
	}
	if s.Watched = len(e.watchers) > 0; s.Watched {
		s.Asked = e.since
	}
	s.Unpatched = e.unpatchedLocked()
	for _, p := range e.patchedVariantsLocked() {
		if form, ok := p.statusLocked(); ok {
			s.Patched = append(s.Patched, form)
		}
	}
	if of := cmp.Or(e.keptLocked(), e); of.value != nil {
		s.RejectedByStock = resource.RejectedByStock(of.value)
		s.Version, s.Updated, s.Server = of.version, timeOrZero(of.updated), of.from.URI
		if of.raw != nil {
			s.Raw = &anypb.Any{TypeUrl: e.key.typ.URL(), Value: of.raw}
		}
	}
	if r := e.rejected; r != nil {
		s.Rejected = rejectedStatus{Version: r.version, Time: r.at, Server: r.from.URI, Err: e.err}
	}
	return s
}

// unpatchedLocked reports whether a target uses the resource as it was received.
func (e *entry) unpatchedLocked() bool {
	kept := e.variants[keepKey]
	return len(e.watchers) > len(e.variants) || kept != nil && kept.unpatchedLocked()
}
