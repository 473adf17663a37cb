// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package testplane

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// A Checker checks the requests of clients against both variants of the protocol, and reports
// violations. A Scripted uses one; ServerOption is for other servers.
//
// It observes only the messages, in the server's order. A request that was sent before a
// response arrived is not a violation, nor is a request that answers only the latest of several
// responses.
//
// A Checker must be made by NewChecker. It is safe for concurrent use.
type Checker struct {
	mu         sync.Mutex
	report     func(violation string)
	violations []string
	streams    int
	// versions are the recently sent versions, by type: a client may claim them on its next
	// stream. When full, versions becomes old, so that memory is bounded.
	versions, old map[string]map[string]bool
}

// maxVersions is the minimum number of versions of a type, and maxViolations the maximum number
// of violations, that a Checker keeps.
const (
	maxVersions   = 4096
	maxViolations = 100
)

// NewChecker returns a Checker for the streams of one server. It calls report, if not nil, once
// for each violation, with no lock held.
func NewChecker(report func(violation string)) *Checker {
	return &Checker{report: report, versions: make(map[string]map[string]bool), old: make(map[string]map[string]bool)}
}

// Violations returns the first hundred violations so far.
func (c *Checker) Violations() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.violations)
}

// Stream returns the checker of a new stream.
func (c *Checker) Stream() *StreamChecker {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams++
	return &StreamChecker{c: c, number: c.streams, types: make(map[string]*checkedType), deltas: make(map[string]*checkedDelta)}
}

// ServerOption makes a gRPC server, such as that of xdstest.Options.Server, pass the messages of its
// ADS streams to the checker.
func (c *Checker) ServerOption() grpc.ServerOption {
	return grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		return handler(srv, &checkedStream{stream, c.Stream()})
	})
}

// checkedStream passes the messages of an ADS stream to its checker. Other streams have none of
// these messages.
type checkedStream struct {
	grpc.ServerStream
	check *StreamChecker
}

// RecvMsg implements grpc.ServerStream.
func (s *checkedStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		switch m := m.(type) {
		case *discoveryv3.DiscoveryRequest:
			s.check.Request(m)
		case *discoveryv3.DeltaDiscoveryRequest:
			s.check.DeltaRequest(m)
		}
	}
	return err
}

// SendMsg implements grpc.ServerStream.
func (s *checkedStream) SendMsg(m any) error {
	switch m := m.(type) {
	case *discoveryv3.DiscoveryResponse:
		s.check.Response(m)
	case *discoveryv3.DeltaDiscoveryResponse:
		s.check.DeltaResponse(m)
	}
	return s.ServerStream.SendMsg(m)
}

// sentLocked records a version; limit is the minimum number of versions that are kept.
func (c *Checker) sentLocked(t, version string, limit int) {
	if len(c.versions[t]) >= limit {
		c.old[t], c.versions[t] = c.versions[t], nil
	}
	if c.versions[t] == nil {
		c.versions[t] = make(map[string]bool)
	}
	c.versions[t][version] = true
}

// A StreamChecker checks one stream, of either variant: Response and Request are for state of
// the world, DeltaResponse and DeltaRequest for incremental. It is returned by Checker.Stream.
type StreamChecker struct {
	c        *Checker
	number   int
	requests int
	types    map[string]*checkedType // by URL; of a state-of-the-world stream
	deltas   map[string]*checkedDelta
}

// checkedType is the state of one type on a stream.
type checkedType struct {
	requests int
	version  string // of the latest request
	nonce    string // of the latest request
	rejected bool   // the latest answered response was rejected

	// responses are the responses that the client may still answer, by nonce; responses before
	// the latest answered one are removed.
	responses map[string]checkedResponse
	sent      int
}

type checkedResponse struct {
	number  int // from 1
	version string
}

// Response records a response before it is sent.
func (s *StreamChecker) Response(resp *discoveryv3.DiscoveryResponse) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	t := s.typeLocked(resp.GetTypeUrl())
	t.sent++
	t.responses[resp.GetNonce()] = checkedResponse{number: t.sent, version: resp.GetVersionInfo()}
	s.c.sentLocked(resp.GetTypeUrl(), resp.GetVersionInfo(), maxVersions)
}

