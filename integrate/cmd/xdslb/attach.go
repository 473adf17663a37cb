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

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/debug"
	"github.com/xdslb/xdslb/integrate/internal/diagnosis"
	"github.com/xdslb/xdslb/integrate/internal/sanitize"
	"github.com/xdslb/xdslb/integrate/internal/statustext"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/xds/eventlog"
)

var attachCommand = command{
	name: "attach", args: "ADDR [TARGET]", summary: "show the channels of a running process",
	about: "Shows the channels of a process that serves a debug page (package\n" +
		"integrate/debug), those with errors first: clusters, priorities, endpoints with\n" +
		"expected and observed shares of RPCs, and events. ADDR is host:port, short for\n" +
		"http://host:port/debug/xdslb/, or the URL of the page. TARGET selects the channels\n" +
		"whose target contains it. With -csds, ADDR is a gRPC server with CSDS; the view\n" +
		"then shows resources with their versions, ACKs and errors, and the resulting\n" +
		"routes, clusters and endpoints, but no connections. On a terminal the view is\n" +
		"updated continuously; otherwise each update prints one line per channel and event.\n" +
		"With -once there is a single view, covering the RPCs of one interval, and the exit\n" +
		"code is 1 if a channel has errors.",
	example: "xdslb attach localhost:6060 -problems\nxdslb attach localhost:6060 orders -once -o json",
	flags: func(e *env, fs *flag.FlagSet) func([]string) (bool, error) {
		v := newViewer(e, fs)
		byCSDS := fs.Bool("csds", false, "ADDR is a gRPC server with CSDS")
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
			if *byCSDS {
				return v.show(p.resources)
			}
			return v.show(func(ctx context.Context) (*debug.Document, error) { return p.document(ctx) })
		}
	},
}

var watchCommand = command{
	name: "watch", args: "TARGET", summary: "open a channel and show it",
	about: "Opens a channel to a target and shows it like attach. It connects to the control\n" +
		"plane with the node id of the bootstrap, and to the endpoints, without TLS unless\n" +
		"xDS configures TLS. It sends no RPCs. Some agents accept only one stream and close\n" +
		"the other one; use attach with these.",
	example: "xdslb watch xds:///orders -b /etc/xds/bootstrap.json",
	flags: func(e *env, fs *flag.FlagSet) func([]string) (bool, error) {
		v := newViewer(e, fs)
		var boot bootstrapFlag
		boot.register(fs)
		timeout := fs.Duration("timeout", 10*time.Second, "time that -once waits for the channel to settle")
		return func(args []string) (bool, error) {
			target, text, err := boot.target(args)
			if err != nil {
				return false, err
			}
			creds, err := integrate.NewCredentials(integrate.CredentialsOptions{Fallback: insecure.NewCredentials()})
			if err != nil {
				return false, err
			}
			opts, err := integrate.DialOptions(boot.config(text))
			if err != nil {
				return false, err
			}
			cc, err := grpc.NewClient(target, append(opts, grpc.WithTransportCredentials(creds))...)
			if err != nil {
				return false, err
			}
			defer func() { _ = cc.Close() }()
			get := func(context.Context) (*debug.Document, error) {
				cc.Connect()
				s, err := integrate.StatusOf(cc)
				for _, c := range integrate.Channels() {
					if c.Number() == s.Channel {
						s = c.Inspect()
					}
				}
				return &debug.Document{Time: e.now(), Channels: []integrate.TargetStatus{s}}, err
			}
			if v.once {
				e.awaitRest(cc.Target(), get, *timeout)
			}
			return v.show(get)
		}
	},
}

