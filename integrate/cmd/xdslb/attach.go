// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/debug"
	"github.com/xdslb/xdslb/integrate/internal/diagnosis"
	"github.com/xdslb/xdslb/integrate/internal/sanitize"
	"github.com/xdslb/xdslb/integrate/internal/statustext"
	"github.com/xdslb/xdslb/integrate/report"
)

var attachCommand = command{
	name: "attach", args: "ADDR [TARGET]", summary: "show the channels of a running process",
	about: "Shows the channels of a process that serves a debug page (package\n" +
		"integrate/debug), those with errors first: clusters, priorities, endpoints with\n" +
		"expected and observed shares of RPCs, and events. ADDR is host:port, short for\n" +
		"http://host:port/debug/xdslb/, or the URL of the page. TARGET selects the channels\n" +
		"whose target contains it. The view is repeated every -interval, on a terminal in its\n" +
		"place. With -once there is a single view, covering the RPCs of one interval, and the\n" +
		"exit code is 1 if a channel has errors.",
	example: "xdslb attach localhost:6060 -problems\nxdslb attach localhost:6060 orders -once -o json",
	flags: func(e *env, fs *flag.FlagSet) func([]string) (bool, error) {
		v := &viewer{e: e}
		fs.BoolVar(&v.once, "once", false, "show one view and exit")
		fs.DurationVar(&v.interval, "interval", time.Second, "time between views")
		fs.IntVar(&v.views, "count", 0, "number of views; 0 means no limit")
		fs.BoolVar(&v.problems, "problems", false, "show only channels with errors or notes")
		timeout := fs.Duration("timeout", 10*time.Second, "time to wait for a response")
		var secure tlsFlags
		secure.register(fs)
		return func(args []string) (bool, error) {
			if len(args) == 2 {
				v.target, args = args[1], args[:1]
			}
			if err := want(args, "ADDR"); err != nil {
				return false, err
			}
			p := &remote{at: args[0], timeout: *timeout, tls: secure}
			return v.show(func(ctx context.Context) (*debug.Document, error) { return p.document(ctx) })
		}
	},
}

// viewer shows documents, once or repeatedly.
type viewer struct {
	e        *env
	once     bool
	interval time.Duration
	views    int    // 0 means no limit
	target   string // shown channels contain it
	problems bool   // show only channels with findings
	total    int    // channels of the process
	failing  int    // channels of the process with errors
	previous *debug.Document
}

// show repeatedly shows the result of get until the context ends or the number of views is reached.
// An error after the first view is printed and does not end it, since processes restart.
func (v *viewer) show(get func(context.Context) (*debug.Document, error)) (found bool, err error) {
	if v.interval < 10*time.Millisecond {
		return false, usageError("-interval is less than 10ms")
	}
	if v.once && !v.e.json { // counting of RPCs by endpoint starts with the first request
		if v.previous, err = get(v.e.ctx); err == nil {
			err = v.pause()
		}
		if err != nil {
			return false, err
		}
	}
	missing := "" // the latest line that no channel is shown
	for n := 1; ; n++ {
		done := v.e.progress("waiting for a response")
		d, err := get(v.e.ctx)
		done()
		switch {
		case err == nil:
			if err = v.filter(d); err == nil {
				err = v.view(d)
			} else if !v.once { // such a channel may come
				if text := err.Error(); text != missing {
					fmt.Fprintf(v.e.stderr, "xdslb: %s\n", shown(err))
					missing = text
				}
				err, d.Channels, v.previous = nil, nil, d
			}
			if err != nil {
				return false, err
			}
		case v.previous == nil:
			return false, err
		default:
			fmt.Fprintf(v.e.stderr, "xdslb: %s\n", shown(err))
		}
		if v.once || n == v.views {
			return d != nil && slices.ContainsFunc(d.Channels, func(s integrate.TargetStatus) bool { return hasErrors(&s) }), nil
		}
		if v.pause() != nil {
			return false, nil
		}
	}
}

// filter counts the channels, removes those that are not shown, and sorts the rest by errors. It fails if
// no channel has the target.
func (v *viewer) filter(d *debug.Document) error {
	if !slices.ContainsFunc(d.Channels, func(s integrate.TargetStatus) bool { return strings.Contains(s.Target, v.target) }) && v.target != "" {
		return fmt.Errorf("none of the %d channels has a target that contains %q", len(d.Channels), v.target)
	}
	v.total, v.failing = len(d.Channels), 0
	for i := range d.Channels {
		if hasErrors(&d.Channels[i]) {
			v.failing++
		}
	}
	d.Channels = slices.DeleteFunc(d.Channels, func(s integrate.TargetStatus) bool {
		return !strings.Contains(s.Target, v.target) || v.problems && len(diagnosis.Find(&s)) == 0
	})
	slices.SortStableFunc(d.Channels, func(a, b integrate.TargetStatus) int {
		x, _ := diagnosis.Count(diagnosis.Find(&a))
		y, _ := diagnosis.Count(diagnosis.Find(&b))
		return y - x
	})
	return nil
}

// pause waits for an interval, or until the context ends.
func (v *viewer) pause() error {
	select {
	case <-time.After(v.interval):
		return nil
	case <-v.e.ctx.Done():
		return v.e.ctx.Err()
	}
}

func (v *viewer) view(d *debug.Document) error {
	var b bytes.Buffer
	var err error
	switch {
	case v.e.json:
		err = (&env{stdout: &b}).printJSON(d)
	case !v.once && v.e.terminal:
		b.WriteString("\x1b[H\x1b[2J") // home, and clear
		fallthrough
	default:
		v.all(&b, d)
	}
	if err == nil {
		_, err = v.e.stdout.Write(b.Bytes())
	}
	v.previous = d
	return err
}

// all writes the channels of a document.
func (v *viewer) all(w io.Writer, d *debug.Document) {
	t := &statustext.Text{W: w, Now: d.Time}
	if v.previous != nil { // count RPCs since the previous view
		t.CountSince(v.previous.Time, v.previous.Channels)
	}
	at := d.Time.UTC().Format("15:04:05")
	if p := d.Process; p.PID > 0 {
		t.Line("%s, process %d on %s, %s UTC", p.Program, p.PID, p.Host, at)
	} else {
		t.Line("%s UTC", at)
	}
	switch shown := len(d.Channels); {
	case v.total == 0:
		t.Line("no active channel of the process uses xdslb; idle channels are not listed")
	case shown < v.total:
		t.Line("%d of %s with errors; %d shown", v.failing, report.Count(v.total, "channel"), shown)
	case v.total > 1:
		t.Line("%d of %s with errors", v.failing, report.Count(v.total, "channel"))
	}
	for i := range d.Channels {
		s := &d.Channels[i]
		t.Line("")
		t.Line("%s  %s", sanitize.Text(s.Target, 60), statustext.State(s))
		t.Channel(s)
	}
}

// hasErrors reports whether a channel has errors.
func hasErrors(s *integrate.TargetStatus) bool {
	errors, _ := diagnosis.Count(diagnosis.Find(s))
	return errors > 0
}
