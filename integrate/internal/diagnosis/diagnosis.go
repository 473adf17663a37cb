// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package diagnosis provides a list of a channel's problems, as sentences for the debug page
// and the xdslb command.
package diagnosis

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/xdslb/xdslb/integrate/report"
)

// A Finding describes one problem of a channel. It is an error if RPCs fail or if the
// configuration of the control plane is not applied, and a note otherwise.
type Finding struct {
	Error bool
	Text  string
}

// Find returns the problems of a channel, errors first.
func Find(s *report.TargetStatus) (list []Finding) {
	var notes []Finding
	bad := func(format string, args ...any) { list = append(list, Finding{true, fmt.Sprintf(format, args...)}) }
	note := func(format string, args ...any) { notes = append(notes, Finding{false, fmt.Sprintf(format, args...)}) }
	if s.Error != "" {
		bad("%s", s.Error)
	}
	if r := s.Rollout; r != nil && r.Failed != "" {
		bad("The channel was not handed to google.golang.org/grpc/xds, although %s: %s.", r.Why(), r.Failed)
	} else if r != nil {
		add := note
		if r.Malformed {
			add = bad
		}
		add("The channel uses google.golang.org/grpc/xds, not xdslb: %s. To switch to xdslb: %s.", s.Stock, r.Forward)
	}
	for _, e := range s.EnvironmentErrors {
		bad("%s.", e)
	}
	for _, u := range s.Unapplied {
		bad("Not applied (unsupported, or the channel lacks xdslb's interceptors): %s.", u)
	}
	failing := newFailing(s.Resources)
	causes := map[string]string{} // errors of failing clusters, by the names of their resources
	for i := range s.Clusters {
		c := &s.Clusters[i]
		switch {
		case c.State == "TRANSIENT_FAILURE":
			bad("Cluster %s: RPCs fail. %s", c.Name, c.Error)
			causes[c.Name] = c.Error
		case c.Priority > 0:
			note("Cluster %s has failed over to priority %d.", c.Name, c.Priority)
		}
		for k := range c.Leaves {
			l := &c.Leaves[k]
			if c.State == "TRANSIENT_FAILURE" {
				causes[l.Name], causes[cmp.Or(l.Service, l.Name)] = c.Error, c.Error
			}
			if l.Note != "" && !strings.Contains(c.Error, l.Note) && !failing.explain(l) {
				bad("Cluster %s: %s", l.Name, l.Note)
			}
			if l.Refuses() {
				bad("Cluster %s: the circuit breaker is at its limit of %d RPCs in flight.", l.Name, l.MaxRequests)
			}
			if l.TLS != nil && !l.TLS.InForce {
				bad("Cluster %s is configured for TLS, but the channel does not use xDS credentials.", l.Name)
			}
			if p := dropped(l); p == 1 {
				bad("Cluster %s: all RPCs are dropped, as the control plane demands.", l.Name)
			} else if p > 0 {
				note("Cluster %s: %s of the RPCs are dropped, as the control plane demands.", l.Name, report.Percent(p))
			}
			for _, p := range l.Priorities {
				if e := p.Endpoints; p.InUse && e.Failed+e.Ejected > 0 {
					note("Cluster %s, priority %d: %d of %s failed, %d ejected.", l.Name, p.Priority, e.Failed, report.Count(e.Total, "endpoint"), e.Ejected)
				}
			}
		}
	}
	for _, r := range s.Resources {
		if r.Error != "" && !strings.Contains(s.Error, r.Error) && !strings.Contains(causes[r.Name], r.Error) {
			stays := ""
			switch {
			case r.Version != "":
				stays = fmt.Sprintf(" (version %s stays in use)", r.Version)
			case !r.Updated.IsZero():
				stays = " (the previous version stays in use)"
			}
			bad("%s %s is %s%s: %s", r.Type, r.Name, r.State, stays, r.Error)
		}
	}
	if s.OverlayError != "" {
		bad("The overlay as it is now is not in force: %s", s.OverlayError)
	}
	for _, p := range s.Overlay {
		for _, skipped := range p.Skipped {
			bad("Overlay, %s: skipped for %s", p.Patch, skipped)
		}
	}
	for _, x := range s.Servers {
		if x.InUse && !x.Displaced.IsZero() {
			bad("xDS server %s: other xDS streams displace the client's since %s, so updates are late or do not arrive. Have one xDS client behind the agent: see docs/failures.md.",
				x.URI, x.Displaced.UTC().Format(time.RFC3339))
		}
		if x.InUse && !x.EndsStreams.IsZero() {
			bad("xDS server %s ends each stream in order since %s, so updates are late or do not arrive. Look for the reason in its log: it ends streams by itself, or accepts one stream while another process opens others.",
				x.URI, x.EndsStreams.UTC().Format(time.RFC3339))
		}
		if x.InUse && x.Rejected != "" {
			bad("xDS server %s sent invalid resources, and their errors belong to no resource name: %s", x.URI, x.Rejected)
		}
		if x.InUse && x.SourceError != "" {
			bad("%s does not have its present resources, and earlier ones are in use: %s", x.URI, x.SourceError)
		}
		switch {
		case !x.InUse || x.Connected || strings.Contains(s.Error, cmp.Or(x.Error, strconv.Quote(x.URI))):
		case x.Error == "":
			note("xDS server %s is not connected yet.", x.URI)
		default:
			bad("xDS server %s is not connected: %s", x.URI, x.Error)
		}
	}
	return append(list, notes...)
}

// dropped returns the share of RPCs that the drop categories of a cluster apply to.
func dropped(l *report.LeafStatus) float64 {
	kept := 1.
	for _, d := range l.Drops {
		kept *= 1 - float64(d.PerMillion)/1e6
	}
	return 1 - kept
}

// Count returns the numbers of errors and notes in a list.
func Count(list []Finding) (errors, notes int) {
	for _, f := range list {
		if f.Error {
			errors++
		}
	}
	return errors, len(list) - errors
}

// failing maps the names of resources to their errors. Resources of different types may share
// a name.
type failing map[string][]string

func newFailing(resources []report.ResourceStatus) failing {
	f := failing{}
	for _, r := range resources {
		if r.Error != "" {
			f[r.Name] = append(f[r.Name], r.Error)
		}
	}
	return f
}

// explain reports whether a cluster's note repeats the error of a resource of the cluster.
// O(length of the note).
func (f failing) explain(l *report.LeafStatus) bool {
	return f.quoted(l, cmp.Or(l.Service, l.Name)) || f.quoted(l, l.Name)
}

// quoted reports whether a note contains an error of the resources with the given name.
func (f failing) quoted(l *report.LeafStatus, name string) bool {
	return slices.ContainsFunc(f[name], func(err string) bool { return strings.Contains(l.Note, err) })
}

// WorldWritable reports whether every user of the machine may change a file. On Windows, whose files have
// access control lists instead, it returns false.
func WorldWritable(file string) bool {
	info, err := os.Stat(file)
	return err == nil && runtime.GOOS != "windows" && info.Mode().IsRegular() && info.Mode()&0o002 != 0
}
