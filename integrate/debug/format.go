// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/xdslb/xdslb/integrate/internal/sanitize"
	"github.com/xdslb/xdslb/integrate/report"
)

// Maximum lengths of a name and a text on the page.
const (
	maxName = 160
	maxText = 600
)

var formats = template.FuncMap{
	"name":    func(s string) string { return sanitize.Text(s, maxName) },
	"text":    func(s string) string { return sanitize.Text(s, maxText) },
	"percent": report.Percent,
	"lower":   strings.ToLower,
	"clock":   func(t time.Time) string { return t.UTC().Format("15:04:05") },
	"instant": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"style":   func() template.CSS { return template.CSS(styleText) },
	"count":   report.Count[int],
	"count64": report.Count[uint64],
	"bar":     func(share, longest float64) string { return fmt.Sprintf("%.4g%%", 100*share/max(longest, 1e-9)) },
}

// ago formats the time since then in one or two units.
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
