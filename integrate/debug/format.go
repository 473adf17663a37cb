// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"fmt"
	"html/template"
	"net/url"
	"strings"
	"time"

	"github.com/xdslb/xdslb/integrate/internal/sanitize"
)

// Bounds of what the page shows of one text.
const (
	maxName = 160
	maxText = 600
)

var formats = template.FuncMap{
	"name":    func(s string) string { return sanitize.Text(s, maxName) },
	"text":    func(s string) string { return sanitize.Text(s, maxText) },
	"percent": percent,
	"lower":   strings.ToLower,
	"clock":   func(t time.Time) string { return t.UTC().Format("15:04:05") },
	"instant": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"style":   func() template.CSS { return template.CSS(styleText) },
	"count":   count[int],
	"count64": count[uint64],
	"path":    pathText,
	"bar":     func(share float64) string { return fmt.Sprintf("%.4g", 100*share) },
	"filters": func() []option { return filters },
}

// option is an entry of a list to choose from.
type option struct{ Value, Text string }

// filters are what of the endpoints can be shown.
var filters = []option{
	{"", "all"}, {"out", "those out, and why"}, {"READY", "READY"}, {"CONNECTING", "CONNECTING"}, {"IDLE", "IDLE"}, {"TRANSIENT_FAILURE", "TRANSIENT_FAILURE"},
	{"EJECTED", "ejected"}, {"DRAINING", "draining"},
}

// pathText is a condition on paths; each begins with a slash.
func pathText(path string) string {
	if path == `begins with ""` || path == `begins with "/"` {
		return "is any"
	}
	return sanitize.Text(path, maxText)
}

// policyText explains the name of a policy that is not the one of a configuration.
func policyText(name string) string {
	switch name {
	case "edf":
		return "weighted round robin (edf)"
	case "client_wrr":
		return "weighted round robin by reported load (client_wrr)"
	}
	return name
}

// percent is a share in percent, with no more digits than the eye compares.
func percent(p float64) string {
	switch {
	case p <= 0:
		return "0 %"
	case p < .0001:
		return "<0.01 %"
	case p < .00995:
		return fmt.Sprintf("%.2f %%", 100*p)
	case p == 1:
		return "100 %"
	case p < 1 && p > .9995:
		return ">99.9 %"
	}
	return fmt.Sprintf("%.1f %%", 100*p)
}

// count is a number with its noun: "1 endpoint", "12 endpoints".
func count[N int | uint64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// ago is the time since then, in one or two units.
func ago(now, then time.Time) string {
	if then.IsZero() {
		return "never"
	}
	switch d := now.Sub(then); {
	case d < time.Second:
		return "just now"
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s ago", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min ago", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return fmt.Sprintf("%d days ago", d/(24*time.Hour))
	}
}

// place is a locality's name.
func place(region, zone, subZone string) string {
	if s := strings.TrimRight(region+"/"+zone+"/"+subZone, "/"); s != "" {
		return s
	}
	return "unnamed"
}

// link returns a link to the page with some parameters, those of before if they are not
// changed; "" takes one away.
func link(q url.Values, change ...string) template.URL {
	next := url.Values{}
	for k, v := range q {
		next[k] = v
	}
	for i := 0; i < len(change); i += 2 {
		if next.Del(change[i]); change[i+1] != "" {
			next.Set(change[i], change[i+1])
		}
	}
	return template.URL("?" + next.Encode()) //nolint:gosec // Encode leaves nothing that could end a link
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
