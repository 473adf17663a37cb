// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import (
	"slices"
	"strings"
	"sync"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// This file gives errors back what they lose in gRPC. A pick that fails without ending
// RPCs that wait for ready must not return a status, so gRPC makes one of its text. What
// the text says for people, an ErrorInfo says for programs; it says no more than the
// text, so it is as true of the text wherever that comes from.

// refusal returns the status of RPCs that a filter refuses, made once, with what it says to
// programs.
func refusal(code codes.Code, text, reason string, about map[string]string) error {
	st := status.New(code, text)
	if with, err := st.WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: "xdslb", Metadata: about}); err == nil {
		st = with
	}
	return st.Err()
}

// failures are the texts that picks fail with, and what they say. The zero value is ready.
type failures struct {
	infos sync.Map            // text to *errdetails.ErrorInfo
	texts map[string][]string // by what they are about, the one in force first; of NoteFailure
}

// maxNoted is how many texts a link remembers of what they are about. RPCs that fail as
// their text changes find one of those before.
const maxNoted = 4

// NoteFailure has the errors of RPCs that quote a text carry an ErrorInfo, until the texts
// about the same, a cluster or the target (""), have changed a few times. The calls come
// one at a time, and those of ForgetFailures with them.
func (l *Link) NoteFailure(about, text string, info *errdetails.ErrorInfo) {
	f := &l.failures
	if f.texts == nil {
		f.texts = map[string][]string{}
	}
	texts := slices.DeleteFunc(f.texts[about], func(old string) bool { return old == text })
	if len(texts) == maxNoted {
		f.infos.Delete(texts[maxNoted-1])
		texts = texts[:maxNoted-1]
	}
	f.texts[about] = slices.Insert(texts, 0, text)
	f.infos.Store(text, info)
}

// ForgetFailures forgets the texts about a cluster that is in no configuration any more.
func (l *Link) ForgetFailures(about string) {
	for _, text := range l.failures.texts[about] {
		l.failures.infos.Delete(text)
	}
	delete(l.failures.texts, about)
}

// withInfo adds the ErrorInfo to an error that quotes a text of a pick: as it is, if
// the RPC failed at once, or in gRPC's words if it waited in vain. Errors that gRPC or
// the server have given details stay.
func (l *Link) withInfo(err error) error {
	if err == nil || l == nil {
		return err
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	text := st.Message()
	switch st.Code() {
	case codes.Unavailable:
	case codes.DeadlineExceeded, codes.Canceled:
		if text, ok = strings.CutPrefix(text, "latest balancer error: "); !ok {
			return err
		}
	default:
		return err
	}
	info, ok := l.failures.infos.Load(text)
	if !ok || len(st.Details()) > 0 {
		return err
	}
	with, derr := st.WithDetails(info.(*errdetails.ErrorInfo))
	if derr != nil { // an ErrorInfo always encodes, and the code is not OK
		return err
	}
	return with.Err()
}
