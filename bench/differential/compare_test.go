// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A tally counts the values that one aspect had in a sample.
type tally map[string]int

func (t tally) total() (n int) {
	for _, c := range t {
		n += c
	}
	return n
}

// String is the tally as text, the most frequent values first.
func (t tally) String() string {
	keys := slices.SortedFunc(maps.Keys(t), func(a, b string) int { return cmp.Or(cmp.Compare(t[b], t[a]), cmp.Compare(a, b)) })
	var b strings.Builder
	for i, k := range keys {
		if i > 0 {
			b.WriteString(", ")
		}
		if i == 8 {
			fmt.Fprintf(&b, "… (%d values)", len(keys))
			break
		}
		fmt.Fprintf(&b, "%d× %s", t[k], k)
	}
	return b.String()
}

// A sample is the observations of one caller on one side.
type sample struct {
	aspects map[string]tally
	errs    tally // texts of errors
}

func newSample() *sample {
	s := &sample{aspects: map[string]tally{}, errs: tally{}}
	for _, a := range aspects {
		s.aspects[a] = tally{}
	}
	return s
}

func (s *sample) add(observation map[string]string, err error) {
	for a, v := range observation {
		if a != aspectBackend {
			s.aspects[a][v]++
			continue
		}
		// Each attempt counts: which backend has the last of three is no accident
		// where there are three of them, in turn.
		for b := range strings.SplitSeq(v, ",") {
			s.aspects[a][b]++
		}
	}
	if err != nil {
		s.errs[err.Error()]++
	}
}

// ok reports whether all RPCs succeeded.
func (s *sample) ok() bool {
	return len(s.errs) == 0
}

// distance returns the significance of the difference between two tallies in standard
// deviations: it is χ² of the table, without values that are too rare for that, by the
// approximation of Wilson and Hilferty. About 2.3 is one in a hundred, 5 less than one in a
// million.
func distance(a, b tally) float64 {
	na, nb := float64(a.total()), float64(b.total())
	if na == 0 || nb == 0 {
		return 0
	}
	var chi2, restA, restB float64
	cells := 0
	add := func(x, y float64) {
		both := (x + y) / (na + nb)
		ea, eb := both*na, both*nb
		chi2 += (x-ea)*(x-ea)/ea + (y-eb)*(y-eb)/eb
		cells++
	}
	values := map[string]bool{}
	for v := range a {
		values[v] = true
	}
	for v := range b {
		values[v] = true
	}
	for v := range values {
		x, y := float64(a[v]), float64(b[v])
		if (x+y)/(na+nb)*min(na, nb) < 3 {
			restA, restB = restA+x, restB+y
			continue
		}
		add(x, y)
	}
	if restA+restB > 0 {
		add(restA, restB)
	}
	df := float64(cells - 1)
	if df < 1 {
		return 0
	}
	return (math.Cbrt(chi2/df) - (1 - 2/(9*df))) / math.Sqrt(2/(9*df))
}

// A difference is something that the two sides do not have in common.
type difference struct {
	worlds     []*world // all states so far
	world      *world   // the latest
	noListener bool     // it was deleted, and is not back
	caller     *caller  // nil if it is not about RPCs
	aspect     string
	stock      string
	ours       string
	samples    []*sample // of stock and ours; nil if it is not about samples
}

// errs are the texts of a side's errors: 0 is stock, 1 ours.
func (d *difference) errs(side int) tally {
	if d.samples == nil {
		return nil
	}
	return d.samples[side].errs
}

// Aspects that do not belong to a caller's RPCs.
const (
	aspectAnswer     = "what was rejected"
	aspectNames      = "subscription"
	aspectBackground = "RPCs lost during a healthy update"
)

func (d *difference) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", d.aspect)
	if d.caller != nil {
		fmt.Fprintf(&b, " of %v", d.caller)
	}
	fmt.Fprintf(&b, "\n    stock: %s\n    ours:  %s", d.stock, d.ours)
	if errs := d.errs(0); len(errs) > 0 {
		fmt.Fprintf(&b, "\n    stock's errors: %v", errs)
	}
	if errs := d.errs(1); len(errs) > 0 {
		fmt.Fprintf(&b, "\n    our errors: %v", errs)
	}
	return b.String()
}

