// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package prometheus shows this module's metrics in the text format of Prometheus, for
// programs that have no OpenTelemetry:
//
//	http.Handle("/metrics", prometheus.Handler())
//
// The metrics are those of integrate.Metrics, for all channels of the process. A name
// has underscores where OpenTelemetry has dots, then the unit, and _total if it is a
// counter, as OpenTelemetry's own exporter does it: xdslb.lb.picks is
// xdslb_lb_picks_total, xdslb.lb.publication_duration is
// xdslb_lb_publication_duration_seconds.
//
// A program that has a Prometheus registry of its own merges the pages, or has
// Prometheus scrape both: a handler of this package serves a page of its own.
//
// # Why not client_golang
//
// The format is fifty lines here, and what is hard in it, escaping, is tested with a
// parser that is not ours. client_golang would bring six modules into every program that
// links this one.
package prometheus

import (
	"bufio"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/xdslb/xdslb/integrate/internal/metric"

	_ "github.com/xdslb/xdslb/integrate" // which the metrics are of
)

// Handler returns a handler that shows the metrics. Events are counted from then on, and
// counters of RPCs are read before what they count goes away, so a program makes it when
// it starts.
func Handler() http.Handler {
	metric.Watch()
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_ = write(w, metric.Gather()) // whoever asked has gone
	})
}

// write writes families in the text format, version 0.0.4.
func write(to io.Writer, families []metric.Family) error {
	w := bufio.NewWriter(to)
	for i := range families {
		writeFamily(w, &families[i])
	}
	return w.Flush()
}

func writeFamily(w *bufio.Writer, f *metric.Family) {
	name := Name(f.Name, f.Unit, f.Kind == metric.Count)
	w.WriteString("# HELP " + name + " " + escapeHelp.Replace(f.Description) + "\n")
	w.WriteString("# TYPE " + name + " " + f.Kind.String() + "\n")
	keys := f.Keys()
	for i, key := range keys {
		keys[i] = strings.ReplaceAll(key, ".", "_")
	}
	for i := range f.Samples {
		s := &f.Samples[i]
		if f.Kind != metric.Histogram {
			writeSample(w, name, keys, s.Labels[:len(keys)], "", strconv.FormatInt(s.Value, 10))
			continue
		}
		n := uint64(0)
		for i, bucket := range s.Buckets {
			bound := "+Inf"
			if i < len(f.Bounds) {
				bound = number(f.Bounds[i])
			}
			n += bucket
			writeSample(w, name+"_bucket", keys, s.Labels[:len(keys)], bound, strconv.FormatUint(n, 10))
		}
		writeSample(w, name+"_sum", keys, s.Labels[:len(keys)], "", number(s.Sum))
		writeSample(w, name+"_count", keys, s.Labels[:len(keys)], "", strconv.FormatUint(n, 10))
	}
}

// writeSample writes a line. le is the bound of a bucket, or empty.
func writeSample(w *bufio.Writer, name string, keys, values []string, le, value string) {
	w.WriteString(name)
	sep := "{"
	label := func(key, value string) {
		w.WriteString(sep + key + `="` + escapeLabel.Replace(strings.ToValidUTF8(value, "\uFFFD")) + `"`)
		sep = ","
	}
	for i, key := range keys {
		label(key, values[i])
	}
	if le != "" {
		label("le", le)
	}
	if sep == "," {
		w.WriteString("}")
	}
	w.WriteString(" " + value + "\n")
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// Control planes choose clusters' names, so labels may hold anything.
var (
	escapeLabel = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
	escapeHelp  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
)

// units are the words that Prometheus has for units. Those in braces say what is
// counted, and are left out.
var units = map[string]string{"s": "_seconds", "By": "_bytes"}

// Name returns the name that Prometheus has for a metric.
func Name(name, unit string, counter bool) string {
	name = strings.ReplaceAll(name, ".", "_") + units[unit]
	if counter {
		name += "_total"
	}
	return name
}
