// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"fmt"
	"html/template"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A table is a table of the page. Parameters of the URL select the order and the page of its rows.
type table[R any] struct {
	name    string // class of the table, and prefix of its parameters sort and page
	noun    string // a row
	section string // the id of the element that links within the table lead to
	columns []column[R]
}

// A column is a column of a table. The table can be sorted by it if compare is not nil.
type column[R any] struct {
	title   string
	key     string // value of the parameter that sorts by the column
	number  bool
	bare    bool // needs no label on narrow screens
	compare func(a, b R) int
}

// tableView is a table's data for the template, besides its rows.
type tableView struct {
	Class string
	Heads []head
	Pages *pager // nil if the page has all rows
}

// head is a column's header.
type head struct {
	Title  string
	Number bool
	Link   template.URL // sorts by the column, or no longer; empty if it cannot
	Sorted string       // value of aria-sort
}

// pager has the links between the pages of a table.
type pager struct {
	First, Last, Total int
	Previous, Next     template.URL // empty at the ends
	Noun               string
}

// arrange sorts rows as requested, or leaves their order, and returns the requested page.
func (t *table[R]) arrange(rows []R, size int, q url.Values) ([]R, tableView) {
	v := tableView{Class: t.name}
	for _, c := range t.columns {
		h := head{Title: c.title, Number: c.number}
		if c.compare != nil {
			next := c.key
			if q.Get(t.name+"sort") == c.key {
				slices.SortStableFunc(rows, c.compare)
				next, h.Sorted = "", "ascending"
				if c.number {
					h.Sorted = "descending"
				}
			}
			h.Link = link(q, t.name+"sort", next, t.name+"page", "") + t.fragment()
		}
		v.Heads = append(v.Heads, h)
	}
	number, err := strconv.Atoi(q.Get(t.name + "page"))
	if number = min(max(number-1, 0), max(len(rows)-1, 0)/size); err != nil {
		number = 0
	}
	first, last := number*size, min((number+1)*size, len(rows))
	if len(rows) > size {
		v.Pages = &pager{First: first + 1, Last: last, Total: len(rows), Noun: t.noun}
		if number > 0 {
			v.Pages.Previous = link(q, t.name+"page", strconv.Itoa(number)) + t.fragment()
		}
		if last < len(rows) {
			v.Pages.Next = link(q, t.name+"page", strconv.Itoa(number+2)) + t.fragment()
		}
	}
	return rows[first:last], v
}

func (t *table[R]) fragment() template.URL {
	if t.section == "" {
		return ""
	}
	return template.URL("#" + t.section)
}

// labels returns the style that labels the cells on narrow screens, where a row is a paragraph.
func (t *table[R]) labels() string {
	var b strings.Builder
	for i, c := range t.columns {
		if !c.bare {
			fmt.Fprintf(&b, "  .%s tbody tr:not(.head) > :nth-child(%d)::before { content: %q; }\n", t.name, i+1, c.title+" ")
		}
	}
	return b.String()
}

// option is an element of a selection list.
type option struct{ Value, Text string }

// field is a hidden field of a form.
type field struct{ Name, Value string }

// A form filters the rows of a table.
type form struct {
	Hidden       []field
	Action       template.URL
	List, Text   field // the names of the fields, with their values
	Label, Query string
	Options      []option
}

// parameters are the parameters of the page that links preserve. Each table has parameters for
// its filter, order and page.
var parameters = []string{
	"channel", "cluster", "refresh", "show", "text", "channelsort", "channelpage", "clustershow", "clustertext", "clustersort", "clusterpage",
	"state", "q", "endpointsort", "endpointpage", "tierpage", "routepage", "resourcepage",
}

// keep returns the parameters that links preserve, without long values.
func keep(q url.Values) url.Values {
	kept := url.Values{}
	for _, name := range parameters {
		if v := q.Get(name); v != "" && len(v) <= maxName {
			kept.Set(name, v)
		}
	}
	return kept
}

// hidden returns the fields that preserve the parameters q in a form, except some.
func hidden(q url.Values, except ...string) (fields []field) {
	for _, name := range parameters {
		if v := q.Get(name); v != "" && !slices.Contains(except, name) {
			fields = append(fields, field{name, v})
		}
	}
	return fields
}

// with returns the parameters q after some changes; "" removes a parameter.
func with(q url.Values, change ...string) url.Values {
	next := maps.Clone(q)
	if next == nil {
		next = url.Values{}
	}
	for i := 0; i < len(change); i += 2 {
		if next.Del(change[i]); change[i+1] != "" {
			next.Set(change[i], change[i+1])
		}
	}
	return next
}

// link returns a link to the page with the parameters q after some changes.
func link(q url.Values, change ...string) template.URL {
	return template.URL("?" + with(q, change...).Encode()) //nolint:gosec // Encode escapes quotes
}
