// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package testplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// maxRemembered is the number of requests that a stream keeps.
const maxRemembered = 256

// received has the latest requests of a stream, oldest first.
type received[R interface{ GetTypeUrl() string }] []R

func (l *received[R]) add(req R) {
	if len(*l) == maxRemembered {
		*l = slices.Delete(*l, 0, maxRemembered/2)
	}
	*l = append(*l, req)
}

// ofType returns a copy of the requests of a type, or of all if t is empty.
func (l received[R]) ofType(t string) []R {
	return slices.DeleteFunc(slices.Clone(l), func(req R) bool { return t != "" && req.GetTypeUrl() != t })
}

// A Stream is one state-of-the-world ADS stream of a Scripted. It is safe for concurrent use.
type Stream struct {
	*scriptedStream
	ads discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer

	// The following fields are guarded by Scripted.mu.
	requests received[*discoveryv3.DiscoveryRequest]
	queue    []*discoveryv3.DiscoveryResponse // from Respond, to be sent
	nonces   int
	types    map[string]*streamType
}

// streamType is the state of one type on a stream.
type streamType struct {
	stats    xdstest.Stats
	asked    bool
	names    []string          // last subscribed names
	nonce    string            // of the latest response
	answered bool              // the latest response has been answered
	sent     map[string]uint64 // versions sent automatically to the client
}

// scriptedStream is the common part of the streams of both variants.
type scriptedStream struct {
	s      *Scripted
	number int
	check  *StreamChecker
	cancel context.CancelCauseFunc
	wake   chan struct{} // has a token if a response may be pending
}

func (st *scriptedStream) common() *scriptedStream { return st }

// openStream is a stream of either variant.
type openStream interface {
	common() *scriptedStream
	// send sends pending responses until ctx ends.
	send(ctx context.Context)
	statsLocked(url string) xdstest.Stats
	eachLocked(func(url string, stats xdstest.Stats))
}

// typeLocked returns the state of a type.
func (st *Stream) typeLocked(url string) *streamType {
	t := st.types[url]
	if t == nil {
		t = &streamType{answered: true}
		st.types[url] = t
	}
	return t
}

// Number is the stream's number on its server, from 1.
func (st *scriptedStream) Number() int { return st.number }

// Requests returns the latest requests of a type, or of all if t is empty,
// oldest first.
func (st *Stream) Requests(t string) []*discoveryv3.DiscoveryRequest {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	return st.requests.ofType(t)
}

// Stats returns the statistics of type t on this stream.
func (st *Stream) Stats(t string) xdstest.Stats {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	return st.statsLocked(t)
}

func (st *Stream) statsLocked(url string) xdstest.Stats {
	of := st.typeLocked(url)
	stats := of.stats
	stats.Names = slices.Clone(of.names)
	return stats
}

func (st *Stream) eachLocked(f func(url string, stats xdstest.Stats)) {
	for url, t := range st.types {
		f(url, t.stats)
	}
}

// Send sends resources of type t in one response, and returns its nonce.
func (st *Stream) Send(t, version string, resources ...proto.Message) (nonce string) {
	resp := &discoveryv3.DiscoveryResponse{TypeUrl: t, VersionInfo: version}
	for _, m := range resources {
		resp.Resources = append(resp.Resources, anyOf(m))
	}
	return st.Respond(resp)
}

// Respond sends a response unchanged, even if it is invalid, after the pending ones. A response
// without a nonce gets a new one; a response with an old nonce repeats that nonce. It returns
// the nonce, and does not wait.
func (st *Stream) Respond(resp *discoveryv3.DiscoveryResponse) (nonce string) {
	resp = proto.CloneOf(resp)
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	st.enterLocked(resp)
	st.queue = append(st.queue, resp)
	st.notify()
	return resp.GetNonce()
}

// Close ends the stream with an error, which is UNAVAILABLE unless err has a status, or in order if
// err is nil.
func (st *scriptedStream) Close(err error) {
	if err == nil {
		err = errOrderly
	} else if _, ok := status.FromError(err); !ok {
		err = status.Error(codes.Unavailable, fmt.Sprint(err))
	}
	st.close(err)
}

// answered counts an ACK, or a NACK if detail is set.
func answered(s *xdstest.Stats, detail *statuspb.Status) {
	if detail == nil {
		s.ACKs++
		return
	}
	s.NACKs++
	s.LastError = detail.GetMessage()
}

