// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestWaiting checks the error of a target that waits for its configuration: it names the server,
// the resource and the time, and distinguishes a silent server from a server that omits the
// resource, until the resource is found to be missing.
func TestWaiting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, cp := only(t, Options{Linger: -1})
		says := func(texts ...string) {
			t.Helper()
			cp.current()
			err := h.c.view().Waiting("typo", "typo")
			for _, text := range texts {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("%v, want a text with %q", err, text)
				}
			}
			if len(texts) == 0 && err != nil {
				t.Errorf("%v, want nothing", err)
			}
		}
		says()
		cp.Hang()
		w := h.watch("typo")
		says(`waiting for Listener resource "typo" for 0s`, "passthrough:///cp", "not connected yet", "node-1")
		advance(2 * time.Second)
		says(`waiting for Listener resource "typo"`, "passthrough:///cp", "not connected after 1s")
		w.cancel()
		cp.refuse(errRefused) // attempts that hang end
		cp.refuse(nil)
		cp.serve(targetOf("other", 1)...)
		other := h.watch("other")
		advance(20 * time.Second)
		other.must(t)
		w = h.watch("typo")
		advance(3 * time.Second)
		says(`waiting for Listener resource "typo"`, "passthrough:///cp", "is connected but has not sent it")
		tooLarge := status.Error(codes.ResourceExhausted, "larger than max")
		for range 20 { // longer than the resource's timer, which restarts with each stream
			cp.hangUp(tooLarge)
			says(", and last failed 0s ago", "larger than max")
			advance(5 * time.Second)
		}
		says("is connected but has not sent it, and last failed ", "larger than max")
		cp.serve(listenerTo("typo", "r"), routesTo("r", "a", "b"))
		advance(time.Second)
		says(`waiting for Cluster resource "a" for 1s`, "and for 1 more")
		advance(15 * time.Second)
		w.must(t) // without the clusters
		says()
		w.cancel()
	})
}
