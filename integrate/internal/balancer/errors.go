// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// ErrorDomain is the domain of the google.rpc.ErrorInfo. Package integrate describes it and the
// reasons.
const ErrorDomain = "xdslb"

// The reasons of the ErrorInfo.
const (
	ReasonDropped       = "DROPPED"
	ReasonBreaker       = "BREAKER"
	ReasonNoRoute       = "NO_ROUTE"
	ReasonNotForwarding = "NOT_FORWARDING"
	ReasonNoEndpoints   = "NO_ENDPOINTS"
	ReasonUnreachable   = "UNREACHABLE"
	ReasonTLS           = "TLS"
	ReasonCluster       = "CLUSTER"
	ReasonListener      = "LISTENER"
)

// identity identifies a channel in errors. It is zero without xDS.
type identity struct {
	link                      *rpc.Channel
	listener, authority, node string
}

// refusal returns the status of permanently refused RPCs. more are keys and values of the
// ErrorInfo. It takes some microseconds, so it is called once for each change.
func (id *identity) refusal(text, reason string, more ...string) error {
	st, err := status.New(codes.Unavailable, id.text(text)).WithDetails(id.info(reason, more))
	if err != nil { // an ErrorInfo always encodes, and the code is not OK
		return status.Error(codes.Unavailable, id.text(text))
	}
	return st.Err()
}

// info returns the ErrorInfo of a reason.
func (id *identity) info(reason string, more []string) *errdetails.ErrorInfo {
	info := &errdetails.ErrorInfo{Reason: reason, Domain: ErrorDomain, Metadata: map[string]string{}}
	if id.link != nil {
		more = append(more, "target", id.link.Target, "listener", id.listener, "authority", id.authority, "node", id.node)
	}
	for pair := range slices.Chunk(more, 2) {
		if pair[1] != "" {
			info.Metadata[pair[0]] = strings.ToValidUTF8(pair[1], "\ufffd")
		}
	}
	return info
}

// text adds the node to a text that lacks it. The control plane's log identifies the client by
// its node.
func (id *identity) text(text string) string {
	if id.node == "" || strings.Contains(text, "[xDS node id: ") {
		return text
	}
	return fmt.Sprintf("[xDS node id: %s]: %s", id.node, text)
}

// plainError is an error that gRPC never treats as a status, even if it wraps one: a status
// would fail wait-for-ready RPCs, which must wait.
type plainError string

func (e plainError) Error() string { return string(e) }

// failure returns a plainError about a cluster, or about the target (""). It registers the
// error's ErrorInfo with the interceptors.
func (id *identity) failure(about, text, reason string, more ...string) plainError {
	text = id.text(text)
	if id.link != nil {
		id.link.NoteFailure(about, text, id.info(reason, more))
	}
	return plainError(text)
}

// maxRouteErrors is for how many routes of a list that do not forward RPCs a status names the route.
// A status takes 50 times as much memory as such a route in a response.
const maxRouteErrors = 100

// routeErrors are the statuses of RPCs whose route has no destination. They are made once for a
// list of routes.
type routeErrors struct {
	of            []picker.Route
	noRoute       error
	notForwarding map[int32]error // by route, of the first routes that do not forward
	stale         error           // of RPCs whose route does not forward and is another one, or has been removed
}

// notForwardingErr returns the status of RPCs of a route, which may belong to an earlier list
// if an interceptor has chosen it.
func (r *routeErrors) notForwardingErr(route int32) error {
	if err := r.notForwarding[route]; err != nil {
		return err
	}
	return r.stale
}

