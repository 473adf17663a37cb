// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package trouble says what is wrong with a channel, in sentences, for the debug page and the
// command.
package trouble

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/xdslb/xdslb/integrate"
)

// A Trouble is something wrong with a channel. Bad says that RPCs fail, or that what the
// control plane says is not done; the others are for somebody to know.
type Trouble struct {
	Bad  bool
	Text string
}

// Of returns what is wrong with a channel, the worst first.
func Of(s *integrate.TargetStatus) (list []Trouble) {
	var mild []Trouble
	bad := func(format string, args ...any) { list = append(list, Trouble{true, fmt.Sprintf(format, args...)}) }
	note := func(format string, args ...any) { mild = append(mild, Trouble{false, fmt.Sprintf(format, args...)}) }
	if s.Error != "" {
		bad("%s", s.Error)
	}
	if r := s.Rollout; r != nil {
		say := note
		if r.Malformed {
			say = bad
		}
		say("The channel is google.golang.org/grpc/xds's, not xdslb's, since %s. To go forward: %s.", s.Stock, r.Forward)
	}
	for _, u := range s.Unapplied {
		bad("Not applied, since the channel has no interceptors of xdslb: %s.", u)
	}
	failing := newFailing(s.Resources)
	for i := range s.Clusters {
		c := &s.Clusters[i]
		switch {
		case c.State == "TRANSIENT_FAILURE":
			bad("Cluster %s: RPCs fail. %s", c.Name, c.Error)
		case c.Priority > 0:
			note("Cluster %s has failed over to priority %d.", c.Name, c.Priority)
		}
		for k := range c.Leaves {
			l := &c.Leaves[k]
			if l.Note != "" && !failing.explain(l) {
				bad("Cluster %s: %s", l.Name, l.Note)
			}
			if l.Refuses() {
				bad("Cluster %s: the circuit breaker is at its limit of %d RPCs in flight.", l.Name, l.MaxRequests)
			}
			if l.TLS != nil && !l.TLS.InForce {
				bad("Cluster %s asks for TLS, and the channel's credentials do not go by xDS.", l.Name)
			}
			for _, p := range l.Priorities {
				if e := p.Endpoints; p.InUse && e.Failed+e.Ejected > 0 {
					note("Cluster %s, priority %d: of %s, %d failed and %d ejected.", l.Name, p.Priority, plural(e.Total), e.Failed, e.Ejected)
				}
			}
		}
	}
	for _, r := range s.Resources {
		if r.Error != "" {
			stays := ""
			switch {
			case r.Version != "":
				stays = fmt.Sprintf(" (version %s stays in force)", r.Version)
			case !r.Updated.IsZero():
				stays = " (what came before stays in force)"
			}
			bad("%s %s is %s%s: %s", r.Type, r.Name, r.State, stays, r.Error)
		}
	}
	for _, x := range s.Servers {
		if x.InUse && !x.Connected {
			bad("xDS server %s is not connected: %s", x.URI, x.Error)
		}
	}
	return append(list, mild...)
}

// failing has the errors of resources, by name. Resources of several types may share one.
type failing map[string][]string

func newFailing(resources []integrate.ResourceStatus) failing {
	f := failing{}
	for _, r := range resources {
		if r.Error != "" {
			f[r.Name] = append(f[r.Name], r.Error)
		}
	}
	return f
}

// explain reports whether a cluster's note says what the error of a resource does: one of its
// own, or of one that the note names, such as a collection. O(the note).
func (f failing) explain(l *integrate.LeafStatus) bool {
	if f.says(l, cmp.Or(l.Service, l.Name)) || f.says(l, l.Name) {
		return true
	}
	for rest := l.Note; ; {
		i := strings.IndexByte(rest, '"')
		if i < 0 {
			return false
		}
		rest = rest[i+1:]
		if name, _, ok := strings.Cut(rest, `"`); ok && f.says(l, name) {
			return true
		}
	}
}

// says reports whether a note says what is wrong with resources of a name.
func (f failing) says(l *integrate.LeafStatus, name string) bool {
	return slices.ContainsFunc(f[name], func(err string) bool { return strings.Contains(l.Note, err) })
}

func plural(endpoints int) string {
	if endpoints == 1 {
		return "1 endpoint"
	}
	return fmt.Sprintf("%d endpoints", endpoints)
}