// TestDistance checks which differences the comparison of samples detects.
func TestDistance(t *testing.T) {
	draw := func(rng *rand.Rand, n int, chance float64) tally {
		t := tally{"a": 0, "b": 0}
		for range n {
			if rng.Float64() < chance {
				t["a"]++
			} else {
				t["b"]++
			}
		}
		return t
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var alarms int
	for range 10_000 {
		if distance(draw(rng, firstSample, 0.3), draw(rng, firstSample, 0.3)) > odd {
			alarms++
		}
		if d := distance(draw(rng, secondSample, 0.3), draw(rng, secondSample, 0.3)); d > different {
			t.Errorf("samples of the same are %.1f apart", d)
		}
	}
	if alarms > 200 {
		t.Errorf("%d of 10,000 first samples of the same looked odd", alarms)
	}
	if d := distance(tally{"a": firstSample}, tally{"b": firstSample}); d < different {
		t.Errorf("one and another are %.1f apart", d)
	}
	if d := distance(tally{"a": firstSample}, tally{"a": firstSample / 2, "b": firstSample / 2}); d < odd {
		t.Errorf("all and a half are %.1f apart", d)
	}
	if d := distance(draw(rng, secondSample, 0.5), draw(rng, secondSample, 0.75)); d < different {
		t.Errorf("a half and three quarters are %.1f apart", d)
	}
}

// A view is the set of headers that a client considers for an RPC.
type view struct {
	binary      bool // headers that end in -bin
	contentType bool // the content type, which gRPC adds
	empty       bool // headers whose value is empty, as present
}

// gRFC is A28's view, and ours. stockView is grpc-go's.
var (
	gRFC      = view{contentType: true, empty: true}
	stockView = view{binary: true}
)

// routesOf returns the routes that a caller's RPCs may take, as their places in the
// list: more than one if routes are drawn.
func (w *world) routesOf(k *caller, v view) (list []int) {
	h := w.hostOf()
	if h == nil {
		return nil
	}
	headers := v.headers(k)
	for i := range h.routes {
		r := &h.routes[i]
		if !r.matches(k.method, headers, v) {
			continue
		}
		if r.fraction.of == 0 || r.fraction.n >= r.fraction.of {
			return append(list, i)
		}
		if r.fraction.n > 0 {
			list = append(list, i)
		}
	}
	return list
}

// hostOf is the virtual host of the service.
func (w *world) hostOf() *host {
	for _, domain := range []string{service, "*.example", "shop.*", "*"} {
		for i := range w.hosts {
			if w.hosts[i].domains[0] == domain {
				return &w.hosts[i]
			}
		}
	}
	return nil
}

// headers returns the visible headers by name, with several values joined.
func (v view) headers(k *caller) map[string]string {
	all := map[string][]string{}
	for i := 0; i < len(k.headers); i += 2 {
		all[k.headers[i]] = append(all[k.headers[i]], k.headers[i+1])
	}
	if v.contentType {
		all["content-type"] = []string{"application/grpc"}
	}
	seen := map[string]string{}
	for name, values := range all {
		value := strings.Join(values, ",")
		if strings.HasSuffix(name, "-bin") && !v.binary {
			continue
		}
		seen[name] = value
	}
	return seen
}

func (r *route) matches(method string, headers map[string]string, v view) bool {
	path := r.path
	if r.ignoreCase && r.kind != matchRegex {
		path, method = strings.ToLower(path), strings.ToLower(method)
	}
	switch r.kind {
	case matchPrefix:
		if !strings.HasPrefix(method, path) {
			return false
		}
	case matchExact:
		if method != path {
			return false
		}
	case matchRegex:
		if !fullMatch(path, method) {
			return false
		}
	}
	return !slices.ContainsFunc(r.headers, func(h header) bool { return !h.matches(headers, v) })
}

func fullMatch(re, text string) bool { return regexp.MustCompile(`^(?:` + re + `)$`).MatchString(text) }

func (h *header) matches(headers map[string]string, v view) bool {
	value, there := headers[strings.ToLower(h.name)]
	if h.kind == matchPresent {
		there = there && (value != "" || v.empty)
		return (there == (h.value == "true")) != h.invert
	}
	if !there {
		return false
	}
	pattern := h.value
	if h.ignoreCase && h.kind != matchRegex {
		value, pattern = strings.ToLower(value), strings.ToLower(pattern)
	}
	var match bool
	switch h.kind {
	case matchExact:
		match = value == pattern
	case matchPrefix:
		match = strings.HasPrefix(value, pattern)
	case matchSuffix:
		match = strings.HasSuffix(value, pattern)
	case matchContain:
		match = strings.Contains(value, pattern)
	case matchRegex:
		match = fullMatch(pattern, value)
	case matchRange:
		lo, hi, _ := strings.Cut(pattern, "-")
		n, err := strconv.ParseInt(value, 10, 64)
		start, _ := strconv.ParseInt(lo, 10, 64)
		end, _ := strconv.ParseInt(hi, 10, 64)
		match = err == nil && start <= n && n < end
	}
	return match != h.invert
}

// targets are the leaf clusters that a caller's RPCs may go to.
func (w *world) targets(k *caller) []*cluster {
	names := map[string]*cluster{}
	h := w.hostOf()
	for _, i := range w.routesOf(k, gRFC) {
		for _, c := range h.routes[i].clusters {
			for _, leaf := range w.leaves(c.cluster) {
				names[leaf.name] = leaf
			}
		}
	}
	return slices.Collect(maps.Values(names))
}

// String returns the world as text, for analyzing failures.
func (w *world) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "listener: inline=%t max_stream_duration=%v fault=%v\n", w.inline, w.maxStream, w.fault)
	for _, h := range w.hosts {
		fmt.Fprintf(&b, "virtual host %q retry=%v fault=%v\n", h.domains, h.retry, h.fault)
		for i, r := range h.routes {
			fmt.Fprintf(&b, "  route %d: %v\n", i, &r)
		}
	}
	for i := range w.clusters {
		fmt.Fprintf(&b, "%v", &w.clusters[i])
	}
	fmt.Fprintf(&b, "ignore weights: %t, not served: %q, defects: %v, unreachable: %q\n", w.ignoreWeights, w.gone, w.defects, w.unreachable)
	return b.String()
}