// errOrderly is the cause of the end of a stream that ends in order.
var errOrderly = errors.New("testplane: stream closed in order")

func (st *scriptedStream) close(err error) { st.cancel(err) }

func (st *scriptedStream) notify() {
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// request handles a request.
func (st *Stream) request(req *discoveryv3.DiscoveryRequest) {
	st.check.Request(req)
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	st.requests.add(req)
	t := st.typeLocked(req.GetTypeUrl())
	t.stats.Requests++
	if req.GetResponseNonce() != t.nonce {
		return // stale: the client will receive a later response and answer it (T-XDS-4)
	}
	if !t.answered {
		t.answered = true
		answered(&t.stats, req.GetErrorDetail())
	}
	for name := range t.sent {
		if !slices.Contains(req.GetResourceNames(), name) {
			delete(t.sent, name)
		}
	}
	t.names, t.asked = req.GetResourceNames(), true
	st.notify()
}

// send sends pending responses until ctx ends.
func (st *Stream) send(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-st.wake:
		}
		for _, resp := range st.due(ctx) {
			st.s.mu.Lock()
			st.typeLocked(resp.GetTypeUrl()).stats.Responses++
			st.s.mu.Unlock()
			if st.ads.Send(resp) != nil {
				<-ctx.Done() // the receiving side returns the error
				return
			}
		}
	}
}

// due returns the pending responses.
func (st *Stream) due(ctx context.Context) []*discoveryv3.DiscoveryResponse {
	st.s.mu.Lock()
	all := st.queue
	st.queue = nil
	if !st.s.auto {
		st.s.mu.Unlock()
		return all
	}
	var own []*discoveryv3.DiscoveryResponse
	before := make(map[string]string)
	// Referenced types come first.
	for _, url := range []string{xdstest.CDS, xdstest.EDS, xdstest.LDS, xdstest.RDS} {
		before[url] = st.typeLocked(url).nonce
		if resp := st.answerLocked(url); resp != nil {
			own = append(own, resp)
		}
	}
	st.s.mu.Unlock()
	for _, resp := range own {
		all = append(all, st.tamper(ctx, resp, before[resp.GetTypeUrl()])...)
	}
	return all
}

// tamper returns the responses to send in place of an automatic response; before is the
// previous nonce.
func (st *Stream) tamper(ctx context.Context, resp *discoveryv3.DiscoveryResponse, before string) []*discoveryv3.DiscoveryResponse {
	if st.s.opts.Tamper == nil {
		return []*discoveryv3.DiscoveryResponse{resp}
	}
	list := st.s.opts.Tamper(ctx, resp)
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	if t := st.typeLocked(resp.GetTypeUrl()); !slices.Contains(list, resp) && t.nonce == resp.GetNonce() {
		t.nonce, t.answered = before, true // it will not be answered
	}
	for _, r := range list {
		if r != resp {
			st.enterLocked(r)
		}
	}
	return list
}

// answerLocked returns a response with the subscribed resources of a type that have not been
// sent to the client, or nil if all have.
func (st *Stream) answerLocked(url string) *discoveryv3.DiscoveryResponse {
	t := st.typeLocked(url)
	if !t.asked {
		return nil
	}
	full := url == xdstest.LDS || url == xdstest.CDS
	news := false
	var list []*anypb.Any
	sent := make(map[string]uint64, len(t.names))
	for _, name := range t.names {
		r, ok := st.s.served[url][name]
		before := t.sent[name]
		fresh, gone := ok && before != r.since, !ok && before != 0
		switch {
		case ok:
			sent[name] = r.since
			if full || fresh {
				list = append(list, r.any)
			}
			news = news || fresh
		case gone && full:
			news = true
		}
	}
	t.sent = sent
	if !news {
		return nil
	}
	resp := &discoveryv3.DiscoveryResponse{TypeUrl: url, VersionInfo: strconv.FormatUint(st.s.version, 10), Resources: list}
	st.enterLocked(resp)
	return resp
}

// enterLocked assigns a nonce to a response. Requests with an older nonce are stale from then
// on.
func (st *Stream) enterLocked(resp *discoveryv3.DiscoveryResponse) {
	if resp.GetNonce() == "" {
		st.nonces++
		resp.Nonce = strconv.Itoa(st.nonces)
	}
	t := st.typeLocked(resp.GetTypeUrl())
	t.nonce, t.answered = resp.GetNonce(), false
	st.check.Response(resp)
}
