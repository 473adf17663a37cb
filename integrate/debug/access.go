// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
)

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
