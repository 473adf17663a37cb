// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"encoding/base64"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/integrate/internal/metadatautil"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// A Session is the session of one RPC (A55): the endpoint of its cookie, and the endpoint that
// was picked.
type Session struct {
	cookie  string // as decoded: see upstream.cookie; empty without a cookie
	cluster string // in the cookie (A60)
	// Hosts are the addresses of the endpoint that the cookie names.
	Hosts  []netip.AddrPort
	picked atomic.Pointer[upstream] // see Call.Picked
}

// An upstream is the endpoint of an RPC.
type upstream struct {
	cluster string
	cfg     *picker.Endpoint
}

// clusterPrefix precedes a cluster's name in a cookie (A60).
const clusterPrefix = "cluster:"

// cookie returns the value of a cookie for the upstream, before base64: the endpoint's addresses
// (A61) and the cluster (A60), "10.0.0.1:80,10.0.0.2:80;cluster:name".
func (u *upstream) cookie() string {
	var b strings.Builder
	b.WriteString(picker.AddrText(u.cfg.Addr))
	if u.cfg.Extra != nil {
		for _, a := range u.cfg.Extra.Addrs {
			b.WriteString("," + picker.AddrText(a))
		}
	}
	b.WriteString(";" + clusterPrefix + u.cluster)
	return b.String()
}

// sessionInterceptor returns stateful session affinity as an interceptor. It is empty without a cookie
// name.
func sessionInterceptor(cfg *resource.Session) interceptor {
	if cfg.Cookie == "" {
		return interceptor{}
	}
	return interceptor{
		session: true,
		unary: func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			s := startSession(ctx, cfg, method)
			err := invoker(ctx, method, req, reply, cc, opts...)
			for _, o := range opts {
				if o, ok := o.(grpc.HeaderCallOption); ok {
					*o.HeaderAddr = s.addSetCookie(cfg, *o.HeaderAddr)
				}
			}
			return err
		},
		stream: func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s := startSession(ctx, cfg, method)
			stream, err := streamer(ctx, desc, cc, method, opts...)
			if err != nil || s == nil {
				return stream, err
			}
			return &sessionStream{stream, cfg, s}, nil
		},
	}
}

// startSession reads the RPC's cookie, and passes the session to the RPC's picks. It returns
// nil if the RPC has no session.
func startSession(ctx context.Context, cfg *resource.Session, method string) *Session {
	call, s := callIn(ctx), newSession(ctx, cfg, method)
	if call == nil || s == nil {
		return nil
	}
	call.session = s
	call.keepCluster(&call.matched, call.plan.clusters)
	return s
}

// newSession returns the session of an RPC, or nil if the cookie's path does not match the
// method. An RPC without cookie begins a session.
func newSession(ctx context.Context, cfg *resource.Session, method string) *Session {
	if !underPath(method, cfg.Path) {
		return nil
	}
	s := new(Session)
	if value, ok := cookieValue(metadatautil.OutgoingValues(ctx, "cookie"), cfg.Cookie); ok {
		s.parseCookie(value)
	}
	return s
}

// cookieValue returns the value of the first cookie with a name. Other cookies may have any form.
func cookieValue(lines []string, name string) (value string, ok bool) {
	for _, line := range lines {
		for cookie := range strings.SplitSeq(line, ";") {
			key, value, _ := strings.Cut(cookie, "=")
			if strings.TrimSpace(key) != name {
				continue
			}
			value = strings.TrimSpace(value)
			if n := len(value); n > 1 && value[0] == '"' && value[n-1] == '"' {
				value = value[1 : n-1]
			}
			return value, true
		}
	}
	return "", false
}

// parseCookie sets the endpoint and the cluster (A60) of a cookie's value. A value that cannot be
// parsed is ignored.
func (s *Session) parseCookie(value string) {
	text, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return
	}
	addrs, cluster, _ := strings.Cut(string(text), ";")
	var hosts []netip.AddrPort
	for a := range strings.SplitSeq(addrs, ",") {
		host, ok := picker.ParseAddr(a)
		if !ok {
			return
		}
		hosts = append(hosts, host)
	}
	s.Hosts, s.cookie = hosts, string(text)
	if name, ok := strings.CutPrefix(cluster, clusterPrefix); ok {
		s.cluster = name
	}
}

// isOf reports whether the session's cluster is one of a route's clusters.
func (s *Session) isOf(route []picker.WeightedCluster) bool {
	return slices.ContainsFunc(route, func(to picker.WeightedCluster) bool { return to.Name == s.cluster })
}

// addSetCookie adds the cookie to the response headers, unless the RPC's cookie names the endpoint
// that was picked. A response without headers is not changed.
func (s *Session) addSetCookie(cfg *resource.Session, header metadata.MD) metadata.MD {
	if s == nil || header == nil {
		return header
	}
	picked := s.picked.Load()
	if picked == nil || picked.cookie() == s.cookie {
		return header
	}
	c := http.Cookie{
		Name:     cfg.Cookie,
		Value:    base64.StdEncoding.EncodeToString([]byte(picked.cookie())),
		Path:     cfg.Path,
		MaxAge:   int(min(cfg.TTL.Seconds(), math.MaxInt32)), // an int may have 32 bits
		HttpOnly: true,
	}
	header = header.Copy()
	header.Append("set-cookie", c.String())
	return header
}

// A sessionStream adds the cookie to its response headers.
type sessionStream struct {
	grpc.ClientStream
	cfg     *resource.Session
	session *Session
}

func (s *sessionStream) Header() (metadata.MD, error) {
	header, err := s.ClientStream.Header()
	return s.session.addSetCookie(s.cfg, header), err
}

// underPath reports whether a cookie with a path applies to a method (RFC 6265, section 5.1.4).
func underPath(method, path string) bool {
	rest, ok := strings.CutPrefix(method, path)
	return ok && (rest == "" || strings.HasSuffix(path, "/") || rest[0] == '/')
}