// awaitRest waits until a channel has settled: it has a configuration, and no connection or share is
// about to change.
func (e *env) awaitRest(target string, get func(context.Context) (*debug.Document, error), timeout time.Duration) {
	ctx, cancel := context.WithTimeout(e.ctx, timeout)
	defer cancel()
	defer e.progress("waiting for %s", target)()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if d, err := get(ctx); err == nil && rests(&d.Channels[0], d.Time) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// settling is the time that an endpoint may take to start connecting, or to get its share once it is
// READY, since many endpoints are published together.
const settling = time.Second

// rests reports whether a channel has a configuration, and nothing more is about to become of
// the endpoints in use. Policies that connect on demand leave theirs IDLE, and some have no
// share for endpoints that are READY: after a while, these rest.
func rests(s *integrate.TargetStatus, now time.Time) bool {
	if s.Since.IsZero() || s.Pending {
		return false
	}
	fresh := now.Sub(s.Since) < settling
	for _, c := range s.Clusters {
		for _, l := range c.Leaves {
			for _, p := range l.Priorities {
				if p.InUse && p.Endpoints.Connecting > 0 || p.Phase == "trying" {
					return false
				}
				for _, loc := range p.Localities {
					if p.InUse && slices.ContainsFunc(loc.Endpoints, func(e report.EndpointStatus) bool {
						return (fresh || now.Sub(e.Since) < settling) && !e.Draining && !e.Ejected &&
							(e.State == "IDLE" || e.State == "READY" && e.Share == 0 && e.Waits == 0)
					}) {
						return false
					}
				}
			}
		}
	}
	return true
}

// viewer shows documents, once or repeatedly.
type viewer struct {
	e         *env
	once      bool
	interval  time.Duration
	views     int    // 0 means no limit
	target    string // shown channels contain it
	problems  bool   // show only channels with findings
	total     int    // channels of the process
	failing   int    // channels of the process with errors
	previous  *debug.Document
	lastEvent time.Time // time of the latest printed event
}

func newViewer(e *env, fs *flag.FlagSet) *viewer {
	v := &viewer{e: e}
	fs.BoolVar(&v.once, "once", false, "show one view and exit")
	fs.DurationVar(&v.interval, "interval", time.Second, "time between views")
	fs.IntVar(&v.views, "count", 0, "number of views; 0 means no limit")
	return v
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
	case v.once || v.e.terminal:
		if !v.once {
			b.WriteString("\x1b[H\x1b[2J") // home, and clear
		}
		v.all(&b, d)
	default:
		v.lines(&b, d)
	}
	if err == nil {
		_, err = v.e.stdout.Write(b.Bytes())
	}
	v.previous = d
	return err
}

// text returns a writer of channels that counts RPCs since the previous view.
func (v *viewer) text(w io.Writer, d *debug.Document) *statustext.Text {
	t := &statustext.Text{W: w, Now: d.Time}
	if v.previous != nil {
		t.CountSince(v.previous.Time, v.previous.Channels)
	}
	return t
}

// all writes the channels of a document.
func (v *viewer) all(w io.Writer, d *debug.Document) {
	t := v.text(w, d)
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

// lines writes a line for each channel, and for each event since the previous call.
func (v *viewer) lines(w io.Writer, d *debug.Document) {
	t := v.text(w, d)
	last := v.lastEvent
	for i := range d.Channels {
		s := &d.Channels[i]
		for k := range s.Events {
			e := &s.Events[k]
			if at := latest(e); at.After(v.lastEvent) {
				fmt.Fprintln(w, sanitize.Text(s.Target, 40), sanitize.Text(statustext.Event(e), 0))
				if at.After(last) {
					last = at
				}
			}
		}
		if r := s.Rollout; r != nil && s.Stock != "" {
			fmt.Fprintf(w, "%s %s %s handed_over_by=%s\n", sanitize.Text(s.Target, 40), d.Time.UTC().Format("15:04:05"), sanitize.Text(statustext.State(s), 20), sanitize.Text(r.Variable, 40))
			continue
		}
		var active report.EndpointCounts
		ok, failed := uint64(0), uint64(0)
		for k := range s.Clusters {
			c := &s.Clusters[k]
			n := report.Active(c)
			active.Ready, active.Total = active.Ready+n.Ready, active.Total+n.Total
			for e := range report.Endpoints(c) {
				a, b := t.Calls(s, c, &e)
				ok, failed = ok+a, failed+b
			}
		}
		problems := diagnosis.Find(s)
		errors, notes := diagnosis.Count(problems)
		first := ""
		if errors > 0 {
			first = fmt.Sprintf(" error=%q", sanitize.Text(problems[0].Text, 300))
		}
		fmt.Fprintf(w, "%s %s %s endpoints=%d/%d ok=%d failed=%d errors=%d notes=%d%s\n", sanitize.Text(s.Target, 40), d.Time.UTC().Format("15:04:05"), sanitize.Text(statustext.State(s), 20), active.Ready, active.Total, ok, failed, errors, notes, first)
	}
	v.lastEvent = last
}

func latest(e *eventlog.Event) time.Time {
	if e.Last.After(e.Time) {
		return e.Last
	}
	return e.Time
}

// hasErrors reports whether a channel has errors.
func hasErrors(s *integrate.TargetStatus) bool {
	errors, _ := diagnosis.Count(diagnosis.Find(s))
	return errors > 0
}
