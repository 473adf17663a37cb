// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/debug"
	"github.com/xdslb/xdslb/integrate/report"
)

var attachCommand = command{
	name: "attach", args: "ADDR", summary: "show the channels of a running process",
	about: "Shows the channels of a process by its debug page (package integrate/debug): their\n" +
		"priorities, localities and endpoints, where RPCs are expected to go and where they\n" +
		"went since the view before, and events. ADDR is host:port, which is short for\n" +
		"http://host:port/debug/xdslb/, or the page's URL. With -csds it is a gRPC server\n" +
		"that has CSDS: its resources are shown with their versions, ACKs and errors, and\n" +
		"the routes, clusters and endpoints that they make. CSDS knows no connections.\n" +
		"On a terminal the view is live, otherwise there is a line for each channel and\n" +
		"event. With -once there is one view, of the RPCs of one interval, and the exit\n" +
		"code is 1 if something is to be mended.",
	example: "xdslb attach localhost:6060\nxdslb attach localhost:6060 -once -o json",
	flags: func(e *env, fs *flag.FlagSet) func([]string) (bool, error) {
		v := newViewer(e, fs)
		byCSDS := fs.Bool("csds", false, "ADDR is a gRPC server with CSDS")
		timeout := fs.Duration("timeout", 10*time.Second, "how long to wait for an answer")
		var secure tlsFlags
		secure.register(fs)
		return func(args []string) (bool, error) {
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
	name: "watch", args: "TARGET", summary: "show a channel of its own",
	about: "Makes a channel to a target by the bootstrap, and shows what it does as attach\n" +
		"does. It connects to the control plane with the node id of the bootstrap, and to\n" +
		"the endpoints, without TLS unless xDS asks for it; it sends no RPCs. Some agents\n" +
		"have room for one stream only: attach disturbs nobody.",
	example: "xdslb watch xds:///orders -b /etc/xds/bootstrap.json",
	flags: func(e *env, fs *flag.FlagSet) func([]string) (bool, error) {
		v := newViewer(e, fs)
		var boot bootstrapFlag
		boot.register(fs)
		timeout := fs.Duration("timeout", 10*time.Second, "how long -once waits until the channel has settled")
		return func(args []string) (bool, error) {
			target, text, err := boot.target(args)
			if err != nil {
				return false, err
			}
			creds, err := integrate.NewCredentials(integrate.CredentialsOptions{Fallback: insecure.NewCredentials()})
			if err != nil {
				return false, err
			}
			opts, err := integrate.DialOptions(integrate.Config{Bootstrap: text, Delta: boot.delta, Linger: -1})
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
				return &debug.Document{Time: e.now(), Channels: []report.TargetStatus{s}}, err
			}
			if v.once {
				e.awaitRest(cc.Target(), get, *timeout)
			}
			return v.show(get)
		}
	},
}

// awaitRest waits until a channel has settled.
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

// settling is how long an endpoint may take to begin to connect, or to get its share once it
// is READY: picks get to know of many endpoints at a time.
const settling = time.Second

// rests reports whether a channel has a configuration, and nothing more is about to become of
// the endpoints in use. Policies that connect on demand leave theirs IDLE, and some have no
// share for endpoints that are READY: after a while, these rest.
func rests(s *report.TargetStatus, now time.Time) bool {
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

// viewer shows documents, once or again and again.
type viewer struct {
	e        *env
	once     bool
	interval time.Duration
	views    int // 0 is no limit
	previous *debug.Document
	told     time.Time // of the latest event that was printed
}

func newViewer(e *env, fs *flag.FlagSet) *viewer {
	v := &viewer{e: e}
	fs.BoolVar(&v.once, "once", false, "show one view and end")
	fs.DurationVar(&v.interval, "interval", time.Second, "time between views")
	fs.IntVar(&v.views, "count", 0, "end after so many views")
	return v
}

// show shows what get returns until the context ends, or as often as is asked for. An error
// after the first view is shown, and does not end it: processes restart.
func (v *viewer) show(get func(context.Context) (*debug.Document, error)) (found bool, err error) {
	if v.interval < 10*time.Millisecond {
		return false, usageError("-interval is less than 10ms")
	}
	if v.once && !v.e.json { // RPCs are counted by endpoint from the first look on
		if v.previous, err = get(v.e.ctx); err == nil {
			err = v.pause()
		}
		if err != nil {
			return false, err
		}
	}
	for n := 1; ; n++ {
		done := v.e.progress("waiting for an answer")
		d, err := get(v.e.ctx)
		done()
		switch {
		case err == nil:
			if err := v.view(d); err != nil {
				return false, err
			}
		case v.previous == nil:
			return false, err
		default:
			fmt.Fprintf(v.e.stderr, "xdslb: %s\n", shown(err))
		}
		if v.once || n == v.views {
			return d != nil && needsMending(d), nil
		}
		if v.pause() != nil {
			return false, nil
		}
	}
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
		newStatusText(&b, d, v.previous).all()
	default:
		v.lines(&b, d)
	}
	if err == nil {
		_, err = v.e.stdout.Write(b.Bytes())
	}
	v.previous = d
	return err
}

// remote is a process that is asked.
type remote struct {
	at      string
	timeout time.Duration
	tls     tlsFlags
}

// page returns the URL of the debug page.
func (p *remote) page() (*url.URL, error) {
	at := p.at
	secure := p.tls != tlsFlags{}
	switch {
	case strings.Contains(at, "://"):
	case secure:
		at = "https://" + at
	default:
		at = "http://" + at
	}
	u, err := url.Parse(at)
	if err != nil {
		return nil, usageError(err.Error())
	}
	if secure && u.Scheme != "https" {
		return nil, usageError(fmt.Sprintf("%s is not asked by TLS: its scheme is not https", u.Redacted()))
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/debug/xdslb/"
	}
	return u, nil
}

// maxAnswer is how long the answer of a process may be.
const maxAnswer = 1 << 30

// get asks the debug page.
func (p *remote) get(ctx context.Context, q url.Values) ([]byte, error) {
	u, err := p.page()
	if err != nil {
		return nil, err
	}
	u.RawQuery = q.Encode()
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	secure, err := p.tls.config()
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment, TLSClientConfig: secure}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // nothing is lost with it
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		var said struct{ Error string }
		if json.Unmarshal(text, &said) == nil && said.Error != "" {
			return nil, errors.New(said.Error)
		}
		return nil, fmt.Errorf("%s answers %s, and no JSON of a debug page: is package integrate/debug served there?", u.Redacted(), resp.Status)
	}
	return text, nil
}

// document asks for the channels. params are further parameters with their values.
func (p *remote) document(ctx context.Context, params ...string) (*debug.Document, error) {
	q := url.Values{"format": {"json"}}
	for i := 0; i < len(params); i += 2 {
		q.Set(params[i], params[i+1])
	}
	text, err := p.get(ctx, q)
	if err != nil {
		return nil, err
	}
	d := new(debug.Document)
	return d, json.Unmarshal(text, d)
}
