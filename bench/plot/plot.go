// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package plot draws bar and line charts as SVG, as much of them as a report of
// benchmarks needs: some groups of bars, or some lines over a common axis,
// either on a logarithmic scale if wanted. Charts are text that fits into a page
// of HTML and follows its colour scheme; gonum/plot would bring fonts and nine
// modules for the same.
package plot

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// Sizes in pixels.
const (
	width, height           = 760, 340
	left, right             = 70, 16
	top, bottom             = 40, 54
	innerWidth, innerHeight = width - left - right, height - top - bottom
)

// colours are for eight series, told apart by the colour-blind as well
// (Okabe and Ito).
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c8c8c", "#bcbd22"}

// A Chart is what bars and lines have in common.
type Chart struct {
	Title string
	Y     string // what the vertical axis measures, with its unit
	X     string // the same of the horizontal axis; for lines
	Log   bool   // vertical axis
}

// A Series is a set of bars of one colour, or a line. NaN leaves a gap.
type Series struct {
	Name   string
	X      []float64 // of lines
	Values []float64
}

// Bars draws a group of bars for each label, with one bar for each series.
func (c Chart) Bars(labels []string, series []Series) string {
	p := c.begin(series, math.Inf(1), math.Inf(-1))
	group := float64(innerWidth) / float64(max(1, len(labels)))
	bar := group * .8 / float64(max(1, len(series)))
	for i, label := range labels {
		x := left + group*float64(i)
		p.text(x+group/2, height-bottom+16, "middle", label)
		for k, s := range series {
			if i >= len(s.Values) || math.IsNaN(s.Values[i]) {
				continue
			}
			y := p.y(s.Values[i])
			p.printf(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"><title>%s, %s: %s</title></rect>`,
				x+group*.1+bar*float64(k), y, max(1, bar-1), float64(height-bottom)-y, colour(k), esc(label), esc(s.Name), number(s.Values[i]))
		}
	}
	return p.end(series)
}

// Lines draws a line for each series, and vertical marks at some places of the
// horizontal axis.
func (c Chart) Lines(series []Series, marks map[float64]string) string {
	first, last := math.Inf(1), math.Inf(-1)
	for _, s := range series {
		for _, x := range s.X {
			first, last = min(first, x), max(last, x)
		}
	}
	p := c.begin(series, first, last)
	for _, t := range ticks(first, last) {
		p.text(p.x(t), height-bottom+16, "middle", number(t))
	}
	p.text(left+innerWidth/2, height-bottom+34, "middle", c.X)
	for at, label := range marks {
		p.printf(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="currentColor" stroke-dasharray="3 3"/>`, p.x(at), top, p.x(at), height-bottom)
		p.text(p.x(at)+4, top+10, "start", label)
	}
	for k, s := range series {
		var path strings.Builder
		pen := "M"
		for i, v := range s.Values {
			if math.IsNaN(v) {
				pen = "M"
				continue
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", pen, p.x(s.X[i]), p.y(v))
			pen = "L"
		}
		p.printf(`<path d="%s" fill="none" stroke="%s" stroke-width="1.6"><title>%s</title></path>`, path.String(), colour(k), esc(s.Name))
	}
	return p.end(series)
}

// paper is a chart that is being drawn.
type paper struct {
	Chart
	strings.Builder
	low, high   float64 // of the vertical axis
	first, last float64 // of the horizontal axis
}

// begin draws the frame and the vertical axis.
func (c Chart) begin(series []Series, first, last float64) *paper {
	p := &paper{Chart: c, first: first, last: last}
	p.low, p.high = extent(series, c.Log)
	p.printf(`<svg viewBox="0 0 %d %d" width="%d" xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="11" fill="currentColor">`, width, height, width)
	p.printf(`<text x="%d" y="16" font-size="13" font-weight="bold">%s</text>`, left, esc(c.Title))
	steps := ticks(p.low, p.high)
	if c.Log {
		steps = decades(p.low, p.high)
	}
	for _, t := range steps {
		p.printf(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="currentColor" stroke-opacity=".15"/>`, left, p.y(t), width-right, p.y(t))
		p.text(left-6, p.y(t)+4, "end", number(t))
	}
	p.printf(`<text transform="translate(14 %d) rotate(-90)" text-anchor="middle">%s</text>`, top+innerHeight/2, esc(c.Y))
	return p
}

// end draws the legend and returns the chart.
func (p *paper) end(series []Series) string {
	x := float64(left)
	for k, s := range series {
		p.printf(`<rect x="%.1f" y="%d" width="9" height="9" fill="%s"/>`, x, top-16, colour(k))
		p.text(x+13, top-8, "start", s.Name)
		x += 26 + 6.2*float64(len(s.Name))
	}
	p.printf("</svg>\n")
	return p.String()
}

func (p *paper) printf(format string, args ...any) { fmt.Fprintf(&p.Builder, format, args...) }

func (p *paper) text(x, y float64, anchor, text string) {
	p.printf(`<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, esc(text))
}

func (p *paper) x(v float64) float64 {
	if p.last <= p.first {
		return left
	}
	return left + innerWidth*(v-p.first)/(p.last-p.first)
}

func (p *paper) y(v float64) float64 {
	low, high := p.low, p.high
	if p.Log {
		low, high, v = math.Log10(low), math.Log10(high), math.Log10(max(v, low))
	}
	return height - bottom - innerHeight*(v-low)/(high-low)
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

// stride is 1, 2 or 5 times a power of ten, such that span has four to ten of
// them.
func stride(span float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(span/4)))
	for _, f := range []float64{5, 2} {
		if span/(f*unit) >= 4 {
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

func decades(low, high float64) []float64 {
	var list []float64
	for t := low; t <= high*1.001; t *= 10 {
		list = append(list, t)
	}
	return list
}

func colour(i int) string { return colours[i%len(colours)] }

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
