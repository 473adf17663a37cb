// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package testplane

import (
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// maxDeltaVersions is the minimum number of resource versions of a type that a Checker keeps.
const maxDeltaVersions = 1 << 17

// checkedDelta is the state of one type on an incremental stream.
type checkedDelta struct {
	requests int
	names    map[string]bool // subscribed names
	nonces   []string        // of the unanswered responses, oldest first
}

// DeltaResponse is Response for an incremental stream.
func (s *StreamChecker) DeltaResponse(resp *discoveryv3.DeltaDiscoveryResponse) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	url := resp.GetTypeUrl()
	t := s.deltaLocked(url)
	t.nonces = append(t.nonces, resp.GetNonce())
	for _, r := range resp.GetResources() {
		s.c.sentLocked(url, r.GetName()+"\x00"+r.GetVersion(), maxDeltaVersions)
	}
}

// DeltaRequest is Request for an incremental stream. It is stricter than servers are: each
// response must be answered once, in order, and subscriptions must not be combined with
// answers.
func (s *StreamChecker) DeltaRequest(req *discoveryv3.DeltaDiscoveryRequest) {
	s.check(req, req.GetNode(), req.GetTypeUrl(), func(wrong func(string, ...any)) {
		come, gone := req.GetResourceNamesSubscribe(), req.GetResourceNamesUnsubscribe()
		checkNames(slices.Concat(come, gone), wrong)
		t := s.deltaLocked(req.GetTypeUrl())
		first := t.requests == 0
		t.requests++
		switch {
		case first && len(come) == 0:
			wrong("T-XDS-2: a first request that subscribes to nothing asks for everything")
		case req.GetResponseNonce() == "" && len(come)+len(gone) == 0:
			wrong("a request that says nothing")
		}
		for _, name := range gone {
			if !t.names[name] {
				wrong("%q is left, and was not subscribed to", name)
			}
			delete(t.names, name)
		}
		for _, name := range come {
			t.names[name] = true
		}
		s.initial(t, first, req, wrong)
		t.answer(req, wrong)
	})
}

// initial checks the initial versions of a client.
func (s *StreamChecker) initial(t *checkedDelta, first bool, req *discoveryv3.DeltaDiscoveryRequest, wrong func(string, ...any)) {
	versions := req.GetInitialResourceVersions()
	if !first && len(versions) > 0 {
		wrong("initial_resource_versions in a later request than the first")
	}
	for name, version := range versions {
		key := name + "\x00" + version
		switch {
		case !t.names[name]:
			wrong("a version of %q is claimed, which is not subscribed to", name)
		case !s.c.versions[req.GetTypeUrl()][key] && !s.c.old[req.GetTypeUrl()][key]:
			wrong("T-XDS-1: version %q of %q was never sent", version, name)
		}
	}
}

// answer checks the nonce and the error of a request.
func (t *checkedDelta) answer(req *discoveryv3.DeltaDiscoveryRequest, wrong func(string, ...any)) {
	nonce, nack := req.GetResponseNonce(), req.GetErrorDetail()
	if nonce == "" {
		if nack != nil {
			wrong("T-XDS-1: a NACK without a nonce")
		}
		return
	}
	switch i := slices.Index(t.nonces, nonce); {
	case i < 0:
		wrong("T-XDS-1: a nonce that is not of this stream and type, or has been answered")
	default:
		if i > 0 {
			wrong("T-XDS-1: response %q is answered, and %q before it was not", nonce, t.nonces[0])
		}
		t.nonces = slices.Delete(t.nonces, 0, i+1)
	}
	if nack != nil && (nack.GetCode() == 0 || nack.GetMessage() == "") {
		wrong("T-XDS-1: a NACK that does not say why")
	}
	if len(req.GetResourceNamesSubscribe())+len(req.GetResourceNamesUnsubscribe()) > 0 {
		wrong("a change of the subscriptions in an answer, which servers may take for stale")
	}
}

func (s *StreamChecker) deltaLocked(url string) *checkedDelta {
	t := s.deltas[url]
	if t == nil {
		t = &checkedDelta{names: make(map[string]bool)}
		s.deltas[url] = t
	}
	return t
}