func (r *route) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %q", r.kind, r.path)
	if r.ignoreCase {
		b.WriteString(" ignore_case")
	}
	for _, h := range r.headers {
		fmt.Fprintf(&b, " header %s %s %q invert=%t ignore_case=%t", h.name, h.kind, h.value, h.invert, h.ignoreCase)
	}
	if r.fraction.of != 0 {
		fmt.Fprintf(&b, " fraction %v", r.fraction)
	}
	fmt.Fprintf(&b, " -> %s", r.action)
	for _, c := range r.clusters {
		fmt.Fprintf(&b, " %s*%d", c.cluster, c.weight)
		if c.fault != nil {
			fmt.Fprintf(&b, "(fault %v)", c.fault)
		}
	}
	if r.timeout != nil {
		fmt.Fprintf(&b, " max_stream_duration=%v", *r.timeout)
	}
	if r.headerMax != nil {
		fmt.Fprintf(&b, " grpc_timeout_header_max=%v", *r.headerMax)
	}
	if r.retry != nil {
		fmt.Fprintf(&b, " retry=%v", r.retry)
	}
	if r.fault != nil {
		fmt.Fprintf(&b, " fault=%v", r.fault)
	}
	if r.hash != nil {
		fmt.Fprintf(&b, " hash=%+v", r.hash)
	}
	return b.String()
}

func (f fraction) String() string { return fmt.Sprintf("%d/%d", f.n, f.of) }

func (r *retry) String() string {
	if r == nil {
		return "none"
	}
	return fmt.Sprintf("{on %s, n=%d, %v..%v}", strings.Join(r.on, ","), r.n, r.base, r.max)
}

func (f *fault) String() string {
	if f == nil {
		return "none"
	}
	return fmt.Sprintf("{abort %v with grpc %d http %d, delay %v by %v, by header %t}", f.abort, f.code, f.http, f.delay, f.delayBy, f.byHeader)
}

func (c *cluster) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "cluster %s: %s %s", c.name, c.kind, c.policy)
	if c.kind == aggregate {
		fmt.Fprintf(&b, " of %q", c.children)
	}
	if c.edsName != "" {
		fmt.Fprintf(&b, " eds_name=%s", c.edsName)
	}
	if c.maxRequests != 0 {
		fmt.Fprintf(&b, " max_requests=%d", c.maxRequests)
	}
	if c.loadReports {
		b.WriteString(" lrs")
	}
	if c.outlier {
		b.WriteString(" outlier_detection")
	}
	for _, d := range c.drops {
		fmt.Fprintf(&b, " drop %s %v", d.category, d.fraction)
	}
	b.WriteByte('\n')
	for _, l := range c.localities {
		fmt.Fprintf(&b, "  locality %s priority=%d weight=%d:", l.name, l.priority, l.weight)
		for _, e := range l.endpoints {
			fmt.Fprintf(&b, " %s", e.backend)
			if e.weight != 0 {
				fmt.Fprintf(&b, "*%d", e.weight)
			}
			if e.health != 0 {
				fmt.Fprintf(&b, "(%v)", e.health)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
