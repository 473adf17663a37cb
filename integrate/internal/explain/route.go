// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/picker"
)

// Route returns the status of a route. inherited is the listener's max_stream_duration.
func Route(index int, r *picker.Route, inherited time.Duration) report.RouteStatus {
	s := report.RouteStatus{
		Index: index, Name: r.Name, Path: matchText(&r.Path), NotForwarding: len(r.Clusters) == 0,
		Retry: retryStatus(r.Retry), RewriteAuthority: r.AutoHostRewrite, Authority: r.Authority,
	}
	if s.Retry != nil {
		s.Retry.Hedged = r.Hedge
	}
	for i := range r.Headers {
		s.Conditions = append(s.Conditions, conditionStatus(&r.Headers[i]))
	}
	if r.Fraction != nil {
		f := float64(*r.Fraction) / 1e6
		s.Fraction = &f
	}
	if r.Timeout != nil {
		inherited = *r.Timeout
	}
	if inherited > 0 {
		s.Timeout = inherited.String()
	}
	for i := range r.Hash {
		s.Hash = append(s.Hash, hashPolicyText(&r.Hash[i]))
	}
	sum := 0.
	for i := range r.Clusters {
		sum += float64(r.Clusters[i].Weight)
	}
	for i := range r.Clusters {
		c := &r.Clusters[i]
		s.Clusters = append(s.Clusters, report.RouteTarget{Cluster: c.Name, Share: float64(c.Weight) / sum, RequestHeaders: headerTexts(c.RequestHeaders)})
	}
	for _, m := range r.RequestHeaders {
		s.RequestHeaders = append(s.RequestHeaders, headerTexts(m)...)
	}
	return s
}

// headerTexts describes header mutations, if any, without values, which may be secrets.
func headerTexts(m *picker.HeaderMutations) (texts []string) {
	if m == nil {
		return nil
	}
	for _, name := range m.Remove {
		texts = append(texts, fmt.Sprintf("remove %q", name))
	}
	formats := [...]string{picker.AppendHeader: "append %q", picker.AddHeaderIfAbsent: "add %q if absent", picker.SetHeader: "set %q", picker.ReplaceHeaderIfPresent: "replace %q if present"}
	for i := range m.Add {
		texts = append(texts, fmt.Sprintf(formats[m.Add[i].Action], m.Add[i].Name))
	}
	return texts
}

func hashPolicyText(h *picker.HashPolicy) string {
	text := "channel id"
	if h.Header != "" {
		text = fmt.Sprintf("header %q", h.Header)
	}
	if h.Rewrite != nil {
		text += fmt.Sprintf(" with %q replaced by %q", h.Rewrite, h.Substitution)
	}
	if h.Terminal {
		text += ", terminal"
	}
	return text
}

func retryStatus(p *picker.RetryPolicy) *report.RetryStatus {
	if p == nil {
		return nil
	}
	r := &report.RetryStatus{MaxAttempts: p.MaxAttempts, BaseBackoff: p.BaseBackoff.String(), MaxBackoff: p.MaxBackoff.String(), OtherHosts: p.OtherHosts}
	if p.PerTryTimeout > 0 {
		r.PerTryTimeout, r.RetriesTimeouts = p.PerTryTimeout.String(), p.OnTimeout
	}
	for _, c := range p.On {
		r.On = append(r.On, codes.Code(c).String())
	}
	return r
}

// conditionStatus describes a condition on a header as text.
func conditionStatus(m *picker.HeaderMatch) string {
	text := fmt.Sprintf("header %q ", m.Name)
	wants := matchText(&m.String)
	switch {
	case m.Kind == picker.HeaderPresent && m.Present != m.Invert:
		return text + "is present"
	case m.Kind == picker.HeaderPresent:
		return text + "is absent"
	case m.Kind == picker.HeaderRange:
		wants = fmt.Sprintf("is a number from %d to %d", m.Start, m.End-1)
	}
	if m.Invert {
		return fmt.Sprintf("%sis present, and not: %s", text, wants)
	}
	return text + wants
}

// mismatch returns the condition of a route that an RPC does not meet.
func mismatch(r *picker.Route, c *picker.RouteCheck) string {
	switch c.Failed {
	case picker.ConditionPath:
		return fmt.Sprintf("its path %s", matchText(&r.Path))
	case picker.ConditionHeader:
		return headerText(c.Header, c.Values)
	case picker.ConditionFraction:
		return "its fraction is 0"
	}
	return ""
}

// matchText describes the strings that a matcher accepts.
func matchText(m *picker.StringMatch) string {
	kind := [...]string{picker.MatchPrefix: "begins with", picker.MatchExact: "is", picker.MatchSuffix: "ends with", picker.MatchContains: "contains", picker.MatchRegex: "matches"}[m.Kind]
	value := m.Value
	if m.Kind == picker.MatchRegex {
		value = m.Regex.String()
	}
	text := fmt.Sprintf("%s %q", kind, value)
	if m.IgnoreCase {
		text += " (in any case)"
	}
	return text
}

// headerText describes the values of a header in an RPC, and the values that a route requires.
func headerText(m *picker.HeaderMatch, values []string) string {
	has := fmt.Sprintf("header %q is %q", m.Name, strings.Join(values, ","))
	switch {
	case strings.HasSuffix(m.Name, "-bin"):
		has = fmt.Sprintf("header %q is binary, and routes match no binary headers", m.Name)
	case values == nil:
		has = fmt.Sprintf("header %q is missing", m.Name)
	}
	wants := "one that "
	if m.Invert {
		wants = "one, but none that "
	}
	switch m.Kind {
	case picker.HeaderString:
		wants += matchText(&m.String)
	case picker.HeaderRange:
		wants += fmt.Sprintf("is a number from %d to %d", m.Start, m.End-1)
	default:
		if wants = "it present"; m.Present == m.Invert {
			wants = "it absent"
		}
	}
	return fmt.Sprintf("%s; the route wants %s", has, wants)
}
