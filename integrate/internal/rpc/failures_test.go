// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"fmt"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestFailuresStay: an error carries its ErrorInfo for as long as its text is in force,
// however many other clusters fail, and however often their texts change; texts that are
// not in force any more do not stay for ever.
func TestFailuresStay(t *testing.T) {
	l := new(failures)
	note := func(cluster, text string) {
		l.NoteFailure(cluster, text, &errdetails.ErrorInfo{Reason: cluster})
	}
	reason := func(text string) string {
		for _, d := range status.Convert(l.withInfo(status.Error(codes.Unavailable, text))).Details() {
			return d.(*errdetails.ErrorInfo).GetReason()
		}
		return ""
	}
	note("steady", "steady: no such Cluster")
	for i := range 40 {
		note("changing", fmt.Sprintf("changing: port %d refused", i))
		note(fmt.Sprint("other ", i), fmt.Sprintf("other %d: no endpoints", i))
	}
	for text, want := range map[string]string{
		"steady: no such Cluster": "steady", "changing: port 39 refused": "changing", "changing: port 38 refused": "changing",
		"other 0: no endpoints": "other 0", "other 39: no endpoints": "other 39", "changing: port 0 refused": "",
	} {
		if got := reason(text); got != want {
			t.Errorf("the error %q has the reason %q, want %q", text, got, want)
		}
	}
	l.ForgetFailures("steady")
	if got := reason("steady: no such Cluster"); got != "" {
		t.Errorf("the error of a cluster that is gone has the reason %q", got)
	}
}

// TestInfoAfterRetries checks that the error of an RPC has the ErrorInfo of its last attempt, if retries have
// added a text to the error.
func TestInfoAfterRetries(t *testing.T) {
	f := new(failures)
	f.NoteFailure("c", "no endpoint", &errdetails.ErrorInfo{Reason: "r"})
	for _, tt := range []struct {
		err  error
		want codes.Code
		info int
	}{
		{status.Error(codes.Unavailable, "no endpoint"), codes.Unavailable, 1},
		{fmt.Errorf("max retries exhausted: failed after 3 attempts: %w", status.Error(codes.Unavailable, "no endpoint")), codes.Unavailable, 1},
		{fmt.Errorf("max retries exhausted: %w", status.Error(codes.DeadlineExceeded, "latest balancer error: no endpoint")), codes.DeadlineExceeded, 1},
		{fmt.Errorf("max retries exhausted: %w", status.Error(codes.Unavailable, "another text")), codes.Unavailable, 0},
		{fmt.Errorf("max retries exhausted: %w", status.Error(codes.Internal, "no endpoint")), codes.Internal, 0},
	} {
		st := status.Convert(f.withInfo(tt.err))
		if st.Code() != tt.want || len(st.Details()) != tt.info || st.Message() != status.Convert(tt.err).Message() {
			t.Errorf("%v becomes %v with %d details, want %v with the same text and %d", tt.err, st, len(st.Details()), tt.want, tt.info)
		}
	}
}
