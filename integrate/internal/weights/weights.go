// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package weights finds clusters whose endpoint weights move traffic when a program switches from
// google.golang.org/grpc/xds, called stock here, which ignores these weights (D2, A27-EDSP-5). It
// logs each such cluster once per process.
package weights

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// Matter reports whether ignoring endpoint weights would change the shares of a cluster's
// endpoints.
func Matter(c *picker.Cluster) bool {
	for i := range c.Leaves {
		l := &c.Leaves[i]
		if _, weighted := l.Policy.Unweighted(); !weighted {
			continue
		}
		for _, p := range l.Priorities {
			for k := range p.Localities {
				if unequal(&p.Localities[k]) {
					return true
				}
			}
		}
	}
	return false
}

// unequal reports whether endpoints that receive RPCs have different weights.
func unequal(l *picker.Locality) bool {
	first := uint32(0)
	for _, e := range l.Endpoints.All() {
		switch {
		case e.Health != picker.Healthy:
		case first == 0:
			first = e.Weight
		case e.Weight != first:
			return true
		}
	}
	return false
}

const (
	// Window is the time for which clusters are collected before they are logged.
	Window = time.Second

	maxNoted  = 4096 // clusters that the process remembers; further ones are not logged
	maxLogged = 32   // names in a line
)

// process is the state of the process: which clusters were noted, and which of these are not
// logged yet.
var process struct {
	sync.Mutex
	noted   map[string]bool
	pending []string
	log     *eventlog.Log // logs pending; nil if pending is empty
	timer   *time.Timer   // runs while log is set
	last    time.Time     // of the latest line
}

// Note logs clusters with unequal weights that were not noted before. The clusters of all channels
// within a Window share a line, and there is at most one line a minute. The caller calls Close with
// its Log when it ends.
func Note(log *eventlog.Log, clusters []string) {
	process.Lock()
	defer process.Unlock()
	for _, c := range clusters {
		if process.noted[c] || len(process.noted) >= maxNoted {
			continue
		}
		if process.noted == nil {
			process.noted = map[string]bool{}
		}
		process.noted[c] = true
		process.pending = append(process.pending, c)
	}
	if len(process.pending) == 0 || process.log != nil {
		return
	}
	wait := eventlog.Interval - time.Since(process.last)
	if wait < Window || wait > eventlog.Interval {
		wait = Window
	}
	process.log = log
	process.timer = time.AfterFunc(wait, func() { Close(log) })
}

// Close logs the clusters that are not logged yet, if log was to log them later.
func Close(log *eventlog.Log) {
	process.Lock()
	defer process.Unlock()
	if process.log == nil || process.log != log {
		return
	}
	process.timer.Stop()
	slices.Sort(process.pending)
	names, attrs := process.pending, []slog.Attr(nil)
	if n := len(names) - maxLogged; n > 0 {
		names, attrs = names[:maxLogged], []slog.Attr{slog.Int("more", n)}
	}
	log.Write(eventlog.Line{
		Level: slog.LevelWarn,
		Message: "xdslb: endpoints of clusters have different weights, which xdslb uses, unlike google.golang.org/grpc/xds: " +
			"Config.IgnoreEndpointWeights or XDSLB_IGNORE_ENDPOINT_WEIGHTS=1 gives all endpoints of a locality the same share; each cluster is logged once per process",
		About: len(process.noted), // a line about other clusters is no repeat
		Attrs: append([]slog.Attr{slog.String("clusters", eventlog.CutTo(strings.Join(names, ", "), maxText))}, attrs...),
	})
	process.pending, process.log, process.last = nil, nil, time.Now()
}

// maxText bounds the text of a line.
const maxText = 4096

// Noted reports whether a cluster was noted in this process.
func Noted(cluster string) bool {
	process.Lock()
	defer process.Unlock()
	return process.noted[cluster]
}
