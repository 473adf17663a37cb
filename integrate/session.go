// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/resource"
)

// session is the session of one RPC (A55): which endpoint its cookie asks for, and
// which one it went to.
type session struct {
	cookie string           // as decoded: see place.cookie; empty if there is none
	hosts  []netip.AddrPort // the addresses of the endpoint that it names
	went   atomic.Pointer[place]
}

// place is where an RPC went.
type place struct {
	cluster string
	cfg     *picker.Endpoint
}

// clusterPrefix precedes a cluster's name in a cookie (A60).
const clusterPrefix = "cluster:"

// cookie is what the place is called in a cookie: the endpoint's addresses (A61)
// and the cluster (A60), "10.0.0.1:80,10.0.0.2:80;cluster:name".
func (p *place) cookie() string {
	var b strings.Builder
	b.WriteString(p.cfg.Addr.String())
	if p.cfg.Extra != nil {
		for _, a := range p.cfg.Extra.Addrs {
			b.WriteString("," + a.String())
		}
	}
	b.WriteString(";" + clusterPrefix + p.cluster)
	return b.String()
}

// affinity is stateful session affinity as an interceptor for a route's RPCs; it
// is empty if there is none.
func affinity(cfg *resource.Session, r *picker.Route) interceptor {
	if cfg.Cookie == "" {
		return interceptor{}
	}
	return interceptor{
		session: true,
		unary: func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			s := open(ctx, cfg, r, method)
			err := invoker(ctx, method, req, reply, cc, opts...)
			for _, o := range opts {
				if o, ok := o.(grpc.HeaderCallOption); ok {
					*o.HeaderAddr = s.answer(cfg, *o.HeaderAddr)
				}
			}
			return err
		},
		stream: func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s := open(ctx, cfg, r, method)
			stream, err := streamer(ctx, desc, cc, method, opts...)
			if err != nil || s == nil {
				return stream, err
			}
			return &sessionStream{stream, cfg, s}, nil
		},
	}
}

// open reads the RPC's cookie, and lets its picks know. It returns nil if the
// cookie's path is not that of the RPC.
func open(ctx context.Context, cfg *resource.Session, r *picker.Route, method string) *session {
	call, ok := ctx.Value(rpcKey{}).(*rpc)
	if !ok || !underPath(method, cfg.Path) {
		return nil
	}
	s := &session{}
	call.session = s
	for _, line := range metadata.ValueFromOutgoingContext(ctx, "cookie") {
		cookies, err := http.ParseCookie(line)
		if err != nil {
			continue
		}
		for _, c := range cookies {
			if c.Name == cfg.Cookie {
				s.resume(call, r, c.Value)
				return s
			}
		}
	}
	return s
}

// resume takes up the session that a cookie's value says: its endpoint, and its
// cluster if the route still leads there (A60). What cannot be read is no session.
func (s *session) resume(call *rpc, r *picker.Route, value string) {
	text, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return
	}
	addrs, cluster, _ := strings.Cut(string(text), ";")
	for a := range strings.SplitSeq(addrs, ",") {
		host, err := netip.ParseAddrPort(a)
		if err != nil {
			s.hosts = nil
			return
		}
		s.hosts = append(s.hosts, host)
	}
	s.cookie = string(text)
	for i := range r.Clusters {
		if name := r.Clusters[i].Name; cluster == clusterPrefix+name {
			call.name = name
		}
	}
}

// answer adds the cookie to the response headers of an RPC that went elsewhere
// than its cookie says, or had none. A response without headers stays so.
func (s *session) answer(cfg *resource.Session, header metadata.MD) metadata.MD {
	if s == nil || header == nil {
		return header
	}
	went := s.went.Load()
	if went == nil || went.cookie() == s.cookie {
		return header
	}
	c := http.Cookie{
		Name:     cfg.Cookie,
		Value:    base64.StdEncoding.EncodeToString([]byte(went.cookie())),
		Path:     cfg.Path,
		MaxAge:   int(cfg.TTL.Seconds()),
		HttpOnly: true,
	}
	header = header.Copy()
	header.Append("set-cookie", c.String())
	return header
}

// sessionStream has the cookie among its response headers.
type sessionStream struct {
	grpc.ClientStream
	cfg     *resource.Session
	session *session
}

func (s *sessionStream) Header() (metadata.MD, error) {
	header, err := s.ClientStream.Header()
	return s.session.answer(s.cfg, header), err
}

// underPath reports whether a cookie with a path is for a method (RFC 6265,
// section 5.1.4).
func underPath(method, path string) bool {
	rest, ok := strings.CutPrefix(method, path)
	return ok && (rest == "" || strings.HasSuffix(path, "/") || rest[0] == '/')
}
