// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/internal/sanitize"
)

// A Document is the JSON document that a Handler serves.
type Document struct {
	Time     time.Time                `json:"time"`
	Process  process                  `json:"process"`
	Channels []integrate.TargetStatus `json:"channels"` // without idle channels
}

// process identifies the process of the channels.
type process struct {
	Program string `json:"program"`
	PID     int    `json:"pid"`
	Host    string `json:"host,omitempty"`
}

// Handler returns the handler described in the package documentation, with the zero Options. It may be
// called more than once.
func Handler() http.Handler { return Options{}.Handler() }

// Handler returns a handler with the options.
func (o Options) Handler() http.Handler {
	host, _ := os.Hostname() // optional
	return &handler{
		hosts:   slices.Clone(o.Hosts),
		process: process{filepath.Base(os.Args[0]), os.Getpid(), host},
		now:     time.Now,
	}
}

type handler struct {
	hosts   []string // see Options
	process process
	now     func() time.Time
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed: use GET or HEAD", http.StatusMethodNotAllowed)
		return
	}
	format := r.URL.Query().Get("format")
	if format == "" {
		format = path.Base(r.URL.Path)
	}
	if !h.serves(r) {
		refused := fmt.Sprintf("host %.100q is not served: use an IP address or localhost, or add the host to debug.Options.Hosts", r.Host)
		if format == "json" || format == "explain" {
			writeJSON(w, http.StatusForbidden, jsonError{refused})
		} else {
			http.Error(w, refused, http.StatusForbidden)
		}
		return
	}
	switch format {
	case "json":
		h.serveJSON(w, r)
	case "explain":
		h.serveExplanation(w, r)
	default:
		h.servePage(w, r)
	}
}

// channels returns the channel that a request selects, or all channels.
func channels(r *http.Request) ([]integrate.Channel, error) {
	all := integrate.Channels()
	text := r.URL.Query().Get("channel")
	if text == "" {
		return all, nil
	}
	for _, c := range all {
		if strconv.FormatInt(c.Number(), 10) == text {
			return []integrate.Channel{c}, nil
		}
	}
	return nil, fmt.Errorf("channel %.20q not found: it may be closed or idle; a channel that connects again gets another number", text)
}

func (h *handler) serveJSON(w http.ResponseWriter, r *http.Request) {
	list, err := channels(r)
	if err != nil {
		writeJSON(w, http.StatusNotFound, jsonError{err.Error()})
		return
	}
	d := Document{Time: h.now(), Process: h.process, Channels: []integrate.TargetStatus{}}
	for _, c := range list {
		if r.URL.Query().Get("detail") == "0" || !ownSite(r) {
			d.Channels = append(d.Channels, c.Status())
		} else {
			d.Channels = append(d.Channels, c.Inspect())
		}
	}
	writeJSON(w, http.StatusOK, d)
}

func (h *handler) serveExplanation(w http.ResponseWriter, r *http.Request) {
	list, err := channels(r)
	if err == nil && len(list) != 1 {
		err = fmt.Errorf("parameter channel: missing: there are %d channels", len(list))
	}
	if err != nil {
		writeJSON(w, http.StatusNotFound, jsonError{err.Error()})
		return
	}
	x, err := explain(r, list[0])
	if err != nil {
		writeJSON(w, http.StatusBadRequest, jsonError{err.Error()})
		return
	}
	writeJSON(w, http.StatusOK, x)
}

// explain explains the RPC that a request describes by its parameters method and headers, which
// has one header per line.
func explain(r *http.Request, c integrate.Channel) (*integrate.Explanation, error) {
	md, err := parseHeaders(r.URL.Query().Get("headers"))
	if err != nil {
		return nil, err
	}
	return c.Explain(metadata.NewOutgoingContext(context.Background(), md), strings.TrimSpace(r.URL.Query().Get("method")))
}

// parseHeaders parses lines of the form "name: value".
func parseHeaders(text string) (metadata.MD, error) {
	md := metadata.MD{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, fmt.Errorf("header %.100q: want name: value", line)
		}
		md.Append(name, strings.TrimSpace(value))
	}
	return md, nil
}

// jsonError is the JSON of an error.
type jsonError struct {
	Error string `json:"error"`
}

// writeJSON responds with v, or with status 500 and the error if v cannot be encoded.
func writeJSON(w http.ResponseWriter, code int, v any) {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		code = http.StatusInternalServerError
		b, _ = json.Marshal(jsonError{"encoding the response: " + err.Error()}) // cannot fail
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(append(sanitize.JSON(b), '\n')) // the client may have gone
}

// Options configures a handler.
type Options struct {
	// Hosts are names by which the page may be requested, such as "orders.internal", in addition to
	// IP addresses, localhost, the name of the machine and the host in http.Server.Addr. Other names
	// are refused: a web site whose name resolves to the address of the process could read the page
	// through a browser (DNS rebinding). "*" allows all names, for servers behind a proxy that
	// authenticates users.
	Hosts []string
}

// hostName returns the name in a Host header, without port.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// serves reports whether the handler serves requests for the host of r. Requests of HTTP/1.0 may have
// no host; browsers send it.
func (h *handler) serves(r *http.Request) bool {
	name := hostName(r.Host)
	if _, err := netip.ParseAddr(name); err == nil || name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	if s, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok && s.Addr != "" && hostName(s.Addr) == name {
		return true
	}
	machine, _ := os.Hostname() // optional
	return name == hostName(machine) || slices.ContainsFunc(h.hosts, func(allowed string) bool { return allowed == "*" || hostName(allowed) == name })
}

// ownSite reports whether a request may start to count RPCs: it does not come from a page of another
// site. Browsers send the header over TLS and to localhost; other programs do not send it.
func ownSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return true
	}
	return false
}
