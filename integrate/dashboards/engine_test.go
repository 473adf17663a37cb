// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package dashboards

import (
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	engine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

const (
	scrape = time.Minute      // between samples
	step   = 30 * time.Second // between evaluations
	begin  = 80 * time.Minute // of the evaluation, with the samples of an hour before
	span   = 4 * time.Hour    // of the samples
)

// firing returns the alerts of a file of rules that fire at some time with the given series, in the
// notation of Prometheus' unit tests. The rules are evaluated by Prometheus' engine, and "for" as in
// Prometheus.
func firing(t *testing.T, file string, series ...string) map[string]bool {
	t.Helper()
	queryable := &storage.MockQueryable{MockQuerier: store(t, series)}
	e := engine.NewEngine(engine.EngineOpts{MaxSamples: 1e7, Timeout: time.Minute, Parser: promql})
	defer func() { _ = e.Close() }()
	fires := map[string]bool{}
	for _, r := range accepted(t, file) {
		start := time.Unix(0, 0)
		q, err := e.NewRangeQuery(t.Context(), queryable, nil, r.Expr, start.Add(begin), start.Add(span), step)
		if err != nil {
			t.Fatal(err)
		}
		m, err := q.Exec(t.Context()).Matrix()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range m {
			var since, last int64
			for i, p := range s.Floats {
				if i == 0 || p.T-last > step.Milliseconds() {
					since = p.T
				}
				if last = p.T; last-since >= time.Duration(r.For).Milliseconds() {
					fires[r.Alert] = true
				}
			}
		}
		q.Close()
	}
	return fires
}

// store returns a store of series.
func store(t *testing.T, texts []string) *storage.MockQuerier {
	t.Helper()
	var all []storage.Series
	for _, text := range texts {
		of, values, err := promql.ParseSeriesDesc(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var samples []chunks.Sample
		for i, v := range values {
			if !v.Omitted {
				samples = append(samples, sample{int64(i) * scrape.Milliseconds(), v.Value})
			}
		}
		all = append(all, storage.NewListSeries(of, samples))
	}
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		found := &list{}
	next:
		for _, s := range all {
			for _, m := range matchers {
				if !m.Matches(s.Labels().Get(m.Name)) {
					continue next
				}
			}
			found.rest = append(found.rest, s)
		}
		return found
	}}
}

// list is a storage.SeriesSet.
type list struct {
	rest []storage.Series
	at   storage.Series
}

func (l *list) Next() bool {
	if len(l.rest) == 0 {
		return false
	}
	l.at, l.rest = l.rest[0], l.rest[1:]
	return true
}
func (l *list) At() storage.Series                { return l.at }
func (l *list) Err() error                        { return nil }
func (l *list) Warnings() annotations.Annotations { return nil }

// sample is a chunks.Sample.
type sample struct {
	t int64
	v float64
}

func (s sample) T() int64                      { return s.t }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.v }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }
