// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package plot draws charts as SVG, as much of them as a report of benchmarks
// needs: rows of labelled values, as bars from zero or as dots on a logarithmic
// scale, and lines over a common axis. Charts are text that fits into a page of
// HTML, follows its colour scheme and can be read on a phone; gonum/plot would
// bring fonts and nine modules for the same.
package plot

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// Sizes in pixels: those of the width of a phone, more or less.
const (
	width       = 480
	head        = 48     // title, note and what is between them and the drawing
	line        = 17     // of rows
	gap         = 4      // above the rows of a label
	letter      = 6.4    // mean width of one
	rowLeft     = 96     // names of series end there, or farther right if they are longer
	rowRight    = 118    // for values, or more if they are longer
	left, right = 56, 12 // of lines
	innerHeight = 200
	innerWidth  = width - left - right
)

// A Chart is what rows and lines have in common.
type Chart struct {
	Title  string
	Note   string // below the title: what is measured, in which unit
	Log    bool   // scale of the values
	Format func(v float64) string
	Base   string // rows: the series that others are given as multiples of
	X      string // lines: what the horizontal axis measures
	Dots   bool   // lines: values are dots, what is between them means nothing
}

// A Series is a set of values of one colour, an SVG one. NaN is no value.
type Series struct {
	Name, Colour string
	X            []float64 // of lines
	Values       []float64
	Doubtful     []bool   // rows: values that are drawn hollow and marked; may be short
	Notes        []string // rows: what is said beside values; may be short
	Dash         string   // lines: an SVG stroke-dasharray, or none; dots are hollow
}

func (s *Series) doubtful(i int) bool { return i < len(s.Doubtful) && s.Doubtful[i] }

// Rows draws a row for each label and series, with the value in print. On a
// linear scale it is the length of a bar. A logarithmic scale has no zero for a
// bar to begin at, so there it is the place of a dot.
func (c Chart) Rows(labels []string, series []Series) string {
	rows := 0
	for i, label := range labels {
		rows += len(present(series, i))
		if label != "" {
			rows++
		}
	}
	bottom := float64(head + rows*line + len(labels)*gap)
	p := c.begin(series, bottom+24)
	p.setMargins(series)
	free := 0. // where the next number of the axis may be
	for _, t := range p.steps() {
		p.printf(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%.1f" stroke="currentColor" stroke-opacity=".15"/>`, p.along(t), head, p.along(t), bottom)
		if at := p.along(t); at >= free {
			p.text(at, bottom+14, "middle", c.format(t))
			free = at + 42
		}
	}
	y := float64(head)
	for i, label := range labels {
		y += gap
		if label != "" {
			y += line
			p.printf(`<text x="4" y="%.1f" font-weight="bold">%s</text>`, y-5, esc(label))
		}
		for _, s := range present(series, i) {
			y += line
			p.row(y, s, i, base(series, c.Base, i))
		}
	}
	p.printf("</svg>\n")
	return p.String()
}

// setMargins makes room for names, and for values and notes beside their dots or bars.
func (p *paper) setMargins(series []Series) {
	p.left, p.right = rowLeft, rowRight
	for _, s := range series {
		p.left = max(p.left, int(letter*float64(len(s.Name)))+12)
	}
	for _, s := range series {
		for i, n := range s.Notes {
			if n == "" || math.IsNaN(s.Values[i]) {
				continue
			}
			text := letter*float64(len(n)) + 56
			if part := p.part(s.Values[i]); part > 0 {
				room := float64(width - p.left)
				p.right = max(p.right, int(room-(room-text)/part))
			}
		}
	}
}

// row draws value i of a series above y.
func (p *paper) row(y float64, s Series, i int, base float64) {
	v := s.Values[i]
	x := p.along(v)
	fill, text := s.Colour, p.format(v)
	switch {
	case s.doubtful(i):
		fill, text = "none", text+" †"
	case s.Name != p.Base && base > 0 && v > 0:
		text += "  ×" + digits(v/base)
	}
	if i < len(s.Notes) && s.Notes[i] != "" {
		text += "  " + s.Notes[i]
	}
	p.text(float64(p.left)-6, y-5, "end", s.Name)
	if p.Log {
		p.printf(`<circle cx="%.1f" cy="%.1f" r="4" fill="%s" stroke="%s"/>`, x, y-9, fill, s.Colour)
	} else {
		p.printf(`<rect x="%d" y="%.1f" width="%.1f" height="11" fill="%s" stroke="%s"/>`, p.left, y-14, max(1, x-float64(p.left)), fill, s.Colour)
	}
	p.text(x+9, y-5, "start", text)
}

// present are the series that have a value i.
func present(series []Series, i int) []Series {
	var list []Series
	for _, s := range series {
		if i < len(s.Values) && !math.IsNaN(s.Values[i]) {
			list = append(list, s)
		}
	}
	return list
}

// base is value i of the named series, 0 if it has none that can be trusted.
func base(series []Series, name string, i int) float64 {
	for _, s := range present(series, i) {
		if s.Name == name && !s.doubtful(i) {
			return s.Values[i]
		}
	}
	return 0
}

// Lines draws a line for each series, and vertical marks at some places of the
// horizontal axis.
func (c Chart) Lines(series []Series, marks map[float64]string) string {
	places, height := legend(series)
	top := head + height
	bottom := float64(top + innerHeight)
	p := c.begin(series, bottom+40)
	p.left, p.right, p.first, p.last = left, right, math.Inf(1), math.Inf(-1)
	for _, s := range series {
		for _, x := range s.X {
			p.first, p.last = min(p.first, x), max(p.last, x)
		}
	}
	for _, t := range p.steps() {
		y := bottom - innerHeight*p.part(t)
		p.printf(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="currentColor" stroke-opacity=".15"/>`, left, y, width-right, y)
		p.text(left-6, y+4, "end", c.format(t))
	}
	for _, t := range ticks(p.first, p.last) {
		p.text(p.x(t), bottom+16, "middle", number(t))
	}
	p.text(left+innerWidth/2, bottom+32, "middle", c.X)
	for at, label := range marks {
		p.printf(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%.1f" stroke="currentColor" stroke-dasharray="3 3"/>`, p.x(at), top, p.x(at), bottom)
		p.text(p.x(at)+4, float64(top+10), "start", label)
	}
	for i, s := range series {
		at := places[i]
		p.printf(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="3" stroke-dasharray="%s"/>`, at.x, at.y-4, at.x+16, at.y-4, s.Colour, s.Dash)
		p.text(at.x+20, at.y, "start", s.Name)
		if c.Dots {
			for i, v := range s.Values {
				if !math.IsNaN(v) {
					fill := s.Colour
					if s.Dash != "" {
						fill = "none"
					}
					p.printf(`<circle cx="%.1f" cy="%.1f" r="3" fill="%s" stroke="%s"/>`, p.x(s.X[i]), bottom-innerHeight*p.part(v), fill, s.Colour)
				}
			}
			continue
		}
		var path strings.Builder
		pen := "M"
		for i, v := range s.Values {
			if math.IsNaN(v) {
				pen = "M"
				continue
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", pen, p.x(s.X[i]), bottom-innerHeight*p.part(v))
			if pen == "M" {
				path.WriteString("h0") // a value between gaps is a dot
			}
			pen = "L"
		}
		p.printf(`<path d="%s" fill="none" stroke="%s" stroke-width="1.6" stroke-linecap="round" stroke-dasharray="%s"/>`, path.String(), s.Colour, s.Dash)
	}
	p.printf("</svg>\n")
	return p.String()
}

// place is where something is written.
type place struct{ x, y float64 }

// legend has the names of series in as many lines as it takes.
func legend(series []Series) (list []place, height int) {
	at := place{left, head + 5}
	for _, s := range series {
		wide := 34 + letter*float64(len(s.Name))
		if at.x > left && at.x+wide > width {
			at = place{left, at.y + line}
		}
		list = append(list, at)
		at.x += wide
	}
	return list, int(at.y) - head + 15
}

// paper is a chart that is being drawn.
type paper struct {
	Chart
	strings.Builder
	left, right int     // margins
	low, high   float64 // of the values
	first, last float64 // of the horizontal axis of lines
}

// begin draws the head.
func (c Chart) begin(series []Series, height float64) *paper {
	p := &paper{Chart: c}
	p.low, p.high = extent(series, c.Log)
	p.printf(`<svg viewBox="0 0 %d %.0f" width="%d" role="img" aria-label="%s" xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="12" fill="currentColor">`,
		width, height, width, esc(c.Title))
	p.printf(`<text x="4" y="16" font-size="14" font-weight="bold">%s</text>`, esc(c.Title))
	note := c.Note
	if c.Log {
		note += ", logarithmic scale"
	}
	p.printf(`<text x="4" y="33" fill-opacity=".7">%s</text>`, esc(note))
	return p
}

func (p *paper) printf(format string, args ...any) { fmt.Fprintf(&p.Builder, format, args...) }

func (p *paper) text(x, y float64, anchor, text string) {
	p.printf(`<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, esc(text))
}

// x is the place of a number on the horizontal axis of lines.
func (p *paper) x(v float64) float64 {
	if p.last <= p.first {
		return left
	}
	return left + innerWidth*(v-p.first)/(p.last-p.first)
}

// part is how much of the scale is below a value.
func (p *paper) part(v float64) float64 {
	low, high := p.low, p.high
	if p.Log {
		low, high, v = math.Log10(low), math.Log10(high), math.Log10(max(v, low))
	}
	return (v - low) / (high - low)
}

// along is the horizontal place of a value of a row.
func (p *paper) along(v float64) float64 {
	return float64(p.left) + float64(width-p.left-p.right)*p.part(v)
}

// steps are the values at which there are lines across, at most six: decades on
// a logarithmic scale.
func (p *paper) steps() []float64 {
	all := ticks(p.low, p.high)
	if p.Log {
		all = nil
		for t := p.low; t <= p.high*1.001; t *= 10 {
			all = append(all, t)
		}
	}
	every := (len(all) + 5) / 6
	var list []float64
	for i := 0; i < len(all); i += every {
		list = append(list, all[i])
	}
	return list
}

func (c Chart) format(v float64) string {
	if c.Format == nil {
		return number(v)
	}
	return c.Format(v)
}

// extent returns the ends of an axis for the values: whole decades if it is
// logarithmic, else from 0 to a tick. They are never equal.
func extent(series []Series, log bool) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, s := range series {
		for _, v := range s.Values {
			if math.IsNaN(v) || math.IsInf(v, 0) || log && v <= 0 {
				continue
			}
			low, high = min(low, v), max(high, v)
		}
	}
	switch {
	case high < low:
		return 1, 10
	case log:
		low, high = math.Pow(10, math.Floor(math.Log10(low))), math.Pow(10, math.Ceil(math.Log10(high)))
		return low, max(high, 10*low)
	case high <= 0:
		return 0, 1
	}
	step := stride(high)
	return 0, step * math.Ceil(high/step)
}

// stride is 1, 2 or 5 times a power of ten, such that span has three to seven
// of them.
func stride(span float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(span/3)))
	for _, f := range []float64{5, 2} {
		if span/(f*unit) >= 3 {
			return f * unit
		}
	}
	return unit
}

func ticks(low, high float64) []float64 {
	if !(high > low) || math.IsInf(high-low, 0) {
		return nil
	}
	step := stride(high - low)
	var list []float64
	for i := math.Ceil(low / step); i*step <= high+step/1e6; i++ {
		list = append(list, i*step)
	}
	return list
}

func esc(s string) string { return html.EscapeString(s) }

// number formats in few characters.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e9:
		return strconv.FormatFloat(v/1e9, 'g', 3, 64) + "G"
	case a >= 1e6:
		return strconv.FormatFloat(v/1e6, 'g', 3, 64) + "M"
	case a >= 1e4:
		return strconv.FormatFloat(v/1e3, 'g', 3, 64) + "k"
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// digits formats with three significant digits.
func digits(v float64) string {
	if v >= 100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
