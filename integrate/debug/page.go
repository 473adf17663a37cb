// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/internal/diagnosis"
	"github.com/xdslb/xdslb/integrate/internal/sanitize"
	"github.com/xdslb/xdslb/integrate/internal/statustext"
	"github.com/xdslb/xdslb/integrate/report"
)

const (
	maxChannels = 500     // in the list
	minFilter   = 10      // longer lists have a filter
	maxText     = 100_000 // bytes of the text of a channel, and of an explanation
	maxInput    = 4000    // bytes of a field of the form
	maxName     = 160     // characters of a name
)

//go:embed page.html
var pageText string

//go:embed style.css
var styleText string

var (
	pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
		"name":    func(s string) string { return sanitize.Text(s, maxName) },
		"lower":   strings.ToLower,
		"clock":   func(t time.Time) string { return t.UTC().Format("15:04:05") },
		"instant": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"style":   func() template.CSS { return template.CSS(styleText) },
		"count":   report.Count[int],
	}).Parse(pageText))
	// policy permits nothing but the page's style.
	policy = fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'", styleHash())
)

func styleHash() string {
	sum := sha256.Sum256([]byte(styleText))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// page is the data of the template.
type page struct {
	Time    time.Time
	Process process
	Error   string // of the request
	Total   int    // channels
	Failing int    // channels with errors
	Refresh string // seconds; empty is off
	Toggle  template.URL
	JSON    template.URL

	Show, Text string // the filter of the list
	Filter     bool   // the list has a filter
	Options    []option
	Matching   int // channels that the filter accepts
	Rows       []*row
	Channel    *channel // nil if the page lists the channels
}

// row is a row of the list of channels.
type row struct {
	integrate.TargetStatus
	Link          template.URL
	Errors, Notes int
	Active        report.EndpointCounts // of the active priorities
	InFlight      int64
}

// option is an element of the list of filters.
type option struct{ Value, Text string }

var options = []option{
	{"", "all"}, {"errors", "with errors"}, {"problems", "with errors or notes"}, {"READY", "READY"}, {"CONNECTING", "CONNECTING"},
	{"TRANSIENT_FAILURE", "TRANSIENT_FAILURE"}, {"stock", "that use google.golang.org/grpc/xds"},
}

// channel is a channel in detail.
type channel struct {
	*integrate.TargetStatus
	Text         string
	Cut          bool         // Text is truncated
	All          template.URL // the list of channels; empty if there are no others
	Uncounted    template.URL // the page of the channel with all its data; empty if this is it
	Query        string       // selects clusters and endpoints
	Method       string       // the RPC to explain
	Headers      string
	Explanation  string
	ExplainError string
	ExplainCut   bool
	ExplainJSON  template.URL
}

func (h *handler) servePage(w http.ResponseWriter, r *http.Request) {
	p, code := h.page(r)
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, p); err != nil { // a bug
		http.Error(w, "rendering the page: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes()) // the client may have gone
}

// page returns the data of the template, and the status code.
func (h *handler) page(r *http.Request) (*page, int) {
	q := r.URL.Query()
	chosen, err := channels(r)
	var all []integrate.TargetStatus
	for _, c := range integrate.Channels() {
		all = append(all, c.Status())
	}
	p := newPage(all, q)
	p.Time, p.Process = h.now(), h.process
	if err != nil {
		p.Error = sanitize.Text(err.Error(), maxName)
		return p, http.StatusNotFound
	}
	if len(chosen) == 1 {
		p.addChannel(r, chosen[0])
	}
	return p, http.StatusOK
}

// newPage returns the page that lists the channels, those with the most errors first.
func newPage(all []integrate.TargetStatus, q url.Values) *page {
	p := &page{Total: len(all), Show: q.Get("show"), Text: sanitize.Text(q.Get("text"), maxName), Options: options, JSON: link("format", "json")}
	if n, err := strconv.Atoi(q.Get("refresh")); err == nil && n > 0 {
		p.Refresh = strconv.Itoa(min(max(n, 2), 3600))
	}
	p.Toggle = link("refresh", toggled(p.Refresh), "show", p.Show, "text", p.Text)
	for _, s := range all {
		x := newRow(s)
		x.Link = link("channel", strconv.FormatInt(s.Channel, 10), "refresh", p.Refresh)
		if x.Errors > 0 {
			p.Failing++
		}
		if x.matches(p.Show) && strings.Contains(s.Target, q.Get("text")) {
			p.Rows = append(p.Rows, x)
		}
	}
	p.Matching, p.Filter = len(p.Rows), p.Total > minFilter || p.Show+p.Text != ""
	slices.SortStableFunc(p.Rows, func(a, b *row) int { return cmp.Or(b.Errors-a.Errors, b.Notes-a.Notes) })
	p.Rows = p.Rows[:min(p.Matching, maxChannels)]
	return p
}

// toggled returns the parameter that switches automatic reloads, which are off by default.
func toggled(refresh string) string {
	if refresh != "" {
		return ""
	}
	return "5"
}

func newRow(s integrate.TargetStatus) *row {
	x := &row{TargetStatus: s}
	x.Errors, x.Notes = diagnosis.Count(diagnosis.Find(&s))
	for i := range s.Clusters {
		n := report.Active(&s.Clusters[i])
		x.Active.Ready, x.Active.Total = x.Active.Ready+n.Ready, x.Active.Total+n.Total
		for k := range s.Clusters[i].Leaves {
			x.InFlight += s.Clusters[i].Leaves[k].InFlight
		}
	}
	return x
}

// matches reports whether a filter accepts the channel.
func (r *row) matches(filter string) bool {
	switch filter {
	case "errors":
		return r.Errors > 0
	case "problems":
		return r.Errors+r.Notes > 0
	case "stock":
		return r.Stock != ""
	}
	return filter == "" || filter == r.Connectivity
}

// addChannel turns the page into that of a channel.
func (p *page) addChannel(r *http.Request, c integrate.Channel) {
	q := r.URL.Query()
	number := strconv.FormatInt(c.Number(), 10)
	v := &channel{Query: clip(q.Get("q"), maxName)}
	var s integrate.TargetStatus
	if ownSite(r) {
		s = c.Inspect()
	} else {
		s = c.Status()
		v.Uncounted = link("channel", number, "q", v.Query, "refresh", p.Refresh)
	}
	v.TargetStatus = &s
	if p.Total > 1 {
		v.All = link("refresh", p.Refresh)
	}
	p.JSON = link("format", "json", "channel", number)
	p.Toggle = link("channel", number, "q", v.Query, "refresh", toggled(p.Refresh))
	var b strings.Builder
	(&statustext.Text{W: &b, Now: p.Time, Full: true, Filter: v.Query}).Channel(&s)
	v.Text, v.Cut = clip(b.String(), maxText), b.Len() > maxText
	v.explain(r, c)
	p.Channel = v
}

// explain fills in the explanation of an RPC.
func (v *channel) explain(r *http.Request, c integrate.Channel) {
	method, headers := r.URL.Query().Get("method"), clip(r.URL.Query().Get("headers"), maxInput)
	v.Method, v.Headers = sanitize.Text(method, maxInput), lines(headers)
	if method == "" {
		return
	}
	x, err := explain(r, c)
	if err != nil {
		v.ExplainError = sanitize.Text(err.Error(), maxInput)
		return
	}
	text := x.String()
	v.Explanation, v.ExplainCut = lines(clip(text, maxText)), len(text) > maxText
	v.ExplainJSON = link("format", "explain", "channel", strconv.FormatInt(c.Number(), 10), "method", clip(method, maxInput), "headers", headers)
}

// link returns a link to the page with parameters, without those that are empty.
func link(parameters ...string) template.URL {
	q := url.Values{}
	for i := 0; i < len(parameters); i += 2 {
		if v := parameters[i+1]; v != "" {
			q.Set(parameters[i], v)
		}
	}
	return template.URL("?" + q.Encode()) //nolint:gosec // Encode escapes quotes
}

// clip cuts a text between characters.
func clip(s string, max int) string {
	if len(s) <= max {
		return s
	}
	return strings.ToValidUTF8(s[:max], "")
}

// lines is sanitize.Text of each line of a text.
func lines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		body, ended := strings.CutSuffix(line, "\n")
		b.WriteString(sanitize.Text(strings.TrimSuffix(body, "\r"), maxInput))
		if ended {
			b.WriteByte('\n')
		}
	}
	return b.String()
}