// Request checks a request.
func (s *StreamChecker) Request(req *discoveryv3.DiscoveryRequest) {
	s.check(req, req.GetNode(), req.GetTypeUrl(), func(wrong func(string, ...any)) {
		checkNames(req.GetResourceNames(), wrong)
		t := s.typeLocked(req.GetTypeUrl())
		if t.requests == 0 {
			s.first(t, req, wrong)
		}
		t.answer(req, wrong)
		t.requests++
		t.version, t.nonce = req.GetVersionInfo(), req.GetResponseNonce()
	})
}

// check checks a request of either variant: the common parts, and the rest with f, with the
// lock held.
func (s *StreamChecker) check(req any, node *corev3.Node, url string, f func(wrong func(string, ...any))) {
	s.c.mu.Lock()
	s.requests++
	var found []string
	wrong := func(format string, args ...any) {
		found = append(found, fmt.Sprintf("stream %d, request %d: %s: %v", s.number, s.requests, fmt.Sprintf(format, args...), req))
	}
	if s.requests == 1 {
		checkNode(node, wrong)
	}
	if url != xdstest.LDS && url != xdstest.RDS && url != xdstest.CDS && url != xdstest.EDS {
		wrong("T-XDS-12: a request for type %q", url)
	} else {
		f(wrong)
	}
	s.c.violations = append(s.c.violations, found[:min(len(found), maxViolations-len(s.c.violations))]...)
	s.c.mu.Unlock()
	if s.c.report != nil {
		for _, violation := range found {
			s.c.report(violation)
		}
	}
}

func (s *StreamChecker) typeLocked(url string) *checkedType {
	t := s.types[url]
	if t == nil {
		t = &checkedType{responses: make(map[string]checkedResponse)}
		s.types[url] = t
	}
	return t
}

// checkNode checks the node of a stream's first request.
func checkNode(node *corev3.Node, wrong func(string, ...any)) {
	switch {
	case node == nil:
		wrong("A27-NODE-1: no node in the first request")
	case node.GetUserAgentName() == "" || node.GetUserAgentVersion() == "":
		wrong("A27-NODE-3: no user agent")
	case !slices.Contains(node.GetClientFeatures(), "envoy.lb.does_not_support_overprovisioning"):
		wrong("A27-NODE-4: client features %q", node.GetClientFeatures())
	}
}

func checkNames(names []string, wrong func(string, ...any)) {
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		switch {
		case name == "" || name == "*" || strings.HasSuffix(name, "/*"):
			wrong("T-XDS-2: name %q asks for everything", name)
		case seen[name]:
			wrong("name %q is there twice", name)
		}
		seen[name] = true
	}
}

// first checks the first request of a type.
func (s *StreamChecker) first(t *checkedType, req *discoveryv3.DiscoveryRequest, wrong func(string, ...any)) {
	if len(req.GetResourceNames()) == 0 {
		wrong("T-XDS-2: a first request without names asks for everything")
	}
	if v := req.GetVersionInfo(); v != "" && !s.c.versions[req.GetTypeUrl()][v] && !s.c.old[req.GetTypeUrl()][v] {
		wrong("T-XDS-1: version %q was never sent", v)
	}
	t.version = req.GetVersionInfo()
}

// answer checks nonce, version and error of a request.
func (t *checkedType) answer(req *discoveryv3.DiscoveryRequest, wrong func(string, ...any)) {
	version, nonce, nack := req.GetVersionInfo(), req.GetResponseNonce(), req.GetErrorDetail()
	if nonce == t.nonce {
		// No new response was answered: the request changes the names.
		if version != t.version {
			wrong("T-XDS-1: version %q after %q, in answer to the same response", version, t.version)
		}
		if nack != nil && !t.rejected {
			wrong("T-XDS-1: a NACK of what was accepted before")
		}
		return
	}
	response, ok := t.responses[nonce]
	if !ok {
		wrong("T-XDS-1: a nonce that is not of this stream and type, or older than the latest one answered")
		return
	}
	accepted := version == t.version // or that of a response whose ACK was omitted
	for older, r := range t.responses {
		if r.number < response.number {
			accepted = accepted || version == r.version
			delete(t.responses, older)
		}
	}
	t.rejected = nack != nil
	switch {
	case nack == nil && version != response.version:
		wrong("T-XDS-1: an ACK of version %q says %q", response.version, version)
	case nack != nil && !accepted:
		wrong("T-XDS-1: a NACK says version %q, and %q was accepted last", version, t.version)
	case nack != nil && (nack.GetCode() == 0 || nack.GetMessage() == ""):
		wrong("T-XDS-1: a NACK that does not say why")
	}
}