// routeErrors returns the errors of a list of routes; was holds the errors of the previous
// list, or is nil.
func (id *identity) routeErrors(was *routeErrors, routes []picker.Route) *routeErrors {
	if was != nil && persistent.SameSlice(was.of, routes) {
		return was
	}
	r := &routeErrors{of: routes, notForwarding: map[int32]error{}}
	where := ""
	if id.link != nil {
		where = fmt.Sprintf(" in the virtual host of Listener %q for authority %q", id.listener, id.authority)
	}
	r.noRoute = id.refusal(fmt.Sprintf("xdslb: no matching route found among the %d%s", len(routes), where), ReasonNoRoute)
	r.stale = id.refusal(fmt.Sprintf("xdslb: the route that matched%s does not forward RPCs", where), ReasonNotForwarding)
	for i := range routes {
		if len(routes[i].Clusters) == 0 && len(r.notForwarding) < maxRouteErrors {
			name := routeName(routes, i)
			r.notForwarding[int32(i)] = id.refusal(fmt.Sprintf("xdslb: the route that matches (%s%s) does not forward RPCs", name, where),
				ReasonNotForwarding, "route", name)
		}
	}
	return r
}

// routeName names a route: by its number, and its name if it has one.
func routeName(routes []picker.Route, i int) string {
	if name := routes[i].Name; name != "" {
		return fmt.Sprintf("%d, %q", i, name)
	}
	return fmt.Sprint(i)
}

// rejections are the statuses of RPCs that a leaf drops or its breaker refuses, made once for
// all configurations of the leaf with the same drops and breaker.
type rejections struct {
	service  string
	limit    uint32
	of       []picker.Drop
	drops    []error // by drop category
	overload error
	// noteDefault logs that the default limit of the breaker refuses RPCs. It is nil if the
	// limit is configured.
	noteDefault *defaultLimitNote
}

// status returns the status of an RPC that was dropped or that the circuit breaker refused, or
// nil.
func (r *rejections) status(res picker.Result) error {
	switch res.Outcome {
	case picker.Dropped:
		return r.drops[res.Index]
	case picker.Overloaded:
		r.noteDefault.refused()
		return r.overload
	}
	return nil
}

// rejections returns the rejections of the leaf's configuration.
func (l *leafState) rejections() *rejections {
	name, service, limit := l.cfg.Name, l.cfg.Service, l.cfg.MaxRequests
	if r := l.rejected; r != nil && r.service == service && r.limit == limit && (r.noteDefault != nil) == l.cfg.DefaultLimit && slices.Equal(r.of, l.cfg.Drops) {
		return r
	}
	r := &rejections{service: service, limit: limit, of: l.cfg.Drops}
	for _, d := range l.cfg.Drops {
		r.drops = append(r.drops, l.id.refusal(fmt.Sprintf("xdslb: RPC is dropped by category %q of cluster %q", d.Category, name),
			ReasonDropped, "cluster", name, "service", service, "category", d.Category))
	}
	r.overload = l.id.refusal(fmt.Sprintf("xdslb: circuit breaker of cluster %q: max requests %d exceeded on service %q", name, limit, service),
		ReasonBreaker, "cluster", name, "service", service, "max_requests", fmt.Sprint(limit))
	if l.cfg.DefaultLimit {
		r.noteDefault = &defaultLimitNote{rec: &l.rec, cluster: name, limit: limit}
	}
	l.rejected = r
	return r
}

// A defaultLimitNote logs that the default limit of a circuit breaker refuses RPCs of a cluster.
type defaultLimitNote struct {
	rec     *recorder
	cluster string
	limit   uint32
	last    atomic.Int64 // when refused last wrote to the log, in Unix seconds
}

const msgDefaultLimit = "xdslb: the default circuit breaker refuses RPCs of a cluster: the control plane sends no limit. " +
	"Set circuit_breakers.max_requests (http2MaxRequests of Istio's DestinationRule), or Config.DefaultMaxRequests"

// refused is called for each RPC that the circuit breaker refuses, on any goroutine, and n may be
// nil. It writes to the log once in an Interval.
func (n *defaultLimitNote) refused() {
	if n == nil {
		return
	}
	now, last := time.Now().Unix(), n.last.Load()
	if now-last >= int64(eventlog.Interval/time.Second) && n.last.CompareAndSwap(last, now) {
		n.rec.write(slog.LevelWarn, msgDefaultLimit, n.cluster, slog.Uint64("max_requests", uint64(n.limit)))
	}
}
