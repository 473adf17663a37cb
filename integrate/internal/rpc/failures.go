// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// This file adds the details to errors that they lose in gRPC. A pick that fails without ending
// RPCs that wait for ready must not return a status, so gRPC makes a status from its text. An
// ErrorInfo has the content of the text for programs, and no more, so it is as true wherever
// the text comes from.

// failures contains the error texts of picks, and their ErrorInfos. The zero value is empty.
type failures struct {
	infos sync.Map            // text to *errdetails.ErrorInfo
	texts map[string][]string // by subject, the one in force first; of NoteFailure
}

// maxNoted is the number of texts that are kept for a cluster. RPCs that fail while their text
// changes find a previous one.
const maxNoted = 4

// NoteFailure attaches an ErrorInfo to the errors of RPCs that quote a text, until the texts about
// the same cluster, or the target (""), have changed a few times. Calls must be serialized, also with
// calls of ForgetFailures.
func (f *failures) NoteFailure(about, text string, info *errdetails.ErrorInfo) {
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

// ForgetFailures removes the texts about a cluster that was removed from the configuration.
func (f *failures) ForgetFailures(about string) {
	for _, text := range f.texts[about] {
		f.infos.Delete(text)
	}
	delete(f.texts, about)
}

// withInfo adds the ErrorInfo to an error that quotes the text of a pick: the text itself if
// the RPC failed at once, or the text after gRPC's prefix if the RPC waited. Either may be the
// error of the last of several attempts. Errors that already have details are not changed.
func (f *failures) withInfo(err error) error {
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	text := st.Message()
	var last interface{ GRPCStatus() *status.Status }
	if errors.As(err, &last) { // retries wrap the error of the last attempt
		text = last.GRPCStatus().Message()
	}
	switch st.Code() {
	case codes.Unavailable:
	case codes.DeadlineExceeded, codes.Canceled:
		if text, ok = strings.CutPrefix(text, "latest balancer error: "); !ok {
			return err
		}
	default:
		return err
	}
	info, ok := f.infos.Load(text)
	if !ok || len(st.Details()) > 0 {
		return err
	}
	with, derr := st.WithDetails(info.(*errdetails.ErrorInfo))
	if derr != nil { // an ErrorInfo always encodes, and the code is not OK
		return err
	}
	return with.Err()
}
