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
